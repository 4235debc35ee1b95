"""Single files, written whole or not at all."""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from st_xlret.files.errors import explain, is_of_the_disk


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
        permit(temporary, mode)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if is_of_the_disk(error):
            raise explain(error, f"Could not write {target}") from error
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


def permit(file: Path, mode: int) -> None:
    """Give a file the permissions that the umask gives; safetensors writes files that only their owner may read."""
    file.chmod(file.stat().st_mode | mode)


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
