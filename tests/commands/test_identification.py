"""Texts without a language are identified for models that have a map per language."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import tests.commands.bias_files as bias_files
from st_xlret import encode, export, fit_calibration
from st_xlret.calibration import sample_texts
from st_xlret.commands.index import identifier_for
from st_xlret.commands.index import main as index
from st_xlret.commands.search import Arguments, Pool
from st_xlret.stores import open_store
from st_xlret.stores.base import matrix
from tests.commands.bias_files import WORDS, sentences

pytest.importorskip("py3langid")

TEXTS = {
    "en": "The cat and the dog are in the house because of the rain.",
    "fr": "Le chat et le chien sont dans la maison à cause de la pluie.",
    "de": "Die Katze und der Hund sind wegen des Regens im Haus.",
}


def test_an_index_and_its_queries(tmp_path: Path) -> None:
    raw = bias_files.encoder()
    clouds = {code: torch.from_numpy(raw.encode(sentences(code))) for code in WORDS}
    assert identifier_for(raw) is None
    model = export(raw, fit_calibration(clouds, steps=["shift"]))
    model.save(str(tmp_path / "model"))
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS.values()))
    file = str(tmp_path / "index.parquet")
    index([str(tmp_path / "texts.txt"), "--model", str(tmp_path / "model"), "--output", file])
    (rows,) = open_store(file).batches()
    assert rows.column("language").to_pylist() == list(TEXTS)
    expected = encode(model, list(TEXTS.values()), list(TEXTS), role="document", normalize_embeddings=True)
    np.testing.assert_allclose(matrix(rows), expected, atol=1e-3)
    for code, text in TEXTS.items():
        assert Pool(file, Arguments(file)).search([text]) == Pool(file, Arguments(file, language=code)).search([text])


def test_an_index_names_the_languages_of_texts_for_any_model(tmp_path: Path) -> None:
    bias_files.encoder().save(str(tmp_path / "model"))
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS.values()))
    file = str(tmp_path / "index.parquet")
    index([str(tmp_path / "texts.txt"), "--model", str(tmp_path / "model"), "--output", file])
    (rows,) = open_store(file).batches()
    assert rows.column("language").to_pylist() == list(TEXTS)


def test_an_index_has_the_texts_that_a_report_samples(tmp_path: Path) -> None:
    bias_files.encoder().save(str(tmp_path / "model"))
    corpus = [{"_id": code, "text": f"{text} {text}", "language": code} for code, text in TEXTS.items()]
    for name, texts in (("beir/corpus.jsonl", map(json.dumps, corpus)), ("notes/a.txt", TEXTS.values())):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("\n\n".join(texts))  # a blank line ends a document, which has one language
    for name, expected in (("beir", [row["text"] for row in corpus]), ("notes", list(TEXTS.values()))):
        folder, file = str(tmp_path / name), str(tmp_path / f"{name}.parquet")
        index([folder, "--model", str(tmp_path / "model"), "--output", file])
        (rows,) = open_store(file).batches(texts=True)
        sampled = sample_texts([folder])
        assert dict(zip(rows["language"].to_pylist(), rows["text"].to_pylist(), strict=True)) == dict(
            zip(TEXTS, expected, strict=True)
        )
        assert {code: part.texts for code, part in sampled.items()} == {
            code: [text] for code, text in zip(TEXTS, expected, strict=True)
        }


def test_the_preferred_language_of_a_query(tmp_path: Path) -> None:
    bias_files.encoder().save(str(tmp_path / "model"))
    file = str(tmp_path / "index.parquet")
    for code, text in TEXTS.items():
        (tmp_path / f"{code}.jsonl").write_text(json.dumps({"language": code, "text": text}))
    index([*(str(tmp_path / f"{code}.jsonl") for code in TEXTS), "--model", str(tmp_path / "model"), "--output", file])
    pool = Pool(file, Arguments(file, prefer_language=1.0))
    assert [found[0]["language"] for found in pool.search(list(TEXTS.values()))] == list(TEXTS)
