"""What a corpus can be: arrays, memory maps, chunks of any size; and what it may cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from st_xlret.search import top_k
from st_xlret.search.blocks import corpus_blocks

from .test_top_k import naive_top_k, small_integers


def cut(corpus: Any, sizes: list[int]) -> list[Any]:
    ends = np.cumsum([0, *sizes])
    assert ends[-1] == len(corpus)
    return [corpus[start:end] for start, end in zip(ends, ends[1:], strict=False)]


@pytest.mark.parametrize("sizes", [[203], [1] * 203, [0, 100, 0, 3, 100], [64, 64, 64, 11], [7, 190, 6]])
@pytest.mark.parametrize("chunk_size", [None, 1, 32, 50])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_chunks_of_any_size_give_what_the_whole_gives(sizes: list[int], chunk_size: int | None, kind: Any) -> None:
    queries, corpus = small_integers(7, 3, seed=1), small_integers(203, 3, seed=2)
    expected_scores, expected = naive_top_k(queries, corpus, 9)
    scores, indices = top_k(queries, iter(cut(kind(corpus), sizes)), 9, chunk_size=chunk_size)
    np.testing.assert_array_equal(indices.numpy(), expected)
    np.testing.assert_array_equal(scores.numpy(), expected_scores)


def test_chunks_may_mix_arrays_tensors_and_types() -> None:
    queries, corpus = small_integers(3, 4, seed=5), small_integers(12, 4, seed=6)
    parts = cut(corpus, [3, 4, 5])
    chunks = [parts[0].astype(np.float16), torch.from_numpy(parts[1]).to(torch.bfloat16), parts[2].astype(np.int64)]
    assert np.array_equal(top_k(queries, chunks, 5)[1].numpy(), naive_top_k(queries, corpus, 5)[1])


def test_an_iterator_may_reuse_its_memory() -> None:
    queries, corpus = small_integers(4, 3, seed=1), small_integers(90, 3, seed=2)

    def reusing() -> Iterator[np.ndarray]:
        buffer = np.empty((10, 3), dtype=np.float32)
        for start in range(0, 90, 10):
            buffer[:] = corpus[start : start + 10]
            yield buffer

    assert np.array_equal(top_k(queries, reusing(), 6)[1].numpy(), naive_top_k(queries, corpus, 6)[1])


def test_an_iterator_is_read_once_and_never_ahead_of_a_block() -> None:
    waiting = largest = 0

    def counted() -> Iterator[np.ndarray]:
        nonlocal waiting, largest
        for _ in range(40):
            waiting += 3
            largest = max(largest, waiting)
            yield np.ones((3, 2), dtype=np.float32)

    for _, block in corpus_blocks(counted(), 10, 2, torch.device("cpu")):
        assert len(block) <= 10
        waiting -= len(block)
    assert waiting == 0 and largest <= 15


def test_first_row_shifts_the_indices() -> None:
    queries, corpus = small_integers(3, 4, seed=1), small_integers(20, 4, seed=2)
    whole, shifted = top_k(queries, corpus, 5), top_k(queries, iter([corpus]), 5, first_row=1000)
    assert torch.equal(whole[0], shifted[0]) and torch.equal(whole[1] + 1000, shifted[1])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_memory_mapped_shards(tmp_path: Path, dtype: type) -> None:
    queries, corpus = small_integers(5, 300, seed=3), small_integers(700, 300, seed=4)
    files = []
    for number, part in enumerate(cut(corpus.astype(dtype), [300, 400])):
        files.append(tmp_path / f"{number}.npy")
        np.save(files[-1], part)
    shards = (np.load(file, mmap_mode="r") for file in files)
    _, indices = top_k(queries, shards, 6, chunk_size=128)
    np.testing.assert_array_equal(indices.numpy(), naive_top_k(queries, corpus, 6)[1])


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="reads /proc/self/smaps")
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_pages_of_a_memory_map_are_given_back(tmp_path: Path, dtype: type) -> None:
    file = tmp_path / "corpus.npy"
    np.save(file, np.random.default_rng(0).standard_normal((20_000, 64)).astype(dtype))
    mapped = np.load(file, mmap_mode="r")
    top_k(np.ones((2, 64), dtype=np.float32), mapped, 3, chunk_size=1_000)
    assert resident_kib(file) <= 64
    assert mapped[:].sum() is not None and resident_kib(file) > 1_000  # the check sees pages that are held


def resident_kib(file: Path) -> int:
    maps, found = Path("/proc/self/smaps").read_text().splitlines(), 0
    for number, line in enumerate(maps):
        if line.endswith(str(file)):
            found += next(int(each.split()[1]) for each in maps[number:] if each.startswith("Rss:"))
    return found


def test_what_was_written_to_a_copy_on_write_map_stays(tmp_path: Path) -> None:
    np.save(tmp_path / "corpus.npy", np.zeros((2_000, 8), dtype=np.float32))
    mapped = np.load(tmp_path / "corpus.npy", mmap_mode="c")
    mapped[1_234] = 1
    for _ in range(2):
        assert top_k(np.ones((1, 8), dtype=np.float32), mapped, 1)[1].tolist() == [[1_234]]


@pytest.mark.parametrize("k", [1, 30, 100])
@pytest.mark.parametrize("rows", [1, 2, 8, 9, 40])
def test_later_blocks_that_are_all_better_all_worse_or_equal(k: int, rows: int) -> None:
    generator = np.random.default_rng(k)
    rising = np.arange(500, dtype=np.float32)[:, None]
    for corpus in (rising, rising[::-1].copy(), np.ones_like(rising), generator.permutation(rising)):
        queries = generator.integers(-2, 3, size=(rows, 1)).astype(np.float32)
        scores, indices = top_k(queries, corpus, k, chunk_size=130)
        expected_scores, expected = naive_top_k(queries, corpus, k)
        np.testing.assert_array_equal(indices.numpy(), expected)
        np.testing.assert_array_equal(scores.numpy(), expected_scores)


def test_read_only_and_strided_arrays_and_tensors_that_need_gradients() -> None:
    queries, corpus = small_integers(5, 4, seed=7), small_integers(60, 8, seed=8)
    expected = naive_top_k(queries, corpus[:, ::2], 4)[1]
    read_only = np.ascontiguousarray(corpus[:, ::2])
    read_only.flags.writeable = False
    weights = torch.from_numpy(corpus)[:, ::2].requires_grad_()
    for given in (corpus[:, ::2], read_only, weights, corpus[::-1, ::2][::-1].copy()):
        assert np.array_equal(top_k(queries, given, 4)[1].numpy(), expected)


def test_more_neighbours_than_all_chunks_have() -> None:
    with pytest.raises(ValueError, match=r"k=4 .* 3 rows"):
        top_k(torch.ones(1, 2), iter([torch.ones(2, 2), torch.ones(1, 2)]), 4)
    with pytest.raises(ValueError, match=r"k=1 .* 0 rows"):
        top_k(torch.ones(1, 2), iter([]), 1)


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ([torch.ones(3, 2), torch.ones(3, 5)], "dimension 2 and chunk 1 of the corpus has dimension 5"),
        (torch.ones(3, 2).unbind(), r"chunk 0 of the corpus must have shape \(rows, dimension\), got \(2,\)"),
        ([[1.0, 2.0]], "chunk 0 of the corpus must be a NumPy array or a tensor, got list"),
        ("corpus.npy", "corpus must be an array, a tensor or an iterable of them, got str"),
        (3, "got int"),
        ([torch.ones(3, 2), torch.tensor([[1.0, 1.0], [1.0, float("nan")]])], "corpus row 4 holds NaN"),
    ],
)
def test_what_is_no_corpus_is_named(corpus: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        top_k(torch.ones(1, 2), corpus, 1)


def test_large_finite_values_are_no_error() -> None:
    corpus = torch.full((4, 2), 3e38)
    assert top_k(torch.tensor([[1e-3, 0.0]]), corpus, 1)[1].tolist() == [[0]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_gives_what_the_cpu_gives() -> None:
    queries, corpus = small_integers(40, 16, seed=1), small_integers(3_000, 16, seed=2)
    expected = naive_top_k(queries, corpus, 20)[1]
    for chunk_size in (None, 17, 700):
        scores, indices = top_k(queries, corpus.astype(np.float16), 20, device="cuda", chunk_size=chunk_size)
        assert scores.is_cuda and np.array_equal(indices.cpu().numpy(), expected)
