"""What the embedding cache refuses, and that it stays valid."""

from __future__ import annotations

import errno
import shutil
from collections import namedtuple
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from st_xlret.evaluation.cache import EmbeddingCache
from tests.evaluation.cache.cached import DIMENSION, TEXTS, Encoder, Stream, embed, shard_files, vectors


@pytest.fixture
def cache(tmp_path: Path) -> EmbeddingCache:
    return EmbeddingCache(tmp_path / "cache", shard_size=5, show_progress_bar=False)


def test_texts_that_change_between_readings_are_refused(cache) -> None:
    class Changing(Stream):
        readings = 0

        def __iter__(self) -> Iterator[tuple[str, str]]:
            self.readings += 1
            yield from ((name, f"{text} {self.readings}") for name, text in super().__iter__())

    with pytest.raises(ValueError, match="the texts from row 0 on are others than a moment ago"):
        embed(cache, Changing(TEXTS))

    class Vanishing(Stream):
        def __iter__(self) -> Iterator[tuple[str, str]]:
            texts, self.texts = self.texts, []
            yield from ((str(row), text) for row, text in enumerate(texts))

    with pytest.raises(ValueError, match="the texts from row 0 on are gone"):
        embed(cache, Vanishing(TEXTS))


@pytest.mark.parametrize(
    ("broken", "message"),
    [(np.nan, "NaN or infinite values"), (np.inf, "NaN or infinite values"), (1e6, "beyond 65504.*normalise")],
)
def test_broken_embeddings_name_the_text_and_leave_the_cache_valid(cache, broken, message) -> None:
    def encode(texts: Sequence[str], languages: Sequence[str]) -> np.ndarray:
        rows = vectors(texts)
        rows[[text.endswith("12") for text in texts], 2] = broken
        return rows

    with pytest.raises(ValueError, match=rf"text 'id-12' \(row 12\) .*{message}.*stay valid"):
        cache.embed(Stream(TEXTS), encode, identity={"model": "a"})
    again = Encoder()
    embed(cache, encoder=again)
    assert sorted(again.encoded) == sorted(TEXTS[10:])


@pytest.mark.parametrize(
    ("texts", "message"),
    [([], "no texts to embed"), ([("a", 3)], "text 0 must be"), (["a", ("b",)], "text 1 must be"), ([7], "text 0")],
)
def test_bad_texts(cache, texts, message) -> None:
    with pytest.raises(ValueError, match=message):
        embed(cache, texts)


def test_a_wrong_number_of_rows_is_refused(cache) -> None:
    with pytest.raises(ValueError, match=r"1 texts were encoded into an array of shape \(2, 5\)"):
        cache.embed(TEXTS, lambda texts, _: vectors([*texts, "more"]), identity={})
    with pytest.raises(ValueError, match="shard_size must be at least 1, got 0"):
        EmbeddingCache("anywhere", shard_size=0)


def test_an_identity_that_says_nothing_is_refused(cache) -> None:
    with pytest.raises(ValueError, match="cannot tell one object from another"):
        embed(cache, calibration=object())


Usage = namedtuple("Usage", "total used free")


def test_a_corpus_larger_than_the_disk_is_refused_before_writing(cache, monkeypatch) -> None:
    needed = 23 * DIMENSION * 2 + 5 * 128
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**6, 0, needed - 1))
    encoder = Encoder()
    with pytest.raises(
        OSError, match=rf"need {needed} B \({needed} bytes\).*{needed - 1} bytes\) are free: nothing"
    ) as error:
        embed(cache, encoder=encoder)
    assert error.value.errno == errno.ENOSPC and not cache.folder.exists() and len(encoder.texts) == 1
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**6, 0, needed))
    embed(cache)


def test_what_is_cached_needs_no_room(cache, monkeypatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        embed(cache, encoder=Encoder(stop_after=21))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**6, 0, 3 * DIMENSION * 2 + 128))
    assert len(embed(cache)) == 23
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**6, 0, 0))
    assert len(embed(cache)) == 23


def test_a_disk_that_others_fill_meanwhile(cache, monkeypatch) -> None:
    save = np.save

    def full_after_two(*arguments, **options) -> None:
        if len(shard_files(cache)) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(*arguments, **options)

    monkeypatch.setattr(np, "save", full_after_two)
    with pytest.raises(OSError, match="is full.*written so far are valid"):
        embed(cache)
    assert len(shard_files(cache)) == 2 and not list(cache.folder.glob("*/.*.tmp*"))
    monkeypatch.setattr(np, "save", save)
    again = Encoder()
    embed(cache, encoder=again)
    assert sorted(again.encoded) == sorted(TEXTS[10:])
