"""Packing consecutive sentences into units of text of about equal length."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import datasets
from tokenizers import Tokenizer
from tqdm.auto import tqdm

from st_xlret.data.documents.loading import DOCUMENT_FEATURES
from st_xlret.data.reading.arrow_cache import ArrowCache

LANGUAGES_WITHOUT_SPACES = frozenset({"ja", "zh", "yue"})
"""Languages that put no space between sentences."""

_SENTENCES_AT_A_TIME = 1_000


def pack_documents(
    documents: datasets.Dataset,
    tokenizer: Any,
    *,
    max_tokens: int = 64,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> datasets.Dataset:
    """Pack consecutive sentences of a document, from its beginning, into units of up to `max_tokens` tokens.

    This follows MSM's published program: units have more context than short sentences have, and batches less padding.
    A sentence that is longer than `max_tokens` is a unit of its own, which the encoder truncates. Empty sentences are
    dropped. The result is memory-mapped, and reused for the same documents and tokenizer.

    Args:
        documents: Sentences as [`load_documents`][st_xlret.load_documents] gives them.
        tokenizer: The encoder's tokenizer (`model.tokenizer`), a fast one.
        max_tokens: Maximum tokens of a unit, special tokens included.
        cache_dir: Folder for the Arrow file. By default `st_xlret` inside the cache of `datasets`.
        show_progress: Show a progress bar.

    Returns:
        A data set of the same columns with a row per unit.

    Raises:
        ValueError: If `max_tokens` leaves no room beside the special tokens, or there is no text at all.

    Example:
        >>> import tempfile
        >>> from st_xlret.modules import train_tokenizer
        >>> tokenizer = train_tokenizer(["a b c d"] * 4, vocabulary=50)
        >>> rows = {"sentence": ["a b", "c", "d d d", "a"], "language": ["en"] * 4, "document": [0, 0, 0, 1]}
        >>> documents = datasets.Dataset.from_dict({**rows, "position": [0, 1, 2, 0]})
        >>> options = {"cache_dir": tempfile.mkdtemp(), "show_progress": False}
        >>> pack_documents(documents, tokenizer, max_tokens=9, **options)["sentence"][:]
        ['a b c', 'd d d', 'a']
    """
    # A static encoder, whose tokenizer is a Tokenizer, reads no special tokens.
    specials = 0 if isinstance(tokenizer, Tokenizer) else tokenizer.num_special_tokens_to_add()
    if max_tokens <= specials:
        raise ValueError(f"max_tokens must be above the {specials} special tokens of a unit, got {max_tokens}")
    cache = ArrowCache("units", DOCUMENT_FEATURES, cache_dir)
    key = _cache_key(documents, tokenizer, max_tokens)
    with cache.lock(key):
        stored = cache.load(key)
        if stored is not None:
            return stored[0]
        report = {"units": 0}

        def rows() -> Iterator[tuple[str, str, int, int]]:
            for row in _units(_counted_sentences(documents, tokenizer, show_progress), max_tokens - specials):
                report["units"] += 1
                yield row

        def finish() -> dict[str, int]:
            if not report["units"]:
                raise ValueError("there is no text to pack")
            return report

        return cache.store(key, rows(), finish)


def token_offsets(tokenizer: Any, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Find where the tokens of each text begin and end (in characters), without special tokens and truncation.

    Args:
        tokenizer: A fast tokenizer of `transformers`, or one of `tokenizers` (that of a static encoder).
        texts: Texts.

    Returns:
        A list of (begin, end) for each text.
    """
    if isinstance(tokenizer, Tokenizer):
        return [
            [span for span, mask in zip(e.offsets, e.attention_mask, strict=True) if mask]
            for e in tokenizer.encode_batch(list(texts), add_special_tokens=False)
        ]
    # Not verbose: texts may be longer than the model reads.
    encoded = tokenizer(
        list(texts), add_special_tokens=False, return_offsets_mapping=True, truncation=False, verbose=False
    )
    return encoded["offset_mapping"]


def join_sentences(sentences: Sequence[str], language: str) -> str:
    """Join consecutive sentences into running text.

    Example:
        >>> join_sentences(["It rained.", "We left."], "en"), join_sentences(["下雨了。", "我们走了。"], "zh")
        ('It rained. We left.', '下雨了。我们走了。')
    """
    primary = language.lower().replace("_", "-").partition("-")[0]
    return ("" if primary in LANGUAGES_WITHOUT_SPACES else " ").join(sentences)


def _counted_sentences(
    documents: datasets.Dataset, tokenizer: Any, show_progress: bool
) -> Iterator[tuple[str, str, int, int]]:
    """Stream (sentence, language, document, tokens) of each sentence that has text."""
    with tqdm(total=len(documents), desc="Packing sentences", unit="sentence", disable=not show_progress) as bar:
        for batch in documents.select_columns(["sentence", "language", "document"]).iter(_SENTENCES_AT_A_TIME):
            sentences = [sentence or "" for sentence in batch["sentence"]]
            counts = [len(spans) for spans in token_offsets(tokenizer, sentences)]
            for row in zip(sentences, batch["language"], batch["document"], counts, strict=True):
                if row[0].strip():
                    yield row
            bar.update(len(sentences))


def _units(sentences: Iterator[tuple[str, str, int, int]], limit: int) -> Iterator[tuple[str, str, int, int]]:
    unit: list[str] = []
    tokens = position = 0
    language, document = "", None
    for sentence, its_language, its_document, count in sentences:
        if unit and (its_document != document or tokens + count > limit):
            yield join_sentences(unit, language), language, int(document or 0), position
            unit, tokens, position = [], 0, position + 1
        if its_document != document:
            position = 0
        unit.append(sentence)
        tokens += count
        language, document = its_language, its_document
    if unit:
        yield join_sentences(unit, language), language, int(document or 0), position


def _cache_key(documents: datasets.Dataset, tokenizer: Any, max_tokens: int) -> str:
    backend = tokenizer if isinstance(tokenizer, Tokenizer) else tokenizer.backend_tokenizer
    state = json.loads(backend.to_str())
    # These settings are left behind by earlier calls, and do not change the tokens.
    settings = {name: value for name, value in state.items() if name not in ("truncation", "padding")}
    parts = [documents._fingerprint, str(max_tokens), json.dumps(settings, sort_keys=True)]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
