from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch

from st_xlret.evaluation.bucc import (
    BUCCCorpus,
    BUCCEvaluator,
    MinedPair,
    best_threshold,
    load_bucc,
)
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
    known = BUCCEvaluator({"fr": whole}, {"fr": training})
    known.evaluate(static_model)
    assert known.mined_pairs == evaluator.mined_pairs
    assert evaluator(static_model, str(tmp_path)) == {}


def test_threshold_lies_between_candidates_and_never_parts_equal_scores() -> None:
    ranked = [MinedPair(score, str(row), str(row)) for row, score in enumerate([3.0, 2.0, 2.0, 1.0])]

    def gold(*rows: int) -> set[tuple[str, str]]:
        return {(str(row), str(row)) for row in rows}

    assert best_threshold(ranked, gold(0)) == 2.5
    assert best_threshold(ranked, gold(0, 1)) == 1.5
    assert best_threshold(ranked, gold(0, 1, 2, 3)) == 1.0
    assert best_threshold(ranked, gold(9)) == -float("inf")
    assert best_threshold([], gold(0)) == -float("inf")


def test_the_threshold_of_another_split(static_model, tmp_path: Path) -> None:
    sample, training = corpus([0, 2, 5, 9], seed=1), corpus([1, 4, 7, 8], seed=2)
    for split, data in (("sample", sample), ("training", training)):
        for end, rows in (("fr", data.source.items()), ("en", data.target.items()), ("gold", sorted(data.gold or ()))):
            lines = "".join(f"{one}\t{other}\n" for one, other in rows)
            (tmp_path / f"fr-en.{split}.{end}").write_text(lines, encoding="utf-8")
    evaluator = BUCCEvaluator.from_directory(tmp_path, split="training", threshold_split="sample")
    result = evaluator.evaluate(static_model)
    expected = BUCCEvaluator({"fr": training}, {"fr": sample}).evaluate(static_model)
    assert result.scores == expected.scores
    assert result.protocol["split"] == "training" and result.protocol["threshold"] == "best F1 on the sample split"
    on_itself = BUCCEvaluator.from_directory(tmp_path, ["fr"], split="sample", threshold_split="sample")
    assert "itself, which is optimistic" in on_itself.evaluate(static_model).protocol["threshold"]
    (tmp_path / "fr-en.sample.gold").unlink()
    with pytest.raises(ValueError, match="sample.*'fr'"):
        BUCCEvaluator.from_directory(tmp_path, split="training", threshold_split="sample")


TEXTS = {
    "de-en.training.de": "de-1\tJa .\nde-2\tNein .\nde-3\tKatze\u2028Hund\n",
    "de-en.training.en": "en-1\tNo .\r\nen-2\t Yes . \r\n",
    "de-en.training.gold": "de-1\ten-2\nde-2\ten-1\n",
    "de-en.test.de": "de-1\tBrot\n",
    "de-en.test.en": "en-1\tbread",
}


def write(folder: Path, **changes: str | bytes | None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {**TEXTS, **{k.replace("_", "."): v for k, v in changes.items()}}.items():
        name = name if name.startswith("de-en.") else f"de-en.{name}"
        if text is None:
            (folder / name).unlink(missing_ok=True)
        else:
            (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_reads_the_official_files(tmp_path: Path) -> None:
    corpus = load_bucc(write(tmp_path))["de"]
    assert corpus.source == {"de-1": "Ja .", "de-2": "Nein .", "de-3": "Katze\u2028Hund"}
    assert corpus.target == {"en-1": "No .", "en-2": "Yes ."}
    assert corpus.gold == {("de-1", "en-2"), ("de-2", "en-1")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training_de": "de-1\tJa .\nde-2 Nein .\n"}, "training.de, line 2"),
        ({"training_en": "en-1\tNo\nen-2\tYes\nen-1\tNo\n"}, "training.en, line 3"),
        ({"training_gold": "de-1\ten-2\nde-9\ten-1\n"}, "training.gold, line 2: .*'de-9'"),
        ({"training_gold": "de-1\n"}, "training.gold, line 1"),
    ],
)
def test_malformed_files_are_named_with_their_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_bucc(write(tmp_path, **changes))


def test_missing_files_are_named(tmp_path: Path) -> None:
    write(tmp_path / "bucc2018" / "de-en")
    for languages, split in ((["fr"], "training"), (None, "sample")):
        with pytest.raises(ValueError, match=split):
            load_bucc(tmp_path, languages, split=split)
    write(tmp_path / "bucc2018" / "de-en", training_de=None)
    with pytest.raises(FileNotFoundError, match=r"de-en\.training\.de"):
        load_bucc(tmp_path, ["de"])
    with pytest.raises(ValueError, match="'train'"):
        BUCCEvaluator.from_directory(tmp_path, split="train")


def hub(monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]) -> list[Any]:
    asked: list[Any] = []

    def load_dataset(name: str, config: str, *, split: str) -> datasets.Dataset:
        asked.append((name, config, split))
        return datasets.Dataset.from_list([row])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return asked


def test_the_hub_has_row_numbers_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"sentence1": ["Ja", "Nein\n", "Hund"], "sentence2": ["No", "Yes"], "gold": [[1, 2], [2, 1]]}
    asked = hub(monkeypatch, row)
    corpora = BUCCEvaluator.from_directory(None, ["zh"]).corpora
    assert asked == [("mteb/BUCC", "zh-en", "test")]
    assert list(corpora["zh"].source.values()) == ["Ja", "Nein", "Hund"]
    assert corpora["zh"].gold == {("zh-000000001", "en-000000002"), ("zh-000000002", "en-000000001")}


def test_hub_data_of_another_kind_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch, {"sentence1": "Ja", "sentence2": "Yes"})
    with pytest.raises(ValueError, match="gold"):
        BUCCEvaluator.from_directory(None, ["de"])
    for asked, message in (({"languages": ["es"]}, "'es'"), ({"threshold_split": "sample"}, "'sample'")):
        with pytest.raises(ValueError, match=message):
            BUCCEvaluator.from_directory(None, **asked)
