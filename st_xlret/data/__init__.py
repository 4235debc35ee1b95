"""Documents, parallel sentences, questions and dictionaries as memory-mapped data sets."""

from st_xlret.data.dictionaries import Dictionary, read_dictionary
from st_xlret.data.documents import load_documents, read_documents
from st_xlret.data.held_out import hold_out_pairs, hold_out_questions
from st_xlret.data.kept import Counts
from st_xlret.data.packing import pack_documents
from st_xlret.data.pairs import load_pairs
from st_xlret.data.questions import load_retrieval
from st_xlret.data.reading import BadLines, DataError, read_jsonl, read_lines
from st_xlret.data.rows import by_language, pairs_and_others
from st_xlret.data.texts import normalize_text, split_sentences
from st_xlret.data.word_samples import build_word_samples

__all__ = [
    "BadLines",
    "Counts",
    "DataError",
    "Dictionary",
    "build_word_samples",
    "by_language",
    "hold_out_pairs",
    "hold_out_questions",
    "load_documents",
    "load_pairs",
    "load_retrieval",
    "normalize_text",
    "pack_documents",
    "pairs_and_others",
    "read_dictionary",
    "read_documents",
    "read_jsonl",
    "read_lines",
    "split_sentences",
]
