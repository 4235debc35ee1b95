"""BUCC: thresholds, mined pairs and scores by hand, and the readers of its files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation import bucc
from st_xlret.evaluation.bucc import BUCCCorpus, BUCCEvaluator, MinedPair, best_threshold, load_bucc
from tests.data.files import write_text
from tests.evaluation.samples import WORDS, write_bucc


def corpus(french: list[str], english: list[str], gold: list[tuple[int, int]]) -> BUCCCorpus:
    source = {f"fr-{row}": text for row, text in enumerate(french)}
    target = {f"en-{row}": text for row, text in enumerate(english)}
    return BUCCCorpus(source, target, {(f"fr-{one}", f"en-{other}") for one, other in gold})


TRAINING = corpus(WORDS["fr"][:4], WORDS["en"][:4], [(0, 0), (1, 1), (3, 3)])
TEST = corpus(WORDS["fr"][:3], WORDS["en"][:3], [(0, 0), (1, 1), (2, 2)])
MINED = {
    4: [(1.9, 0, 0), (1.7, 1, 1), (1.5, 2, 3), (1.3, 3, 2)],
    3: [(1.8, 0, 0), (1.65, 1, 2), (1.4, 2, 1)],
}
"""Number of sentences -> pairs (score, row, row) that are found, in TRAINING and in TEST."""


@pytest.fixture
def as_mined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucc, "mine_bitext", lambda source, _, **options: MINED[len(source)])


@pytest.mark.usefixtures("as_mined")
def test_the_best_threshold_of_the_training_split_is_that_of_the_test_split(
    static_model: SentenceTransformer,
) -> None:
    evaluator = BUCCEvaluator({"fr": TEST}, {"fr": TRAINING})
    result = evaluator.evaluate(static_model)
    # F1 is 0.5, 0.8, 0.67 and 0.57 after each pair of the training split.
    assert evaluator.thresholds == {"fr": pytest.approx(1.6)}
    assert evaluator.mined_pairs == {"fr": [(1.8, "fr-0", "en-0"), (1.65, "fr-1", "en-2")]}
    expected = {"precision": 1 / 2, "recall": 1 / 3, "f1": 2 / 5}
    assert result.scores["fr"] == pytest.approx(expected)
    assert result.average == pytest.approx(expected)


@pytest.mark.usefixtures("as_mined")
def test_pairs_are_mined_where_the_right_ones_are_not_known(
    static_model: SentenceTransformer,
) -> None:
    evaluator = BUCCEvaluator({"fr": TEST._replace(gold=None)}, {"fr": TRAINING})
    assert evaluator(static_model) == {}
    assert evaluator.mined_pairs == {"fr": [(1.8, "fr-0", "en-0"), (1.65, "fr-1", "en-2")]}


def test_pairs_with_a_repeated_sentence_are_dropped(static_model: SentenceTransformer) -> None:
    source = ["taxi hotel", "bread bread", "taxi hotel", "water"]
    target = ["hotel taxi", "bread", "water", "night"]
    evaluator = BUCCEvaluator({"fr": corpus(source, target, [(0, 0), (1, 1), (3, 2)])})
    scores = evaluator.evaluate(static_model).scores["fr"]
    assert scores == pytest.approx({"precision": 1.0, "recall": 2 / 3, "f1": 0.8})
    mined = sorted(pair.ids for pair in evaluator.mined_pairs["fr"])
    assert mined == [("fr-1", "en-1"), ("fr-3", "en-2")]


@pytest.mark.parametrize(
    ("right", "threshold"),
    [
        ([0], 2.5),
        ([0, 1], 1.5),  # no threshold parts equal scores
        ([0, 1, 2, 3], 1.0),
        ([9], -float("inf")),
    ],
)
def test_a_threshold_lies_between_candidates(right: list[int], threshold: float) -> None:
    ranked = []
    for row, score in enumerate([3.0, 2.0, 2.0, 1.0]):
        ranked.append(MinedPair(score, str(row), str(row)))
    gold = {(str(row), str(row)) for row in right}
    assert best_threshold(ranked, gold) == threshold


def test_without_candidates_there_is_no_threshold() -> None:
    assert best_threshold([], {("0", "0")}) == -float("inf")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The sample split has a translation that the training split does not have."""
    write_bucc(tmp_path, ("sample", "training"))
    write_text(tmp_path / "de-en.sample.gold", "de-0\ten-1\n")  # of which the margin is lower
    return tmp_path


