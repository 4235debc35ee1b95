"""The collator that passes languages, documents, text ids and positions of words to the losses."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from torch import Tensor

from st_xlret.data.batches.prompts import model_prompt, prompts_of
from st_xlret.data.languages import language_to_id
from st_xlret.modules.encoding import few_lengths

logger = logging.getLogger(__name__)

METADATA_COLUMNS = ("language", "document", "position")
SPAN_SUFFIXES = ("_start", "_end", "_word")


def text_to_id(text: str) -> int:
    """Compute a stable 63-bit id of a text: equal texts have equal ids.

    Example:
        >>> text_to_id("a") == text_to_id("a"), text_to_id("a") == text_to_id("b")
        (True, False)
    """
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@dataclass
class CrossLingualDataCollator(SentenceTransformerDataCollator):
    """Takes metadata columns out of the rows, and attaches them as integers to the features of every text column.

    Pass it to the Trainer as `data_collator=CrossLingualDataCollator(model.preprocess)`. In bfloat16 on a CPU, texts
    are padded to multiples of 16 tokens, because oneDNN compiles kernels for each length and keeps them.

    - `language` (or `<column>_language` for one column) contains ISO 639 codes. It becomes `language_id` (rows,), see
      [`language_to_id`][st_xlret.data.language_to_id].
    - `document` contains integers. It becomes `document_id` (rows,).
    - `position` is only for the sampler, and is dropped.
    - With `blocks`, rows that have a document and a position get `block_id` and `sentence_position` (rows,), for the
      batches of [`BlockBatchSampler`][st_xlret.BlockBatchSampler], where a document has one block.
    - `<column>_start` and `<column>_end` beside a text column of that name are the token span of a word, half open, in
      the tokenised text. They become `word_start` and `word_end` (rows,); `<column>_word`, the word itself, is dropped.
    - Every text gets an id of its own, `text_id` (rows,).

    Args:
        preprocess_fn: The model's `preprocess`.
        prompts: Prompt of all texts, or of each column, or of each column of each data set, in the forms of
            `SentenceTransformerTrainingArguments(prompts=...)`. By default those of the training arguments and, where
            they name none, those of the model: queries get the prompt of `encode_query`, documents that of
            `encode_document`, other texts that of `encode`. `prompts=""` in the training arguments leaves them out.
            [`LossStateCallback`][st_xlret.LossStateCallback] hands both over; without it, pass `prompts=args.prompts`.
        router_mapping: Route of each column in a `Router`, with the same forms and the same default.
        max_length: Tokens to read of a text of a batch, prompt and special tokens included. Default: the model's
            `max_seq_length`, which stays that of the model.
        token_dropout: Probability of dropping a token from the flattened inputs of a `StaticEmbedding`. At least one
            token of a text stays. Seeded by the batch's own texts, so a resumed run drops the same tokens.
        blocks: Whether rows are sentences of blocks of documents, as MSM takes them.

    Raises:
        ValueError: On an invalid language code or span, for `token_dropout` with an encoder of padded inputs, or if a
            prompt leaves no room for the word of a span.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> rows = [{"sentence": "a b", "language": "en", "document": 3}]
        >>> CrossLingualDataCollator(model.preprocess)(rows)["sentence_document_id"]
        tensor([3])
    """

    token_dropout: float = 0.0
    blocks: bool = False
    _model: Any = field(default=None, init=False, repr=False)

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate rows into one batch."""
        if not features:
            return {}
        spans, metadata = span_columns(features[0]), metadata_columns(features[0])
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
                if self.blocks and "position" in metadata:
                    batch[f"{column}_block_id"] = batch[f"{column}_document_id"].clone()
                    batch[f"{column}_sentence_position"] = torch.tensor([int(row["position"]) for row in features])
            if f"{column}_start" in spans:
                start, end = word_spans(features, column)
                shift = self._prompt_tokens(batch, column, values, end)
                start, end = start + shift, end + shift
                batch[f"{column}_word_start"], batch[f"{column}_word_end"] = start, end
            if self.token_dropout:
                self._drop_tokens(batch, column, text_ids)
        return batch

    def adopt_options(self, args: SentenceTransformerTrainingArguments, model: Any = None) -> None:
        """Take prompts and router mapping of the training arguments, as the host's own collator does, and the padding.

        Args:
            args: The training arguments.
            model: The encoder, whose prompts are taken where neither the arguments nor the collator have any.

        Raises:
            ValueError: If the collator was given others.
        """
        for name in ("prompts", "router_mapping"):
            own, given = getattr(self, name), getattr(args, name)
            if own and given and own != given:
                raise ValueError(
                    f"the training arguments have {name}={given!r}, but the data collator was given {own!r}; give them "
                    "to one of the two"
                )
            setattr(self, name, own or given)
        takes_own = model is not None and args.prompts is None and not self.prompts
        self._model = model if takes_own and prompts_of(model) else None
        if self._model is not None:
            shown = ", ".join(f"{prompt!r} before {texts}" for texts, prompt in prompts_of(model).items())
            logger.info("training with the model's prompts: %s", shown)
        if model is not None and args.bf16 and args.device.type == "cpu":
            cuts = self.max_length.values() if isinstance(self.max_length, dict) else [self.max_length]
            self.preprocess_fn = partial(self.preprocess_fn, **few_lengths(model, *cuts))

    def _get_prompt_for_column(self, prompts: str | dict[str, str], column_name: str) -> str | None:
        """The prompt of a column: one that was given, or the model's own."""
        if self._model is not None:
            return model_prompt(self._model, column_name)
        return super()._get_prompt_for_column(prompts, column_name)

    def _prompt_tokens(self, batch: dict[str, Any], column: str, texts: list[str], ends: Tensor) -> Tensor:
        """How many tokens a prompt puts before each text (rows,). Spans are positions in the text without a prompt."""
        prompt = self._get_prompt_for_column(self._resolve_prompts(batch) or {}, column)
        if not prompt:
            return torch.zeros_like(ends)
        limit = {} if self.max_length is None else {"max_length": self.max_length}
        without = self.preprocess_fn(texts, task=batch.get(f"{column}_task"), **limit)
        shifts = []
        for row, (text, end) in enumerate(zip(texts, ends.tolist(), strict=True)):
            ids = without["input_ids"][row][without["attention_mask"][row].bool()]
            prompted = batch[f"{column}_input_ids"][row][batch[f"{column}_attention_mask"][row].bool()]
            # A special token may stand before the prompt; from the first word on, the tokens are the same. If the texts
            # are cut off, their lengths do not tell by how much they are shifted.
            candidates = (len(prompted) - len(ids), *range(1, len(prompted) - end + 1))
            found = [n for n in candidates if n >= 0 and torch.equal(prompted[n + 1 : n + end], ids[1:end])]
            if not found:
                raise ValueError(
                    f"with the prompt {prompt!r}, the word before token {end} of {text!r} is cut off or tokenised in "
                    "another way; build the samples with a lower max_seq_length, or leave the prompt out"
                )
            shifts.append(found[0])
        return torch.tensor(shifts)

    def _drop_tokens(self, batch: dict[str, Any], column: str, text_ids: list[int]) -> None:
        ids, offsets = batch[f"{column}_input_ids"], batch.get(f"{column}_offsets")
        if offsets is None:
            raise ValueError("token_dropout works on the flattened inputs of a StaticEmbedding; this encoder pads")
        generator = np.random.default_rng(text_ids)
        kept, new_offsets = drop_tokens(len(ids), offsets, self.token_dropout, generator)
        batch[f"{column}_input_ids"], batch[f"{column}_offsets"] = ids[kept], new_offsets


