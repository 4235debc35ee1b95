from __future__ import annotations

import csv

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from sklearn.metrics.pairwise import cosine_similarity

from st_xlret.evaluation import BilingualRetrievalEvaluator, retrieval_accuracy, summarise_accuracies, weighted_f1
from st_xlret.modules.calibration_layer import CalibrationLayer

from .conftest import WORDS


def test_every_pair_both_ways_and_their_means(static_model) -> None:
    evaluator = BilingualRetrievalEvaluator(
        WORDS, name="toy", groups={"aligned": ["fr"], "loose": ["de"], "all": ["en", "fr", "de"]}
    )
    metrics = evaluator(static_model)
    for pair in ("en-fr", "fr-en"):
        assert metrics[f"toy_{pair}_accuracy"] == 1.0
    for pair in ("en-de", "de-en", "fr-de", "de-fr"):
        assert metrics[f"toy_{pair}_accuracy"] == 0.5
    assert metrics["toy_de_accuracy"] == metrics["toy_loose_accuracy"] == 0.5
    assert metrics["toy_fr_accuracy"] == metrics["toy_aligned_accuracy"] == 0.75
    assert metrics["toy_accuracy"] == metrics["toy_all_accuracy"] == pytest.approx(4 / 6)
    assert evaluator.primary_metric == "toy_accuracy"
    assert evaluator.greater_is_better


def test_a_calibration_without_languages_serves_all(static_model) -> None:
    evaluator = BilingualRetrievalEvaluator(WORDS, calibration=CalibrationLayer(16))
    assert evaluator(static_model)["fr_accuracy"] == 0.75


def test_csv_grows_by_one_row_per_call(static_model, tmp_path) -> None:
    evaluator = BilingualRetrievalEvaluator(WORDS, name="toy")
    evaluator(static_model, str(tmp_path / "eval"), epoch=1, steps=10)
    evaluator(static_model, str(tmp_path / "eval"), epoch=1, steps=20)
    with open(tmp_path / "eval" / "bilingual_retrieval_evaluation_toy_results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["steps"] for row in rows] == ["10", "20"]
    assert float(rows[0]["fr_accuracy"]) == 0.75


def test_summary_counts_pairs_that_touch_a_group() -> None:
    pairs = {("a", "b"): 1.0, ("b", "a"): 0.8, ("a", "c"): 0.6, ("c", "a"): 0.4, ("b", "c"): 0.2, ("c", "b"): 0.0}
    means = summarise_accuracies(pairs, {"pair": ["a", "b"], "single": ["c"]})
    assert means["accuracy"] == pytest.approx(0.5)
    assert means["a_accuracy"] == pytest.approx(0.7)
    assert means["single_accuracy"] == pytest.approx(0.3)
    assert means["pair_accuracy"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("sentences", "options", "message"),
    [
        ({"en": ["a"]}, {}, r"two languages or more, got \['en'\]"),
        ({"en": ["a"], "fr": ["b", "c"]}, {}, "'en': 1, 'fr': 2"),
        ({"en": [], "fr": []}, {}, "'en': 0, 'fr': 0"),
        ({"en": ["a"], "fr": ["b"]}, {"groups": {"x": ["de"]}}, r"group 'x' .* got \['de'\]"),
        ({"en": ["a"], "fr": ["b"]}, {"groups": {"x": []}}, r"group 'x' .* got \[\]"),
        ({"en": ["a"], "fr": ["b"]}, {"pooling": "max"}, "'max'"),
    ],
)
def test_bad_arguments_are_named(sentences, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        BilingualRetrievalEvaluator(sentences, **options)


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


@pytest.mark.parametrize("swap", [False, True])
def test_weighted_f1_is_that_of_scikit_learn(swap: bool) -> None:
    source, target = noisy_translations(300, seed=3)[:: -1 if swap else 1]
    predicted = cosine_similarity(source, target).argmax(axis=1)
    expected = f1_score(range(300), predicted, average="weighted", zero_division=0)
    assert 0.1 < expected < 0.98
    assert weighted_f1(torch.from_numpy(source), torch.from_numpy(target)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (torch.ones(2, 3), torch.ones(3, 3), r"\(2, 3\) and \(3, 3\)"),
        (torch.ones(0, 3), torch.ones(0, 3), "not empty"),
        (torch.ones(3), torch.ones(3), r"\(rows, dimension\), got \(3,\)"),
        (torch.ones(2, 3), torch.tensor([[1.0] * 3, [float("nan")] * 3]), "target row 1 "),
    ],
)
def test_bad_input_is_named(source: torch.Tensor, target: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        retrieval_accuracy(source, target)
