"""Writing files and models so that a full disk or an interrupt never leaves half of one behind."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError

MODEL_MARKER = "modules.json"
"""The file by which a folder is recognised as a saved SentenceTransformer."""


class SavesPretrained(Protocol):
    """Anything with the host's `save_pretrained`, such as a `SentenceTransformer`."""

    def save_pretrained(self, path: str) -> None:
        """Write the whole model into the folder `path`."""


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary name beside `path` to write to, and rename it to `path` once it is whole.

    For writers that take a file name, such as `safetensors.torch.save_file` or matplotlib's `savefig`: the
    temporary name has the ending of `path`.

    Args:
        path: The file to write. Missing parent folders are made.

    Yields:
        The temporary name. No file is there yet.

    Raises:
        OSError: When it cannot be written; the file that was there before is unchanged.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with atomic_file(Path(folder) / "a.txt") as temporary:
        ...         _ = temporary.write_text("whole")
        ...     [file.name for file in Path(folder).iterdir()]
        ['a.txt']
    """
    target = Path(path)
    temporary = target.with_name(f".{target.stem}.{uuid.uuid4().hex[:8]}.tmp{target.suffix}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        mode = temporary.stat().st_mode & 0o777
        temporary.unlink()
        yield temporary
        _permit(temporary, mode)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if _is_of_the_disk(error):
            raise _explain(error, f"Could not write {target}") from error
        raise


def write_text_atomically(path: str | os.PathLike[str], text: str) -> Path:
    """Write `text` as UTF-8 to `path`: readers see the old file or the new one, never a part.

    Args:
        path: The file to write. Missing parent folders are made.
        text: What it will contain.

    Returns:
        The path written.

    Raises:
        OSError: When it cannot be written; the file that was there before is unchanged.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_text_atomically(Path(folder) / "notes" / "a.txt", "done").read_text()
        'done'
    """
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def write_json_atomically(path: str | os.PathLike[str], obj: Any) -> Path:
    """Write `obj` as readable JSON to `path`, the way `write_text_atomically` does.

    NumPy and PyTorch scalars and arrays become numbers and lists, paths become strings; NaN and the
    infinities, which JSON lacks, become `null`.

    Args:
        path: The file to write.
        obj: Anything made of mappings, sequences, numbers, strings, arrays and paths.

    Returns:
        The path written.

    Raises:
        TypeError: When `obj` holds something that JSON cannot express.
        OSError: When the file cannot be written; what was there before is unchanged.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_json_atomically(Path(folder) / "a.json", {"accuracy": float("nan"), "n": 3})
        ...     json.loads(path.read_text())
        {'accuracy': None, 'n': 3}
    """
    return write_text_atomically(path, json.dumps(_plain(obj), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def check_output_directory(path: str | os.PathLike[str], overwrite: bool = False, resume: bool | None = None) -> Path:
    """Check, before hours of training, that its result can be written to `path`.

    Nothing in the folder is touched: with `overwrite` what it holds stays until the new model is whole.

    Args:
        path: The output directory of a run. It may be missing.
        overwrite: Allow a directory that already holds something.
        resume: Allow it too, because the run continues from what is there. None where there is no such option.

    Returns:
        The path, as a folder that exists and is writable.

    Raises:
        FileExistsError: When it is a file, or holds something and neither option is set.
        OSError: When it cannot be made or written to.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     check_output_directory(Path(folder) / "run").is_dir()
        True
    """
    target = Path(path)
    if target.exists() and not target.is_dir():
        raise FileExistsError(f"{target} is a file; name a folder for the output.")
    if target.is_dir() and any(target.iterdir()) and overwrite and not _holds_model(target):
        raise FileExistsError(
            f"{target} is not empty and holds no saved model (no {MODEL_MARKER}): --overwrite does not replace it, "
            "because that would delete it. Name another folder, or empty it yourself."
        )
    if target.is_dir() and any(target.iterdir()) and not (overwrite or resume):
        go_on = "" if resume is None else ", --resume to continue from its last checkpoint"
        what = "a model" if _holds_model(target) or _holds_model(target / "model") else "files"
        raise FileExistsError(
            f"{target} already holds {what}; use --overwrite to replace it{go_on}, or name another folder."
        )
    probe = target / f".writable.{uuid.uuid4().hex[:8]}.tmp"
    try:
        target.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise _explain(error, f"Cannot write to {target}") from error
    return target


def check_output_file(path: str | os.PathLike[str]) -> Path:
    """Check, before long work, that its result can be written to the file `path`.

    A file that is there already is not touched.

    Args:
        path: The file. Missing parent folders are made.

    Returns:
        The path.

    Raises:
        IsADirectoryError: When it is a folder.
        OSError: When nothing can be written beside it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     check_output_file(Path(folder) / "new" / "scores.json").exists()
        False
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; give the name of a file.")
    probe = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise _explain(error, f"Cannot write {target}") from error
    return target


