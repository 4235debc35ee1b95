"""Pre-training corpora as they are published: CCNet, CC-100, Hugging Face data sets."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import Dataset

from st_xlret.data import HubDocuments, LoadReport, load_documents
from tests.data.files import write_jsonl, write_text


def rows(read: Any, *given: Any, **options: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in read(*given, **options)[0]]


def write_xz(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.compress(text.encode()))
    return file


@pytest.mark.parametrize("end", [".json", ".json.gz"])
def test_ccnet_has_a_paragraph_per_line(tmp_path: Path, read: Any, end: str) -> None:
    page = {
        "url": "u",
        "title": "t",
        "raw_content": "Un titre\nIl pleut. Il fait froid.",
        "language": "fr",
        "bucket": "h",
    }
    file = write_jsonl(tmp_path / "in" / f"fr_head_0000{end}", [page])
    expected = [("Un titre", "fr", 0, 0), ("Il pleut.", "fr", 0, 1), ("Il fait froid.", "fr", 0, 2)]
    # JSON files of other kinds are passed over.
    write_text(tmp_path / "in" / "nq.json", json.dumps([{"question": "q"}], indent=1))
    write_text(tmp_path / "in" / "config.json", "{}")
    assert rows(read, file) == rows(read, tmp_path / "in") == expected


def test_cc100_has_blank_lines_between_documents(tmp_path: Path, read: Any) -> None:
    text = "Un titre\nIl pleut. Il fait froid.\n\nDeux.\n\n\n"
    write_xz(tmp_path / "in" / "fr.txt.xz", text)
    write_xz(tmp_path / "in" / "zh-Hans.txt.xz", "下雨了。\n")
    write_text(tmp_path / "in" / "README.txt", "not read")
    assert rows(read, tmp_path / "in") == [
        ("Un titre", "fr", 0, 0),
        ("Il pleut.", "fr", 0, 1),
        ("Il fait froid.", "fr", 0, 2),
        ("Deux.", "fr", 1, 0),
        ("下雨了。", "zh-hans", 2, 0),
    ]


def parquet(folder: Path, files: int = 3, rows: int = 8) -> Path:
    for file in range(files):
        texts = [f"Page {file} {row}. It ends." for row in range(rows)]
        datasets.Dataset.from_dict({"text": texts}).to_parquet(folder / f"train-{file:05}.parquet")
    return folder


def test_a_data_set_is_streamed(tmp_path: Path, read: Any) -> None:
    (tmp_path / "wiki").mkdir()
    name, report = f"{parquet(tmp_path / 'wiki')}=sw", LoadReport()
    found = rows(read, name)
    assert [row[0] for row in found[::2]] == [f"Page {file} {row}." for file in range(3) for row in range(8)]
    assert {row[1] for row in found} == {"sw"}
    assert rows(read, name, report=report) == found and report.reused
    parquet(tmp_path / "wiki", rows=9)
    assert len(rows(read, name)) == 54


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
            ["wikimedia/wikipedia:20231101.fr=FR", [record]], report=report, cache_dir=tmp_path, show_progress_bar=False
        )
        assert asked[-1] == ("wikimedia/wikipedia", "20231101.fr", "train")
        assert sentences["sentence"][:] == ["Il pleut.", "Il fait froid.", "Bonjour.", "Hello."]
        assert sentences["language"][:] == ["fr"] * 3 + ["en"]
    load_documents("some/texts=sw", cache_dir=tmp_path, show_progress_bar=False)
    assert asked[-1] == ("some/texts", None, "train")


def test_an_unchanged_data_set_is_not_read_again(tmp_path: Path) -> None:
    texts = Dataset.from_dict({"content": ["Il pleut."]})
    reused = []
    for language in ("fr", "fr", "it"):
        report = LoadReport()
        load_documents(HubDocuments(texts, language), report=report, cache_dir=tmp_path, show_progress_bar=False)
        reused.append(report.reused)
    assert reused == [False, True, False]
