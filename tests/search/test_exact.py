"""Search against a stable sort of all scores in double precision."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from st_xlret.search import (
    merge_top_k,
    mine_bitext,
    mine_pairs,
    neighbours_both_ways,
    top_k,
    unit_rows,
)
from tests.search.integers import naive_top_k, set_blocks, small_integers

RISING = np.arange(203, dtype=np.float32)[:, None]
CORPORA = {
    "ties": small_integers(203, 3, seed=2),
    "rising": RISING,
    "falling": RISING[::-1],
    "equal": np.ones_like(RISING),
    "any order": np.random.default_rng(0).permutation(RISING),
}


def check_top_k(queries: np.ndarray, corpus: np.ndarray, k: int, searched: Any) -> None:
    """What is found in `searched`, the corpus in some form, is a stable sort, to the bit."""
    scores, indices = top_k(queries, searched, k)
    expected_scores, expected_indices = naive_top_k(queries, corpus, k)
    np.testing.assert_array_equal(indices.numpy(), expected_indices)
    np.testing.assert_array_equal(scores.numpy(), expected_scores)


@pytest.mark.parametrize("corpus", list(CORPORA.values()), ids=list(CORPORA))
@pytest.mark.parametrize("k", [1, 30, 203])
@pytest.mark.parametrize("queries", [1, 2, 8, 9])
@pytest.mark.parametrize(
    ("block", "queries_at_once"), [(3, 100), (5, 4), (32, 1), (130, 100), (1000, 100)]
)
def test_top_k_is_a_stable_sort(
    corpus: np.ndarray,
    k: int,
    queries: int,
    block: int,
    queries_at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_blocks(monkeypatch, block, queries_at_once)
    asked = small_integers(queries, corpus.shape[1], seed=k)
    check_top_k(asked, corpus, k, corpus)
    chunks = np.split(corpus, [0, 100, 100, 103])
    check_top_k(asked, corpus, k, iter(chunks))


def test_blocks_may_have_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    set_blocks(monkeypatch, 1)
    asked = small_integers(8, 3, seed=0)
    check_top_k(asked, CORPORA["ties"], 30, CORPORA["ties"])


@pytest.mark.parametrize("queries", [1, 8, 64])
@pytest.mark.parametrize("k", [10, 100])
def test_one_query_has_the_ties_of_many(queries: int, k: int) -> None:
    corpus = small_integers(20_000, 4, seed=5)
    check_top_k(small_integers(queries, 4, seed=6), corpus, k, corpus)


DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_scores_are_summed_in_float32_whatever_the_input(dtype: torch.dtype) -> None:
    # In half precision 2048 + 1 would stay 2048.
    queries = torch.ones(1, 2049, dtype=dtype)
    scores, indices = top_k(queries, torch.ones(3, 2049, dtype=dtype), 2)
    assert scores.dtype == torch.float32
    assert indices.dtype == torch.int64
    assert scores.tolist() == [[2049.0, 2049.0]]


def test_zeros_of_either_sign_are_equal() -> None:
    corpus = torch.tensor([[-0.0], [0.0], [-1.0], [0.0]])
    _, indices = top_k(torch.ones(1, 1), corpus, 4)
    assert indices.tolist() == [[0, 1, 3, 2]]


def test_no_query_finds_nothing() -> None:
    scores, indices = top_k(torch.empty(0, 3), torch.ones(5, 3), 2)
    assert scores.shape == (0, 2)
    assert indices.shape == (0, 2)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("queries", [1, 5])
def test_memory_maps_chunks_read_only_arrays_and_tensors_that_need_gradients(
    dtype: type, queries: int, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    asked = small_integers(queries, 30, seed=3)
    corpus = small_integers(70, 30, seed=4)
    np.save(tmp_path / "rows.npy", corpus.astype(dtype))
    stored = np.load(tmp_path / "rows.npy", mmap_mode="r")
    turned_round = np.ascontiguousarray(corpus[::-1]).astype(dtype)
    weights = torch.from_numpy(corpus.astype(dtype)).requires_grad_()
    for searched in (stored, iter([stored[:30], stored[30:]]), weights, turned_round[::-1]):
        check_top_k(asked, corpus, 6, searched)
    scores, _ = top_k(asked, weights, 6)
    assert not scores.requires_grad
    assert not recwarn.list  # PyTorch warns of arrays that are read only


def test_a_corpus_is_not_changed_and_not_copied_where_it_can_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    corpus = small_integers(70, 30, seed=4)
    before = corpus.copy()
    blocks = []
    from_numpy = torch.from_numpy

    def keep_and_convert(array: np.ndarray) -> torch.Tensor:
        blocks.append(array)
        return from_numpy(array)

    monkeypatch.setattr(torch, "from_numpy", keep_and_convert)
    top_k(small_integers(1, 30, seed=3), corpus, 6)
    of_queries, of_corpus = blocks
    assert np.shares_memory(of_corpus, corpus)
    np.testing.assert_array_equal(corpus, before)


INFINITE = float("inf")
NAN = float("nan")


@pytest.mark.parametrize(
    ("queries", "corpus", "k", "named"),
    [
        ([[1.0, 1.0]], [[[1.0, 1.0]] * 2, [[1.0, 1.0]]], 4, "k=4.*3 rows"),
        ([[1.0], [INFINITE]], [[[1.0]] * 3], 1, "queries row 1"),
        ([[1.0]], [[[1.0]] * 3, [[1.0], [NAN]]], 1, "corpus row 4"),
        ([[1.0]], [[[1.0], [-INFINITE]]], 1, "corpus row 1"),
        ([[0.0]], [[[1.0], [INFINITE]]], 1, "corpus row 1"),
        ([[0.0, 0.0]] * 9, [[[1.0, 1.0], [1.0, NAN]]], 1, "corpus row 1"),
        ([[-1e30]], [[[0.0], [1e30]]], 2, "overflow"),
        ([[1e30, -1e30]], [[[1e30, 1e30]] * 3], 1, "overflow"),
    ],
)
def test_what_cannot_be_searched_is_named(
    queries: list, corpus: list[list], k: int, named: str
) -> None:
    chunks: Iterable[torch.Tensor] = [torch.tensor(chunk) for chunk in corpus]
    with pytest.raises(ValueError, match=named):
        top_k(torch.tensor(queries), chunks, k)


@pytest.mark.parametrize("k", [0, -1, 1.5, "2", None, 4, 10**15])
def test_a_k_that_is_no_count_of_rows_is_named(k: Any) -> None:
    rows = torch.eye(3)
    for search in (top_k, merge_top_k):
        with pytest.raises(ValueError, match=f"k={k!r} is "):
            search(rows, rows, k=k)
    if k not in (4, 10**15):  # of mining, there are at most as many as rows
        for search in (neighbours_both_ways, mine_pairs, mine_bitext):
            with pytest.raises(ValueError, match=f"k={k!r} is "):
                search(rows, rows, k=k)


@pytest.mark.parametrize(
    ("queries", "corpus", "named"),
    [
        (torch.ones(3), torch.eye(3), "queries is no matrix.*Tensor"),
        (torch.eye(3), list(torch.eye(3)), "corpus is no matrix.*Tensor"),
        ([[1.0, 2.0]], torch.eye(2), "queries is no matrix.*list"),
        (torch.eye(3), [[[1.0, 2.0, 3.0]]], "corpus is no matrix.*list"),
        (torch.eye(3), torch.eye(4), "corpus has 4 numbers in a row, and not 3"),
        (torch.eye(3), [torch.eye(3), np.eye(4)], "corpus has 4 numbers in a row, and not 3"),
        (torch.eye(3), torch.empty(0, 3), "k=1 is larger than the corpus of 0 rows"),
        (torch.eye(3), [], "k=1 is larger than the corpus of 0 rows"),
    ],
)
def test_what_is_no_matrix_of_such_rows_is_named(queries: Any, corpus: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        top_k(queries, corpus, 1)
    sides = {"queries": "source", "corpus": "target"}
    for side, other in sides.items():
        named = named.replace(side, other)
    if not isinstance(corpus, list) and len(corpus):
        with pytest.raises(ValueError, match=named):
            neighbours_both_ways(queries, corpus, 1)


def test_unit_rows_have_length_one_whatever_their_size() -> None:
    sizes = torch.tensor([1e-38, 1e-30, 1e-20, 1.0, 1e20, 3e38, 0.0])
    rows = sizes[:, None].expand(-1, 2)
    expected = torch.full((7, 2), 0.5**0.5)
    expected[-1] = 0
    torch.testing.assert_close(unit_rows(rows), expected)


def test_shards_merge_into_the_whole() -> None:
    queries = small_integers(8, 3, seed=1)
    corpus = small_integers(60, 3, seed=2)
    scores = []
    indices = []
    for start, end in ((6, 60), (0, 1), (1, 6)):
        best, rows = top_k(queries, corpus[start:end], min(7, end - start))
        scores.append(best)
        indices.append(rows + start)
    merged, merged_rows = merge_top_k(torch.cat(scores, dim=1), torch.cat(indices, dim=1), 7)
    expected_scores, expected_rows = naive_top_k(queries, corpus, 7)
    np.testing.assert_array_equal(merged_rows.numpy(), expected_rows)
    np.testing.assert_array_equal(merged.numpy(), expected_scores)


def test_copies_of_a_row_are_found_in_their_order_both_ways() -> None:
    source = torch.eye(3).repeat(400, 1)
    target = torch.eye(3).repeat(500, 1)
    scores, _, scores_back, rows_back = neighbours_both_ways(source, target, 5)
    torch.testing.assert_close(scores, torch.ones(1200, 5), rtol=0, atol=0)
    torch.testing.assert_close(scores_back, torch.ones(1500, 5), rtol=0, atol=0)
    assert rows_back[2].tolist() == [2, 5, 8, 11, 14]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("queries", [1, 40])
def test_the_gpu_gives_what_the_cpu_gives(queries: int) -> None:
    asked = small_integers(queries, 16, seed=1)
    corpus = small_integers(3_000, 16, seed=2)
    scores, indices = top_k(asked, corpus.astype(np.float16), 20, device="cuda")
    assert scores.is_cuda
    np.testing.assert_array_equal(indices.cpu().numpy(), naive_top_k(asked, corpus, 20)[1])