@contextmanager
def atomic_directory(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Give an empty folder beside `path` to fill, and put it in the place of `path` once it is whole.

    A failure inside the block removes the temporary folder and leaves what was at `path` as it was. With
    `overwrite` the old model is renamed aside, the new one renamed in and only then the old one deleted.

    Args:
        path: Where the folder will be. Missing parent folders are made.
        overwrite: Replace a saved model that is already there.

    Yields:
        The temporary folder, on the same file system as `path`.

    Raises:
        FileExistsError: When `path` is a file, a non-empty directory without `overwrite`, or a non-empty
            directory that is no saved model (which is never replaced).
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
    _refuse_occupied(target, overwrite)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file() and not file.is_symlink():
                _permit(file, temporary.stat().st_mode & 0o666)
        # Again: hours may have passed in the block, and another program may have written here.
        _refuse_occupied(target, overwrite)
        _swap_in(temporary, target)
    except FileExistsError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if _is_of_the_disk(error):
            kept = "What was there before is unchanged. " if target.exists() else ""
            raise _explain(error, f"Could not save to {target}", kept) from error
        raise


def save_model_atomically(model: SavesPretrained, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Save `model` to `path`, whole or not at all.

    Args:
        model: A `SentenceTransformer`, or anything with `save_pretrained(path)`.
        path: The model's folder. Missing parent folders are made.
        overwrite: Replace a model that is already there; it is kept until the new one is whole.

    Returns:
        The path, as given.

    Raises:
        FileExistsError: When `path` is taken, see `atomic_directory`.
        OSError: When the disk fills or cannot be written: nothing of the new model is left behind, and a
            model that was there before is unchanged. The model in memory is untouched: make room, call again.

    Example:
        >>> import tempfile
        >>> class Model:
        ...     def save_pretrained(self, path):
        ...         (Path(path) / "modules.json").write_text("[]")
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     save_model_atomically(Model(), Path(parent) / "model").name
        'model'
    """
    with atomic_directory(path, overwrite=overwrite) as folder:
        model.save_pretrained(str(folder))
    return Path(path)


def remove_leftovers(folder: str | os.PathLike[str]) -> None:
    """Remove what killed programs left half-written in a folder, and put back what they had only moved aside.

    Call it where no other program writes at the same time.

    Args:
        folder: Folder in which the functions of this module have written files and folders.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     (Path(folder) / ".model.0a1b2c3d.tmp").mkdir()
        ...     (Path(folder) / "model.replaced-0a1b2c3d").mkdir()  # killed before the new model took its place
        ...     remove_leftovers(folder)
        ...     [path.name for path in Path(folder).iterdir()]
        ['model']
    """
    for path in [*Path(folder).glob(".*.tmp*"), *Path(folder).glob("*.replaced-*")]:
        target = path.with_name(path.name.rpartition(".replaced-")[0] or path.name)
        if target != path and not (target.is_dir() and any(target.iterdir())):
            with suppress(OSError):
                target.rmdir()
            path.rename(target)
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _holds_model(folder: Path) -> bool:
    return (folder / MODEL_MARKER).is_file()


def _refuse_occupied(target: Path, overwrite: bool) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise FileExistsError(f"{target} is a file; give the path of a directory.")
    if not any(target.iterdir()):
        return
    if not overwrite:
        raise FileExistsError(
            f"{target} already exists and is not empty; use --overwrite (overwrite=True) to replace "
            "the model there, or give another path."
        )
    if not _holds_model(target):
        raise FileExistsError(
            f"{target} is not empty and holds no saved model (no {MODEL_MARKER}): it is not overwritten, "
            "because that would delete it. Give another path, or empty it yourself."
        )


def _permit(file: Path, mode: int) -> None:
    """Give a file the permissions that the umask gives; safetensors writes files that only their owner may read."""
    file.chmod(file.stat().st_mode | mode)


def _swap_in(new: Path, target: Path) -> None:
    """Rename `new` to `target`; at every moment one whole folder is on disk under a visible name."""
    if not target.exists():
        os.rename(new, target)
        return
    old = target.with_name(f"{target.name}.replaced-{uuid.uuid4().hex[:8]}")
    os.rename(target, old)
    try:
        os.rename(new, target)
    except BaseException:
        os.rename(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _is_of_the_disk(error: BaseException) -> bool:
    """Whether writing failed: libraries in Rust, as that of the tokenizers, raise other errors with its number."""
    return isinstance(error, OSError | SafetensorError) or bool(re.search(r"os error \d+", str(error)))


def _explain(error: BaseException, what_failed: str, kept: str = "") -> OSError:
    """Make an OSError of the same number that says what failed, why, and the way out."""
    reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")
    if isinstance(error, PermissionError):
        way_out = "Give a path that you may write to."
    else:
        way_out = "Free some space or give another path, and save again."
    message = f"{what_failed}: {reason}. {kept}{way_out}"
    # safetensors has an error of its own, which holds the number in its text
    in_text = re.search(r"os error (\d+)", reason)
    number = getattr(error, "errno", None) or (int(in_text.group(1)) if in_text else None)
    return OSError(number, message) if number else OSError(message)


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
