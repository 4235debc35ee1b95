"""Writing files and models whole or not at all: beside their place, then renamed into it."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_MODEL_MARKER = "modules.json"  # by which a folder is recognised as a saved SentenceTransformer
_MAP_MARKER = "calibration.json"  # and as a saved map of vectors
_TEMPORARY, _REPLACED = ".st-xlret-tmp", ".st-xlret-replaced"
_DAY = 86_400.0
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a file name to write to, and put that file in the place of `path` once it is whole.

    Args:
        path: The file to write. Missing parent folders are made; of a link, the file that it names is written.

    Yields:
        A name in a temporary folder beside `path`, with the name of `path`. No file is there yet.

    Raises:
        OSError: When `path` is no regular file, or cannot be written; the file that was there is unchanged.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with atomic_file(Path(folder) / "a.txt") as temporary:
        ...         _ = temporary.write_text("whole")
        ...     [file.name for file in Path(folder).iterdir()]
        ['a.txt']
    """
    target = Path(os.path.realpath(path))
    _check_file(target)
    with _beside(target, f"Could not write {target}") as folder:
        yield folder / target.name
        _finish(folder)
        _check_file(target)
        os.replace(folder / target.name, target)


@contextmanager
def atomic_directory(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Give an empty folder to fill, and put it in the place of `path` once it is whole.

    A failure inside the block leaves what was at `path` as it was. With `overwrite` the old folder is renamed aside,
    the new one renamed in, and then the old one is deleted.

    Args:
        path: Where the folder will be. Missing parent folders are made.
        overwrite: Replace a folder that holds a saved model.

    Yields:
        A temporary folder beside `path`.

    Raises:
        FileExistsError: When `path` is a file, a non-empty folder without `overwrite`, or a non-empty folder without
            a saved model, which is never replaced.
        OSError: When the disk is full or cannot be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     with atomic_directory(Path(parent) / "out") as folder:
        ...         _ = (folder / "part.txt").write_text("whole")
        ...     sorted(p.name for p in (Path(parent) / "out").iterdir())
        ['part.txt']
    """
    target = Path(os.path.realpath(path))
    _check_free(target, overwrite)
    with _beside(target, f"Could not save to {target}") as folder:
        yield folder
        _finish(folder)
        _check_free(target, overwrite)  # hours may have passed in the block
        _swap_in(folder, target)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write `text` as UTF-8 to `path`: readers see the old file or the new one, never a part.

    Args:
        path: The file to write. Missing parent folders are made.
        text: Its content.

    Returns:
        The path written.

    Raises:
        OSError: When it cannot be written; the file that was there before is unchanged.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_text(Path(folder) / "notes" / "a.txt", "done").read_text()
        'done'
    """
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def write_json(path: str | os.PathLike[str], obj: Any) -> Path:
    """Write `obj` as readable JSON to `path`, the way `write_text` does.

    NumPy and PyTorch scalars and arrays become numbers and lists, paths become strings; NaN and the infinities, which
    JSON lacks, become `null`.

    Args:
        path: The file to write.
        obj: Anything made of mappings, sequences, numbers, strings, arrays and paths.

    Returns:
        The path written.

    Raises:
        TypeError: When `obj` holds something that JSON cannot express.
        OSError: When the file cannot be written; the file that was there before is unchanged.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_json(Path(folder) / "a.json", {"accuracy": float("nan"), "n": 3})
        ...     json.loads(path.read_text())
        {'accuracy': None, 'n': 3}
    """
    return write_text(path, json.dumps(_plain(obj), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def save_model(model: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Save `model` to the folder `path`, whole or not at all.

    Args:
        model: A `SentenceTransformer`, or anything with `save_pretrained(path)`.
        path: The model's folder. Missing parent folders are made.
        overwrite: Replace a model that is already there; it is kept until the new one is whole.

    Returns:
        The path, as given.

    Raises:
        FileExistsError: When `path` is taken, see `atomic_directory`.
        OSError: When the disk is full or cannot be written. A model that was there before is unchanged.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> import tempfile
        >>> model = SentenceTransformer(modules=[BoW(vocab=["one"])], device="cpu")
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     save_model(model, Path(parent) / "model").name
        'model'
    """
    with atomic_directory(path, overwrite=overwrite) as folder:
        model.save_pretrained(str(folder))
    return Path(path)


def check_output_directory(path: str | os.PathLike[str], overwrite: bool = False, resume: bool | None = None) -> Path:
    """Check, before long work, that its result can be written to the folder `path`. Nothing is made or changed.

    Args:
        path: The output folder of a run. It may be missing.
        overwrite: Allow a folder that holds a saved model.
        resume: Allow a folder that holds files, from which the run continues. None where there is no such option.

    Returns:
        The path.

    Raises:
        FileExistsError: When it is a file, or holds something that may not be replaced.
        OSError: When it cannot be made or written to.
    """
    target = Path(path)
    if not resume or overwrite:
        _check_free(target, overwrite, "" if resume is None else ", resume it (--resume)")
    elif target.exists() and not target.is_dir():
        raise FileExistsError(f"{target} is a file; give the path of a folder.")
    _check_writable(target)
    return target


def check_output_file(path: str | os.PathLike[str]) -> Path:
    """Check, before long work, that its result can be written to the file `path`. Nothing is made or changed.

    Args:
        path: The file. It and its parent folders may be missing.

    Returns:
        The path.

    Raises:
        OSError: When it is a folder, a device or a pipe, or nothing can be written beside it.
    """
    target = Path(os.path.realpath(path))
    _check_file(target)
    _check_writable(target.parent)
    return Path(path)


def remove_leftovers(folder: str | os.PathLike[str], name: str | None = None, *, age: float = 0.0) -> None:
    """Remove what killed programs left half-written in a folder, and put back folders that they had moved aside.

    Leftovers are known by the names that this module alone gives: `.<name>.<8 hex digits>.st-xlret-tmp` and
    `<name>.<8 hex digits>.st-xlret-replaced`.

    Args:
        folder: The folder.
        name: Only leftovers of the file or folder of this name.
        age: Only leftovers in which nothing has been written for so many seconds. 0 is for a folder in which no other
            program writes at the same time.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     (Path(folder) / ".model.0a1b2c3d.st-xlret-tmp").mkdir()
        ...     (Path(folder) / "model.0a1b2c3d.st-xlret-replaced").mkdir()  # killed before the new one took its place
        ...     remove_leftovers(folder)
        ...     [path.name for path in Path(folder).iterdir()]
        ['model']
    """
    for path in sorted(Path(folder).glob("*.st-xlret-*")):
        known = re.fullmatch(rf"\.?(.+)\.[0-9a-f]{{8}}({_TEMPORARY}|{_REPLACED})", path.name)
        if not known or path.is_symlink() or not path.is_dir() or name not in (None, known[1]):
            continue
        with suppress(OSError):
            if age and max(file.lstat().st_mtime for file in [path, *path.rglob("*")]) > time.time() - age:
                continue
            target = path.with_name(known[1])
            if known[2] == _REPLACED and not (target.exists() and any(target.iterdir())):
                with suppress(FileNotFoundError):
                    target.rmdir()
                path.rename(target)
            else:
                shutil.rmtree(path, ignore_errors=True)


def _check_file(target: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; give the name of a file.")
    if target.is_symlink() or target.exists() and not target.is_file():
        raise OSError(f"{target} is no regular file, but a device, a pipe or a loop of links; give another name.")


def _check_free(target: Path, overwrite: bool, other_way: str = "") -> None:
    if target.is_symlink() and not target.exists():
        raise OSError(f"{target} is a link to nothing; give another path.")
    if not target.exists():
        return
    if not target.is_dir():
        raise FileExistsError(f"{target} is a file; give the path of a folder.")
    if not any(target.iterdir()):
        return
    if not overwrite:
        held = "a saved model" if (target / _MODEL_MARKER).is_file() or (target / "model").is_dir() else "files"
        raise FileExistsError(
            f"{target} already holds {held}; replace it (--overwrite, overwrite=True){other_way}, or give another path."
        )
    if not any((target / marker).is_file() for marker in (_MODEL_MARKER, _MAP_MARKER)):
        raise FileExistsError(
            f"{target} is not empty and holds no saved model (no {_MODEL_MARKER}): it is not overwritten, because that "
            "would delete it. Give another path, or empty it yourself."
        )


def _check_writable(folder: Path) -> None:
    nearest = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    probe = nearest / f".writable.{uuid.uuid4().hex[:8]}{_TEMPORARY}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        raise _explain(error, f"Cannot write to {folder}") from error


@contextmanager
def _beside(target: Path, failure: str) -> Iterator[Path]:
    """A temporary folder beside `target`, removed at the end, and errors of the disk that say what failed."""
    folder = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}{_TEMPORARY}")
    try:
        folder.mkdir(parents=True)
        remove_leftovers(target.parent, target.name, age=_DAY)
        yield folder
    except (FileExistsError, _Explained):
        raise
    except Exception as error:
        # Libraries in Rust raise errors of their own, with the number of the system's error in the text.
        if not isinstance(error, OSError) and not re.search(r"os error \d+", str(error)):
            raise
        if isinstance(error, FileNotFoundError) and not str(error.filename).startswith(str(folder)):
            raise  # an input has vanished
        kept = "What was there before is unchanged. " if target.exists() else ""
        raise _explain(error, failure, kept) from error
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
        old = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}{_REPLACED}")
        os.rename(target, old)
    try:
        with suppress(FileNotFoundError):
            target.rmdir()  # an empty folder; Windows renames to none that exists
        os.rename(new, target)
    except OSError as error:
        if old is not None and not target.exists():
            os.rename(old, target)
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise FileExistsError(f"{target} was written by another program meanwhile; give another path.") from error
        raise
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


class _Explained(OSError):
    """An error that says already what failed and the way out."""


def _explain(error: Exception, failure: str, kept: str = "") -> OSError:
    """An OSError of the same number that says what failed, why, and the way out."""
    reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")
    in_text = re.search(r"os error (\d+)", reason)
    number = getattr(error, "errno", None) or (int(in_text[1]) if in_text else None)
    way_out = "Free some space or give another path." if number in _FULL else "Give a path that can be written to."
    message = f"{failure}: {reason}. {kept}{way_out}"
    return _Explained(number, message) if number else _Explained(message)


def _plain(obj: Any) -> Any:
    if isinstance(obj, bool | int | str) or obj is None:
        return obj
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else None
    if isinstance(obj, Mapping):
        return {str(key): _plain(value) for key, value in obj.items()}
    if isinstance(obj, list | tuple | set | frozenset):
        return [_plain(value) for value in obj]
    if isinstance(obj, os.PathLike):
        return os.fspath(obj)
    if hasattr(obj, "tolist"):
        with suppress(RuntimeError, ValueError):
            return _plain(obj.tolist())
    raise TypeError(f"{type(obj).__name__} cannot be written as JSON: {obj!r}")