def span_columns(names: Iterable[str]) -> list[str]:
    """List the columns that give the position of a word in the text column of the same name.

    Example:
        >>> span_columns(["source", "source_start", "source_end", "source_word", "the_end"])
        ['source_start', 'source_end', 'source_word']
    """
    names = list(names)
    return [
        name for name in names for suffix in SPAN_SUFFIXES if name.endswith(suffix) and name[: -len(suffix)] in names
    ]


def metadata_columns(names: Iterable[str]) -> list[str]:
    """List the columns that describe texts and are none themselves: languages, documents, positions.

    Example:
        >>> metadata_columns(["source", "target", "source_language", "document", "target_start"])
        ['source_language', 'document', 'target_start']
    """
    names = list(names)
    tags = [name for name in names if name in METADATA_COLUMNS or name.endswith("_language")]
    return tags + span_columns(names)


def word_spans(rows: list[dict[str, Any]], column: str) -> tuple[Tensor, Tensor]:
    """Collect the token spans of a text column's words: first token and one past the last, each (rows,).

    Raises:
        ValueError: If a row lacks the start or the end, or they are not token positions in order.
    """
    for row in rows:
        start, end = row.get(f"{column}_start"), row.get(f"{column}_end")
        if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start < end:
            raise ValueError(
                f"{column}_start and {column}_end must be token positions with start < end, got {start!r} and "
                f"{end!r} in the row {row[column]!r}"
            )
    return tuple(torch.tensor([row[f"{column}_{name}"] for row in rows]) for name in ("start", "end"))  # type: ignore[return-value]


def drop_tokens(
    tokens: int, offsets: Tensor, probability: float, generator: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Choose which tokens of flattened rows to keep, and compute where the rows start then.

    Args:
        tokens: Number of tokens.
        offsets: Start of each row (rows,).
        probability: Probability of dropping a token. A random token stays where a row would lose all of them.
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
