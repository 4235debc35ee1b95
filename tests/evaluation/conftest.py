from pathlib import Path

import datasets
import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.modules import static_encoder
from tests import tiny
from tests.evaluation.samples import WORDS, write_tatoeba


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of passages are kept in a folder of the test."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


@pytest.fixture
def static_model() -> SentenceTransformer:
    """Aligns French with English perfectly, German only in its first three words."""
    words = [word for of_language in WORDS.values() for word in of_language]
    model = static_encoder(tiny.word_tokenizer(words), features=16)
    english, french, german = model[0].embedding.weight.data[-18:].split(6)
    french[:] = english
    german[:] = english[[0, 1, 2, 4, 5, 3]]
    return model


@pytest.fixture
def tatoeba_folder(tmp_path: Path) -> Path:
    return write_tatoeba(tmp_path / "tatoeba")
