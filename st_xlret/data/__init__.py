"""Documents, parallel sentences, questions and dictionaries as memory-mapped data sets."""

from __future__ import annotations

from st_xlret.data.dictionaries import Dictionary, load_dictionaries, read_dictionary
from st_xlret.data.documents import HubDocuments, LoadReport, load_documents, read_documents
from st_xlret.data.holdout import by_language, hold_out_pairs, hold_out_questions
from st_xlret.data.lines import BadLines, DataError, Limits, Report, read_jsonl, read_lines
from st_xlret.data.packing import pack_documents
from st_xlret.data.pairs import PairOptions, PairReport, load_pairs
from st_xlret.data.retrieval import RetrievalReport, load_retrieval
from st_xlret.data.text import normalise_text, split_sentences
from st_xlret.data.word_samples import WordSampleReport, build_word_samples
from st_xlret.languages import check_language, id_to_language, language_to_id, languages_in_name

__all__ = [
    "BadLines",
    "DataError",
    "Dictionary",
    "HubDocuments",
    "Limits",
    "LoadReport",
    "PairOptions",
    "PairReport",
    "Report",
    "RetrievalReport",
    "WordSampleReport",
    "build_word_samples",
    "by_language",
    "check_language",
    "hold_out_pairs",
    "hold_out_questions",
    "id_to_language",
    "language_to_id",
    "languages_in_name",
    "load_dictionaries",
    "load_documents",
    "load_pairs",
    "load_retrieval",
    "normalise_text",
    "pack_documents",
    "read_dictionary",
    "read_documents",
    "read_jsonl",
    "read_lines",
    "split_sentences",
]
