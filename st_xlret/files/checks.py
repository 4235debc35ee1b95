"""Whether a result can be written, checked before long work."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from st_xlret.files.errors import explain
from st_xlret.files.folders import MODEL_MARKER, holds_model


def check_output_directory(path: str | os.PathLike[str], overwrite: bool = False, resume: bool | None = None) -> Path:
    """Check, before hours of training, that its result can be written to `path`.

    Nothing is made and nothing in the folder is touched: with `overwrite` what it holds stays until the new model is
    whole.

    Args:
        path: The output directory of a run. It may be missing.
        overwrite: Allow a directory that already holds something.
        resume: Allow it too, because the run continues from what is there. None where there is no such option.

    Returns:
        The path, as a folder that is writable or can be made.

    Raises:
        FileExistsError: When it is a file, or holds something and neither option is set.
        OSError: When it cannot be made or written to.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     check_output_directory(Path(folder) / "run").exists()
        False
    """
    target = Path(path)
    if target.exists() and not target.is_dir():
        raise FileExistsError(f"{target} is a file; name a folder for the output.")
    if target.is_dir() and any(target.iterdir()) and overwrite and not holds_model(target):
        raise FileExistsError(
            f"{target} is not empty and holds no saved model (no {MODEL_MARKER}): --overwrite does not replace it, "
            "because that would delete it. Name another folder, or empty it yourself."
        )
    if target.is_dir() and any(target.iterdir()) and not (overwrite or resume):
        go_on = "" if resume is None else ", --resume to continue from its last checkpoint"
        what = "a model" if holds_model(target) or holds_model(target / "model") else "files"
        raise FileExistsError(
            f"{target} already holds {what}; use --overwrite to replace it{go_on}, or name another folder."
        )
    nearest = next(folder for folder in (target, *target.absolute().parents) if folder.exists())
    probe = nearest / f".writable.{uuid.uuid4().hex[:8]}.tmp"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise explain(error, f"Cannot write to {target}") from error
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
        raise explain(error, f"Cannot write {target}") from error
    return target
