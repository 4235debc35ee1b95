from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

WORDS = {
    "en": ["taxi", "hotel", "bread", "water", "night", "house"],
    "fr": ["voiture", "auberge", "pain", "eau", "nuit", "maison"],
    "de": ["wagen", "gasthof", "brot", "wasser", "nacht", "haus"],
}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def word_tokenizer() -> Tokenizer:
    words = [*SPECIAL, *(word for language in WORDS.values() for word in language)]
    tokenizer = Tokenizer(models.WordLevel({word: row for row, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


@pytest.fixture
def static_model() -> SentenceTransformer:
    """Aligns French with English perfectly, German only in its first three words."""
    torch.manual_seed(1)
    embeddings = torch.randn(len(SPECIAL) + 18, 16)
    rows = {language: slice(5 + 6 * i, 11 + 6 * i) for i, language in enumerate(WORDS)}
    embeddings[rows["fr"]] = embeddings[rows["en"]]
    embeddings[rows["de"]] = embeddings[rows["en"]][[0, 1, 2, 4, 5, 3]]
    static = StaticEmbedding(word_tokenizer(), embedding_weights=embeddings)
    return SentenceTransformer(modules=[static], device="cpu")


@pytest.fixture(scope="session")
def transformer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(2)
    config = BertConfig(
        vocab_size=len(SPECIAL) + 18,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=word_tokenizer(), **names).save_pretrained(folder)
    return folder


@pytest.fixture
def transformer_model(transformer_folder: Path) -> SentenceTransformer:
    transformer = Transformer(str(transformer_folder))
    return SentenceTransformer(modules=[transformer, Pooling(16, pooling_mode="cls")], device="cpu")


@pytest.fixture
def tatoeba_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tatoeba"
    folder.mkdir()
    for code, language in (("fra", "fr"), ("deu", "de")):
        (folder / f"tatoeba.{code}-eng.{code}").write_text("\n".join(WORDS[language]) + "\n", encoding="utf-8")
        (folder / f"tatoeba.{code}-eng.eng").write_text("\n".join(WORDS["en"]) + "\n", encoding="utf-8")
    return folder
