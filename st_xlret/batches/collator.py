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
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from torch import Tensor

from st_xlret.languages import language_to_id
from st_xlret.precision import few_lengths
from st_xlret.prompts import role_prompt

logger = logging.getLogger(__name__)

METADATA_COLUMNS = ("language", "document", "position")
SPAN_SUFFIXES = ("_start", "_end", "_word")
QUERY_COLUMNS = ("anchor", "query", "question")
"""Columns of queries: they get the prompt of queries."""
DOCUMENT_COLUMNS = ("positive", "negative", "passage", "answer")
"""Columns of documents, also with a number as in `negative_1`: they get the prompt of documents."""


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

    `CrossLingualTrainer` has it already. Give it to the host's Trainer as
    `data_collator=CrossLingualDataCollator(model.preprocess)`.

    - `language` (or `<column>_language` for one column) contains ISO 639 codes. It becomes `language_id` (rows,), see
      [`language_to_id`][st_xlret.data.language_to_id].
    - `document` contains integers or strings. It becomes `document_id` (rows,).
    - Rows that have a document and a `position` in it get `block_id` and `sentence_position` (rows,).
    - `<column>_start` and `<column>_end` beside a text column of that name are the token span of a word, half open, in
      the tokenised text. They become `word_start` and `word_end` (rows,); `<column>_word`, the word itself, is dropped.
    - Every text gets an id of its own, `text_id` (rows,).

    A batch may have rows of several kinds, such as parallel sentences and others without a translation: where the text
    columns of one kind are empty strings in the other kind, each column has the rows of its own kind.

    Args:
        preprocess_fn: The model's `preprocess`.
        prompts: Prompt of all texts, or of each column, or of each column of each data set, in the forms of
            `SentenceTransformerTrainingArguments(prompts=...)`. By default those of the model: queries get the prompt
            of `encode_query`, documents that of `encode_document`, other texts that of `encode`. `""` leaves them out.
        router_mapping: Route of each column in a `Router`, with the same forms.
        max_length: Tokens to read of a text of a batch, prompt and special tokens included. Default: the model's
            `max_seq_length`, which stays that of the model.
        token_dropout: Probability of dropping a token from the flattened inputs of a `StaticEmbedding`. At least one
            token of a text stays. Seeded by the batch's own texts: a resumed run drops the same tokens.

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
    _model: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        owner = getattr(self.preprocess_fn, "__self__", None)
        self._model = owner if isinstance(owner, SentenceTransformer) else None
        self._take_prompts_of_model()

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate rows into one batch."""
        batch: dict[str, Any] = {}
        for rows in self._kinds(features):
            batch |= self._collate(rows)
        return batch

    def adopt_options(self, args: SentenceTransformerTrainingArguments, model: Any = None) -> None:
        """Take what the host hands to its own collator only: prompts and router mapping of the training arguments.

        In bfloat16 on a CPU, texts are padded to multiples of 16 tokens from then on, because oneDNN compiles kernels
        for each length and keeps them.

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
            if not own and given is not None:
                setattr(self, name, given)
        self._model = self._model or model
        self._take_prompts_of_model()
        if isinstance(self.prompts, PromptsOfModel) and (found := prompts_of(self._model)):
            shown = ", ".join(f"{prompt!r} before {texts}" for texts, prompt in found.items())
            logger.info("training with the model's prompts: %s", shown)
        if self._model is not None and args.bf16 and args.device.type == "cpu":
            cuts = self.max_length.values() if isinstance(self.max_length, dict) else [self.max_length]
            self.preprocess_fn = partial(self._model.preprocess, **few_lengths(self._model, *cuts))

    def _take_prompts_of_model(self) -> None:
        if self._model is not None and self.prompts in (None, {}):
            self.prompts = PromptsOfModel(self._model)

    def _text_columns(self, row: dict[str, Any]) -> list[str]:
        not_text = {*metadata_columns(row), "dataset_name", *self.valid_label_columns}
        return [name for name in row if name not in not_text]

    def _kinds(self, features: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        """The rows of each kind, without their empty columns; one kind if two of them had a text column in common."""
        if not features:
            return []
        columns = self._text_columns(features[0])
        kinds: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for row in features:
            kinds.setdefault(tuple(name for name in columns if row[name] != ""), []).append(row)
        used = [name for kind in kinds for name in kind]
        if len(kinds) < 2 or () in kinds or len(set(used)) < len(used):
            return [features]
        return [
            [{n: v for n, v in row.items() if n in kind or (n not in columns and v != "")} for row in rows]
            for kind, rows in kinds.items()
        ]

    def _collate(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        spans, metadata = span_columns(features[0]), metadata_columns(features[0])
        rows = [{name: value for name, value in row.items() if name not in metadata} for row in features]
        batch: dict[str, Any] = super().__call__(rows)
        for column in self._text_columns(features[0]):
            values = [row[column] for row in features]
            text_ids = [text_to_id(text) for text in values]
            batch[f"{column}_text_id"] = torch.tensor(text_ids)
            language = next((name for name in (f"{column}_language", "language") if name in metadata), None)
            if language is not None:
                ids = [language_to_id(row[language]) for row in features]
                batch[f"{column}_language_id"] = torch.tensor(ids)
            if "document" in metadata:
                names = [row["document"] for row in features]
                document = torch.tensor([text_to_id(name) if isinstance(name, str) else int(name) for name in names])
                batch[f"{column}_document_id"] = document
                if "position" in metadata:
                    batch[f"{column}_block_id"] = document.clone()
                    batch[f"{column}_sentence_position"] = torch.tensor([int(row["position"]) for row in features])
            if f"{column}_start" in spans:
                start, end = word_spans(features, column)
                shift = self._prompt_tokens(batch, column, values, end)
                start, end = start + shift, end + shift
                batch[f"{column}_word_start"], batch[f"{column}_word_end"] = start, end
            if self.token_dropout:
                self._drop_tokens(batch, column, text_ids)
        return batch

    def _prompt_tokens(self, batch: dict[str, Any], column: str, texts: list[str], ends: Tensor) -> Tensor:
        """How many tokens a prompt puts before each text (rows,). Spans are positions in the text without a prompt."""
        if f"{column}_prompt_length" not in batch:
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
                    f"with the prompt of {column!r}, the word before token {end} of {text!r} is cut off or has "
                    "other tokens; build the samples with a lower max_seq_length, or leave the prompt out"
                )
            shifts.append(found[0])
        return torch.tensor(shifts)

    def _drop_tokens(self, batch: dict[str, Any], column: str, text_ids: list[int]) -> None:
        ids, offsets = batch[f"{column}_input_ids"], batch.get(f"{column}_offsets")
        if offsets is None:
            raise ValueError("token_dropout works on the flattened inputs of a StaticEmbedding; this encoder pads")
        generator, starts = np.random.default_rng(text_ids), offsets.numpy()
        lengths = np.diff(np.append(starts, len(ids)))
        keep = generator.random(len(ids)) >= self.token_dropout
        filled = starts[lengths > 0]
        if len(filled):  # one token of each text stays
            emptied = np.add.reduceat(keep, filled) == 0
            spared = filled + (generator.random(len(filled)) * lengths[lengths > 0]).astype(np.int64)
            keep[spared[emptied]] = True
        before = np.concatenate([[0], np.cumsum(keep)])
        batch[f"{column}_input_ids"] = ids[torch.from_numpy(keep)]
        batch[f"{column}_offsets"] = torch.from_numpy(before[starts])


class PromptsOfModel(dict[str, str]):
    """The prompts of a model by column, for columns of any name: what the host's collator takes as `prompts`."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model

    def __contains__(self, column: object) -> bool:
        return True

    def __missing__(self, column: str) -> str:
        return model_prompt(self.model, column)


def model_prompt(model: Any, column: str) -> str:
    """The prompt of a model for the texts of a column: it is trained with the prompts that it is used with.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> model.prompts = {"query": "query: ", "document": "passage: "}
        >>> [model_prompt(model, column) for column in ("query", "negative_2", "source")]
        ['query: ', 'passage: ', '']
    """
    kind = column.rstrip("_0123456789")
    role: Any = "query" if kind in QUERY_COLUMNS else "document" if kind in DOCUMENT_COLUMNS else None
    return role_prompt(model, role)


def prompts_of(model: Any) -> dict[str, str]:
    """The prompts that `model_prompt` may give, by the columns that they are for; empty for a model without prompts."""
    columns = {"queries": QUERY_COLUMNS[0], "documents": DOCUMENT_COLUMNS[0], "other texts": ""}
    found = {texts: model_prompt(model, column) for texts, column in columns.items()}
    return {texts: prompt for texts, prompt in found.items() if prompt}


def prompt_tokens(model: Any, prompts: Any = None) -> int:
    """How many tokens the longest prompt takes of a text's `max_seq_length`."""
    given = prompts_of(model) if prompts is None else prompts
    return max((len(model.tokenizer.tokenize(prompt)) for prompt in _texts(given)), default=0)


def _texts(prompts: Any) -> list[str]:
    if isinstance(prompts, dict):
        return [text for inner in prompts.values() for text in _texts(inner)]
    return [prompts] if prompts else []


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


def text_columns(dataset: Dataset) -> list[str]:
    """The columns of texts: of strings that are neither metadata nor ids.

    Example:
        >>> text_columns(Dataset.from_dict({"id": ["7"], "sentence": ["a"], "language": ["en"], "document": ["d"]}))
        ['sentence']
    """
    strings = [n for n, f in dataset.features.items() if getattr(f, "dtype", None) in ("string", "large_string")]
    metadata = metadata_columns(dataset.column_names)
    # What the host, too, takes for ids.
    ids = [name for name in strings if name == "id" or name.endswith(("_id", "_ids", "_idx"))]
    return [name for name in strings if name not in (*metadata, *ids, "label", "labels")]


def word_spans(rows: list[dict[str, Any]], column: str) -> tuple[Tensor, Tensor]:
    """Collect the token spans of a text column's words: first token and one past the last, each (rows,)."""
    for row in rows:
        start, end = row.get(f"{column}_start"), row.get(f"{column}_end")
        if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start < end:
            raise ValueError(
                f"{column}_start and {column}_end must be token positions with start < end, got {start!r} and "
                f"{end!r} in the row {row[column]!r}"
            )
    return tuple(torch.tensor([row[f"{column}_{name}"] for row in rows]) for name in ("start", "end"))  # type: ignore[return-value]
