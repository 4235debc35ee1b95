from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest

from st_xlret.evaluation.bucc import BUCCCorpus, BUCCEvaluator, load_bucc_directory, load_bucc_hub

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
    corpus = load_bucc_directory(write(tmp_path))["de"]
    assert corpus.source == {"de-1": "Ja .", "de-2": "Nein .", "de-3": "Katze\u2028Hund"}
    assert corpus.target == {"en-1": "No .", "en-2": "Yes ."}
    assert corpus.gold == {("de-1", "en-2"), ("de-2", "en-1")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"training_de": "de-1\tJa .\nde-2 Nein .\n"},
            r"de-en.training.de, line 2: expected an id, a tab .* 'de-2 Nein",
        ),
        ({"training_de": "de-1\tJa .\n\tNein .\n"}, "line 2: expected an id"),
        ({"training_en": "en-1\tNo\nen-2\tYes\nen-1\tNo\n"}, "training.en, line 3: .*'en-1' occurs in an earlier line"),
        ({"training_en": b"en-1\tNo\nen-2\t\xff\n"}, "training.en, line 2: not UTF-8"),
        ({"training_en": ""}, "training.en holds no sentences"),
        ({"training_gold": "de-1\ten-2\nde-9\ten-1\n"}, "training.gold, line 2: 'de-9' is no id in the first text"),
        ({"training_gold": "de-1\ten-9\n"}, "training.gold, line 1: 'en-9' is no id in the second text"),
        ({"training_gold": "en-2\tde-1\n"}, "line 1: 'en-2' is no id in the first text"),
        ({"training_gold": "de-1\n"}, "training.gold, line 1: .* is no id in the second"),
        ({"training_gold": ""}, "training.gold holds no pairs"),
    ],
)
def test_malformed_files_are_named_with_their_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_bucc_directory(write(tmp_path, **changes))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no de-en.training.en"):
        load_bucc_directory(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no fr-en.training.en; there are the languages \['de'\]"):
        load_bucc_directory(write(tmp_path / "bucc2018" / "de-en").parent.parent, ["fr"])
    with pytest.raises(FileNotFoundError, match=r"the splits \['test', 'training'\]"):
        load_bucc_directory(tmp_path, split="sample")
    write(tmp_path / "bucc2018" / "de-en", training_de=None)
    with pytest.raises(FileNotFoundError, match="de-en.training.de is missing"):
        load_bucc_directory(tmp_path, ["de"])
    with pytest.raises(ValueError, match="split must be one of .*'training'.* got 'train'"):
        BUCCEvaluator.from_directory(tmp_path, split="train")


def test_sides_and_gold_must_fit() -> None:
    with pytest.raises(ValueError, match="names 'z', which is no"):
        BUCCCorpus({"a": "one"}, {"b": "two"}, {("a", "z")})


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
    corpora = load_bucc_hub(["zh"])
    assert asked == [("mteb/BUCC", "zh-en", "test")]
    assert list(corpora["zh"].source.values()) == ["Ja", "Nein", "Hund"]
    assert corpora["zh"].gold == {("zh-000000001", "en-000000002"), ("zh-000000002", "en-000000001")}


def test_hub_data_of_another_kind_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch, {"sentence1": "Ja", "sentence2": "Yes"})
    with pytest.raises(ValueError, match="aligned pairs.*nothing to mine"):
        load_bucc_hub(["de"])
    hub(monkeypatch, {"sentence1": ["Ja"], "sentence2": ["Yes"], "gold": [[1, 3]]})
    with pytest.raises(ValueError, match="en-000000003', which is no sentence's id"):
        load_bucc_hub(["de"])
    with pytest.raises(ValueError, match=r"has no \['es'\]"):
        load_bucc_hub(["es"])
