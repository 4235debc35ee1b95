"""Documents of Hugging Face data sets."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest
from datasets import Dataset

from st_xlret.data import DataError, HubDocuments, LoadReport, load_documents


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    calls: list[tuple] = []

    def load_dataset(path: str, config: str | None, split: str) -> Dataset:
        calls.append((path, config, split))
        return Dataset.from_dict({"text": ["Il pleut. Il fait froid.", "Bonjour."], "id": [1, 2]})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return calls


def test_a_data_set_is_loaded_by_its_name(asked: list[tuple], tmp_path: Path) -> None:
    reports = LoadReport(), LoadReport()
    record = {"language": "en", "sentences": ["Hello."]}
    for report in reports:
        sentences = load_documents(
            ["wikimedia/wikipedia:20231101.fr=FR", [record]], report=report, cache_dir=tmp_path, show_progress=False
        )
        assert asked[-1] == ("wikimedia/wikipedia", "20231101.fr", "train")
        assert sentences["sentence"][:] == ["Il pleut.", "Il fait froid.", "Bonjour.", "Hello."]
        assert sentences["language"][:] == ["fr"] * 3 + ["en"]
    load_documents("some/texts=sw", cache_dir=tmp_path, show_progress=False)
    assert asked[-1] == ("some/texts", None, "train")


def test_an_unchanged_data_set_is_not_read_again(tmp_path: Path) -> None:
    texts = Dataset.from_dict({"content": ["Il pleut."]})
    reused = []
    for language in ("fr", "fr", "it"):
        report = LoadReport()
        load_documents(HubDocuments(texts, language), report=report, cache_dir=tmp_path, show_progress=False)
        reused.append(report.reused)
    assert reused == [False, True, False]


def test_without_a_language_the_way_out_is_named(asked: list[tuple]) -> None:
    with pytest.raises(ValueError, match="NAME:CONFIG=LANGUAGE"):
        load_documents("some/texts:default")


def test_a_name_without_config_and_language_is_a_missing_file() -> None:
    with pytest.raises(DataError, match="some/texts"):
        load_documents("some/texts")


def test_without_text_the_columns_are_named() -> None:
    with pytest.raises(ValueError, match="'body'"):
        HubDocuments(Dataset.from_dict({"body": ["x"]}), "fr")
