"""Packing consecutive sentences into units of text of about equal length."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import datasets
from datasets.fingerprint import generate_fingerprint
from tokenizers import Tokenizer
from tqdm.auto import tqdm

from st_xlret.data.cache import cache_key, cached_dataset
from st_xlret.data.documents import FEATURES
from st_xlret.data.lines import PathLike
from st_xlret.data.text import join_sentences

_SENTENCES_AT_A_TIME = 1_000


def pack_documents(
    documents: datasets.Dataset,
    tokenizer: Any,
    *,
    max_tokens: int = 64,
    cache_dir: PathLike | None = None,
    show_progress_bar: bool = True,
) -> datasets.Dataset:
    """Pack consecutive sentences of a document, from its beginning, into units of up to `max_tokens` tokens.

    This follows MSM's published program. A sentence that is longer than `max_tokens` is a unit of its own, which the
    encoder truncates. The result is memory-mapped, and used again for the same documents and tokenizer.

    Args:
        documents: Sentences as [`load_documents`][st_xlret.load_documents] gives them.
        tokenizer: The encoder's tokenizer (`model.tokenizer`), a fast one.
        max_tokens: Maximum tokens of a unit, special tokens included.
        cache_dir: Folder for the Arrow file. By default `st_xlret` inside the cache of `datasets`.
        show_progress_bar: Show a progress bar.

    Returns:
        A data set of the same columns with a row per unit.

    Raises:
        ValueError: If `max_tokens` leaves no room beside the special tokens, or there is no text at all.
    """
    # A static encoder, whose tokenizer is a Tokenizer, reads no special tokens.
    is_static = isinstance(tokenizer, Tokenizer)
    specials = 0 if is_static else tokenizer.num_special_tokens_to_add()
    if max_tokens <= specials:
        raise ValueError(f"max_tokens must be above the {specials} special tokens of a unit, got {max_tokens}")
    settings = json.loads((tokenizer if is_static else tokenizer.backend_tokenizer).to_str())
    # These are left behind by earlier calls, and do not change the tokens.
    settings = {name: value for name, value in settings.items() if name not in ("truncation", "padding")}

    key = cache_key([generate_fingerprint(documents), max_tokens, settings])
    units = _units(documents, tokenizer, max_tokens - specials, show_progress_bar)
    return cached_dataset("units", FEATURES, units, key=key, cache_dir=cache_dir)


def token_offsets(tokenizer: Any, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Find (begin, end) in characters of the tokens of each text, without special tokens and truncation.

    The tokenizer is a fast one of `transformers`, or one of `tokenizers` (that of a static encoder).
    """
    if isinstance(tokenizer, Tokenizer):
        return [
            [span for span, mask in zip(e.offsets, e.attention_mask, strict=True) if mask]
            for e in tokenizer.encode_batch(list(texts), add_special_tokens=False)
        ]
    # Not verbose: texts may be longer than the model reads.
    options = {"add_special_tokens": False, "truncation": False, "verbose": False}
    return tokenizer(list(texts), return_offsets_mapping=True, **options)["offset_mapping"]


def _units(
    documents: datasets.Dataset, tokenizer: Any, limit: int, show_progress_bar: bool
) -> Iterator[tuple[str, str, int, int]]:
    unit: list[str] = []
    tokens = position = document = 0
    language = ""
    with tqdm(total=len(documents), desc="Packing sentences", unit="sentence", disable=not show_progress_bar) as bar:
        for batch in documents.select_columns(["sentence", "language", "document"]).iter(_SENTENCES_AT_A_TIME):
            sentences = [sentence or "" for sentence in batch["sentence"]]
            counts = map(len, token_offsets(tokenizer, sentences))
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
            bar.update(len(sentences))
    if not unit:
        raise ValueError("there is no text to pack")
    yield join_sentences(unit, language), language, document, position
