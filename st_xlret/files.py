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
from urllib.parse import unquote

PathLike: TypeAlias = str | os.PathLike[str]

PICTURE = "(?s:.{0,200})st-xlret"  # how the pictures of this package begin
_MARKERS = ("modules.json", "calibration.json")  # by which a saved model or map is recognised
# The names of the files and the folders that saved models and maps are made of.
_FILES = re.compile(
    r"(modules|calibration|language_bias|tokenizer|special_tokens_map|added_tokens|vocab|chat_template|"
    r"((sentence_[\w-]+|router|adapter|generation|processor|preprocessor|tokenizer|\w+tokenizer|wordembedding|lstm|cnn)_)?"
    r"config|config_sentence_transformers|(pytorch_model\.bin|model\.safetensors)\.index)\.json|README\.md|"
    r"(vocab|merges)\.txt|(sentencepiece\.bpe|spiece|tokenizer)\.model|chat_template\.jinja|"
    r"(adapter_)?model(-\d+-of-\d+)?\.safetensors|pytorch_model(-\d+-of-\d+)?\.bin|"
    r"(language_bias_(before|after)|strength)\.png"
)
_FOLDERS = re.compile(
    r"(.+_)?\d+_(Asym|BoW|CNN|Dense|Dropout|LSTM|LayerNorm|Normalize|Pooling|Router|StaticEmbedding|Transformer|"
    r"WeightedLayerPooling|WordEmbeddings|WordWeights)|additional_chat_templates|query|document"
)
# Of tables that say which of their files count: Delta, Hudi, Spark's streams, Iceberg.
_TABLE_LOGS = ("_delta_log", ".hoodie", "_spark_metadata", "metadata/*.metadata.json")
_TAIL = 10_000  # bytes at the end of a file, where Parquet has its metadata


@contextmanager
def atomic_file(
    path: PathLike, *, ours: str | None = None, inputs: Iterable[object] = ()
) -> Iterator[Path]:
    """Give a file name to write to, and put that file in the place of `path` once it is whole.

    What is under the name is checked at once, and what has appeared or changed there meanwhile is a `FileExistsError`.
    Where nothing is written, nothing is replaced.

    Args:
        path: The file to write. Missing parent folders are made; of a link, the file that it names is written.
        ours: Regular expression of how the files begin that this command writes; any other file is refused. None: any
            file is replaced, for files that only the program itself names.
        inputs: What the command reads. The output may be none of it, nor inside a folder of it.
    """
    target = check_output_file(path, ours=ours, inputs=inputs)
    with _temporary_folder_beside(target, is_file=True, is_guarded=ours is not None) as folder:
        yield folder / target.name


@contextmanager
def atomic_directory(
    path: PathLike, *, overwrite: bool = False, inputs: Iterable[object] = ()
) -> Iterator[Path]:
    """Give an empty folder to fill, and put it in the place of `path` once whole; see `check_output_directory`."""
    check_output_directory(path, overwrite, inputs=inputs)
    with _temporary_folder_beside(Path(os.path.realpath(path))) as folder:
        yield folder


def write_text(path: PathLike, text: str) -> Path:
    """Write `text` as UTF-8 to `path`: readers see the old file or the new one, never a part; see `atomic_file`."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def write_json(path: PathLike, obj: Any) -> Path:
    """Write `obj` as readable JSON: arrays become lists, paths strings, NaN and the infinities `null`."""

    def json_value(one: Any) -> Any:
        return (
            os.fspath(one)
            if isinstance(one, os.PathLike)
            else getattr(one, "tolist", lambda: list(one))()
        )

    content = json.loads(json.dumps(obj, default=json_value), parse_constant=lambda _: None)
    return write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def check_output_directory(
    path: PathLike, overwrite: bool = False, *, inputs: Iterable[object] = ()
) -> Path:
    """Check, before long work, that `atomic_directory` can write its result to the folder `path`. Nothing is made.

    Args:
        path: The output folder of a run. It may be missing or empty.
        overwrite: Replace a folder that holds a saved model or map, and nothing else.
        inputs: What the run reads. It may not be inside the folder.
    """
    target, problem = Path(os.path.realpath(path)), None
    if target.is_symlink() and not target.exists() or target.exists() and not target.is_dir():
        problem = "is no folder: give another path"
    elif inside := [
        source for source in _existing_paths(inputs) if target in (source, *source.parents)
    ]:
        problem = f"holds what is read, {inside[0]}: give another path"
    elif target.exists() and any(target.iterdir()):
        contents = sorted(target.rglob("*"))
        others = [
            file
            for file in contents
            if not (_FOLDERS if file.is_dir() else _FILES).fullmatch(file.name)
        ]
        roles = "".join(
            file.read_text("utf-8") for file in contents if file.name == "router_config.json"
        )
        others += [
            file
            for file in contents
            if file.name in ("query", "document") and f'"{file.name}": [' not in roles
        ]
        if not overwrite:
            problem = "already holds files; replace it (--overwrite), or give another path"
        elif others or not any((target / marker).is_file() for marker in _MARKERS):
            which = (
                others[0].relative_to(target)
                if others
                else f"files, but no {' or '.join(_MARKERS)}"
            )
            problem = f"is no saved model or map alone, for it holds {which}: move it away, or give another path"
    _refuse_unwritable(target, problem and f"{target} {problem}")
    return Path(path)


def check_output_file(
    path: PathLike, *, ours: str | None = None, inputs: Iterable[object] = ()
) -> Path:
    """Check, before long work, what `atomic_file` checks; gives the file itself, of a link the one that it names."""
    target, problem = Path(os.path.realpath(path)), None
    if target.is_symlink() or target.exists() and not target.is_file():
        problem = "is no regular file, but a folder, a device, a pipe or a loop of links"
    elif changed := [read for read in _existing_paths(inputs) if read in (target, *target.parents)]:
        problem = f"would change what is read, {changed[0]}"
    elif (
        ours is not None
        and target.exists()
        and target.stat().st_size
        and not _begins_or_ends_with(target, ours)
    ):
        problem = "is there already, and holds something else"
    _refuse_unwritable(
        target.parent, problem and f"{path} {problem}: nothing is overwritten, give another name"
    )
    return target


def files_below(folder: Path) -> tuple[set[Path], set[Path], str | None]:
    """All files and links below a folder; the files that belong to it; the log of a table that says which ones count.

    What is hidden, or of work that is not done (`_temporary`), does not belong.
    """

    def belongs(path: Path) -> bool:
        return not any(
            part[0] in "._" or ".st-xlret-" in part for part in path.relative_to(folder).parts
        )

    paths = list(folder.rglob("*"))
    every = {path for path in paths if path.is_file() or path.is_symlink()}  # to folders, too
    logs = (
        path.name for path in paths if any(map(path.match, _TABLE_LOGS)) and belongs(path.parent)
    )
    return every, {file for file in every if belongs(file) and file.is_file()}, next(logs, None)


def columns_of_folders(file: Path) -> dict[str, str | None]:
    """The columns that the names of the folders of a file are, such as `language=fr`; null for Hive's null."""
    parts = (part.partition("=") for part in file.parts[:-1])
    return {
        name: None if "__HIVE_" in value else unquote(value)
        for name, equals, value in parts
        if equals
    }


