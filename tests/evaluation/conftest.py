from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.evaluation.samples import WORDS, write_tatoeba


@pytest.fixture
def static_model() -> SentenceTransformer:
    """Aligns French with English perfectly, German only in its first three words."""
    words = ["[UNK]", *(word for language in WORDS.values() for word in language)]
    tokenizer = Tokenizer(models.WordLevel({word: row for row, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    torch.manual_seed(1)
    embeddings = torch.randn(len(words), 16)
    english, french, german = (slice(1 + 6 * i, 7 + 6 * i) for i in range(3))
    embeddings[french] = embeddings[english]
    embeddings[german] = embeddings[english][[0, 1, 2, 4, 5, 3]]
    static = StaticEmbedding(tokenizer, embedding_weights=embeddings)
    return SentenceTransformer(modules=[static], device="cpu")


@pytest.fixture
def tatoeba_folder(tmp_path: Path) -> Path:
    return write_tatoeba(tmp_path / "tatoeba")
