"""Documents, parallel sentences, questions and dictionaries as memory-mapped data sets; samplers and collators."""

from __future__ import annotations

from st_xlret.data.batches.block_batches import BlockBatches
from st_xlret.data.batches.blocks import BlockBatchSampler, BlockCounts
from st_xlret.data.batches.collator import CrossLingualDataCollator
from st_xlret.data.batches.distinct import DistinctBatches, DistinctBatchSampler
from st_xlret.data.batches.interleaving import InterleavedBatches, InterleavedBatchSampler
from st_xlret.data.batches.joint import JointBatches
from st_xlret.data.batches.length_grouped import LengthGroupedBatches, LengthGroupedBatchSampler
from st_xlret.data.batches.sampling import smoothed_probabilities
from st_xlret.data.batches.spans import SpanDataCollator
from st_xlret.data.batches.windows import CrossLingualBatches, LanguageBatchSampler, WindowBatchSampler
from st_xlret.data.documents.hub import HubDocuments
from st_xlret.data.documents.loading import LanguageCounts, LoadReport, load_documents
from st_xlret.data.documents.packing import pack_documents
from st_xlret.data.documents.splitting import split_sentences
from st_xlret.data.holdout import by_language, hold_out_pairs, hold_out_questions
from st_xlret.data.languages import check_language, id_to_language, language_to_id, languages_in_name
from st_xlret.data.pairs.connections import connect_languages, keep_connections
from st_xlret.data.pairs.loading import PairOptions, load_pairs
from st_xlret.data.pairs.selection import PairCounts, PairReport
from st_xlret.data.reading.jsonl import BadLines, DataError, read_jsonl
from st_xlret.data.reading.text import normalise_text
from st_xlret.data.retrieval.loading import RetrievalCounts, RetrievalReport, load_retrieval
from st_xlret.data.words.dictionaries import Dictionary, load_dictionaries, read_dictionary
from st_xlret.data.words.sample_maker import WordSampleCounts, WordSampleReport
from st_xlret.data.words.samples import build_word_samples

__all__ = [
    "BadLines",
    "BlockBatchSampler",
    "BlockBatches",
    "BlockCounts",
    "CrossLingualBatches",
    "CrossLingualDataCollator",
    "DataError",
    "Dictionary",
    "DistinctBatchSampler",
    "DistinctBatches",
    "HubDocuments",
    "InterleavedBatchSampler",
    "InterleavedBatches",
    "JointBatches",
    "LanguageBatchSampler",
    "LanguageCounts",
    "LengthGroupedBatchSampler",
    "LengthGroupedBatches",
    "LoadReport",
    "PairCounts",
    "PairOptions",
    "PairReport",
    "RetrievalCounts",
    "RetrievalReport",
    "SpanDataCollator",
    "WindowBatchSampler",
    "WordSampleCounts",
    "WordSampleReport",
    "build_word_samples",
    "by_language",
    "check_language",
    "connect_languages",
    "hold_out_pairs",
    "hold_out_questions",
    "id_to_language",
    "keep_connections",
    "language_to_id",
    "languages_in_name",
    "load_dictionaries",
    "load_documents",
    "load_pairs",
    "load_retrieval",
    "normalise_text",
    "pack_documents",
    "read_dictionary",
    "read_jsonl",
    "smoothed_probabilities",
    "split_sentences",
]
