"""A cache that is damaged is named and made anew; what killed programs left in it is removed."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from st_xlret.data import LoadReport, load_documents
from tests.data.files import write_jsonl

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "longer": lambda content: content + b"\0",
    "a byte less": lambda content: content[:-1],
    "zeros": lambda content: bytes(len(content)),
}


@pytest.fixture
def load(tmp_path: Path) -> Callable[[], tuple[list[str], bool]]:
    records = [{"language": "en", "sentences": [f"sentence {i} {j}" for j in range(5)]} for i in range(50)]
    file = write_jsonl(tmp_path / "d.jsonl", records)

    def run() -> tuple[list[str], bool]:
        report = LoadReport()
        found = load_documents(file, cache_dir=tmp_path / "cache", report=report, show_progress=False)
        return found["sentence"][:], report.reused

    return run


def file_of(folder: Path, suffix: str) -> Path:
    (found,) = (folder / "cache").glob(f"*{suffix}")
    return found


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("suffix", [".arrow", ".json"])
def test_a_damaged_cache_is_named_and_made_anew(
    load: Callable[[], tuple[list[str], bool]],
    tmp_path: Path,
    suffix: str,
    damage: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole, _ = load()
    file = file_of(tmp_path, suffix)
    content = file.read_bytes()
    file.write_bytes(DAMAGES[damage](content))
    with caplog.at_level(logging.WARNING):
        again, reused = load()
    assert not reused and str(file) in caplog.text
    assert again == whole
    assert load() == (whole, True) and file.read_bytes() == content


@pytest.mark.parametrize("content", ["[]", "{}", "5", '{"table_bytes": 1}', '{"languages": {}}'])
def test_a_report_of_another_kind_is_made_anew(
    load: Callable[[], tuple[list[str], bool]], tmp_path: Path, content: str
) -> None:
    whole, _ = load()
    file_of(tmp_path, ".json").write_text(content)
    assert load() == (whole, False)


def test_a_report_of_another_version_is_made_anew(load: Callable[[], tuple[list[str], bool]], tmp_path: Path) -> None:
    whole, _ = load()
    file = file_of(tmp_path, ".json")
    file.write_text(file.read_text().replace("bad_line_count", "bad_lines_counted"))
    assert load() == (whole, False)


def test_what_a_killed_program_left_is_removed(load: Callable[[], tuple[list[str], bool]], tmp_path: Path) -> None:
    load()
    table = file_of(tmp_path, ".arrow")
    leftovers = [table.with_name(f".{table.stem}.0a1b2c3d.tmp{suffix}") for suffix in (".arrow", ".json")]
    other = table.with_name(".documents-of-another-key.0a1b2c3d.tmp.arrow")  # which may be written at this moment
    for file in (*leftovers, other):
        file.touch()
    load()
    assert [file.exists() for file in (*leftovers, other)] == [False, False, True]


def test_a_full_disk_names_a_way_out_that_exists(
    load: Callable[[], tuple[list[str], bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(OSError, match=f"{tmp_path / 'cache'}.*HF_DATASETS_CACHE") as caught:
            load()
    assert caught.value.errno == errno.ENOSPC
    assert not [file for file in (tmp_path / "cache").iterdir() if file.suffix != ".lock"]
    assert load()[1] is False
