"""Collator that carries languages, documents and texts beside the tokens."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from torch import Tensor

from st_xlret.data.languages import language_to_id

METADATA_COLUMNS = ("language", "document", "position")


def text_to_id(text: str) -> int:
    """A stable 63-bit id of a text: equal texts have equal ids.

    Example:
        >>> text_to_id("a") == text_to_id("a"), text_to_id("a") == text_to_id("b")
        (True, False)
    """
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@dataclass
class CrossLingualDataCollator(SentenceTransformerDataCollator):
    """Takes metadata columns out of the rows and attaches them to every text column's features as integers.

    Pass it to the Trainer as ``data_collator=CrossLingualDataCollator(model.preprocess)``.

    - ``language``, or ``<column>_language`` for one column: ISO 639 codes -> ``language_id`` (rows,), see
      :func:`~st_xlret.data.language_to_id`;
    - ``document``: integers -> ``document_id`` (rows,);
    - ``position`` is dropped, it serves the sampler;
    - every text's own id -> ``text_id`` (rows,).

    Args:
        preprocess_fn: The model's ``preprocess``.
        token_dropout: Share of tokens left out of the flattened inputs of a ``StaticEmbedding``, at least one
            stays. Seeded by the batch's own texts, so that a resumed run drops the same tokens.

    Raises:
        ValueError: On a language code that is none, or ``token_dropout`` with an encoder of padded inputs.

    Example:
        >>> from st_xlret.training import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> rows = [{"sentence": "a b", "language": "en", "document": 3}]
        >>> CrossLingualDataCollator(model.preprocess)(rows)["sentence_document_id"]
        tensor([3])
    """

    token_dropout: float = 0.0

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate rows into one batch."""
        if not features:
            return {}
        metadata = [name for name in features[0] if name in METADATA_COLUMNS or name.endswith("_language")]
        not_text = {*metadata, "dataset_name", *self.valid_label_columns}
        texts = {name: [row[name] for row in features] for name in features[0] if name not in not_text}
        rows = [{name: value for name, value in row.items() if name not in metadata} for row in features]
        batch: dict[str, Any] = super().__call__(rows)
        for column, values in texts.items():
            text_ids = [text_to_id(text) for text in values]
            batch[f"{column}_text_id"] = torch.tensor(text_ids)
            language = next((name for name in (f"{column}_language", "language") if name in metadata), None)
            if language is not None:
                ids = [language_to_id(row[language]) for row in features]
                batch[f"{column}_language_id"] = torch.tensor(ids)
            if "document" in metadata:
                batch[f"{column}_document_id"] = torch.tensor([int(row["document"]) for row in features])
            if self.token_dropout:
                self._drop_tokens(batch, column, text_ids)
        return batch

    def _drop_tokens(self, batch: dict[str, Any], column: str, text_ids: list[int]) -> None:
        ids, offsets = batch[f"{column}_input_ids"], batch.get(f"{column}_offsets")
        if offsets is None:
            raise ValueError("token_dropout works on the flattened inputs of a StaticEmbedding; this encoder pads")
        generator = np.random.default_rng(text_ids)
        kept, new_offsets = drop_tokens(len(ids), offsets, self.token_dropout, generator)
        batch[f"{column}_input_ids"], batch[f"{column}_offsets"] = ids[kept], new_offsets


def drop_tokens(
    tokens: int, offsets: Tensor, probability: float, generator: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Which tokens of flattened rows to keep, and where the rows start then.

    Args:
        tokens: Number of tokens.
        offsets: Start of each row (rows,).
        probability: Chance of each token to go; the first drawn token of a row stays where all would go.
        generator: Source of randomness.

    Returns:
        Kept positions (kept,), and the new starts (rows,).

    Example:
        >>> kept, starts = drop_tokens(5, torch.tensor([0, 3]), 0.999999, np.random.default_rng(0))
        >>> len(kept), starts.tolist()
        (2, [0, 1])
    """
    starts = offsets.numpy()
    lengths = np.diff(np.append(starts, tokens))
    keep = generator.random(tokens) >= probability
    filled = starts[lengths > 0]
    if len(filled):
        emptied = np.add.reduceat(keep, filled) == 0
        spared = filled + (generator.random(len(filled)) * lengths[lengths > 0]).astype(np.int64)
        keep[spared[emptied]] = True
    before = np.concatenate([[0], np.cumsum(keep)])
    return torch.from_numpy(np.flatnonzero(keep)), torch.from_numpy(before[starts])
