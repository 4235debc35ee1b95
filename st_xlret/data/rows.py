"""Rows of a table: by the values of columns, held out for measuring, and packed into units of equal length."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, concatenate_datasets
from datasets.fingerprint import generate_fingerprint
from tokenizers import Tokenizer
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerFast

from st_xlret.data.documents import COLUMNS
from st_xlret.data.reading import cache_key, cached_table, join_sentences
from st_xlret.files import PathLike


def rows_by_value(
    dataset: Dataset, columns: list[str]
) -> tuple[list[np.ndarray], list[tuple[str, ...]]]:
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
    """Split pairs into rows to train on and, of each language pair, at most a tenth held out; no text is in both."""
    by_pair, _ = rows_by_value(pairs, ["source_language", "target_language"])
    generator = np.random.default_rng([seed, 11])
    chosen = [
        generator.permutation(group)[: min(per_language, len(group) // 10)] for group in by_pair
    ]
    held_out = pairs.select(np.sort(np.concatenate(chosen)))
    return _rows_without_texts(
        pairs, ["source", "target"], [*held_out["source"], *held_out["target"]]
    ), held_out


def hold_out_questions(
    retrieval: Dataset, questions: int, *, seed: int = 0
) -> tuple[Dataset, Dataset]:
    """Split questions into rows to train on and about so many, at most a tenth, held out with their passages.

    Rows (`query`, `positive`, `negative_1` ...) with a held-out passage as a negative are in neither part.
    """
    groups, _ = rows_by_value(retrieval, ["positive"])
    count, chosen = min(questions, len(retrieval) // 10), list[int]()
    for passage in np.random.default_rng([seed, 13]).permutation(len(groups)):
        if len(chosen) < count:
            chosen += groups[passage].tolist()
    held_out = retrieval.select(sorted(chosen))
    negatives = [name for name in retrieval.column_names if name.startswith("negative_")]
    return _rows_without_texts(
        retrieval, ["positive", *negatives], held_out["positive"][:]
    ), held_out


def _rows_without_texts(dataset: Dataset, columns: list[str], texts: list[str]) -> Dataset:
    table = dataset.with_format("arrow", columns=columns)[:]
    known = [
        pc.is_in(table[name], value_set=pa.array(texts, pa.string())).to_numpy() for name in columns
    ]
    return dataset.select(np.flatnonzero(~np.any(known, axis=0)))


def by_language(pairs: Dataset, pivot: str | None = None) -> dict[str, tuple[list[str], list[str]]]:
    """Group pairs into language -> (its sentences, the pivot's), row by row, as `TatoebaEvaluator` takes them.

    The pivot is by default the language that occurs in the most rows; rows without it are left out.
    """
    if pivot is None and len(pairs):
        # Sources come first: of two languages in equally many rows, the source is the pivot.
        ((pivot, _),) = Counter([*pairs["source_language"], *pairs["target_language"]]).most_common(
            1
        )
    grouped: dict[str, tuple[list[str], list[str]]] = {}
    for row in pairs:
        side, other = (
            ("target", "source") if row["source_language"] == pivot else ("source", "target")
        )
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
    specials = 0 if isinstance(tokenizer, Tokenizer) else tokenizer.num_special_tokens_to_add()
    if isinstance(tokenizer, Tokenizer):
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    settings = json.loads(tokenizer.backend_tokenizer.to_str())
    settings |= {
        "truncation": None,
        "padding": None,
    }  # of earlier calls; they do not change the tokens
    name = f"units-{cache_key([generate_fingerprint(documents), max_tokens, specials, settings])}"
    return cached_table(
        name,
        COLUMNS,
        _packed_units(documents, tokenizer, max_tokens - specials),
        cache_dir=cache_dir,
    )


def _packed_units(
    documents: Dataset, tokenizer: Any, limit: int
) -> Iterator[tuple[str, str, int, int]]:
    unit: list[str] = []
    tokens = position = document = 0
    language = ""
    batches = documents.select_columns(["sentence", "language", "document"]).iter(1_000)
    for batch in tqdm(batches, desc="Packing", unit=" thousand sentences", disable=None):
        sentences = [sentence or "" for sentence in batch["sentence"]]
        # Not verbose: texts may be longer than the model reads.
        counts = map(
            len,
            tokenizer(sentences, add_special_tokens=False, truncation=False, verbose=False)[
                "input_ids"
            ],
        )
        for sentence, code, number, count in zip(
            sentences, batch["language"], batch["document"], counts, strict=True
        ):
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
    if unit:
        yield join_sentences(unit, language), language, document, position


def pairs_and_others(pairs: Dataset, others: Dataset | None, seed: int = 0) -> Dataset:
    """Put a sentence without a translation beside each pair, for the language loss.

    (lang-contrastive, Hu et al. 2023.) They are the columns `other` and `other_language`, in random order, and again where they are
    fewer than the pairs.

    Args:
        pairs: `source`, `target`, `source_language` and `target_language`.
        others: `sentence` and `language`; None or empty for parallel sentences alone.
        seed: Seed of their order.
    """
    pairs = pairs.select_columns(["source", "target", "source_language", "target_language"])
    if others is None or not len(others):
        return pairs
    generator = np.random.default_rng(seed)
    passes = -(-len(pairs) // len(others))
    rows = np.empty(0, np.int64)
    for _ in range(passes):
        rows = np.concatenate([rows, generator.permutation(len(others))])
    chosen = others.select(rows[: len(pairs)]).select_columns(["sentence", "language"])
    beside = chosen.rename_columns({"sentence": "other", "language": "other_language"})
    return concatenate_datasets([pairs, beside], axis=1)
