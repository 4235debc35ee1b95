"""Writing outputs whole or not at all, and never over what somebody else wrote."""

import errno
import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from st_xlret.folders import UNFINISHED
from st_xlret.marks import mark_file, mark_folder, problem_with_mark, writer_of

PathLike: TypeAlias = str | os.PathLike[str]

NEW_FILE = ""
"""The `ours` of a file that is new, and that nothing replaces later."""

_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def atomic_file(
    path: PathLike, *, ours: str | None = None, inputs: Iterable[object] = ()
) -> Iterator[Path]:
    """Give a file name to write to, and put that file in the place of `path` once it is whole.

    What is under the name is checked at once, and what has appeared or changed there meanwhile is a
    `FileExistsError`. Where nothing is written, nothing is replaced.

    Args:
        path: The file to write. Missing parent folders are made; of a link, the file that it names
            is written.
        ours: Who writes, such as "report". The file gets the writer's mark, and a file that is
            there is replaced if it bears the same one, and was not changed since. `NEW_FILE`: it
            gets none. None: any file is replaced, for files that only the program names.
        inputs: What the command reads. The output may be none of it, nor inside a folder of it.
    """
    target = check_output_file(path, ours=ours, inputs=inputs)
    before = _sizes_and_times(target)
    with _temporary_folder_beside(target) as folder:
        written = folder / target.name
        yield written
        if not written.exists():
            return
        _make_lasting(folder)
        if target.exists():
            shutil.copymode(target, written)  # what was private stays so
        if ours is not None:
            _refuse_changed(target, before)
        if ours:
            mark_file(target, ours, written)
        os.replace(written, target)


@contextmanager
def atomic_directory(
    path: PathLike, *, overwrite: bool = False, inputs: Iterable[object] = ()
) -> Iterator[Path]:
    """Give an empty folder to fill, and put it in the place of `path` once whole.

    It gets a mark, by which a later run may replace it; see `check_output_directory`.
    """
    target = _real_path(check_output_directory(path, overwrite, inputs=inputs))
    before = _sizes_and_times(target)
    with _temporary_folder_beside(target) as folder:
        yield folder
        mark_folder(folder)
        if target.exists():
            shutil.copymode(target, folder)  # what was private stays so
        _make_lasting(folder)
        _refuse_changed(target, before)
        _swap_folder_in(target, folder)


def write_text(path: PathLike, text: str, *, ours: str | None = None) -> Path:
    """Write `text` as UTF-8: readers see the old file or the new one, never a part.

    See `atomic_file`.
    """
    with atomic_file(path, ours=ours) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path).expanduser()


def write_json(path: PathLike, obj: Any, *, ours: str | None = None) -> Path:
    """Write `obj` as readable JSON: arrays become lists, paths strings, NaN and infinities `null`.

    See `atomic_file`.
    """
    text = json.dumps(obj, default=_json_value)
    content = json.loads(text, parse_constant=lambda _: None)
    return write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n", ours=ours)


