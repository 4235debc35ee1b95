"""Samplers of corpora too large for memory: the same promises, and no memory for each sentence."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from st_xlret.data import BlockBatchSampler, LanguageBatchSampler, WindowBatchSampler
from st_xlret.data.batches import language_blocks, runs, scanning, shuffling
from st_xlret.data.batches.cutting import cut_into_blocks
from st_xlret.data.batches.language_blocks import LanguageBlocks
from st_xlret.data.batches.runs import Runs
from st_xlret.data.batches.scanning import DocumentScan, rows_by_language
from st_xlret.files import scratch
from tests.data.batches.document_rows import documents


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module, name, value in (
        (scratch, "IN_MEMORY", 16),
        (shuffling, "IN_MEMORY", 0),
        (language_blocks, "IN_MEMORY", 0),
        (language_blocks, "_AT_A_TIME", 5),
        (runs, "_AT_A_TIME", 7),
        (scanning, "_ROWS_AT_A_TIME", 11),
    ):
        monkeypatch.setattr(module, name, value)
    for module in (runs, scanning, language_blocks):
        monkeypatch.setattr(module, "scratch_folder", lambda: tmp_path / "scratch")


def corpus(seed: int = 0) -> Dataset:
    """Documents of several languages in turn, some of one sentence; some sentences are empty."""
    generator = np.random.default_rng(seed)
    rows = []
    for number in range(60):
        language = ["en", "fr", "sw"][int(generator.integers(3))]
        for position in range(int(generator.integers(1, 20))):
            text = "" if generator.random() < 0.05 else f"{number}.{position}"
            rows.append({"sentence": text, "language": language, "document": number, "position": position})
    return Dataset.from_list(rows)


def epoch(sampler: Any, number: int) -> list[list[int]]:
    sampler.set_epoch(number)
    return list(sampler)


def test_scans_find_what_is_in_the_rows(everything_is_large: None) -> None:
    dataset = corpus()
    rows = dataset.to_list()
    for skip_empty in (False, True):
        kept = [i for i, row in enumerate(rows) if row["sentence"] or not skip_empty]
        scan = DocumentScan(dataset, skip_empty=skip_empty)
        found = [each for part in scan for each in zip(*part, strict=True)]
        assert [number for number, *_ in found] == list(range(len(found)))
        assert scan.rows[np.arange(len(kept))].tolist() == kept == [r for part in scan.rows.chunks() for r in part]
        names = list(dict.fromkeys(rows[i]["document"] for i in kept))
        assert len(found) == len(names)
        for name, (_, first, length, language) in zip(names, found, strict=True):
            assert [rows[i]["document"] for i in kept[first : first + length]] == [name] * length
            assert scan.languages[language] == rows[kept[first]]["language"]
        assert sum(length for _, _, length, _ in found) == len(kept)
    groups, languages = rows_by_language(dataset, ["language"])
    for group, (language,) in zip(groups, languages, strict=True):
        assert [r for part in group.chunks() for r in part] == [
            i for i, row in enumerate(rows) if row["language"] == language
        ]


def test_documents_in_any_order_but_not_in_pieces(everything_is_large: None) -> None:
    dataset = documents({"en": [8, 6, 7, 9]})
    order = [*range(21, 30), *range(8), *range(14, 21), *range(8, 14)]
    found = [part.length.tolist() for part in DocumentScan(dataset.select(order))]
    assert sum(found, []) == [9, 8, 7, 6]
    with pytest.raises(ValueError, match="sentences of a document must be contiguous"):
        list(DocumentScan(dataset.select([*order, 0])))


def test_windows(everything_is_large: None) -> None:
    dataset = corpus()
    document, language = np.array(dataset["document"]), np.array(dataset["language"])
    lengths = Counter(document.tolist())
    sampler = WindowBatchSampler(dataset, 4, window_size=3, language_smoothing=1.0)
    centres = []
    for number in range(60):
        for batch in epoch(sampler, number):
            centre, context = np.array(batch).reshape(2, -1)
            assert (document[centre] == document[context]).all() and len(set(language[centre])) == 1
            assert ((centre != context) & (np.abs(centre - context) <= 3)).all()
            centres.append(centre)
    assert set(np.concatenate(centres)) == {row for row, name in enumerate(document.tolist()) if lengths[name] > 1}
    assert epoch(sampler, 1) == epoch(sampler, 1) != epoch(sampler, 2)


def test_every_sentence_is_a_centre_once_an_epoch(everything_is_large: None) -> None:
    sampler = WindowBatchSampler(documents({"en": [4, 4, 1, 4]}), 4)
    assert sorted(row for batch in sampler for row in batch[:4]) == [*range(8), *range(9, 13)]


def test_rows(everything_is_large: None) -> None:
    sampler = LanguageBatchSampler(Dataset.from_dict({"language": ["en"] * 40}), 8)
    assert sorted(row for batch in sampler for row in batch) == list(range(40))
    assert epoch(sampler, 1) == epoch(sampler, 1) != epoch(sampler, 2)


@pytest.mark.parametrize("fill", [True, False])
def test_blocks(everything_is_large: None, fill: bool) -> None:
    dataset = corpus()
    rows = dataset.to_list()
    lengths = Counter(row["document"] for row in rows if row["sentence"])
    sampler = BlockBatchSampler(dataset, 3, block_size=4, fill=fill)
    seen: set[int] = set()
    for number in range(60):
        for batch in epoch(sampler, number):
            found = Counter(rows[row]["document"] for row in batch)
            assert len(batch) == len(set(batch)) and len({rows[row]["language"] for row in batch}) == 1
            assert all(rows[row]["sentence"] for row in batch)
            assert all(2 <= count <= 4 and (count == lengths[d] or lengths[d] > 4) for d, count in found.items())
            seen.update(batch)
    assert seen == {i for i, row in enumerate(rows) if row["sentence"] and lengths[row["document"]] > 1}
    assert epoch(sampler, 1) == epoch(sampler, 1) != epoch(sampler, 2)


@pytest.mark.parametrize("size", [2, 3, 4, 7])
def test_blocks_of_a_pass_are_cut_as_in_memory(size: int, everything_is_large: None) -> None:
    lengths = np.arange(1, 40)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    blocks = LanguageBlocks(Runs(np.array([0]), np.array([len(lengths)])), starts, block_size=size, shortest=1)
    offsets: Counter[int] = Counter()
    for seed in range(40):
        drawn = list(blocks.drawn(np.random.default_rng(seed)))
        for number, length in enumerate(lengths.tolist()):
            own = sorted((begin - int(starts[number]), size_) for at, begin, size_ in drawn if at == number)
            offset = own[0][1] % size if length > size else 0
            offsets[offset] += length > size
            # The same borders as where all documents are cut at once, with this offset.
            expected = cut_into_blocks(np.array([length]), size, _Offset(offset))  # type: ignore[arg-type]
            assert own == list(zip(*(part.tolist() for part in expected[1:]), strict=True))
    assert sorted(offsets) == list(range(size)) and min(offsets.values()) > 0.7 * max(offsets.values())


class _Offset:
    """A generator that draws one number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def integers(self, low: int, high: int, count: int) -> np.ndarray:
        return np.full(count, self.number)


@pytest.mark.parametrize("sampler", [WindowBatchSampler, BlockBatchSampler, LanguageBatchSampler])
def test_samplers_hold_a_few_bytes_of_each_document(sampler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffling, "IN_MEMORY", 1000)
    monkeypatch.setattr(language_blocks, "IN_MEMORY", 1000)
    monkeypatch.setattr(language_blocks, "_AT_A_TIME", 16)
    monkeypatch.setattr(scanning, "_ROWS_AT_A_TIME", 1000)
    sentences, length = 200_000, 10
    rows: dict[str, Any] = {"sentence": ["a"] * sentences, "document": np.arange(sentences) // length}
    languages = np.repeat(["en", "fr"], sentences // 2)
    dataset = Dataset.from_dict({**rows, "language": languages})
    next(iter(sampler(dataset.select(range(2000)), 8)))  # loads what is loaded on first use
    tracemalloc.start()
    made = sampler(dataset, 8)
    batches = iter(made)
    for _ in range(20):
        next(batches)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    # Where each document begins, and the places that it may be cut at.
    assert held < 200_000 + 2 * 8 * sentences / length
