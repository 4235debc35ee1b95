"""The embedding cache: what it keeps, finds again and survives."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from st_xlret.evaluation.cache import EmbeddingCache
from st_xlret.search import top_k
from tests.evaluation.cache.cached import DIMENSION, TEXTS, Encoder, Stream, embed, shard_files, vectors


@pytest.fixture
def cache(tmp_path: Path) -> EmbeddingCache:
    return EmbeddingCache(tmp_path / "cache", shard_size=5, show_progress_bar=False)


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
    assert len(shard_files(cache)) == 2 and not list(cache.folder.glob("*/.*.tmp*"))
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
    leftovers = list(cache.folder.glob("*/.*.tmp*"))
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
