"""Folders and models, written whole or not at all, and what killed programs left of them."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from st_xlret.files.errors import explain, is_of_the_disk
from st_xlret.files.writing import permit

MODEL_MARKER = "modules.json"
"""The file by which a folder is recognised as a saved SentenceTransformer."""


class SavesPretrained(Protocol):
    """Anything with the host's `save_pretrained`, such as a `SentenceTransformer`."""

    def save_pretrained(self, path: str) -> None:
        """Write the whole model into the folder `path`."""


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
                permit(file, temporary.stat().st_mode & 0o666)
        # Again: hours may have passed in the block, and another program may have written here.
        _refuse_occupied(target, overwrite)
        _swap_in(temporary, target)
    except FileExistsError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if is_of_the_disk(error):
            kept = "What was there before is unchanged. " if target.exists() else ""
            raise explain(error, f"Could not save to {target}", kept) from error
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


def holds_model(folder: Path) -> bool:
    """Whether a folder is a saved model."""
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
    if not holds_model(target):
        raise FileExistsError(
            f"{target} is not empty and holds no saved model (no {MODEL_MARKER}): it is not overwritten, "
            "because that would delete it. Give another path, or empty it yourself."
        )


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
