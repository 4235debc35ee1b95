from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from st_xlret.evaluation import bilingual_retrieval, retrieval_accuracy


def naive_accuracy(queries: np.ndarray, corpus: np.ndarray) -> float:
    hits = 0
    for row, query in enumerate(queries):
        best, best_cosine = -1, -np.inf
        for candidate, vector in enumerate(corpus):
            cosine = query @ vector / (np.linalg.norm(query) * np.linalg.norm(vector))
            if cosine > best_cosine:
                best, best_cosine = candidate, cosine
        hits += best == row
    return hits / len(queries)


def noisy_translations(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    source = generator.normal(size=(rows, 6))
    return source, source + 0.8 * generator.normal(size=source.shape)


@pytest.mark.parametrize("rows", [1, 2, 40])
def test_equals_a_naive_loop_in_both_directions(rows: int) -> None:
    source, target = noisy_translations(rows, seed=rows)
    expected = (naive_accuracy(source, target), naive_accuracy(target, source))
    assert retrieval_accuracy(torch.from_numpy(source), torch.from_numpy(target)) == expected
    assert retrieval_accuracy(source, target) == expected


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = noisy_translations(50, seed=3)
    whole = retrieval_accuracy(source, target)
    monkeypatch.setattr(bilingual_retrieval, "_ROWS_PER_BLOCK", 7)
    assert retrieval_accuracy(source, target) == whole


def test_of_equal_rows_the_lower_wins_whatever_the_rounding() -> None:
    # 97 copies of one random row: a matrix product may round the copies differently, in any order.
    row = torch.randn(1, 333, generator=torch.Generator().manual_seed(0))
    copies = row.repeat(97, 1)
    assert retrieval_accuracy(copies, copies) == (1 / 97, 1 / 97)


def test_ties_by_hand() -> None:
    source = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    target = torch.tensor([[3.0, 0.0], [1.0, 0.0], [0.0, 5.0]])
    # Both ways row 1 ties with row 0, which wins: two of three are right.
    assert retrieval_accuracy(source, target) == (2 / 3, 2 / 3)


def test_zero_vectors_are_similar_to_nothing() -> None:
    zeros = torch.zeros(4, 3)
    assert retrieval_accuracy(zeros, torch.eye(4, 3)) == (0.25, 0.25)


def test_parity_with_mteb_and_scikit_learn() -> None:
    from mteb._evaluators import BitextMiningEvaluator
    from mteb.abstasks.text.bitext_mining import AbsTaskBitextMining
    from sklearn.metrics import accuracy_score

    class CosineModel:
        def similarity(self, left: np.ndarray, right: np.ndarray) -> torch.Tensor:
            return torch.nn.functional.cosine_similarity(
                torch.as_tensor(left).unsqueeze(1), torch.as_tensor(right).unsqueeze(0), dim=-1
            )

    source, target = noisy_translations(120, seed=5)
    gold = [(row, row) for row in range(120)]
    search = BitextMiningEvaluator._similarity_search
    directions = [(source, target), (target, source)]
    for ours, (queries, corpus) in zip(retrieval_accuracy(source, target), directions, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            neighbours = search(None, queries, corpus, CosineModel())
            theirs = AbsTaskBitextMining._compute_metrics(None, neighbours, gold)
        assert 0.1 < ours < 1.0
        assert ours == pytest.approx(theirs["accuracy"], abs=1e-6)
        predicted = [neighbour["corpus_id"] for neighbour in neighbours]
        assert ours == pytest.approx(accuracy_score(range(120), predicted), abs=1e-6)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (torch.ones(2, 3), torch.ones(3, 3), r"\(2, 3\) and \(3, 3\)"),
        (torch.ones(0, 3), torch.ones(0, 3), "no sentences"),
        (torch.ones(3), torch.ones(3), r"\(rows, dimension\), got \(3,\)"),
        (torch.ones(2, 3), torch.tensor([[1.0] * 3, [float("nan")] * 3]), "target row 1 .* diverged"),
    ],
)
def test_bad_input_is_named(source: torch.Tensor, target: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        retrieval_accuracy(source, target)
