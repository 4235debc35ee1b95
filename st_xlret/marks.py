"""Marks of outputs: a program replaces what bears its own mark, and nothing else.

Beside a file that may be replaced stands its mark, a hidden JSON file that says who wrote it and
what it held then. A folder has its mark inside: the names and sizes of its files. What somebody has
changed since is theirs.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

FOLDER_MARK = ".st-xlret.json"
_BLOCK = 2**20


def mark_file(file: Path, writer: str, content: Path) -> None:
    """Say that `writer` wrote what is in `content` to `file`."""
    _write(_mark_of_file(file), {"written_by": writer, "sha256": _digest(content)})


def is_marked(file: Path, writer: str) -> bool:
    """Whether `writer` wrote this file, and nobody has changed it since."""
    mark = _read(_mark_of_file(file))
    return mark.get("written_by") == writer and mark.get("sha256") == _digest(file)


def mark_folder(folder: Path) -> None:
    """Say that all files of a folder are ours."""
    _write(folder / FOLDER_MARK, {"written_by": "st-xlret", "files": _sizes_in(folder)})


def find_unmarked(folder: Path) -> str | None:
    """Why a folder is not ours, in words: it has no mark, or a file that the mark does not name."""
    sizes = _read(folder / FOLDER_MARK).get("files")
    if not isinstance(sizes, dict):
        return f"it has no {FOLDER_MARK}, which names the files of a model or map that we wrote"
    for name, size in _sizes_in(folder).items():
        if name not in sizes:
            return f"it also holds {name}"
        if sizes[name] != size:
            return f"{name} was changed"
    return None


def _mark_of_file(file: Path) -> Path:
    return file.with_name(f".{file.name}.st-xlret")


def _sizes_in(folder: Path) -> dict[str, int]:
    """The size of each file and link below a folder, but for its mark, by its name."""
    sizes = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        is_file = path.is_symlink() or not path.is_dir()
        if is_file and name != FOLDER_MARK:
            sizes[name] = path.lstat().st_size
    return sizes


def _digest(file: Path) -> str:
    digest = sha256()
    with open(file, "rb") as content:
        while block := content.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _read(mark: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(mark.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # none, or none of ours
        return {}
    return content if isinstance(content, dict) else {}


def _write(mark: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False)
    mark.write_text(f"{text}\n", encoding="utf-8")
