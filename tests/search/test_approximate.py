from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from st_xlret.search import approximate_top_k, top_k


@pytest.fixture(scope="module")
def clouds() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.manual_seed(0)
    return tuple(torch.nn.functional.normalize(torch.randn(n, 16, generator=generator)) for n in (50, 4_000))


def test_all_lists_probed_it_is_exact(clouds) -> None:
    found = approximate_top_k(*clouds, 10, parameters="nprobe=100000", rescored=8)
    scores, indices = top_k(*clouds, 10)
    assert found.recall == 1.0 and torch.equal(found.indices, indices)
    torch.testing.assert_close(found.scores, scores)


def test_recall_is_measured_against_the_exact_answer(clouds) -> None:
    few = approximate_top_k(*clouds, 10, parameters="nprobe=2")
    exact = top_k(*clouds, 10)[1]
    overlap = [len(set(a) & set(b)) / 10 for a, b in zip(few.indices.tolist(), exact.tolist(), strict=True)]
    assert few.recall == pytest.approx(sum(overlap) / len(overlap))
    assert 0.05 < few.recall < approximate_top_k(*clouds, 10, parameters="nprobe=20").recall <= 1.0
    sampled = approximate_top_k(*clouds, 10, parameters="nprobe=2", recall_queries=5).recall
    assert sampled == pytest.approx(np.mean([overlap[row] for row in torch.linspace(0, 49, 5).long()]))


def test_scores_are_the_exact_dot_products_best_first(clouds) -> None:
    queries, corpus = clouds
    found = approximate_top_k(queries, corpus, 5, index="HNSW16", parameters="efSearch=50")
    expected = (queries[:, None] * corpus[found.indices]).sum(dim=2)
    torch.testing.assert_close(found.scores, expected)
    assert bool((found.scores.diff(dim=1) <= 0).all()) and found.index_used == "HNSW16 efSearch=50"


def test_memory_mapped_shards_of_half_precision(clouds, tmp_path: Path) -> None:
    queries, corpus = clouds
    for number, part in enumerate(corpus.numpy().astype(np.float16).reshape(2, 2_000, 16)):
        np.save(tmp_path / f"{number}.npy", part)
    shards = [np.load(tmp_path / f"{number}.npy", mmap_mode="r") for number in range(2)]
    found = approximate_top_k(queries, shards, 3, parameters="nprobe=100000", rescored=8)
    assert torch.equal(found.indices, top_k(queries, shards, 3)[1])


def test_too_few_found_are_minus_one() -> None:
    corpus = torch.nn.functional.normalize(torch.randn(256, 4, generator=torch.manual_seed(1)))
    found = approximate_top_k(corpus[:2], corpus, 200, parameters="nprobe=1")
    assert (found.indices == -1).any() and bool((found.scores[found.indices == -1] == -torch.inf).all())
    assert found.recall < 1


def test_bad_arguments_are_named(clouds) -> None:
    queries, corpus = clouds
    with pytest.raises(ValueError, match="read several times"):
        approximate_top_k(queries, iter([corpus]), 3)
    with pytest.raises(ValueError, match="k=5000 .* 4000 rows"):
        approximate_top_k(queries, corpus, 5_000)
    with pytest.raises(ValueError, match=r"at least 1, got \(3, 0, 100\)"):
        approximate_top_k(queries, corpus, 3, rescored=0)


def test_queries_are_searched_part_by_part(clouds, monkeypatch: pytest.MonkeyPatch) -> None:
    queries, corpus = clouds
    whole = approximate_top_k(queries, corpus, 5, parameters="nprobe=4", recall_queries=7)
    monkeypatch.setattr("st_xlret.search.approximate._BLOCK", 16)
    parts = approximate_top_k(queries, corpus, 5, parameters="nprobe=4", recall_queries=7)
    assert torch.equal(parts.indices, whole.indices) and parts.recall == whole.recall
