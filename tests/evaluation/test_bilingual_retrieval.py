from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from sklearn.metrics.pairwise import cosine_similarity

from st_xlret.evaluation import BilingualRetrievalEvaluator, retrieval_accuracy, weighted_f1
from st_xlret.modules.calibration_layer import CalibrationLayer

from .conftest import WORDS


def test_every_pair_both_ways_and_their_mean(static_model) -> None:
    evaluator = BilingualRetrievalEvaluator.of_parallel(WORDS, name="toy", calibration=CalibrationLayer(16))
    metrics = evaluator(static_model)
    assert metrics["toy_en-fr_accuracy"] == metrics["toy_en-fr_accuracy_backward"] == 1.0
    assert metrics["toy_en-de_accuracy"] == metrics["toy_fr-de_accuracy_forward"] == 0.5
    assert metrics["toy_average_accuracy"] == pytest.approx(4 / 6)
    assert evaluator.primary_metric == "toy_average_accuracy"


@pytest.mark.parametrize(
    ("sentences", "options", "message"),
    [
        ({"en": ["a"]}, {}, "no languages"),
        ({"en": ["a"], "fr": ["b", "c"]}, {}, "'en-fr' has 1 sentences and 2"),
        ({"en": [], "fr": []}, {}, "'en-fr' has 0 sentences"),
        ({"en": ["a"], "fr": ["b"]}, {"pooling": "max"}, "'max'"),
        ({"en": ["a"], "fr": ["b"]}, {"max_sentences": 0}, "max_sentences"),
    ],
)
def test_bad_arguments_are_named(sentences, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        BilingualRetrievalEvaluator.of_parallel(sentences, **options)


def noisy_translations(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    source = generator.normal(size=(rows, 6))
    return source, source + 0.8 * generator.normal(size=source.shape)


@pytest.mark.parametrize("rows", [1, 2, 300])
@pytest.mark.parametrize("swap", [False, True])
def test_accuracy_and_weighted_f1_are_those_of_scikit_learn(rows: int, swap: bool) -> None:
    source, target = noisy_translations(rows, seed=3)[:: -1 if swap else 1]
    cosines = cosine_similarity(source, target)
    forward, backward = (float((side.argmax(axis=1) == np.arange(rows)).mean()) for side in (cosines, cosines.T))
    expected = f1_score(range(rows), cosines.argmax(axis=1), average="weighted", zero_division=0)
    assert retrieval_accuracy(source, target) == (forward, backward)
    assert weighted_f1(torch.from_numpy(source), torch.from_numpy(target)) == pytest.approx(expected, abs=1e-6)
    assert rows < 300 or 0.1 < expected < 0.98


def test_of_equal_rows_the_lower_wins_whatever_the_rounding() -> None:
    # 97 copies of one random row: a matrix product may round the copies differently, in any order.
    row = torch.randn(1, 333, generator=torch.Generator().manual_seed(0))
    copies = row.repeat(97, 1)
    assert retrieval_accuracy(copies, copies) == (1 / 97, 1 / 97)


def test_zero_vectors_are_similar_to_nothing() -> None:
    zeros = torch.zeros(4, 3)
    assert retrieval_accuracy(zeros, torch.eye(4, 3)) == (0.25, 0.25)


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
