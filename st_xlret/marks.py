"""Marks of outputs: a program replaces what bears its own mark, and nothing else.

Beside a file stands its mark, a hidden JSON file that says who wrote it, and the digest of what it
held then. A folder has its mark inside, with the digests of its files. What
somebody has changed since is theirs.
"""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

FOLDER_MARK = ".st-xlret.json"

_Digests: TypeAlias = dict[str, str]

_BLOCK = 2**20
_PACKAGE = "st-xlret"


def mark_file(file: Path, writer: str, content: Path) -> None:
    """Write the mark of `file`: `writer` wrote it, and it holds what `content` does.

    It is called before `content` takes the place of `file`.
    """
    _write_mark(_mark_of_file(file), writer, {file.name: _digest(content)})


def writer_of(file: Path) -> str | None:
    """Who wrote this file; None if it has no mark, or was changed since."""
    writer, marked = _read_writer_and_digests(_mark_of_file(file))
    is_as_written = file.name in marked and marked[file.name] == _digest(file)
    return writer if is_as_written else None


def mark_folder(folder: Path) -> None:
    """Write the mark of a folder, once it is filled: all of its files are ours, as they are now."""
    _write_mark(folder / FOLDER_MARK, _PACKAGE, _digests_in(folder))


def problem_with_mark(folder: Path) -> str | None:
    """Why a folder is not ours, in words; None if its mark names all that it holds."""
    marked = read_mark(folder / FOLDER_MARK)
    if not marked:
        return f"it has no {FOLDER_MARK}, which names the files of a model or map that we wrote"
    for name, digest in _digests_in(folder).items():
        if name not in marked:
            return f"it also holds {name}"
        if marked[name] != digest:
            return f"{name} was changed"
    return None


def read_mark(mark: Path) -> _Digests:
    """The digests in the mark of a folder, by the names of its files; none if it is not ours."""
    writer, marked = _read_writer_and_digests(mark)
    return marked if writer == _PACKAGE else {}


def has_digest(file: Path, digest: str | None) -> bool:
    """Whether a file still holds what it held when this was its digest."""
    return _digest(file) == digest


def _read_writer_and_digests(mark: Path) -> tuple[str | None, _Digests]:
    """The writer and the digests in a mark; None and no digests where it cannot be read."""
    try:
        content = json.loads(mark.read_text(encoding="utf-8"))
        return content["written_by"], dict(content["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, {}


def _mark_of_file(file: Path) -> Path:
    """The mark beside a file, which is hidden: what reads the folder leaves it out."""
    return file.with_name(f".{file.name}.st-xlret")


def _digests_in(folder: Path) -> _Digests:
    """The digest of each file below a folder, but for its mark, by its name."""
    digests = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        is_folder = path.is_dir() and not path.is_symlink()
        if not is_folder and name != FOLDER_MARK:
            digests[name] = _digest(path) if path.is_file() else "no file"
    return digests


def _digest(file: Path) -> str:
    """The digest of what a file holds, read block by block."""
    digest = sha256()
    with open(file, "rb") as content:
        while block := content.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _write_mark(mark: Path, writer: str, files: _Digests) -> None:
    """Write a mark, whole or not at all."""
    text = json.dumps({"written_by": writer, "files": files}, indent=2, ensure_ascii=False)
    new = mark.with_name(f"{mark.name}-tmp")  # a link under the name of the mark is replaced
    new.write_text(f"{text}\n", encoding="utf-8")
    os.replace(new, mark)
