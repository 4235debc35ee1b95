from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from st_xlret.search import top_k


def naive_top_k(queries: np.ndarray, corpus: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    scores = queries.astype(np.float64) @ corpus.astype(np.float64).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), order


def small_integers(rows: int, dimension: int, seed: int) -> np.ndarray:
    # Whole numbers: float32 sums are exact, and a range of five values makes ties by the dozen.
    return np.random.default_rng(seed).integers(-2, 3, size=(rows, dimension)).astype(np.float32)


@pytest.mark.parametrize("k", [1, 2, 7, 57])
@pytest.mark.parametrize("chunk_size", [1, 5, 16, 57, 1000])
@pytest.mark.parametrize("query_chunk_size", [1, 4, 100])
def test_equals_a_stable_sort_with_ties_inside_and_across_chunks(
    k: int, chunk_size: int, query_chunk_size: int
) -> None:
    queries, corpus = small_integers(9, 3, seed=1), small_integers(57, 3, seed=2)
    scores, indices = top_k(queries, corpus, k, chunk_size=chunk_size, query_chunk_size=query_chunk_size)
    expected_scores, expected_indices = naive_top_k(queries, corpus, k)
    np.testing.assert_array_equal(indices.numpy(), expected_indices)
    np.testing.assert_array_equal(scores.numpy(), expected_scores)


def test_random_floats_equal_a_full_sort() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, corpus = torch.randn(6, 8, generator=generator), torch.randn(300, 8, generator=generator)
    scores, indices = top_k(queries, corpus, 10, chunk_size=37)
    expected_scores, expected_indices = naive_top_k(queries.numpy(), corpus.numpy(), 10)
    np.testing.assert_array_equal(indices.numpy(), expected_indices)
    np.testing.assert_allclose(scores.numpy(), expected_scores, rtol=1e-5)


def test_all_rows_equal_come_in_their_order() -> None:
    _, indices = top_k(torch.ones(2, 4), torch.ones(50, 4), 20, chunk_size=7)
    assert indices.tolist() == [list(range(20))] * 2


def test_zero_and_negative_zero_are_equal() -> None:
    corpus = torch.tensor([[-0.0], [0.0], [-1.0], [0.0]])
    scores, indices = top_k(torch.tensor([[1.0]]), corpus, 4, chunk_size=1)
    assert indices.tolist() == [[0, 1, 3, 2]]
    assert scores.tolist() == [[0.0, 0.0, 0.0, -1.0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_scores_are_summed_in_float32_whatever_the_input(dtype: torch.dtype) -> None:
    # In half precision 2048 + 1 would stay 2048.
    queries, corpus = torch.ones(1, 2049, dtype=dtype), torch.ones(3, 2049, dtype=dtype)
    scores, indices = top_k(queries, corpus, 2)
    assert scores.dtype == torch.float32 and indices.dtype == torch.int64
    assert scores.tolist() == [[2049.0, 2049.0]]


def test_reads_a_memory_mapped_float16_corpus(tmp_path) -> None:
    corpus = small_integers(40, 4, seed=3).astype(np.float16)
    np.save(tmp_path / "corpus.npy", corpus)
    mapped = np.load(tmp_path / "corpus.npy", mmap_mode="r")
    queries = small_integers(5, 4, seed=4)
    _, indices = top_k(torch.from_numpy(queries), mapped, 6, chunk_size=11)
    np.testing.assert_array_equal(indices.numpy(), naive_top_k(queries, corpus, 6)[1])


def test_no_queries_give_empty_results() -> None:
    scores, indices = top_k(torch.empty(0, 3), torch.ones(5, 3), 2)
    assert scores.shape == indices.shape == (0, 2)
    assert indices.dtype == torch.int64


def test_gradients_do_not_flow_and_inputs_stay() -> None:
    queries = torch.ones(1, 2, requires_grad=True)
    scores, _ = top_k(queries, torch.ones(2, 2), 1)
    assert not scores.requires_grad and queries.requires_grad


def test_k_larger_than_the_corpus_names_both() -> None:
    with pytest.raises(ValueError, match=r"k=4 .* 3 rows"):
        top_k(torch.ones(1, 2), torch.ones(3, 2), 4)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_broken_rows_are_named(bad: float) -> None:
    corpus, queries = torch.ones(9, 2), torch.ones(5, 2)
    corpus[7, 1] = corpus[8, 0] = bad
    with pytest.raises(ValueError, match="corpus row 7 "):
        top_k(queries, corpus, 1, chunk_size=4)
    queries[3, 0] = bad
    with pytest.raises(ValueError, match="queries row 3 "):
        top_k(queries, torch.ones(9, 2), 1, query_chunk_size=2)


@pytest.mark.parametrize(
    ("queries", "corpus", "options", "message"),
    [
        (torch.ones(1, 2), torch.ones(3, 4), {}, "dimension 2 .* dimension 4"),
        (torch.ones(2), torch.ones(3, 2), {}, r"queries must have shape .* \(2,\)"),
        (torch.ones(1, 2), torch.ones(3, 2), {"k": 0}, "k=0"),
        (torch.ones(1, 2), torch.ones(3, 2), {"chunk_size": 0}, "chunk_size"),
        (torch.ones(1, 2), torch.ones(0, 2), {}, "corpus of 0 rows"),
    ],
)
def test_bad_arguments_are_named(queries, corpus, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        top_k(queries, corpus, **{"k": 1, **options})


def test_never_holds_the_score_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0
    multiply = torch.mm

    def watched(one: torch.Tensor, other: torch.Tensor, **options: Any) -> torch.Tensor:
        nonlocal largest
        product = multiply(one, other, **options)
        largest = max(largest, product.numel())
        return product

    monkeypatch.setattr(torch, "mm", watched)
    top_k(torch.ones(30, 2), torch.ones(100, 2), 3, chunk_size=10, query_chunk_size=6)
    assert largest == 60
