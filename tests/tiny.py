"""Tiny encoders and texts that the tests of losses and training share."""

import random
from functools import lru_cache
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from st_xlret import CrossLingualDataCollator
from st_xlret.modules import static_encoder, train_tokenizer, transformer_encoder

WORDS = [
    "sun",
    "moon",
    "star",
    "rain",
    "wind",
    "snow",
    "tree",
    "leaf",
    "root",
    "fish",
    "bird",
    "wolf",
    "bear",
]


@lru_cache
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer([" ".join(WORDS)] * 4, vocabulary=120)


def sentence(generator: random.Random, words: int = 4) -> str:
    return " ".join(generator.choices(WORDS, k=words))


def transformer(*, dropout: float = 0.0, seed: int = 0) -> SentenceTransformer:
    torch.manual_seed(seed)
    model = transformer_encoder(tokenizer(), "tiny", max_seq_length=16)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = dropout
    return model.to("cpu")


def static(*, features: int = 8, seed: int = 0) -> SentenceTransformer:
    torch.manual_seed(seed)
    return static_encoder(tokenizer(), features=features)


def window_rows(windows: int, *, language: str = "en", seed: int = 0) -> list[dict]:
    """Centres, then their contexts, each window in a document of its own."""
    generator = random.Random(seed)
    return [
        {
            "sentence": sentence(generator, 3 + i % 3),
            "language": language,
            "document": i % windows + 100 * seed,
        }
        for i in range(2 * windows)
    ]


def features(
    model: SentenceTransformer, rows: list[dict], column: str = "sentence"
) -> dict[str, Tensor]:
    """What the Trainer hands a loss for one column."""
    batch = CrossLingualDataCollator(model.preprocess)(rows)
    return features_of(batch, column)


def features_of(batch: dict[str, Any], column: str) -> dict[str, Tensor]:
    """What a batch has for one column."""
    prefix = f"{column}_"
    of_column = {}
    for name, value in batch.items():
        if name.startswith(prefix):
            of_column[name.removeprefix(prefix)] = value
    return of_column


def documents(
    count: int = 12, sentences: int = 5, *, languages: tuple[str, ...] = ("en", "fr")
) -> Dataset:
    generator = random.Random(1)
    rows = [
        {
            "sentence": sentence(generator),
            "language": languages[d % len(languages)],
            "document": d,
            "position": p,
        }
        for d in range(count)
        for p in range(sentences)
    ]
    return Dataset.from_list(rows)


def texts(count: int = 40) -> Dataset:
    generator = random.Random(2)
    return Dataset.from_list(
        [{"sentence": sentence(generator), "language": ("en", "fr")[i % 2]} for i in range(count)]
    )


def pairs(count: int = 40) -> Dataset:
    generator = random.Random(3)
    rows = [{"source": sentence(generator), "target": sentence(generator)} for _ in range(count)]
    return Dataset.from_list(
        [{**row, "source_language": "fr", "target_language": "en"} for row in rows]
    )


def word_rows(count: int = 6) -> list[dict]:
    """Word-positioned samples."""
    rows = pairs(count).to_list()
    for number, row in enumerate(rows):
        for side in ("source", "target"):
            row[f"{side}_start"], row[f"{side}_end"] = 1 + number % 3, 3 + number % 2 + number % 3
            row[f"{side}_word"] = "not tokenised"
    return rows


def word_tokenizer(words: list[str] = WORDS) -> PreTrainedTokenizerFast:
    """A token for each word, and two special ones around a text."""
    specials = ["<s>", "</s>", "<unk>", "<pad>"]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate([*specials, *words])}, "<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        "<s> $A </s>", None, [("<s>", 0), ("</s>", 1)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>")


def documents_of(lengths: dict[str, list[int]]) -> Dataset:
    """A row for each sentence of documents with these numbers of sentences, by language."""
    counts = [(code, count) for code, of_code in lengths.items() for count in of_code]
    return Dataset.from_list(
        [
            {"sentence": f"{d}.{p}", "language": code, "document": d, "position": p}
            for d, (code, count) in enumerate(counts)
            for p in range(count)
        ]
    )


def epochs(sampler: Any, count: int) -> list[list[int]]:
    """The batches of some epochs."""
    batches = []
    for epoch in range(count):
        sampler.set_epoch(epoch)
        batches += list(sampler)
    return batches
