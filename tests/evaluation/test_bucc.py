from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch

from st_xlret.evaluation.bucc import BUCCCorpus, BUCCEvaluator, MinedPair, best_threshold, load_bucc
from st_xlret.search import mine_bitext
from tests.evaluation.samples import WORDS, write, write_bucc


def side(language: str, sentences: list[str]) -> dict[str, str]:
    return {f"{language}-{number}": sentence for number, sentence in enumerate(sentences)}


def corpus(hidden: list[int], seed: int) -> BUCCCorpus:
    """French sentences of two words; those of the rows in `hidden` have their translation in the English text."""
    generator = torch.manual_seed(seed)
    pairs = [tuple(torch.randperm(6, generator=generator)[:2].tolist()) for _ in range(200)]
    distinct = list(dict.fromkeys(tuple(sorted(pair)) for pair in pairs))[:12]
    french = [f"{WORDS['fr'][i]} {WORDS['fr'][j]}" for i, j in distinct]
    english = [f"{WORDS['en'][i]} {WORDS['en'][j]}" for row, (i, j) in enumerate(distinct) if row in hidden]
    english += [f"{word} {word} {word} {other}" for word, other in pairwise(WORDS["en"])]
    gold = {(f"fr-{row}", f"en-{place}") for place, row in enumerate(sorted(hidden))}
    return BUCCCorpus(side("fr", french), side("en", english), gold)


TRAINING, TEST = corpus([0, 2, 5, 9], seed=1), corpus([1, 4, 7, 8], seed=2)


def test_scores_by_hand(static_model) -> None:
    evaluator = BUCCEvaluator({"fr": TEST}, {"fr": TRAINING})
    result = evaluator.evaluate(static_model)

    def mined(split: BUCCCorpus) -> list[tuple[float, tuple[str, str]]]:
        embeddings = (static_model.encode(list(text.values())) for text in (split.source, split.target))
        return [(score, (list(split.source)[i], list(split.target)[j])) for score, i, j in mine_bitext(*embeddings)]

    def scores(pairs: list[tuple[float, tuple[str, str]]], gold: Any, threshold: float) -> dict[str, float]:
        taken = [pair for score, pair in pairs if score >= threshold]
        right = len(gold.intersection(taken))
        precision, recall = right / max(1, len(taken)), right / len(gold)
        f1 = 2 * precision * recall / max(1e-9, precision + recall)
        return {"precision": precision, "recall": recall, "f1": f1}

    candidates = mined(TRAINING)
    best = max(scores(candidates, TRAINING.gold, score)["f1"] for score, _ in candidates)
    threshold = evaluator.thresholds["fr"]
    assert scores(candidates, TRAINING.gold, threshold)["f1"] == pytest.approx(best) and best > 0.5
    expected = scores(mined(TEST), TEST.gold, threshold)
    assert result.scores["fr"] == pytest.approx(expected) == result.average and expected["f1"] > 0.3
    assert "training split" in result.protocol["threshold"] and result.protocol["split"] == "test"
    without = BUCCEvaluator({"fr": TEST._replace(gold=None)}, {"fr": TRAINING})
    assert without(static_model) == {} and without.mined_pairs == evaluator.mined_pairs


def test_pairs_with_a_repeated_sentence_are_dropped_and_it_is_mined_once(static_model) -> None:
    source = side("fr", ["taxi hotel", "bread bread", "taxi hotel", "water"])
    target = side("en", ["hotel taxi", "bread", "water", "night"])
    gold = {("fr-0", "en-0"), ("fr-1", "en-1"), ("fr-3", "en-2")}
    evaluator = BUCCEvaluator({"fr": BUCCCorpus(source, target, gold)})
    scores = evaluator.evaluate(static_model).scores["fr"]
    assert scores == pytest.approx({"precision": 1.0, "recall": 2 / 3, "f1": 0.8})
    assert sorted(pair[1:] for pair in evaluator.mined_pairs["fr"]) == [("fr-1", "en-1"), ("fr-3", "en-2")]


def test_threshold_lies_between_candidates_and_never_parts_equal_scores() -> None:
    ranked = [MinedPair(score, str(row), str(row)) for row, score in enumerate([3.0, 2.0, 2.0, 1.0])]
    expected = {(0,): 2.5, (0, 1): 1.5, (0, 1, 2, 3): 1.0, (9,): -float("inf")}
    assert {rows: best_threshold(ranked, {(str(row), str(row)) for row in rows}) for rows in expected} == expected
    assert best_threshold([], {("0", "0")}) == -float("inf")


def test_the_threshold_of_another_split(static_model, tmp_path: Path) -> None:
    write_bucc(tmp_path, ("sample", "training"))
    write(tmp_path / "de-en.sample.gold", "de-0\ten-1\n")  # of which the margin is lower
    options = {"split": "training", "threshold_split": "sample"}
    evaluator = BUCCEvaluator.from_directory(tmp_path, **options)
    result = evaluator.evaluate(static_model)
    sample, training = (load_bucc(tmp_path, split=split) for split in ("sample", "training"))
    assert result.scores == BUCCEvaluator(training, sample).evaluate(static_model).scores
    assert result.protocol["split"] == "training" and result.protocol["threshold"] == "best F1 on the sample split"
    on_itself = BUCCEvaluator(training)
    assert "itself, which is optimistic" in on_itself.evaluate(static_model).protocol["threshold"]
    assert on_itself.thresholds != evaluator.thresholds
    (tmp_path / "de-en.sample.gold").unlink()
    with pytest.raises(ValueError, match="sample.*'de'"):
        BUCCEvaluator.from_directory(tmp_path, **options)


def test_reads_the_official_files_wherever_they_are(tmp_path: Path) -> None:
    folder = write_bucc(tmp_path / "bucc2018" / "de-en")
    write(folder / "de-en.training.de", "de-1\tJa .\nde-3\tKatze\u2028Hund")
    write(folder / "de-en.training.en", "en-0\tNo .\r\nen-3\t Yes . \r\n")
    assert load_bucc(tmp_path) == {
        "de": (
            {"de-1": "Ja .", "de-3": "Katze\u2028Hund"},
            {"en-0": "No .", "en-3": "Yes ."},
            {("de-1", "en-0"), ("de-3", "en-3")},
        )
    }


def test_the_hub_has_one_split_and_row_numbers_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    row: dict[str, Any] = {"sentence1": ["Ja", "Nein\n", "Hund"], "sentence2": ["No", "Yes"], "gold": [[1, 2], [2, 1]]}
    asked: list[Any] = []

    def load_dataset(name: str, config: str, *, split: str) -> datasets.Dataset:
        asked.append((name, config, split))
        return datasets.Dataset.from_list([row])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    corpora = BUCCEvaluator.from_directory(None, ["zh"]).corpora
    assert asked == [("mteb/BUCC", "zh-en", "test")]
    assert list(corpora["zh"].source.values()) == ["Ja", "Nein", "Hund"]
    assert corpora["zh"].gold == {("zh-000000001", "en-000000002"), ("zh-000000002", "en-000000001")}
    del row["gold"]  # aligned pairs, in which there is nothing to mine
    for options, message in (
        ({}, "gold"),
        ({"languages": ["es"]}, "'es'"),
        ({"threshold_split": "sample"}, "'sample'"),
    ):
        with pytest.raises(ValueError, match=message):
            BUCCEvaluator.from_directory(None, **options)
