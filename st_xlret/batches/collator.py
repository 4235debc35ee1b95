"""The collator that passes languages, documents, text ids and positions of words to the losses."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from torch import Tensor

from st_xlret.data.languages import language_to_id
from st_xlret.data.packing import token_offsets
from st_xlret.data.text import join_sentences
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
        if self._takes_prompts_of_model() and (found := prompts_of(self._model)):
            shown = ", ".join(f"{prompt!r} before {texts}" for texts, prompt in found.items())
            logger.info("training with the model's prompts: %s", shown)
        if self._model is not None and args.bf16 and args.device.type == "cpu":
            cuts = self.max_length.values() if isinstance(self.max_length, dict) else [self.max_length]
            self.preprocess_fn = partial(self._model.preprocess, **few_lengths(self._model, *cuts))

    def _takes_prompts_of_model(self) -> bool:
        return self._model is not None and (self.prompts is None or self.prompts == {})

    def _get_prompt_for_column(self, prompts: str | dict[str, str], column_name: str) -> str | None:
        """The prompt of a column: one that was given, or the model's own."""
        if self._takes_prompts_of_model():
            return model_prompt(self._model, column_name)
        return super()._get_prompt_for_column(prompts, column_name)

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


def model_prompt(model: Any, column: str) -> str | None:
    """The prompt of a model for the texts of a column: it is trained with the prompts that it is used with.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> model.prompts = {"query": "query: ", "document": "passage: "}
        >>> [model_prompt(model, column) for column in ("query", "negative_2", "source")]
        ['query: ', 'passage: ', None]
    """
    kind = column.rstrip("_0123456789")
    role: Any = "query" if kind in QUERY_COLUMNS else "document" if kind in DOCUMENT_COLUMNS else None
    return role_prompt(model, role) or None


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


