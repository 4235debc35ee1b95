"""The embedding cache: what it keeps, finds again, refuses and survives."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections import namedtuple
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation.cache import CachedEmbeddings, EmbeddingCache
from st_xlret.search import top_k
from tests import tiny

TEXTS = [f"{'word ' * (row % 7)}{row}" for row in range(23)]
DIMENSION = 5


def vectors(texts: Sequence[str]) -> np.ndarray:
    """Embeddings that each text decides by itself."""
    rows = [np.random.default_rng(sum(text.encode())).standard_normal(DIMENSION) for text in texts]
    return np.array(rows, dtype=np.float32)


class Encoder:
    """Counts its calls and texts; stops, as a killed run does, after so many texts."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.texts: list[str] = []
        self.calls: list[list[str]] = []
        self.stop_after = stop_after

    def __call__(self, texts: Sequence[str], languages: Sequence[str]) -> np.ndarray:
        if self.stop_after is not None and len(self.texts) >= self.stop_after:
            raise KeyboardInterrupt
        self.texts.extend(texts)
        self.calls.append(list(texts))
        return vectors(texts)

    @property
    def encoded(self) -> list[str]:
        """Without the text that is encoded to learn the dimension."""
        return self.texts[1:]


class Stream:
    """(id, text), again and again; notes how far reading is ahead of encoding."""

    def __init__(self, texts: Sequence[str], encoder: Encoder | None = None) -> None:
        self.texts = texts
        self.encoder = encoder
        self.read_ahead: list[int] = []

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for row, text in enumerate(self.texts):
            if self.encoder is not None and self.encoder.texts:
                self.read_ahead.append(row - len(self.encoder.encoded))
            yield f"id-{row}", text


@pytest.fixture
def cache(tmp_path: Path) -> EmbeddingCache:
    return EmbeddingCache(tmp_path / "cache", shard_size=5, show_progress_bar=False)


def embed(cache: EmbeddingCache, texts=TEXTS, encoder=None, **identity) -> CachedEmbeddings:
    return cache.embed(texts, encoder or Encoder(), identity={"model": "a", **identity})


def shard_files(cache: EmbeddingCache) -> list[Path]:
    return sorted(cache.folder.glob("*/*.npy"))


def test_rows_are_the_embeddings_as_float16(cache) -> None:
    corpus = embed(cache)
    assert corpus.shape == (23, DIMENSION) and len(corpus) == 23 and corpus.ndim == 2
    assert len(shard_files(cache)) == 5
    assert all(np.load(file, allow_pickle=False).dtype == np.float16 for file in shard_files(cache))
    expected = vectors(TEXTS).astype(np.float16)
    assert np.array_equal(corpus[:], expected)
    assert np.array_equal(corpus[3:17], expected[3:17])
    assert np.array_equal(np.concatenate(list(corpus)), expected)
    assert all(isinstance(chunk, np.memmap) for chunk in corpus)
    with pytest.raises(ValueError, match="step must be 1"):
        corpus[::2]


def test_the_search_is_that_over_the_whole_matrix(cache) -> None:
    queries = torch.from_numpy(vectors(["a", "query", "or two"]))
    scores, rows = embed(cache).top_k(queries, 7)
    expected = top_k(queries, vectors(TEXTS).astype(np.float16), 7)
    assert torch.equal(rows, expected[1])
    torch.testing.assert_close(scores, expected[0])
    with pytest.raises(ValueError, match="k must be from 1 to the 23 rows"):
        embed(cache).top_k(queries, 24)


def test_equal_scores_go_to_the_lower_row(cache) -> None:
    same = embed(cache, ["same"] * 12)
    assert same.top_k(torch.ones(1, DIMENSION), 9)[1].tolist() == [list(range(9))]


def test_a_second_run_encodes_nothing(cache) -> None:
    first, again = embed(cache), Encoder()
    second = embed(cache, encoder=again)
    assert again.texts == [] and first.shards == second.shards
    streamed = embed(cache, Stream(TEXTS), again)
    assert again.texts == [] and first.shards == streamed.shards


@pytest.mark.parametrize("change", [{"model": "b"}, {"prompt": "passage: "}, {"normalize_embeddings": True}])
def test_another_model_or_option_is_another_entry(cache, change) -> None:
    embed(cache)
    again = Encoder()
    cache.embed(TEXTS, again, identity={"model": "a", **change})
    assert sorted(again.encoded) == sorted(TEXTS)


def test_only_shards_with_changed_texts_are_encoded_again(cache) -> None:
    embed(cache)
    again = Encoder()
    changed = [*TEXTS[:7], "another text", *TEXTS[8:]]
    corpus = embed(cache, changed, again)
    assert sorted(again.encoded) == sorted(changed[5:10])
    assert np.array_equal(corpus[:], vectors(changed).astype(np.float16))


def test_languages_are_part_of_the_key_and_reach_the_encoder(cache) -> None:
    seen = []

    def encode(texts: Sequence[str], languages: Sequence[str]) -> np.ndarray:
        seen.extend(zip(texts, languages, strict=True))
        return vectors(texts)

    for language in ("sw", "te"):
        cache.embed([("1", "text", language)], encode, identity={})
    assert set(seen) == {("text", "sw"), ("text", "te")}


def test_longest_texts_of_a_shard_come_first(cache) -> None:
    encoder = Encoder()
    embed(cache, encoder=encoder)
    lengths = [[len(text) for text in call] for call in encoder.calls[1:]]
    assert len(lengths) == 5 and all(call == sorted(call, reverse=True) for call in lengths)


