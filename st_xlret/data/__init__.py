"""Documents, parallel sentences, questions and dictionaries as memory-mapped data sets."""

from st_xlret.data.documents import load_documents, read_documents
from st_xlret.data.pairs import load_pairs
from st_xlret.data.questions import load_retrieval
from st_xlret.data.reading import (
    BadLines,
    Counts,
    DataError,
    normalise_text,
    read_jsonl,
    read_lines,
    split_sentences,
)
from st_xlret.data.rows import (
    by_language,
    hold_out_pairs,
    hold_out_questions,
    pack_documents,
    pairs_and_others,
)
from st_xlret.data.words import Dictionary, build_word_samples, read_dictionary

__all__ = [
    "BadLines",
    "DataError",
    "Dictionary",
    "Counts",
    "build_word_samples",
    "by_language",
    "hold_out_pairs",
    "hold_out_questions",
    "load_documents",
    "load_pairs",
    "load_retrieval",
    "normalise_text",
    "pack_documents",
    "pairs_and_others",
    "read_dictionary",
    "read_documents",
    "read_jsonl",
    "read_lines",
    "split_sentences",
]
