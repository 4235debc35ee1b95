"""Sentences of documents that are packed into units of equal length."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset
from datasets.fingerprint import generate_fingerprint
from tokenizers import Tokenizer
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerFast

from st_xlret.data.documents import COLUMNS
from st_xlret.data.kept import cache_key, cached_table
from st_xlret.data.texts import join_sentences
from st_xlret.files import PathLike


def pack_documents(
    documents: Dataset, tokenizer: Any, *, max_tokens: int = 64, cache_dir: PathLike | None = None
) -> Dataset:
    """Pack consecutive sentences of a document into units of up to `max_tokens` tokens.

    MSM's published program does so. A longer sentence is a unit of its own, which the encoder
    truncates. The table is kept, and used again for the same documents and tokenizer.

    Args:
        documents: Sentences as [`load_documents`][st_xlret.load_documents] gives them, and units as
            this returns them.
        tokenizer: The encoder's tokenizer (`model.tokenizer`), a fast one.
        max_tokens: Maximum tokens of a unit, special tokens included.
        cache_dir: Folder of the table. By default `st_xlret` inside the cache of `datasets`.
    """
    specials = 0
    if isinstance(tokenizer, Tokenizer):  # of a static encoder, which reads no special tokens
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    else:
        specials = tokenizer.num_special_tokens_to_add()
    settings = json.loads(tokenizer.backend_tokenizer.to_str())
    for of_earlier_calls in ("truncation", "padding"):  # they do not change the tokens
        settings[of_earlier_calls] = None
    key = cache_key([generate_fingerprint(documents), max_tokens, specials, settings])
    units = _packed_units(documents, tokenizer, max_tokens - specials)
    return cached_table(f"units-{key}", COLUMNS, units, cache_dir=cache_dir)


@dataclass
class _Unit:
    """A unit that is being filled, with its place."""

    language: str = ""
    document: int = 0
    position: int = 0
    tokens: int = 0
    sentences: list[str] = field(default_factory=list)

    def row(self) -> tuple[str, str, int, int]:
        """A row of the new table: the text, its language, its document, and its place in that."""
        text = join_sentences(self.sentences, self.language)
        return text, self.language, self.document, self.position


def _packed_units(
    documents: Dataset, tokenizer: Any, limit: int
) -> Iterator[tuple[str, str, int, int]]:
    """Runs of sentences of a document within the limit of tokens, as rows of the new table.

    The sentences of a document have to follow each other.
    """
    unit = _Unit()
    batches = documents.select_columns(["sentence", "language", "document"]).iter(1_000)
    for batch in tqdm(batches, desc="Packing", unit=" thousand sentences", disable=None):
        sentences = [sentence or "" for sentence in batch["sentence"]]
        # Not verbose: texts may be longer than the model reads.
        encoded = tokenizer(sentences, add_special_tokens=False, truncation=False, verbose=False)
        counts = map(len, encoded["input_ids"])
        rows = zip(sentences, batch["language"], batch["document"], counts, strict=True)
        for sentence, language, document, count in rows:
            if not sentence.strip():
                continue
            is_other = document != unit.document
            if unit.sentences and (is_other or unit.tokens + count > limit):
                yield unit.row()
                unit = _Unit(document=unit.document, position=unit.position + 1)
            if is_other:
                unit.position = 0
            unit.sentences.append(sentence)
            unit.tokens += count
            unit.language = language
            unit.document = document
    if unit.sentences:
        yield unit.row()
