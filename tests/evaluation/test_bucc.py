from pathlib import Path
from typing import Any

import datasets
import pytest

from st_xlret.evaluation import bucc
from st_xlret.evaluation.bucc import BUCCCorpus, BUCCEvaluator, MinedPair, best_threshold, load_bucc
from tests.data.files import write_text
from tests.evaluation.samples import WORDS, write_bucc


def corpus(french: list[str], english: list[str], *gold: tuple[int, int]) -> BUCCCorpus:
    source = {f"fr-{row}": text for row, text in enumerate(french)}
    target = {f"en-{row}": text for row, text in enumerate(english)}
    return BUCCCorpus(source, target, {(f"fr-{one}", f"en-{other}") for one, other in gold})


def test_the_best_threshold_of_the_training_split_by_hand(static_model, monkeypatch) -> None:
    mined = {
        4: [(1.9, 0, 0), (1.7, 1, 1), (1.5, 2, 3), (1.3, 3, 2)],
        3: [(1.8, 0, 0), (1.65, 1, 2), (1.4, 2, 1)],
    }
    monkeypatch.setattr(bucc, "mine_bitext", lambda source, _, **options: mined[len(source)])
    training = corpus(WORDS["fr"][:4], WORDS["en"][:4], (0, 0), (1, 1), (3, 3))
    test = corpus(WORDS["fr"][:3], WORDS["en"][:3], (0, 0), (1, 1), (2, 2))
    evaluator = BUCCEvaluator({"fr": test}, {"fr": training})
    result = evaluator.evaluate(static_model)
    assert evaluator.thresholds == {
        "fr": pytest.approx(1.6)
    }  # F1 is 0.5, 0.8, 0.67 and 0.57 after each pair
    assert evaluator.mined_pairs == {"fr": [(1.8, "fr-0", "en-0"), (1.65, "fr-1", "en-2")]}
    assert (
        result.scores["fr"]
        == pytest.approx({"precision": 1 / 2, "recall": 1 / 3, "f1": 2 / 5})
        == result.average
    )
    without = BUCCEvaluator({"fr": test._replace(gold=None)}, {"fr": training})
    assert without(static_model) == {} and without.mined_pairs == evaluator.mined_pairs


def test_pairs_with_a_repeated_sentence_are_dropped_and_it_is_mined_once(static_model) -> None:
    source, target = (
        ["taxi hotel", "bread bread", "taxi hotel", "water"],
        ["hotel taxi", "bread", "water", "night"],
    )
    evaluator = BUCCEvaluator({"fr": corpus(source, target, (0, 0), (1, 1), (3, 2))})
    scores = evaluator.evaluate(static_model).scores["fr"]
    assert scores == pytest.approx({"precision": 1.0, "recall": 2 / 3, "f1": 0.8})
    assert sorted(pair[1:] for pair in evaluator.mined_pairs["fr"]) == [
        ("fr-1", "en-1"),
        ("fr-3", "en-2"),
    ]


def test_threshold_lies_between_candidates_and_never_parts_equal_scores() -> None:
    ranked = [
        MinedPair(score, str(row), str(row)) for row, score in enumerate([3.0, 2.0, 2.0, 1.0])
    ]
    expected = {(0,): 2.5, (0, 1): 1.5, (0, 1, 2, 3): 1.0, (9,): -float("inf")}
    assert {
        rows: best_threshold(ranked, {(str(row), str(row)) for row in rows}) for rows in expected
    } == expected
    assert best_threshold([], {("0", "0")}) == -float("inf")


def test_the_threshold_of_another_split(static_model, tmp_path: Path) -> None:
    write_bucc(tmp_path, ("sample", "training"))
    write_text(tmp_path / "de-en.sample.gold", "de-0\ten-1\n")  # of which the margin is lower
    options = {"split": "training", "threshold_split": "sample"}
    evaluator, on_itself = (
        BUCCEvaluator.from_directory(tmp_path, **options),
        BUCCEvaluator(load_bucc(tmp_path)),
    )
    protocol, optimistic = (each.evaluate(static_model).protocol for each in (evaluator, on_itself))
    assert (
        protocol["split"] == "training" and protocol["threshold"] == "best F1 on the sample split"
    )
    assert "itself, which is optimistic" in optimistic["threshold"]
    assert on_itself.thresholds != evaluator.thresholds
    (tmp_path / "de-en.sample.gold").unlink()
    with pytest.raises(ValueError, match="sample.*'de'"):
        BUCCEvaluator.from_directory(tmp_path, **options)


def test_reads_the_official_files_wherever_they_are(tmp_path: Path) -> None:
    folder = write_bucc(tmp_path / "bucc2018" / "de-en")
    write_text(folder / "de-en.training.de", "de-1\tJa .\nde-3\tKatze\u2028Hund")
    write_text(folder / "de-en.training.en", "en-0\tNo .\r\nen-3\t Yes . \r\n")
    write_text(folder / ".ipynb_checkpoints" / "de-en.training.en", "en-0\tan old copy")
    source, target = {"de-1": "Ja .", "de-3": "Katze\u2028Hund"}, {"en-0": "No .", "en-3": "Yes ."}
    assert load_bucc(tmp_path) == {"de": (source, target, {("de-1", "en-0"), ("de-3", "en-3")})}


def test_the_hub_has_one_split_and_row_numbers_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    row: dict[str, Any] = {
        "sentence1": ["Ja", "Nein\n", "Hund"],
        "sentence2": ["No", "Yes"],
        "gold": [[1, 2], [2, 1]],
    }
    of_hub = {("mteb/BUCC", "zh-en", "test"): [row]}
    monkeypatch.setattr(
        datasets, "load_dataset", lambda name, config, *, split: of_hub[name, config, split]
    )
    source, _, gold = BUCCEvaluator.from_directory(None, ["zh"]).corpora["zh"]
    assert source == {"zh-000000001": "Ja", "zh-000000002": "Nein", "zh-000000003": "Hund"}
    assert gold == {("zh-000000001", "en-000000002"), ("zh-000000002", "en-000000001")}
    del row["gold"]  # aligned pairs, in which there is nothing to mine
    for languages, split, message in (
        ("zh", "training", "gold"),
        ("es", "training", "'es'"),
        ("zh", "sample", "sample"),
    ):
        with pytest.raises(ValueError, match=message):
            BUCCEvaluator.from_directory(None, languages, threshold_split=split)
