"""Texts without a language are identified for models that have a map per language."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import tests.commands.bias_files as bias_files
from st_xlret import encode, export, fit_calibration
from st_xlret.commands.index import identifier_for
from st_xlret.commands.index import main as index
from st_xlret.commands.search import Arguments, Pool
from st_xlret.vectors import open_vectors
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
    (rows,) = open_vectors(file).batches()
    assert rows.languages == list(TEXTS)
    expected = encode(model, list(TEXTS.values()), list(TEXTS), role="document", normalize_embeddings=True)
    np.testing.assert_allclose(rows.vectors, expected, atol=1e-3)
    for code, text in TEXTS.items():
        assert Pool(file, Arguments(file)).search([text]) == Pool(file, Arguments(file, language=code)).search([text])


def test_an_index_names_the_languages_of_texts_for_any_model(tmp_path: Path) -> None:
    bias_files.encoder().save(str(tmp_path / "model"))
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS.values()))
    file = str(tmp_path / "index.parquet")
    index([str(tmp_path / "texts.txt"), "--model", str(tmp_path / "model"), "--output", file])
    (rows,) = open_vectors(file).batches()
    assert rows.languages == list(TEXTS)


def test_the_preferred_language_of_a_query(tmp_path: Path) -> None:
    bias_files.encoder().save(str(tmp_path / "model"))
    file = str(tmp_path / "index.parquet")
    for code, text in TEXTS.items():
        (tmp_path / f"{code}.jsonl").write_text(json.dumps({"language": code, "text": text}))
    index([*(str(tmp_path / f"{code}.jsonl") for code in TEXTS), "--model", str(tmp_path / "model"), "--output", file])
    pool = Pool(file, Arguments(file, prefer_language=1.0))
    assert [found[0]["language"] for found in pool.search(list(TEXTS.values()))] == list(TEXTS)
