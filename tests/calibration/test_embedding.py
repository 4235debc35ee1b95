from __future__ import annotations

import datasets
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import BoW

from st_xlret.calibration import embed_documents, embed_pairs

WORDS = ["cat", "dog", "chat", "chien", "hund"]


@pytest.fixture(scope="module")
def model() -> SentenceTransformer:
    return SentenceTransformer(modules=[BoW(vocab=WORDS)], device="cpu")


def documents() -> datasets.Dataset:
    return datasets.Dataset.from_dict(
        {"sentence": ["cat", "chat", "dog", "cat", "chien"], "language": ["en", "fr", "en", "en", "fr"]}
    )


def test_sentences_are_embedded_once_by_language(model: SentenceTransformer) -> None:
    found = embed_documents(model, documents(), languages=["fr", "en"])
    assert list(found) == ["fr", "en"]
    assert found["fr"].tolist() == [[0, 0, 1, 0, 0], [0, 0, 0, 1, 0]]
    assert found["en"].tolist() == [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0]]
    assert found["en"].dtype == torch.float32


def test_a_sample_is_drawn_by_seed(model: SentenceTransformer) -> None:
    many = datasets.Dataset.from_dict({"sentence": ["cat " * (i + 1) for i in range(50)], "language": ["en"] * 50})
    draws = [embed_documents(model, many, sentences_per_language=5, seed=seed)["en"] for seed in (0, 0, 1)]
    assert draws[0].shape == (5, 5)
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


def test_a_language_without_text_is_named(model: SentenceTransformer) -> None:
    with pytest.raises(ValueError, match="no sentence in sw: there are en, fr"):
        embed_documents(model, documents(), languages=["en", "sw"])


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
