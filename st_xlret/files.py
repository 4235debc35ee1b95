"""Writing files and models whole or not at all: beside their place, then renamed into it."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PathLike = str | os.PathLike[str]

_MARKERS = ("modules.json", "calibration.json")  # by which a saved model or map is recognised
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def atomic_file(path: PathLike) -> Iterator[Path]:
    """Give a file name to write to, and put that file in the place of `path` once it is whole.

    Args:
        path: The file to write. Missing parent folders are made; of a link, the file that it names is written.

    Yields:
        A name in a temporary folder beside `path`, with the name of `path`. No file is there yet.

    Raises:
        OSError: When `path` is no regular file, or cannot be written; the file that was there is unchanged.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with atomic_file(Path(folder) / "a.txt") as temporary:
        ...         _ = temporary.write_text("whole")
        ...     os.listdir(folder)
        ['a.txt']
    """
    target = Path(os.path.realpath(path))
    _check_file(target)
    with _beside(target) as folder:
        yield folder / target.name
        _finish(folder)
        os.replace(folder / target.name, target)


@contextmanager
def atomic_directory(path: PathLike, *, overwrite: bool = False) -> Iterator[Path]:
    """Give an empty folder to fill, and put it in the place of `path` once it is whole.

    Args:
        path: Where the folder will be. Missing parent folders are made.
        overwrite: Replace a folder that holds a saved model or map.

    Yields:
        A temporary folder beside `path`.

    Raises:
        FileExistsError: When `path` is a file, or a non-empty folder without `overwrite` or without a saved model.
        OSError: When it cannot be written.
    """
    target = Path(os.path.realpath(path))
    _check_free(target, overwrite)
    with _beside(target) as folder:
        yield folder
        _finish(folder)
        _check_free(target, overwrite)  # hours may have passed in the block
        _swap_in(folder, target)


def write_text(path: PathLike, text: str) -> Path:
    """Write `text` as UTF-8 to `path`: readers see the old file or the new one, never a part; see `atomic_file`."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def write_json(path: PathLike, obj: Any) -> Path:
    """Write `obj` as readable JSON: arrays become lists, paths strings, NaN and the infinities `null`.

    Raises:
        TypeError: When `obj` holds something that JSON cannot express.
    """
    return write_text(path, json.dumps(_plain(obj), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def save_model(model: Any, path: PathLike, *, overwrite: bool = False) -> Path:
    """Save anything with `save_pretrained(path)` to the folder `path`, whole or not at all; see `atomic_directory`."""
    with atomic_directory(path, overwrite=overwrite) as folder:
        model.save_pretrained(str(folder))
    return Path(path)


def check_output_directory(path: PathLike, overwrite: bool = False, resume: bool | None = None) -> Path:
    """Check, before long work, that its result can be written to the folder `path`. Nothing is made or changed.

    Args:
        path: The output folder of a run. It may be missing.
        overwrite: Allow a folder that holds a saved model or map.
        resume: Allow a folder that holds files, from which the run continues. None where there is no such option.

    Raises:
        OSError: When it is a file, holds something that may not be replaced, or cannot be made.
    """
    target = Path(path)
    _check_free(target, overwrite, "" if resume is None else " or continue (--resume)", bool(resume) and not overwrite)
    _check_writable(target)
    return target


def check_output_file(path: PathLike) -> Path:
    """Check, before long work, that its result can be written to the file `path`; an `OSError` says why not."""
    target = Path(os.path.realpath(path))
    _check_file(target)
    _check_writable(target.parent)
    return Path(path)


def _check_file(target: Path) -> None:
    if target.is_symlink() or target.exists() and not target.is_file():
        raise OSError(f"{target} is no regular file, but a folder, a device, a pipe or a loop of links")


def _check_free(target: Path, overwrite: bool, other_way: str = "", may_hold_files: bool = False) -> None:
    problem = None
    if target.is_symlink() and not target.exists() or target.exists() and not target.is_dir():
        problem = "is no folder: give another path"
    elif not may_hold_files and target.exists() and any(target.iterdir()):
        if not overwrite:
            problem = f"already holds files; replace it (--overwrite){other_way}, or give another path"
        elif not any((target / marker).is_file() for marker in _MARKERS):
            problem = f"is not empty and holds no saved model ({_MARKERS[0]}): empty it, or give another path"
    if problem:
        raise FileExistsError(f"{target} {problem}")


def _check_writable(folder: Path) -> None:
    nearest = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    tempfile.TemporaryDirectory(dir=nearest).cleanup()  # the system's own message names the path


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A temporary folder beside `target`, removed at the end."""
    folder = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.st-xlret-tmp")  # mkdtemp ignores the umask
    try:
        folder.mkdir(parents=True)
        yield folder
    except Exception as error:
        # Libraries in Rust raise errors of their own, with the number of the system's error in the text.
        in_text = re.search(r"os error (\d+)", str(error))
        number = getattr(error, "errno", None) or (int(in_text[1]) if in_text else None)
        if number not in _FULL:
            raise
        raise OSError(number, f"Could not write {target}, which is as before: {os.strerror(number)}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _finish(folder: Path) -> None:
    """Bring files to the disk; safetensors writes files that only their owner may read: all may whom the umask lets."""
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            file.chmod(file.stat().st_mode | folder.stat().st_mode & 0o666)
            with open(file, "rb") as written:
                os.fsync(written.fileno())


def _swap_in(new: Path, target: Path) -> None:
    """Rename `new` to `target`; at every moment one whole folder is on disk under a visible name."""
    old = None
    if target.exists() and any(target.iterdir()):
        old = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.st-xlret-replaced")
        os.rename(target, old)
    try:
        with suppress(FileNotFoundError):
            target.rmdir()  # an empty folder; Windows renames to none that exists
        os.rename(new, target)
    finally:
        if old is not None and not target.exists():
            os.rename(old, target)
        elif old is not None:
            shutil.rmtree(old, ignore_errors=True)


def _plain(obj: Any) -> Any:
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else None
    if isinstance(obj, Mapping):
        return {str(key): _plain(value) for key, value in obj.items()}
    if isinstance(obj, list | tuple | set | frozenset):
        return [_plain(value) for value in obj]
    if isinstance(obj, os.PathLike):
        return os.fspath(obj)
    return _plain(obj.tolist()) if hasattr(obj, "tolist") else obj