def test_an_interrupted_run_goes_on_where_it_stopped(cache) -> None:
    with pytest.raises(KeyboardInterrupt):
        embed(cache, encoder=Encoder(stop_after=11))
    assert len(shard_files(cache)) == 2 and not list(cache.folder.glob("*/.*.tmp"))
    again = Encoder()
    corpus = embed(cache, encoder=again)
    assert sorted(again.encoded) == sorted(TEXTS[10:])
    assert np.array_equal(corpus[:], vectors(TEXTS).astype(np.float16))


def test_a_killed_process_leaves_a_valid_cache(cache, monkeypatch) -> None:
    child = os.fork()
    if child == 0:
        replace = os.replace

        def kill_in_the_third(source: Path, target: Path) -> None:
            if len(shard_files(cache)) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)

        monkeypatch.setattr(os, "replace", kill_in_the_third)
        embed(cache)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    leftovers = list(cache.folder.glob("*/.*.tmp"))
    assert len(leftovers) == 1 and len(shard_files(cache)) == 2
    os.utime(leftovers[0], (0, 0))  # removed once it is old enough to be nobody's
    again = Encoder()
    corpus = embed(cache, encoder=again)
    assert sorted(again.encoded) == sorted(TEXTS[10:]) and not leftovers[0].exists()
    assert np.array_equal(corpus[:], vectors(TEXTS).astype(np.float16))


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 6)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-3] ^= 4
    file.write_bytes(content)


def fewer_rows(file: Path) -> None:
    np.save(file, np.load(file)[:-1])


@pytest.mark.parametrize("tear", [truncate, empty, flip_a_bit, fewer_rows])
def test_a_torn_shard_is_encoded_again(cache, tear) -> None:
    corpus = embed(cache)
    tear(corpus.shards[1][1])
    again = Encoder()
    corpus = embed(cache, encoder=again)
    assert sorted(again.encoded) == sorted(TEXTS[5:10])
    assert np.array_equal(corpus[:], vectors(TEXTS).astype(np.float16))


def test_no_more_than_a_shard_of_texts_is_read_ahead(cache) -> None:
    encoder = Encoder()
    stream = Stream(TEXTS, encoder)
    embed(cache, stream, encoder)
    assert stream.read_ahead and max(stream.read_ahead) <= cache.shard_size


def test_a_one_shot_iterator_serves(cache) -> None:
    corpus = embed(cache, iter(Stream(TEXTS)))
    assert np.array_equal(corpus[:], vectors(TEXTS).astype(np.float16))
    again = Encoder()
    embed(cache, (text for text in TEXTS), again)
    assert again.texts == []


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
    assert len(shard_files(cache)) == 2 and not list(cache.folder.glob("*/.*.tmp"))
    monkeypatch.setattr(np, "save", save)
    again = Encoder()
    embed(cache, encoder=again)
    assert sorted(again.encoded) == sorted(TEXTS[10:])


def test_progress_shows_texts_rate_and_what_is_left(tmp_path, capsys) -> None:
    cache = EmbeddingCache(tmp_path, shard_size=5)
    embed(cache)
    shown = capsys.readouterr().err
    assert "Encoding texts: 100%" in shown and "23/23" in shown and "texts/s" in shown
    EmbeddingCache(tmp_path, shard_size=5, show_progress_bar=False).embed(TEXTS, Encoder(), identity={"model": "b"})
    assert capsys.readouterr().err == ""


@pytest.fixture
def model() -> SentenceTransformer:
    model = tiny.static()
    model.prompts = {"query": "sun ", "document": "moon "}
    return model


def test_a_model_with_its_prompts_and_options(cache, model) -> None:
    texts = [" ".join(tiny.WORDS[row : row + 3]) for row in range(9)]
    corpus = cache.encode(model, texts, normalize_embeddings=True)
    expected = model.encode_document(texts, normalize_embeddings=True)
    np.testing.assert_allclose(corpus[:], expected, atol=1e-3)
    plain = cache.encode(model, texts, method="encode", normalize_embeddings=True)
    assert not np.allclose(plain[:], expected, atol=1e-2)
    assert len(list(cache.folder.iterdir())) == 2


def test_weights_prompts_and_lengths_decide_the_entry_but_not_the_place_or_the_batch(cache, model, tmp_path) -> None:
    def entries() -> int:
        cache.encode(model, ["sun", "moon"])
        return len(list(cache.folder.iterdir()))

    assert entries() == 1
    cache.encode(model, ["sun", "moon"], batch_size=1)
    model.save_pretrained(str(tmp_path / "model"))
    cache.encode(SentenceTransformer(str(tmp_path / "model"), device="cpu"), ["sun", "moon"])
    assert entries() == 1
    model.prompts["document"] = "star "
    assert entries() == 2
    with torch.no_grad():
        next(model.parameters())[3, 0] += 0.01
    assert entries() == 3


def test_a_transformer_keeps_its_entry_from_call_to_call(cache) -> None:
    model = tiny.transformer()
    for texts in (["sun moon"], ["sun moon", "rain " * 30], ["sun moon"]):
        cache.encode(model, texts)
    assert len(list(cache.folder.iterdir())) == 1
    model.max_seq_length = 4
    cache.encode(model, ["sun moon"])
    assert len(list(cache.folder.iterdir())) == 2


@pytest.mark.slow
def test_a_process_pool_gives_the_same_embeddings(tmp_path, model) -> None:
    texts = [" ".join(tiny.WORDS[row : row + 3]) for row in range(9)]
    alone = EmbeddingCache(tmp_path / "one", shard_size=4, show_progress_bar=False).encode(model, texts)
    pooled = EmbeddingCache(tmp_path / "two", shard_size=4, devices=["cpu"], show_progress_bar=False)
    assert np.array_equal(pooled.encode(model, texts)[:], alone[:])
    pooled.devices = ["no such device"]  # nothing is left to encode: no pool is started
    assert np.array_equal(pooled.encode(model, texts)[:], alone[:])