def _begins_or_ends_with(file: Path, pattern: str) -> bool:
    with open(file, "rb") as content:
        head = content.read(1000)
        content.seek(max(0, os.path.getsize(file) - _TAIL))
        return re.match(pattern.encode(), head + content.read()) is not None


def _existing_paths(inputs: Iterable[object]) -> list[Path]:
    places = [os.path.expanduser(str(source)) for source in inputs if source]
    return [Path(os.path.realpath(place)) for place in places if os.path.exists(place)]


def _refuse_unwritable(folder: Path, problem: str | None) -> None:
    """Raise a `FileExistsError` of a problem, if there is one, or the system's error where nothing can be written."""
    if problem:
        raise FileExistsError(problem)
    nearest = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    tempfile.TemporaryDirectory(dir=nearest).cleanup()  # the system's own message names the path


@contextmanager
def _temporary_folder_beside(
    target: Path, *, is_file: bool = False, is_guarded: bool = True
) -> Iterator[Path]:
    """A temporary folder beside `target`, removed at the end; it, or the file of the name in it, becomes `target`."""
    folder = target.with_name(
        f".{target.name}.{uuid.uuid4().hex[:8]}.st-xlret-tmp"
    )  # mkdtemp ignores the umask
    before, new_parents = (
        _sizes_and_times(target),
        [parent for parent in target.parents if not parent.exists()],
    )
    try:
        folder.mkdir(parents=True)
        yield folder
        for file in folder.rglob("*"):
            if file.is_file() and not file.is_symlink():
                # safetensors writes files that only their owner may read: all may whom the umask lets.
                file.chmod(file.stat().st_mode | folder.stat().st_mode & 0o666)
                with open(file, "rb") as written:
                    os.fsync(written.fileno())
        if is_guarded and _sizes_and_times(target) != before:  # hours may have passed
            raise FileExistsError(
                f"{target} has appeared or changed meanwhile: it is left as it is"
            )
        if not is_file:
            _swap_folder_in(target, folder)
        elif (folder / target.name).exists():
            os.replace(folder / target.name, target)
    except Exception as error:
        # Libraries in Rust raise errors of their own, with the number of the system's error in the text.
        in_text = re.search(r"os error (\d+)", str(error))
        number = getattr(error, "errno", None) or int(in_text[1] if in_text else 0)
        if number not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise OSError(
            number, f"Could not write {target}, which is as before: {os.strerror(number)}"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for parent in new_parents:
            with suppress(OSError):  # of a run that has failed, nothing stays
                parent.rmdir()


def _sizes_and_times(target: Path) -> list[tuple[Path, int, int]]:
    files = (file for file in (target, *sorted(target.rglob("*"))) if file.is_file())
    return [(file, file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _swap_folder_in(target: Path, new: Path) -> None:
    """Rename `new` to `target`; at every moment one whole folder is on disk under a visible name."""
    old = target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.st-xlret-replaced")
    if target.exists():
        os.rename(target, old)
    try:
        os.rename(new, target)
    finally:
        if old.exists() and not target.exists():
            os.rename(old, target)
        shutil.rmtree(old, ignore_errors=True)
