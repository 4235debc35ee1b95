"""Consecutive sentences packed into units."""

from __future__ import annotations

from pathlib import Path

import pytest
from datasets import Dataset

from st_xlret.data import pack_documents
from st_xlret.data.packing import token_offsets
from tests.tiny import word_tokenizer

SENTENCES = [("sun moon", 0), ("star", 0), ("rain wind snow", 0), ("", 0), ("tree", 0), ("leaf root", 1), (" ", 2)]


def documents(language: str = "en") -> Dataset:
    rows = [
        {"sentence": sentence, "language": language, "document": document, "position": i}
        for i, (sentence, document) in enumerate(SENTENCES)
    ]
    return Dataset.from_list(rows)


def pack(folder: Path, max_tokens: int, dataset: Dataset | None = None) -> Dataset:
    dataset = documents() if dataset is None else dataset
    return pack_documents(dataset, word_tokenizer(), max_tokens=max_tokens, cache_dir=folder, show_progress_bar=False)


def test_units_are_as_long_as_they_may_be(tmp_path: Path) -> None:
    # Five tokens and two special ones; a document's units are its own, and empty sentences are gone.
    packed = pack(tmp_path, 7)
    assert packed["sentence"][:] == ["sun moon star", "rain wind snow tree", "leaf root"]
    assert packed["document"][:] == [0, 0, 1] and packed["position"][:] == [0, 1, 0]
    assert set(packed["language"][:]) == {"en"}
    tokenizer = word_tokenizer()
    assert all(len(ids) <= 7 for ids in tokenizer(packed["sentence"][:])["input_ids"])


def test_a_sentence_that_is_too_long_stays_a_unit(tmp_path: Path) -> None:
    assert pack(tmp_path, 4)["sentence"][:] == ["sun moon", "star", "rain wind snow", "tree", "leaf root"]


def test_the_result_is_mapped_and_taken_again(tmp_path: Path) -> None:
    first = pack(tmp_path, 7)
    assert first.cache_files and {path.suffix for path in tmp_path.glob("units-*")} >= {".arrow", ".json"}
    # A truncating call in between leaves its mark on the tokenizer, which is no other one for it.
    tokenizer = word_tokenizer()
    tokenizer(["sun"], truncation=True, max_length=3, padding=True)
    again = pack_documents(documents(), tokenizer, max_tokens=7, cache_dir=tmp_path, show_progress_bar=False)
    assert again.cache_files == first.cache_files and again["sentence"][:] == first["sentence"][:]
    assert pack(tmp_path, 8).cache_files != first.cache_files


def test_a_static_encoders_tokenizer_counts_alike(tmp_path: Path) -> None:
    tokenizer = word_tokenizer().backend_tokenizer
    texts = ["sun moon", "star"]
    assert token_offsets(tokenizer, texts) == token_offsets(word_tokenizer(), texts) == [[(0, 3), (4, 8)], [(0, 4)]]
    packed = pack_documents(documents(), tokenizer, max_tokens=5, cache_dir=tmp_path, show_progress_bar=False)
    assert packed["sentence"][:] == ["sun moon star", "rain wind snow tree", "leaf root"]


def test_limits_and_texts_that_will_not_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_tokens must be above the 2 special tokens of a unit, got 2"):
        pack(tmp_path, 2)
    with pytest.raises(ValueError, match="there is no text to pack"):
        pack(tmp_path, 9, documents().select([3, 6]))
