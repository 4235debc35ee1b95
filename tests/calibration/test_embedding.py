from __future__ import annotations

import datasets
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import BoW

from st_xlret.calibration import embed_pairs, embed_texts

WORDS = ["cat", "dog", "chat", "chien", "hund"]


@pytest.fixture(scope="module")
def model() -> SentenceTransformer:
    return SentenceTransformer(modules=[BoW(vocab=WORDS)], device="cpu")


def test_texts_are_embedded_by_language_at_full_width(model: SentenceTransformer) -> None:
    model.truncate_dim = 2
    found = embed_texts(model, {"fr": ["chat", "chien"], "en": ["cat", "dog"]}, role="query", prompt="hund ")
    assert list(found) == ["fr", "en"] and model.truncate_dim == 2
    assert found["fr"].tolist() == [[0, 0, 1, 0, 1], [0, 0, 0, 1, 1]]
    assert found["en"].tolist() == [[1, 0, 0, 0, 1], [0, 1, 0, 0, 1]]
    assert found["en"].dtype == torch.float32
    model.truncate_dim = None


def test_pairs_are_turned_towards_the_pivot(model: SentenceTransformer) -> None:
    pairs = datasets.Dataset.from_list(
        [
            {"source": "chat", "target": "cat", "source_language": "fr", "target_language": "en"},
            {"source": "dog", "target": "chien", "source_language": "en", "target_language": "fr"},
            {"source": "dog", "target": "hund", "source_language": "en", "target_language": "de"},
            {"source": "chien", "target": "hund", "source_language": "fr", "target_language": "de"},
        ]
    )
    found = embed_pairs(model, pairs, pivot="en", languages=["fr"])
    assert list(found) == ["fr"]
    own, other = found["fr"]
    assert own.argmax(dim=1).tolist() == [2, 3] and other.argmax(dim=1).tolist() == [0, 1]
    assert sorted(embed_pairs(model, pairs, pivot="en")) == ["de", "fr"]
    with pytest.raises(ValueError, match="none of the 4 pairs is between the pivot 'en' and one of sw"):
        embed_pairs(model, pairs, pivot="en", languages=["sw"])
