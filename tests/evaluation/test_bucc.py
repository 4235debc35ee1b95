from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from st_xlret.evaluation.bucc import BUCCCorpus, BUCCEvaluator, MinedPair, best_threshold
from st_xlret.search import mine_bitext

from .conftest import WORDS


def side(language: str, sentences: list[str]) -> dict[str, str]:
    return {f"{language}-{number}": sentence for number, sentence in enumerate(sentences)}


def corpus(hidden: list[int], seed: int) -> BUCCCorpus:
    """French sentences of two words; those of the rows in ``hidden`` have their translation in the English text."""
    generator = torch.manual_seed(seed)
    pairs = [tuple(torch.randperm(6, generator=generator)[:2].tolist()) for _ in range(200)]
    distinct = list(dict.fromkeys(tuple(sorted(pair)) for pair in pairs))[:12]
    french = [f"{WORDS['fr'][i]} {WORDS['fr'][j]}" for i, j in distinct]
    english = [f"{WORDS['en'][i]} {WORDS['en'][j]}" for row, (i, j) in enumerate(distinct) if row in hidden]
    english += [f"{word} {word} {word} {other}" for word, other in pairwise(WORDS["en"])]
    gold = {(f"fr-{row}", f"en-{place}") for place, row in enumerate(sorted(hidden))}
    return BUCCCorpus(side("fr", french), side("en", english), gold)


def test_scores_by_hand(static_model) -> None:
    training, test = corpus([0, 2, 5, 9], seed=1), corpus([1, 4, 7, 8], seed=2)
    evaluator = BUCCEvaluator({"fr": test}, {"fr": training})
    result = evaluator.evaluate(static_model)

    def mined(split: BUCCCorpus) -> list[tuple[float, tuple[str, str]]]:
        embeddings = (static_model.encode(list(text.values())) for text in (split.source, split.target))
        return [(score, (list(split.source)[i], list(split.target)[j])) for score, i, j in mine_bitext(*embeddings)]

    def f1(pairs: list[tuple[float, tuple[str, str]]], gold: Any, threshold: float) -> tuple[float, float, float]:
        taken = [pair for score, pair in pairs if score >= threshold]
        right = len(gold.intersection(taken))
        precision, recall = right / max(1, len(taken)), right / len(gold)
        return precision, recall, 2 * precision * recall / max(1e-9, precision + recall)

    candidates = mined(training)
    best = max(f1(candidates, training.gold, score)[2] for score, _ in candidates)
    threshold = evaluator.thresholds["fr"]
    assert f1(candidates, training.gold, threshold)[2] == pytest.approx(best) and best > 0.5
    precision, recall, expected = f1(mined(test), test.gold, threshold)
    assert result.scores["fr"] == pytest.approx({"precision": precision, "recall": recall, "f1": expected})
    assert result.average["f1"] == pytest.approx(expected) and expected > 0.3
    assert "training split" in result.protocol["threshold"] and result.protocol["split"] == "test"


def test_pairs_with_a_repeated_sentence_are_dropped_and_it_is_mined_once(static_model) -> None:
    source = side("fr", ["taxi hotel", "bread bread", "taxi hotel", "water"])
    target = side("en", ["hotel taxi", "bread", "water", "night"])
    gold = {("fr-0", "en-0"), ("fr-1", "en-1"), ("fr-3", "en-2")}
    evaluator = BUCCEvaluator({"fr": BUCCCorpus(source, target, gold)})
    scores = evaluator.evaluate(static_model).scores["fr"]
    assert scores == pytest.approx({"precision": 1.0, "recall": 2 / 3, "f1": 0.8})
    assert sorted(pair[1:] for pair in evaluator.mined_pairs["fr"]) == [("fr-1", "en-1"), ("fr-3", "en-2")]


def test_without_gold_the_pairs_are_returned(static_model, tmp_path: Path) -> None:
    training, whole = corpus([0, 2, 5, 9], seed=1), corpus([1, 4, 7, 8], seed=2)
    evaluator = BUCCEvaluator({"fr": BUCCCorpus(whole.source, whole.target)}, {"fr": training})
    result = evaluator.evaluate(static_model)
    assert result.scores == {} and result.average == {}
    assert result.protocol["without_gold"].startswith("fr: pairs were mined")
    known = BUCCEvaluator({"fr": whole}, {"fr": training})
    known.evaluate(static_model)
    assert known.mined_pairs == evaluator.mined_pairs
    assert evaluator(static_model, str(tmp_path)) == {}


def write_split(folder: Path, language: str, split: str, data: BUCCCorpus, gold: bool = True) -> None:
    for code, text in ((language, data.source), ("en", data.target)):
        lines = [f"{name}\t{sentence}\n" for name, sentence in text.items()]
        (folder / f"{language}-en.{split}.{code}").write_text("".join(lines), encoding="utf-8")
    if gold:
        pairs = "".join(f"{one}\t{other}\n" for one, other in sorted(data.gold or ()))
        (folder / f"{language}-en.{split}.gold").write_text(pairs, encoding="utf-8")


def test_threshold_lies_between_candidates_and_never_parts_equal_scores() -> None:
    ranked = [MinedPair(score, str(row), str(row)) for row, score in enumerate([3.0, 2.0, 2.0, 1.0])]

    def gold(*rows: int) -> set[tuple[str, str]]:
        return {(str(row), str(row)) for row in rows}

    assert best_threshold(ranked, gold(0)) == 2.5
    assert best_threshold(ranked, gold(0, 1)) == 1.5
    assert best_threshold(ranked, gold(0, 1, 2, 3)) == 1.0
    assert best_threshold(ranked, gold(9)) == -float("inf")
    assert best_threshold([], gold(0)) == -float("inf")


def test_bad_input_is_named(static_model) -> None:
    with pytest.raises(ValueError, match="no languages"):
        BUCCEvaluator({})
    with pytest.raises(ValueError, match="'fr' has no training corpus"):
        BUCCEvaluator({"fr": corpus([0], seed=1)}, {})
    static_model[0].embedding.weight.data[:] = float("nan")
    with pytest.raises(ValueError, match="NaN or infinite values for the text"):
        BUCCEvaluator({"fr": corpus([0], seed=1)}).evaluate(static_model)


def test_the_threshold_of_another_split(static_model, tmp_path: Path) -> None:
    sample, training = corpus([0, 2, 5, 9], seed=1), corpus([1, 4, 7, 8], seed=2)
    write_split(tmp_path, "fr", "sample", sample)
    write_split(tmp_path, "fr", "training", training)
    evaluator = BUCCEvaluator.from_directory(tmp_path, split="training", threshold_split="sample")
    result = evaluator.evaluate(static_model)
    expected = BUCCEvaluator({"fr": training}, {"fr": sample}).evaluate(static_model)
    assert result.scores == expected.scores
    assert result.protocol["split"] == "training" and result.protocol["threshold"] == "best F1 on the sample split"
    assert not evaluator.threshold_on_itself
    on_itself = BUCCEvaluator.from_directory(tmp_path, ["fr"], split="sample", threshold_split="sample")
    assert "itself, which is optimistic" in on_itself.evaluate(static_model).protocol["threshold"]
    (tmp_path / "fr-en.sample.gold").unlink()
    with pytest.raises(ValueError, match="sample corpus of 'fr' has no gold pairs"):
        BUCCEvaluator.from_directory(tmp_path, split="training", threshold_split="sample")


def test_the_hub_has_one_split() -> None:
    with pytest.raises(ValueError, match="'sample'"):
        BUCCEvaluator.from_hub(threshold_split="sample")
