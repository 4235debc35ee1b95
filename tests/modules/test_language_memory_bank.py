"""LanguageMemoryBank against collections.deque."""

from collections import defaultdict, deque
from itertools import chain
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from st_xlret.modules import LanguageMemoryBank

EN = 25966
FR = 26226
SW = 29559
Row = tuple[float, int, int, int]


def bank_of(size: int, scope: str) -> LanguageMemoryBank:
    return LanguageMemoryBank(2, size, scope=scope)  # type: ignore[arg-type]


def batch(first: int, languages: list[int]) -> tuple[Tensor, ...]:
    """Keys, languages, documents and texts of rows that tell their numbers, from ``first`` on."""
    numbers = torch.arange(first, first + len(languages))
    keys = numbers[:, None].float() * torch.tensor([1.0, -1.0])
    return keys, torch.tensor(languages, dtype=torch.long), numbers * 10, numbers * 100


def rows_of(keys: Tensor, *tags: Tensor) -> list[Row]:
    assert torch.equal(keys[:, 0], -keys[:, 1])
    columns = [keys[:, 0].tolist()]
    for tag in tags:
        columns.append(tag.tolist())
    return sorted(zip(*columns, strict=True))


def rows_in(bank: LanguageMemoryBank, languages: list[int] | None = None) -> list[Row]:
    wanted = None if languages is None else torch.tensor(languages)
    return rows_of(*bank.get(wanted).values())


LANGUAGES = [
    [],
    [EN] * 3,
    [EN, FR],
    [FR] * 4,
    [SW],
    [],
    [EN, FR, SW, EN, FR],
    [EN] * 9,
    [FR, EN] * 8,
    [SW] * 2,
]


@pytest.mark.parametrize("scope", ["total", "per_language"])
@pytest.mark.parametrize("size", [1, 4, 5, 100])
def test_first_in_first_out_across_wrap_around(scope: str, size: int) -> None:
    bank = bank_of(size, scope)
    queues: dict[int, deque[Row]] = defaultdict(lambda: deque(maxlen=size))
    first = 0
    for languages in LANGUAGES:
        tensors = batch(first, languages)
        bank.enqueue(*tensors)
        for row in rows_of(*tensors):
            language = row[1]
            queues[language if scope == "per_language" else 0].append(row)
        first += len(languages)
        expected = sorted(chain(*queues.values()))
        assert rows_in(bank) == expected
        assert len(bank) == len(expected)
        for codes in ([EN], [FR], [SW, FR, SW], [1]):
            assert rows_in(bank, codes) == [row for row in expected if row[1] in codes]


def test_keys_take_no_graph_and_rows_of_no_document_and_no_text_are_marked() -> None:
    bank = LanguageMemoryBank(2, 4)
    keys = torch.randn(4, 2, requires_grad=True) * 2
    bank.enqueue(keys, torch.tensor([EN] * 4))
    queue = bank.get()
    assert not queue["queue"].requires_grad
    assert queue["queue_document"].tolist() == [-1] * 4
    assert queue["queue_text"].tolist() == [-1] * 4


def test_a_full_bank_holds_its_keys_once() -> None:
    bank = LanguageMemoryBank(2, 4)
    bank.enqueue(*batch(0, [EN] * 4))
    place = bank.keys.data_ptr()
    bank.enqueue(*batch(4, [EN] * 3))
    assert bank.keys.data_ptr() == place
    assert bank.get()["queue"].data_ptr() == place
    assert bank.get(torch.tensor([EN]))["queue"].data_ptr() == place


@pytest.mark.parametrize("scope", ["total", "per_language"])
def test_a_restored_bank_continues_as_the_saved_one(tmp_path: Path, scope: str) -> None:
    bank = bank_of(4, scope)
    bank.enqueue(*batch(0, [EN, FR, EN, EN, EN, EN]))
    save_file(bank.state_dict(), tmp_path / "bank.safetensors")
    # The new bank has seen other languages, and more of them, before it is restored.
    restored = bank_of(4, scope)
    restored.enqueue(*batch(70, [SW, FR, 5]))
    restored.load_state_dict(load_file(tmp_path / "bank.safetensors"))
    for first, languages in ((10, [SW, EN]), (20, [FR] * 6)):
        bank.enqueue(*batch(first, languages))
        restored.enqueue(*batch(first, languages))
        torch.testing.assert_close(bank.get(), restored.get(), rtol=0, atol=0)
    for name, buffer in bank.named_buffers():
        assert torch.equal(buffer, restored.get_buffer(name)), name
