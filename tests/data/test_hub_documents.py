from __future__ import annotations

from pathlib import Path

import pytest
from datasets import Dataset

from st_xlret.data import load_documents, load_hub_documents
from st_xlret.data.documents import hub as hub_documents


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    calls: list[tuple] = []

    def load_dataset(path: str, config: str | None, split: str) -> Dataset:
        calls.append((path, config, split))
        return Dataset.from_dict({"text": ["Il pleut. Il fait froid.", "Bonjour."], "id": [1, 2]})

    monkeypatch.setattr(hub_documents, "load_dataset", load_dataset)
    return calls


def test_texts_of_a_hub_dataset_become_sentences(asked: list[tuple], tmp_path: Path) -> None:
    documents = load_hub_documents("wikimedia/wikipedia:20231101.fr=fr")
    sentences = load_documents([documents], cache_dir=tmp_path, show_progress=False)
    assert asked == [("wikimedia/wikipedia", "20231101.fr", "train")]
    assert sentences["sentence"][:] == ["Il pleut.", "Il fait froid.", "Bonjour."]
    assert set(sentences["language"]) == {"fr"}


def test_without_a_language_the_way_out_is_named(asked: list[tuple]) -> None:
    with pytest.raises(ValueError, match="NAME:CONFIG=LANGUAGE"):
        load_hub_documents("some/texts")


def test_without_text_the_columns_are_named() -> None:
    with pytest.raises(ValueError, match="'body'"):
        hub_documents.HubDocuments(Dataset.from_dict({"body": ["x"]}), "fr")
