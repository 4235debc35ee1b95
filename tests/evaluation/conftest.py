from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.modules import static_encoder
from tests import tiny
from tests.evaluation.samples import WORDS, write_tatoeba


@pytest.fixture
def static_model() -> SentenceTransformer:
    """Aligns French with English perfectly, German only in its first three words."""
    model = static_encoder(tiny.word_tokenizer(sum(WORDS.values(), [])), features=16)
    english, french, german = model[0].embedding.weight.data[-18:].split(6)
    french[:], german[:] = english, english[[0, 1, 2, 4, 5, 3]]
    return model


@pytest.fixture
def tatoeba_folder(tmp_path: Path) -> Path:
    return write_tatoeba(tmp_path / "tatoeba")