def drop_tokens(
    tokens: int, offsets: Tensor, probability: float, generator: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Choose which tokens of flattened rows to keep, and compute where the rows start then."""
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


@dataclass
class SpanDataCollator(CrossLingualDataCollator):
    """Makes two text columns, `anchor` and `positive`, of the documents of a batch: crops and ICT.

    The rows are sentences of blocks, as [`Blocks`][st_xlret.Blocks] gives them. Each document
    of the batch becomes one row, for a loss of two columns such as
    [`SemanticContrastiveLoss`][st_xlret.SemanticContrastiveLoss]:

    - `"crop"`: two random spans of tokens, drawn independently of each other, so that they may overlap (as in
      mContriever: Izacard et al., 2021, section 3.1, with up to 256 tokens of a document and spans of 5 % to 50 % of
      them). The MSM paper's baseline CROP is another method: it pairs two sentences, as CCP does (section 5.3);
    - `"ict"`: a random sentence, and as its context the other sentences of its block. The context keeps the sentence
      itself in 10 % of the cases (inverse cloze task: Lee et al., 2019, section 4).

    The random generator is seeded with the rows of the batch in their order, which the sampler shuffles. So spans are
    drawn anew in every pass, and a resumed run draws the same ones. Rows without a document and a position, such as
    those for masked language modelling, are collated as
    [`CrossLingualDataCollator`][st_xlret.CrossLingualDataCollator] does.

    Args:
        kind: "crop" or "ict".
        tokenizer: The encoder's tokenizer, a fast one; needed by "crop".
        max_tokens: Tokens of the random stretch of a document from which "crop" draws both spans.
        shortest: Minimum length of a crop, as a share of those tokens.
        longest: Maximum length of a crop, as a share of those tokens.
        keep_sentence: Probability that the context of "ict" keeps the sentence.

    Raises:
        ValueError: If an option is out of its range, or "crop" has no tokenizer.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> collator = SpanDataCollator(model.preprocess, kind="ict", keep_sentence=0.0)
        >>> rows = [{"sentence": "a", "language": "en", "document": 5, "position": 0}]
        >>> rows += [{"sentence": "b c", "language": "en", "document": 5, "position": 1}]
        >>> collator.make_pairs(rows)
        [{'anchor': 'b c', 'positive': 'a', 'language': 'en', 'document': 5}]
    """

    kind: Literal["crop", "ict"] = "crop"
    tokenizer: Any = None
    max_tokens: int = 256
    shortest: float = 0.05
    longest: float = 0.5
    keep_sentence: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in ("crop", "ict"):
            raise ValueError(f"kind must be 'crop' or 'ict', got {self.kind!r}")
        if self.kind == "crop" and self.tokenizer is None:
            raise ValueError("crops are spans of tokens: give the encoder's tokenizer (model.tokenizer)")
        if not 0 < self.shortest <= self.longest <= 1:
            raise ValueError(
                f"crops must have shares 0 < shortest <= longest <= 1, got {self.shortest} and {self.longest}"
            )
        if self.max_tokens < 2:
            raise ValueError(f"max_tokens must be at least 2, got {self.max_tokens}")
        if not 0 <= self.keep_sentence <= 1:
            raise ValueError(f"keep_sentence must lie in [0, 1], got {self.keep_sentence}")

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate sentences of blocks into a batch of pairs, and other rows as they are."""
        if features and {"document", "position"} <= features[0].keys():
            features = self.make_pairs(features)
        return super().__call__(features)

    def make_pairs(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Make a pair of texts of each document that has at least two sentences in the batch."""
        texts = [name for name in rows[0] if name not in ("language", "document", "position", "dataset_name")]
        if len(texts) != 1:
            raise ValueError(f"sentences of blocks must be in one text column, got {texts}")
        generator = np.random.default_rng([text_to_id(f"{row['document']} {row['position']}") for row in rows])
        blocks: dict[int, list[dict[str, Any]]] = {}
        for row in sorted(rows, key=lambda row: (row["document"], row["position"])):
            blocks.setdefault(row["document"], []).append(row)
        kept = [block for block in blocks.values() if len(block) > 1]
        if not kept:
            raise ValueError(f"no document of the batch has two sentences to make a pair of: {rows[0]}")
        sentences = [[row[texts[0]] for row in block] for block in kept]
        languages = [block[0]["language"] for block in kept]
        if self.kind == "ict":
            pairs = [self._ict(*block, generator) for block in zip(sentences, languages, strict=True)]
        else:
            whole = [join_sentences(*block) for block in zip(sentences, languages, strict=True)]
            spans = token_offsets(self.tokenizer, whole)
            pairs = [self._crop(text, tokens, generator) for text, tokens in zip(whole, spans, strict=True)]
        own = [{k: v for k, v in block[0].items() if k not in (texts[0], "position")} for block in kept]
        return [{"anchor": a, "positive": p, **rest} for (a, p), rest in zip(pairs, own, strict=True)]

    def _ict(self, sentences: list[str], language: str, generator: np.random.Generator) -> tuple[str, str]:
        chosen = int(generator.integers(len(sentences)))
        keep = generator.random() < self.keep_sentence
        context = sentences if keep else sentences[:chosen] + sentences[chosen + 1 :]
        return sentences[chosen], join_sentences(context, language)

    def _crop(self, text: str, tokens: list[tuple[int, int]], generator: np.random.Generator) -> tuple[str, str]:
        begin = int(generator.integers(max(0, len(tokens) - self.max_tokens) + 1))
        tokens = tokens[begin : begin + self.max_tokens]
        return self._span(text, tokens, generator), self._span(text, tokens, generator)

    def _span(self, text: str, tokens: list[tuple[int, int]], generator: np.random.Generator) -> str:
        length = max(1, round(generator.uniform(self.shortest, self.longest) * len(tokens)))
        begin = int(generator.integers(max(0, len(tokens) - length) + 1))
        span = tokens[begin : begin + length]
        return text[span[0][0] : span[-1][1]].strip() if span else text