def test_the_threshold_of_another_split(folder: Path, static_model: SentenceTransformer) -> None:
    by_sample = BUCCEvaluator.from_directory(folder, split="training", threshold_split="sample")
    on_itself = BUCCEvaluator(load_bucc(folder))
    protocol = by_sample.evaluate(static_model).protocol
    assert protocol["split"] == "training"
    assert protocol["threshold"] == "best F1 on the sample split"
    protocol = on_itself.evaluate(static_model).protocol
    assert "itself, which is optimistic" in protocol["threshold"]
    assert on_itself.thresholds != by_sample.thresholds


def test_a_split_without_right_pairs_gives_no_threshold(folder: Path) -> None:
    (folder / "de-en.sample.gold").unlink()
    with pytest.raises(ValueError, match="sample.*'de'"):
        BUCCEvaluator.from_directory(folder, split="training", threshold_split="sample")


def test_the_official_files_are_read_wherever_they_are(tmp_path: Path) -> None:
    folder = write_bucc(tmp_path / "bucc2018" / "de-en")
    write_text(folder / "de-en.training.de", "de-1\tJa .\nde-3\tKatze\u2028Hund")
    write_text(folder / "de-en.training.en", "en-0\tNo .\r\nen-3\t Yes . \r\n")
    write_text(folder / ".ipynb_checkpoints" / "de-en.training.en", "en-0\tan old copy")
    source, target, gold = load_bucc(tmp_path)["de"]
    assert source == {"de-1": "Ja .", "de-3": "Katze\u2028Hund"}
    assert target == {"en-0": "No .", "en-3": "Yes ."}
    assert gold == {("de-1", "en-0"), ("de-3", "en-3")}


def test_two_editions_in_one_folder_are_refused(tmp_path: Path) -> None:
    write_bucc(tmp_path / "bucc2018" / "de-en")
    write_bucc(tmp_path / "bucc2017" / "de-en")
    with pytest.raises(ValueError, match="de-en.training is in .*bucc2017.* and .*bucc2018"):
        load_bucc(tmp_path)


@pytest.fixture
def hub_row(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The row of Chinese on the Hub."""
    row: dict[str, Any] = {
        "sentence1": ["Ja", "Nein\n", "Hund"],
        "sentence2": ["No", "Yes"],
        "gold": [[1, 2], [2, 1]],
    }

    def load_dataset(name: str, config: str, *, split: str) -> list[Mapping[str, Any]]:
        assert (name, config, split) == ("mteb/BUCC", "zh-en", "test")
        return [row]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return row


@pytest.mark.usefixtures("hub_row")
def test_the_hub_has_one_split_and_row_numbers_from_one() -> None:
    source, _, gold = BUCCEvaluator.from_directory(None, ["zh"]).corpora["zh"]
    assert source == {"zh-000000001": "Ja", "zh-000000002": "Nein", "zh-000000003": "Hund"}
    assert gold == {("zh-000000001", "en-000000002"), ("zh-000000002", "en-000000001")}


@pytest.mark.usefixtures("hub_row")
@pytest.mark.parametrize(("language", "split"), [("es", "training"), ("zh", "sample")])
def test_what_the_hub_does_not_have_is_named(language: str, split: str) -> None:
    message = "'es'" if language == "es" else "sample"
    with pytest.raises(ValueError, match=message):
        BUCCEvaluator.from_directory(None, language, threshold_split=split)


def test_aligned_pairs_of_the_hub_are_no_mining(hub_row: dict[str, Any]) -> None:
    del hub_row["gold"]
    with pytest.raises(ValueError, match="gold"):
        BUCCEvaluator.from_directory(None, "zh")
