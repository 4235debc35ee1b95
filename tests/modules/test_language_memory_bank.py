"""LanguageMemoryBank against collections.deque."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from st_xlret.modules import LanguageMemoryBank

EN, FR, SW = 25966, 26226, 29559
Row = tuple[float, int, int, int]


def batch(first: int, languages: list[int]) -> tuple[list[Row], tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Rows numbered from ``first``: each row's key, document and text tell its number."""
    numbers = torch.arange(first, first + len(languages))
    language = torch.tensor(languages, dtype=torch.long)
    keys = numbers[:, None].float() * torch.tensor([1.0, -1.0])
    rows = [(float(n), code, n * 10, n * 100) for n, code in zip(numbers.tolist(), languages, strict=True)]
    return rows, (keys, language, numbers * 10, numbers * 100)


def held_rows(bank: LanguageMemoryBank) -> list[Row]:
    held = bank.get()
    assert torch.equal(held.keys[:, 0], -held.keys[:, 1])
    columns = (held.keys[:, 0], held.language, held.document, held.text)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


LANGUAGES = [[EN] * 3, [EN, FR], [FR] * 4, [SW], [], [EN, FR, SW, EN, FR], [EN] * 9, [FR, EN] * 8, [SW] * 2]


@pytest.mark.parametrize("size", [1, 4, 5, 100])
def test_first_in_first_out_across_wrap_around(size: int) -> None:
    bank, oracle = LanguageMemoryBank(2, size), deque[Row](maxlen=size)
    assert [tuple(part.shape) for part in bank.get()] == [(0, 2), (0,), (0,), (0,)]
    first = 0
    for languages in LANGUAGES:
        rows, tensors = batch(first, languages)
        bank.enqueue(*tensors)
        oracle.extend(rows)
        first += len(languages)
        assert held_rows(bank) == sorted(oracle) and len(bank) == len(oracle)


def test_keys_are_views_and_cut_off_from_the_graph() -> None:
    bank = LanguageMemoryBank(2, 8)
    bank.enqueue(torch.randn(3, 2, requires_grad=True) * 2, torch.tensor([EN] * 3))
    keys = bank.get().keys
    assert keys.data_ptr() == bank.keys.data_ptr() and not keys.requires_grad


def test_rows_of_no_document_and_no_text_have_an_id_of_their_own() -> None:
    bank = LanguageMemoryBank(2, 8)
    bank.enqueue(torch.zeros(2, 2), torch.tensor([EN, EN]))
    assert bank.get().document.tolist() == bank.get().text.tolist() == [-1, -1]


def test_a_restored_bank_continues_as_the_saved_one(tmp_path: Path) -> None:
    bank, restored = LanguageMemoryBank(2, 4), LanguageMemoryBank(2, 4)
    bank.enqueue(*batch(0, [EN, FR, EN, EN, EN, EN])[1])
    save_file(bank.state_dict(), tmp_path / "bank.safetensors")
    restored.enqueue(*batch(70, [SW, FR, 5])[1])
    restored.load_state_dict(load_file(tmp_path / "bank.safetensors"))
    for first, languages in ((10, [SW, EN]), (20, [FR] * 6)):
        for each in (bank, restored):
            each.enqueue(*batch(first, languages)[1])
        assert all(torch.equal(a, b) for a, b in zip(bank.buffers(), restored.buffers(), strict=True))


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="size=0"):
        LanguageMemoryBank(2, 0)
    with pytest.raises(ValueError, match="features=0"):
        LanguageMemoryBank(0)
    bank = LanguageMemoryBank(2, 4)
    with pytest.raises(ValueError, match=r"keys must have shape \(rows, 2\), got \(3, 5\)"):
        bank.enqueue(torch.zeros(3, 5), torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match=r"tags must have shape \(3,\)"):
        bank.enqueue(torch.zeros(3, 2), torch.zeros(2, dtype=torch.long))
