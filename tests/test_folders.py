"""Folders that are read: what belongs to them, and what their names say."""

from pathlib import Path

import pytest

from st_xlret.folders import columns_of_folders, files_below


def write_files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_what_is_hidden_or_not_done_does_not_belong(tmp_path: Path) -> None:
    belonging = ("a.txt", "fr/b.txt")
    others = (".a.txt.st-xlret", "_c.txt", ".git/d.txt", ".e.1a2b3c4d.st-xlret-tmp/e.txt")
    write_files(tmp_path, *belonging, *others)
    found = files_below(tmp_path)
    assert found.every == {tmp_path / name for name in belonging + others}
    assert found.belonging == {tmp_path / name for name in belonging}
    assert found.table_log is None


@pytest.mark.parametrize(
    ("file", "log"),
    [
        ("_delta_log/0.json", "_delta_log"),
        ("metadata/v1.metadata.json", "v1.metadata.json"),
        (".trash/_delta_log/0.json", None),
    ],
)
def test_the_log_of_a_table_is_named(tmp_path: Path, file: str, log: str | None) -> None:
    write_files(tmp_path, file)
    assert files_below(tmp_path).table_log == log


def test_names_of_folders_are_columns() -> None:
    file = Path("rows/language=fr/year=__HIVE_DEFAULT_PARTITION__/name=a%20b/part=0.parquet")
    assert columns_of_folders(file) == {"language": "fr", "year": None, "name": "a b"}
