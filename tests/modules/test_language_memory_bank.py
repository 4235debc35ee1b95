"""LanguageMemoryBank against collections.deque."""

from __future__ import annotations

from collections import defaultdict, deque
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from st_xlret.modules import LanguageMemoryBank

EN, FR, SW = 25966, 26226, 29559
Row = tuple[float, int, int, int]


class DequeBank:
    """The oracle: one deque in all, or one for each language."""

    def __init__(self, size: int, scope: str) -> None:
        self.scope = scope
        self.queues: dict[int, deque[Row]] = defaultdict(lambda: deque(maxlen=size))

    def enqueue(self, rows: list[Row]) -> None:
        for row in rows:
            self.queues[row[1] if self.scope == "per_language" else 0].append(row)

    def rows(self, language: int | None = None) -> list[Row]:
        wanted = self.queues.values() if language is None else [self.queues[language]]
        return sorted(row for queue in wanted for row in queue)


def batch(first: int, languages: list[int]) -> tuple[list[Row], tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Rows numbered from ``first``: each row's key, document and text tell its number."""
    numbers = torch.arange(first, first + len(languages))
    language = torch.tensor(languages, dtype=torch.long)
    keys = numbers[:, None].float() * torch.tensor([1.0, -1.0])
    rows = [(float(n), code, n * 10, n * 100) for n, code in zip(numbers.tolist(), languages, strict=True)]
    return rows, (keys, language, numbers * 10, numbers * 100)


def held_rows(bank: LanguageMemoryBank, language: int | None = None) -> list[Row]:
    held = bank.get(None if language is None else torch.tensor([language]))
    assert torch.equal(held.keys[:, 0], -held.keys[:, 1])
    columns = (held.keys[:, 0], held.language, held.document, held.text)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


LANGUAGES = [[EN] * 3, [EN, FR], [FR] * 4, [SW], [], [EN, FR, SW, EN, FR], [EN] * 9, [FR, EN] * 8, [SW] * 2]


@pytest.mark.parametrize("scope", ["total", "per_language"])
@pytest.mark.parametrize("size", [1, 4, 5, 100])
def test_first_in_first_out_across_wrap_around(scope: str, size: int) -> None:
    bank, oracle = LanguageMemoryBank(2, size, scope=scope), DequeBank(size, scope)  # type: ignore[arg-type]
    first = 0
    for languages in LANGUAGES:
        rows, tensors = batch(first, languages)
        bank.enqueue(*tensors)
        oracle.enqueue(rows)
        first += len(languages)
        assert held_rows(bank) == oracle.rows()
        assert len(bank) == len(oracle.rows())
        if scope == "per_language":
            for code in (EN, FR, SW):
                assert held_rows(bank, code) == oracle.rows(code)


def test_it_starts_empty() -> None:
    for scope in ("total", "per_language"):
        bank = LanguageMemoryBank(3, 8, scope=scope)  # type: ignore[arg-type]
        assert len(bank) == 0
        assert [tuple(part.shape) for part in bank.get(torch.tensor([EN]))] == [(0, 3), (0,), (0,), (0,)]


def test_the_total_scope_gives_all_languages_whatever_is_asked_for() -> None:
    bank = LanguageMemoryBank(2, 8)
    bank.enqueue(*batch(0, [EN, FR])[1])
    assert len(bank.get(torch.tensor([EN])).keys) == 2


def test_several_languages_at_once_and_unknown_ones() -> None:
    bank = LanguageMemoryBank(2, 8, scope="per_language")
    bank.enqueue(*batch(0, [EN, FR, SW, FR])[1])
    assert sorted(bank.get(torch.tensor([FR, EN, FR])).language.tolist()) == [EN, FR, FR]
    assert len(bank.get(torch.tensor([1])).keys) == 0


def test_one_slot_is_viewed_and_not_copied() -> None:
    total = LanguageMemoryBank(2, 8)
    total.enqueue(*batch(0, [EN, FR])[1])
    assert total.get().keys.data_ptr() == total.keys.data_ptr()
    per_language = LanguageMemoryBank(2, 8, scope="per_language")
    per_language.enqueue(*batch(0, [EN, FR])[1])
    slot = per_language.slot_language.tolist().index(FR)
    assert per_language.get(torch.tensor([FR])).keys.data_ptr() == per_language.keys[slot].data_ptr()


def test_keys_are_cut_off_from_the_graph() -> None:
    bank = LanguageMemoryBank(2, 8)
    bank.enqueue(torch.randn(3, 2, requires_grad=True) * 2, torch.tensor([EN] * 3))
    assert not bank.get().keys.requires_grad


def test_rows_of_no_document_and_no_text_have_an_id_of_their_own() -> None:
    bank = LanguageMemoryBank(2, 8)
    bank.enqueue(torch.zeros(2, 2), torch.tensor([EN, EN]))
    assert bank.get().document.tolist() == bank.get().text.tolist() == [-1, -1]


@pytest.mark.parametrize("scope", ["total", "per_language"])
def test_a_restored_bank_continues_as_the_saved_one(tmp_path: Path, scope: str) -> None:
    bank = LanguageMemoryBank(2, 4, scope=scope)  # type: ignore[arg-type]
    bank.enqueue(*batch(0, [EN, FR, EN, EN, EN, EN])[1])
    save_file(bank.state_dict(), tmp_path / "bank.safetensors")
    # The new bank has seen other languages, and more of them, before it is restored.
    restored = LanguageMemoryBank(2, 4, scope=scope)  # type: ignore[arg-type]
    restored.enqueue(*batch(70, [SW, FR, 5])[1])
    restored.load_state_dict(load_file(tmp_path / "bank.safetensors"))
    for first, languages in ((10, [SW, EN]), (20, [FR] * 6)):
        for each in (bank, restored):
            each.enqueue(*batch(first, languages)[1])
        assert all(torch.equal(a, b) for a, b in zip(bank.get(), restored.get(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(bank.buffers(), restored.buffers(), strict=True))


def test_a_bank_of_another_scope_or_size_is_refused() -> None:
    total, per_language = LanguageMemoryBank(2, 4), LanguageMemoryBank(2, 4, scope="per_language")
    per_language.enqueue(*batch(0, [EN])[1])
    with pytest.raises(RuntimeError, match="another scope than 'per_language'"):
        LanguageMemoryBank(2, 4, scope="per_language").load_state_dict(total.state_dict())
    with pytest.raises(RuntimeError, match="another scope than 'total'"):
        LanguageMemoryBank(2, 4).load_state_dict(per_language.state_dict())
    with pytest.raises(RuntimeError, match="size mismatch"):
        LanguageMemoryBank(2, 5).load_state_dict(total.state_dict())


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="size=0"):
        LanguageMemoryBank(2, 0)
    with pytest.raises(ValueError, match="features=0"):
        LanguageMemoryBank(0)
    with pytest.raises(ValueError, match="scope must be.*'global'"):
        LanguageMemoryBank(2, scope="global")  # type: ignore[arg-type]
    bank = LanguageMemoryBank(2, 4)
    with pytest.raises(ValueError, match=r"keys must have shape \(rows, 2\), got \(3, 5\)"):
        bank.enqueue(torch.zeros(3, 5), torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match=r"tags must have shape \(3,\)"):
        bank.enqueue(torch.zeros(3, 2), torch.zeros(2, dtype=torch.long))
