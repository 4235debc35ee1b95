"""Word-positioned samples: parallel sentences with the token spans of a word and its translation (ML-CTL, 2.1)."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import datasets

from st_xlret.data.batches.sampling import column_codes, rows_by_code
from st_xlret.data.reading.arrow_cache import ArrowCache
from st_xlret.data.reading.jsonl import DataError
from st_xlret.data.words.dictionaries import Dictionary
from st_xlret.data.words.matching import TokenCounter
from st_xlret.data.words.sample_maker import WORD_SAMPLE_FEATURES, Row, WordSampleMaker, WordSampleReport

logger = logging.getLogger(__name__)

_PAIRS_TO_JUDGE_BY = 1_000


def build_word_samples(
    pairs: datasets.Dataset,
    dictionaries: Iterable[Dictionary],
    tokenizer: Any,
    *,
    max_seq_length: int | None = None,
    samples_per_pair: int | None = None,
    seed: int = 0,
    stop_words_by_language: Mapping[str, Collection[str]] | None = None,
    report: WordSampleReport | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> datasets.Dataset:
    """Make word-positioned samples of parallel sentences (ML-CTL, Algorithm 1).

    A sample is a pair with a dictionary word that occurs exactly once in the source sentence, counted as a word and as
    tokens, and whose translation occurs exactly once in the target sentence. Entries with a stop word on either side
    are left out. A pair gives as many samples as it has such words. The samples are streamed to an Arrow file in
    `cache_dir` and memory-mapped; the same pairs, dictionaries, tokenizer and options reuse it.

    Args:
        pairs: Parallel sentences as [`load_pairs`][st_xlret.load_pairs] gives them, of any language pairs.
        dictionaries: Dictionaries. Several of one language pair are merged. One from English to French also serves
            pairs from French to English, and one of `"pt"` serves `"pt-br"`.
        tokenizer: The encoder's (fast) tokenizer.
        max_seq_length: Tokens read of a sentence, special tokens included. Pass the encoder's `max_seq_length`, or the
            samples point to other tokens than it reads. By default sentences are not truncated.
        samples_per_pair: Maximum samples of a pair, chosen by a seeded hash. By default all.
        seed: Seed of that choice.
        stop_words_by_language: Language code -> words to leave out. By default the lists of the library `stopwordsiso`;
            a language without a list there has no stop words.
        report: Filled with counts of what became of the pairs. They are logged as well, at the level INFO.
        cache_dir: Folder for the Arrow files. By default `st_xlret` inside the cache of `datasets`.
        show_progress: Show a progress bar.

    Returns:
        Data set with `source`, `target`, `source_language`, `target_language`; `source_start`, `source_end`,
        `target_start`, `target_end`: half-open spans of the word's tokens in the tokenised sentence, with the special
        tokens before it counted; `source_word` and `target_word` as they occur in the sentences.

    Raises:
        DataError: If the languages of a dictionary look swapped, or no sample is left (the error contains the report).
        ValueError: If the tokenizer gives no offsets, there is no dictionary, or `samples_per_pair` is below 1.
        ImportError: If a language without spaces needs the optional word segmenter.

    Example:
        >>> import tempfile
        >>> from datasets import Dataset
        >>> from st_xlret.modules import train_tokenizer
        >>> row = {"source": "The dog sleeps.", "target": "Der Hund schläft."}
        >>> pairs = Dataset.from_list([{**row, "source_language": "en", "target_language": "de"}])
        >>> tokenizer = train_tokenizer(["the dog sleeps", "der hund schläft"] * 10, vocabulary=80)
        >>> dictionary = Dictionary("en", "de", [("dog", "Hund"), ("the", "der")])
        >>> options = {"cache_dir": tempfile.mkdtemp(), "show_progress": False}
        >>> sample = build_word_samples(pairs, [dictionary], tokenizer, **options)[0]
        >>> tokens = tokenizer(sample["target"]).input_ids[sample["target_start"] : sample["target_end"]]
        >>> sample["source_word"], tokenizer.decode(tokens)
        ('dog', 'hund')
    """
    if samples_per_pair is not None and samples_per_pair < 1:
        raise ValueError(f"samples_per_pair must be at least 1 or None for all, not {samples_per_pair}")
    dictionaries = list(dictionaries)
    if not dictionaries:
        raise ValueError("no dictionaries: word-positioned samples need at least one")
    maker = WordSampleMaker(
        dictionaries, TokenCounter(tokenizer, max_seq_length), stop_words_by_language, samples_per_pair, seed
    )

    def rows() -> Iterator[Row]:
        _check_directions(pairs, maker)
        yield from maker.rows(pairs, show_progress=show_progress)

    def check() -> None:
        if not maker.report.samples:
            raise DataError(f"no word-positioned samples; see why no pair gave one:\n{maker.report}")

    cache = ArrowCache("word-samples", WORD_SAMPLE_FEATURES, cache_dir)
    samples, made = cache.take_or_make(maker.cache_key(pairs), rows(), maker.report, check)
    made.publish(report, logger)
    return samples


def _check_directions(pairs: datasets.Dataset, maker: WordSampleMaker) -> None:
    """Judge each dictionary by the first pairs that it serves."""
    if not len(pairs):
        return
    code, languages = column_codes(pairs, ["source_language", "target_language"])
    for (source_language, target_language), rows in zip(languages, rows_by_code(code, len(languages)), strict=True):
        found = maker.dictionaries_for(source_language, target_language)
        if found:
            some = pairs.select(rows[:_PAIRS_TO_JUDGE_BY])
            texts = [[text for text in some[side][:] if text] for side in ("source", "target")]
            for dictionary in found:
                dictionary.check_direction(*texts)
