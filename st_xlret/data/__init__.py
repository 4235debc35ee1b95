"""Documents, parallel sentences and language codes in memory-mapped datasets; collator and batch samplers."""

from __future__ import annotations

from st_xlret.data.batches.blocks import BlockBatchSampler, BlockCounts
from st_xlret.data.batches.collator import CrossLingualDataCollator
from st_xlret.data.batches.interleaving import InterleavedBatches, InterleavedBatchSampler
from st_xlret.data.batches.sampling import smoothed_probabilities
from st_xlret.data.batches.spans import SpanDataCollator
from st_xlret.data.batches.windows import CrossLingualBatches, LanguageBatchSampler, WindowBatchSampler
from st_xlret.data.documents.hub import HubDocuments, load_hub_documents
from st_xlret.data.documents.loading import LanguageCounts, LoadReport, load_documents, load_documents_with_report
from st_xlret.data.documents.packing import pack_documents
from st_xlret.data.documents.splitting import split_sentences
from st_xlret.data.languages import check_language, id_to_language, language_to_id
from st_xlret.data.pairs.connections import connect_languages, keep_connections
from st_xlret.data.pairs.holdout import hold_out_pairs
from st_xlret.data.pairs.loading import (
    PairCounts,
    PairReport,
    load_pairs,
    load_pairs_with_report,
    normalise_text,
    pairs_from_dictionary,
    pairs_from_parallel_documents,
)
from st_xlret.data.pairs.opus import pairs_from_moses, pairs_from_wikimatrix
from st_xlret.data.pairs.tmx import pairs_from_tmx
from st_xlret.data.reading.jsonl import BadLines, DataError, read_jsonl
from st_xlret.data.retrieval.loading import load_retrieval
from st_xlret.data.words.dictionaries import Dictionary, read_dictionary
from st_xlret.data.words.samples import (
    WordSampleCounts,
    WordSampleReport,
    build_word_samples,
    build_word_samples_with_report,
)

__all__ = [
    "BadLines",
    "BlockBatchSampler",
    "BlockCounts",
    "CrossLingualBatches",
    "CrossLingualDataCollator",
    "DataError",
    "Dictionary",
    "HubDocuments",
    "InterleavedBatchSampler",
    "InterleavedBatches",
    "LanguageBatchSampler",
    "LanguageCounts",
    "LoadReport",
    "PairCounts",
    "PairReport",
    "SpanDataCollator",
    "WindowBatchSampler",
    "WordSampleCounts",
    "WordSampleReport",
    "build_word_samples",
    "build_word_samples_with_report",
    "check_language",
    "connect_languages",
    "hold_out_pairs",
    "id_to_language",
    "keep_connections",
    "language_to_id",
    "load_documents",
    "load_documents_with_report",
    "load_hub_documents",
    "load_pairs",
    "load_pairs_with_report",
    "load_retrieval",
    "normalise_text",
    "pack_documents",
    "pairs_from_dictionary",
    "pairs_from_moses",
    "pairs_from_parallel_documents",
    "pairs_from_tmx",
    "pairs_from_wikimatrix",
    "read_dictionary",
    "read_jsonl",
    "smoothed_probabilities",
    "split_sentences",
]
