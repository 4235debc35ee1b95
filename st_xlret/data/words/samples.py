"""Word-positioned samples: parallel sentences with the token spans of a word and its translation (ML-CTL, 2.1)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any

import datasets

from st_xlret.data.batches.sampling import column_codes, rows_by_code
from st_xlret.data.reading.arrow_cache import ArrowCache
from st_xlret.data.reading.jsonl import DataError
from st_xlret.data.words.dictionaries import Dictionary
from st_xlret.data.words.matching import TokenCounter
from st_xlret.data.words.sample_maker import (
    WORD_SAMPLE_FEATURES,
    WordSampleCounts,
    WordSampleMaker,
    WordSampleReport,
)

__all__ = ["WordSampleCounts", "WordSampleReport", "build_word_samples", "build_word_samples_with_report"]

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
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> datasets.Dataset:
    """Make word-positioned samples of parallel sentences (ML-CTL, Algorithm 1).

    A sample is a pair with a dictionary word that stands exactly once in the source sentence, counted as word and
    as tokens, and whose translation stands exactly once in the target sentence. Entries with a stop word on
    either side are left out. A pair gives as many samples as it has such words. The samples are streamed to an Arrow
    file in ``cache_dir`` and mapped from there; the same pairs, dictionaries, tokenizer and options take it again.

    Args:
        pairs: Parallel sentences as :func:`~st_xlret.data.load_pairs` makes them, of any language pairs.
        dictionaries: Dictionaries, several of a language pair are put together. One from English to French also
            serves pairs from French to English, and one of ``"pt"`` serves ``"pt-br"``.
        tokenizer: The encoder's (fast) tokenizer.
        max_seq_length: Tokens read of a sentence, special ones included: the encoder's ``max_seq_length``, or the
            samples point to other tokens than it reads. Default: all.
        samples_per_pair: Keep at most so many samples of a pair, chosen by a seeded hash. Default: all.
        seed: Seed of that choice.
        stop_words_by_language: Language code -> words to leave out. Default: the lists of ``stopwordsiso``; a
            language without a list there has no stop words.
        cache_dir: Folder for the Arrow files. Default: ``st_xlret`` inside the cache of ``datasets``.
        show_progress: Show a progress bar.

    Returns:
        Dataset with ``source``, ``target``, ``source_language``, ``target_language``; ``source_start``,
        ``source_end``, ``target_start``, ``target_end``: half-open spans of the word's tokens in the tokenised
        sentence, special tokens in front counted; ``source_word``, ``target_word`` as they stand in the sentences.

    Raises:
        DataError: If a dictionary looks swapped, or no sample is left (the error holds the report).
        ValueError: If the tokenizer gives no offsets, or there is no dictionary.
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
    return build_word_samples_with_report(
        pairs,
        dictionaries,
        tokenizer,
        max_seq_length=max_seq_length,
        samples_per_pair=samples_per_pair,
        seed=seed,
        stop_words_by_language=stop_words_by_language,
        cache_dir=cache_dir,
        show_progress=show_progress,
    )[0]


def build_word_samples_with_report(
    pairs: datasets.Dataset,
    dictionaries: Iterable[Dictionary],
    tokenizer: Any,
    *,
    max_seq_length: int | None = None,
    samples_per_pair: int | None = None,
    seed: int = 0,
    stop_words_by_language: Mapping[str, Collection[str]] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> tuple[datasets.Dataset, WordSampleReport]:
    """Like :func:`build_word_samples`, and also return a :class:`WordSampleReport`."""
    if samples_per_pair is not None and samples_per_pair < 1:
        raise ValueError(f"samples_per_pair must be at least 1 or None for all, not {samples_per_pair}")
    dictionaries = list(dictionaries)
    if not dictionaries:
        raise ValueError("no dictionaries: word-positioned samples need at least one")
    maker = WordSampleMaker(
        dictionaries, TokenCounter(tokenizer, max_seq_length), stop_words_by_language, samples_per_pair, seed
    )
    cache = ArrowCache("word-samples", WORD_SAMPLE_FEATURES, cache_dir)
    key = maker.cache_key(pairs)
    with cache.lock(key):
        if (stored := cache.load(key)) is not None:
            return stored[0], _report_from_json(stored[1])
        _check_directions(pairs, maker)
        report = maker.report

        def finish() -> dict[str, Any]:
            if not report.samples:
                raise DataError(f"no word-positioned samples; see why no pair gave one:\n{report}")
            return asdict(report)

        return cache.store(key, maker.rows(pairs, show_progress=show_progress), finish), report


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


def _report_from_json(stored: dict[str, Any]) -> WordSampleReport:
    languages = {name: WordSampleCounts(**counts) for name, counts in stored.pop("languages").items()}
    bad_lines = [(file, line, reason) for file, line, reason in stored.pop("bad_lines")]
    return WordSampleReport(languages=languages, bad_lines=bad_lines, **{**stored, "reused": True})
