"""Texts without a language are identified for models that have a map per language."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import tests.commands.bias_files as bias_files
from st_xlret import encode, export, fit_calibration
from st_xlret.commands.index import main as index
from st_xlret.commands.search_index import SearchIndex, identifier_for
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
    index([str(tmp_path / "texts.txt"), "--model", str(tmp_path / "model"), "--output", str(tmp_path / "index")])
    opened = SearchIndex(str(tmp_path / "index"))
    assert [opened.entries[row]["language"] for row in range(3)] == list(TEXTS)
    for code, text in TEXTS.items():
        (best,), (given,) = opened.search([text], 3), opened.search([text], 3, language=code)
        assert best == given
    expected = encode(model, list(TEXTS.values()), list(TEXTS), role="document", normalize_embeddings=True)
    np.testing.assert_allclose(opened.vectors, expected, atol=1e-3)
