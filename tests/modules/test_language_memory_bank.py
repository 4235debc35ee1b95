"""LanguageMemoryBank against collections.deque."""

from collections import defaultdict, deque
from itertools import chain
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from st_xlret.modules import LanguageMemoryBank

EN, FR, SW = 25966, 26226, 29559
Row = tuple[float, int, int, int]


def batch(first: int, languages: list[int]) -> tuple[Tensor, ...]:
    """Keys, languages, documents and texts of rows numbered from ``first``, which tell their number."""
    numbers = torch.arange(first, first + len(languages))
    keys = numbers[:, None].float() * torch.tensor([1.0, -1.0])
    return keys, torch.tensor(languages, dtype=torch.long), numbers * 10, numbers * 100


def rows_of(keys: Tensor, *tags: Tensor) -> list[Row]:
    assert torch.equal(keys[:, 0], -keys[:, 1])
    return sorted(zip(*(column.tolist() for column in (keys[:, 0], *tags)), strict=True))


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
    bank = LanguageMemoryBank(2, size, scope=scope)  # type: ignore[arg-type]
    queues: dict[int, deque[Row]] = defaultdict(lambda: deque(maxlen=size))
    first = 0
    for languages in LANGUAGES:
        tensors = batch(first, languages)
        bank.enqueue(*tensors)
        for row in rows_of(*tensors):
            queues[row[1] if scope == "per_language" else 0].append(row)
        first += len(languages)
        expected = sorted(chain(*queues.values()))
        assert rows_of(*bank.get().values()) == expected and len(bank) == len(expected)
        for codes in ([EN], [FR], [SW, FR, SW], [1]):
            assert rows_of(*bank.get(torch.tensor(codes)).values()) == [
                row for row in expected if row[1] in codes
            ]


def test_keys_take_no_graph_and_a_full_bank_holds_them_once() -> None:
    bank = LanguageMemoryBank(2, 4)
    bank.enqueue(
        torch.randn(4, 2, requires_grad=True) * 2, torch.tensor([EN] * 4)
    )  # of no document and no text
    assert not bank.get()["queue"].requires_grad
    assert bank.get()["queue_document"].tolist() == bank.get()["queue_text"].tolist() == [-1] * 4
    place = bank.keys.data_ptr()
    bank.enqueue(*batch(4, [EN] * 3))
    held = (bank.keys, bank.get()["queue"], bank.get(torch.tensor([EN]))["queue"])
    assert {keys.data_ptr() for keys in held} == {place}


@pytest.mark.parametrize("scope", ["total", "per_language"])
def test_a_restored_bank_continues_as_the_saved_one(tmp_path: Path, scope: str) -> None:
    bank = LanguageMemoryBank(2, 4, scope=scope)  # type: ignore[arg-type]
    bank.enqueue(*batch(0, [EN, FR, EN, EN, EN, EN]))
    save_file(bank.state_dict(), tmp_path / "bank.safetensors")
    # The new bank has seen other languages, and more of them, before it is restored.
    restored = LanguageMemoryBank(2, 4, scope=scope)  # type: ignore[arg-type]
    restored.enqueue(*batch(70, [SW, FR, 5]))
    restored.load_state_dict(load_file(tmp_path / "bank.safetensors"))
    for first, languages in ((10, [SW, EN]), (20, [FR] * 6)):
        for each in (bank, restored):
            each.enqueue(*batch(first, languages))
        torch.testing.assert_close(bank.get(), restored.get(), rtol=0, atol=0)
    assert all(torch.equal(a, b) for a, b in zip(bank.buffers(), restored.buffers(), strict=True))