def _json_value(value: Any) -> Any:
    """What JSON holds in the place of a value that it does not know."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value)


def check_output_directory(
    path: PathLike, overwrite: bool = False, *, inputs: Iterable[object] = ()
) -> Path:
    """Check, before long work, that `atomic_directory` can write to the folder `path`.

    Nothing is made. What is returned is `path`, with `~` expanded.

    Args:
        path: The output folder of a run. It may be missing or empty.
        overwrite: Replace a folder that bears our mark and holds nothing else.
        inputs: What the run reads. It may not be inside the folder.
    """
    target = _real_path(path)
    problem = _problem_with_folder(target, overwrite, inputs)
    if problem is not None:
        raise FileExistsError(f"{target} {problem}")
    _check_writable(target)
    return Path(path).expanduser()


def check_output_file(
    path: PathLike, *, ours: str | None = None, inputs: Iterable[object] = ()
) -> Path:
    """Check, before long work, what `atomic_file` checks.

    What is returned is the file itself, of a link the one that it names.
    """
    target = _real_path(path)
    problem = _problem_with_file(target, ours, inputs)
    if problem is not None:
        raise FileExistsError(f"{path} {problem}: nothing is overwritten, give another name")
    _check_writable(target.parent)
    return target


def file_beside(output: PathLike, ending: str, *, own: str = ".json") -> Path:
    """The second file of an output: its name with another ending.

    An output without its `own` ending is refused: of `v1.0` and `v1.1`, second files would be one.
    """
    file = Path(output)
    if file.suffix != own:
        raise ValueError(f"--output {output}: name a file that ends in {own}")
    return file.with_suffix(ending)


def _problem_with_folder(target: Path, overwrite: bool, inputs: Iterable[object]) -> str | None:
    """Why nothing can be written to a folder, in words; None if it can."""
    is_lost_link = target.is_symlink() and not target.exists()
    if is_lost_link or (target.exists() and not target.is_dir()):
        return "is no folder: give another path"
    for source in _existing_paths(inputs):
        if target == source or target in source.parents:
            return f"holds what is read, {source}: give another path"
    if not target.exists() or not any(target.iterdir()):
        return None
    if not overwrite:
        return "already holds files; replace it (--overwrite), or give another path"
    reason = problem_with_mark(target)
    if reason is not None:
        return f"is not replaced, for {reason}: move it away, or give another path"
    return None


def _problem_with_file(target: Path, ours: str | None, inputs: Iterable[object]) -> str | None:
    """Why a file cannot be written, in words; None if it can."""
    if target.is_symlink() or (target.exists() and not target.is_file()):
        return "is no regular file, but a folder, a device, a pipe or a loop of links"
    for source in _existing_paths(inputs):
        if source == target or source in target.parents:
            return f"would change what is read, {source}"
    is_guarded = ours is not None and target.exists() and target.stat().st_size > 0
    if is_guarded and not (ours and writer_of(target) == ours):
        return "is there already, and is not as this command would have written it"
    return None


def _real_path(path: PathLike) -> Path:
    """The path with `~` expanded and links followed, absolute."""
    return Path(os.path.realpath(os.path.expanduser(path)))


def _existing_paths(inputs: Iterable[object]) -> list[Path]:
    """The inputs that are paths of something: others, as names on the Hub, are none."""
    paths = [_real_path(str(source)) for source in inputs if source]
    return [path for path in paths if path.exists()]


def _check_writable(folder: Path) -> None:
    """Raise the system's error, which names the path, where nothing can be written to a folder."""
    nearest = folder
    while not nearest.exists():
        nearest = nearest.parent
    tempfile.TemporaryDirectory(dir=nearest).cleanup()


@contextmanager
def _temporary_folder_beside(target: Path) -> Iterator[Path]:
    """A temporary folder beside `target`, removed at the end; of a failure, no folder stays.

    `commands/work.py` knows its name, too: what a killed program has left is removed there.
    """
    # `mkdtemp` ignores the umask.
    folder = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}{UNFINISHED}tmp")
    new_parents = [parent for parent in target.parents if not parent.exists()]
    try:
        folder.mkdir(parents=True)
        yield folder
    except Exception as error:
        number = _system_error_number(error)
        if number not in _FULL_DISK:
            raise
        message = f"Could not write {target}, which is as before: {os.strerror(number)}"
        raise OSError(number, message) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for parent in new_parents:
            with suppress(OSError):  # one that holds the result stays
                parent.rmdir()


def _system_error_number(error: Exception) -> int:
    """The number of the system's error, 0 for others.

    Libraries in Rust raise errors of their own, with the number in the text.
    """
    number = getattr(error, "errno", None)
    if number:
        return int(number)
    in_text = re.search(r"os error (\d+)", str(error))
    return int(in_text[1]) if in_text else 0


def _make_lasting(folder: Path) -> None:
    """See that the files of a folder are on the disk, and readable by whom the umask lets.

    safetensors writes files that only their owner may read.
    """
    readable = folder.stat().st_mode & 0o666
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            file.chmod(file.stat().st_mode | readable)
            with open(file, "rb") as written:
                os.fsync(written.fileno())


def _sizes_and_times(target: Path) -> list[tuple[Path, int, int]]:
    """The size and time of a file, or of all files of a folder."""
    found = []
    for file in (target, *sorted(target.rglob("*"))):
        if file.is_file():
            status = file.stat()
            found.append((file, status.st_size, status.st_mtime_ns))
    return found


def _refuse_changed(target: Path, before: list[tuple[Path, int, int]]) -> None:
    """Refuse to replace what is not as it was when it was looked at, perhaps hours ago.

    `before` is what `_sizes_and_times` gave then.
    """
    if _sizes_and_times(target) != before:
        raise FileExistsError(f"{target} has appeared or changed meanwhile: it is left as it is")


def _swap_folder_in(target: Path, new: Path) -> None:
    """Rename `new` to `target`; at every moment a whole folder is there under a visible name."""
    old = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}{UNFINISHED}replaced")
    if target.exists():
        os.rename(target, old)
    try:
        os.rename(new, target)
    finally:
        if old.exists() and not target.exists():
            os.rename(old, target)
        shutil.rmtree(old, ignore_errors=True)
