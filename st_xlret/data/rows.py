"""Rows of a table: by the values of columns, held out for measuring, and packed into units of equal length."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from datasets.fingerprint import generate_fingerprint
from tokenizers import Tokenizer
from tqdm.auto import tqdm

from st_xlret.data.reading import PathLike, join_sentences, kept_table, key_of

_SENTENCES_AT_A_TIME = 1_000


def rows_by_value(dataset: Dataset, columns: list[str]) -> tuple[list[np.ndarray], list[tuple[str, ...]]]:
    """The rows of each combination of the values of some columns, in ascending order, and these values."""
    code, names = np.zeros(len(dataset), dtype=np.int64), [tuple[str, ...]()]
    for column in columns:
        values = dataset.with_format("arrow", columns=[column])[:][column]
        distinct = values.unique()
        code = code * len(distinct) + pc.index_in(values, value_set=distinct).to_numpy()
        names = [(*name, value) for name in names for value in distinct.to_pylist()]
    # Small integers are sorted by their digits.
    order = np.argsort(code.astype(np.int16) if len(names) < 2**15 else code, kind="stable")
    counts = np.bincount(code, minlength=len(names))
    present = np.flatnonzero(counts)
    return np.split(order, np.cumsum(counts[present])[:-1]), [names[i] for i in present]


def hold_out_pairs(pairs: Dataset, per_language: int, *, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Split pairs into rows to train on and, of each language pair, at most a tenth held out; no text is in both.

    Example:
        >>> rows = {"source": list("abcdefghij"), "target": list("klmnopqrst")}
        >>> languages = {"source_language": ["en"] * 10, "target_language": ["fr"] * 10}
        >>> [len(part) for part in hold_out_pairs(Dataset.from_dict({**rows, **languages}), 5)]
        [9, 1]
    """
    by_pair, _ = rows_by_value(pairs, ["source_language", "target_language"])
    generator = np.random.default_rng([seed, 11])
    chosen = [generator.permutation(group)[: min(per_language, len(group) // 10)] for group in by_pair]
    held_out = pairs.select(np.sort(np.concatenate(chosen)))
    if not len(held_out):
        return pairs, held_out
    table = pairs.with_format("arrow", columns=["source", "target"])[:]
    columns = held_out.with_format("arrow", columns=["source", "target"])[:].columns
    texts = pa.concat_arrays([chunk for column in columns for chunk in column.chunks])
    known = pc.or_(*(pc.is_in(table[side], value_set=texts) for side in ("source", "target")))
    return pairs.select(np.flatnonzero(~known.to_numpy())), held_out


def hold_out_questions(retrieval: Dataset, questions: int, *, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Split questions into rows to train on and about so many, at most a tenth, held out with their passages.

    Rows (`query`, `positive`, `negative_1` ...) with a held-out passage as a negative are in neither part.

    Example:
        >>> rows = {"query": [str(i) for i in range(40)], "positive": [f"p{i // 2}" for i in range(40)]}
        >>> [len(part) for part in hold_out_questions(Dataset.from_dict(rows), 3)]
        [36, 4]
    """
    groups, _ = rows_by_value(retrieval, ["positive"])
    count, chosen = min(questions, len(retrieval) // 10), [np.empty(0, dtype=np.int64)]
    for passage in np.random.default_rng([seed, 13]).permutation(len(groups)):
        if sum(map(len, chosen)) >= count:
            break
        chosen.append(groups[passage])
    rows = np.sort(np.concatenate(chosen))
    held_out = retrieval.select(rows)
    kept = np.ones(len(retrieval), dtype=bool)
    kept[rows] = False
    negatives = [name for name in retrieval.column_names if name.startswith("negative_")]
    if negatives and len(rows):
        # A held-out passage must not be pushed away in training either.
        passages = pa.array(held_out.unique("positive"))
        table = retrieval.with_format("arrow", columns=negatives)[:]
        for name in negatives:
            kept &= ~pc.is_in(table[name], value_set=passages).to_numpy()
    return retrieval.select(np.flatnonzero(kept)), held_out


def by_language(pairs: Dataset) -> dict[str, tuple[list[str], list[str]]]:
    """Group pairs into language -> (its sentences, the pivot's), row by row, as `TatoebaEvaluator` takes them.

    The pivot is the language that occurs in the most rows; rows without it are left out.
    """
    if not len(pairs):
        return {}
    # Sources come first: of two languages in equally many rows, the source is the pivot.
    ((pivot, _),) = Counter([*pairs["source_language"], *pairs["target_language"]]).most_common(1)
    grouped: dict[str, tuple[list[str], list[str]]] = {}
    for row in pairs:
        side, other = ("target", "source") if row["source_language"] == pivot else ("source", "target")
        if row[f"{other}_language"] == pivot:
            texts, translations = grouped.setdefault(row[f"{side}_language"], ([], []))
            texts.append(row[side])
            translations.append(row[other])
    return grouped


def pack_documents(
    documents: Dataset, tokenizer: Any, *, max_tokens: int = 64, cache_dir: PathLike | None = None
) -> Dataset:
    """Pack consecutive sentences of a document into units of up to `max_tokens` tokens, as MSM's published program.

    A longer sentence is a unit of its own, which the encoder truncates. The table is kept, and used again for the same
    documents and tokenizer.

    Args:
        documents: Sentences as [`load_documents`][st_xlret.load_documents] gives them, and units as this returns them.
        tokenizer: The encoder's tokenizer (`model.tokenizer`), a fast one.
        max_tokens: Maximum tokens of a unit, special tokens included.
        cache_dir: Folder of the table. By default `st_xlret` inside the cache of `datasets`.
    """
    # A static encoder, whose tokenizer is a Tokenizer, reads no special tokens.
    is_static = isinstance(tokenizer, Tokenizer)
    specials = 0 if is_static else tokenizer.num_special_tokens_to_add()
    if max_tokens <= specials:
        raise ValueError(f"max_tokens must be above the {specials} special tokens of a unit, got {max_tokens}")
    settings = json.loads((tokenizer if is_static else tokenizer.backend_tokenizer).to_str())
    settings |= {"truncation": None, "padding": None}  # left behind by earlier calls; they do not change the tokens
    key = key_of([generate_fingerprint(documents), max_tokens, settings])
    columns = {"sentence": "string", "language": "string", "document": "int64", "position": "int32"}
    return kept_table(f"units-{key}", columns, _units(documents, tokenizer, max_tokens - specials), cache_dir=cache_dir)


def token_offsets(tokenizer: Any, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """(Begin, end) in characters of the tokens of each text, without special tokens and truncation."""
    if isinstance(tokenizer, Tokenizer):
        return [
            [span for span, mask in zip(e.offsets, e.attention_mask, strict=True) if mask]
            for e in tokenizer.encode_batch(list(texts), add_special_tokens=False)
        ]
    # Not verbose: texts may be longer than the model reads.
    options = {"add_special_tokens": False, "truncation": False, "verbose": False}
    return tokenizer(list(texts), return_offsets_mapping=True, **options)["offset_mapping"]


def _units(documents: Dataset, tokenizer: Any, limit: int) -> Iterator[tuple[str, str, int, int]]:
    unit: list[str] = []
    tokens = position = document = 0
    language = ""
    batches = documents.select_columns(["sentence", "language", "document"]).iter(_SENTENCES_AT_A_TIME)
    for batch in tqdm(batches, desc="Packing", unit=" thousand sentences", disable=None):
        sentences = [sentence or "" for sentence in batch["sentence"]]
        counts = map(len, token_offsets(tokenizer, sentences))
        for sentence, code, number, count in zip(sentences, batch["language"], batch["document"], counts, strict=True):
            if not sentence.strip():
                continue
            if unit and (number != document or tokens + count > limit):
                yield join_sentences(unit, language), language, document, position
                unit, tokens, position = [], 0, position + 1
            if number != document:
                position = 0
            unit.append(sentence)
            tokens += count
            language, document = code, number
    if not unit:
        raise ValueError("there is no text to pack")
    yield join_sentences(unit, language), language, document, position
