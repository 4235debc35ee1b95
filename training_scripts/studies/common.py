"""What the study programs share: the real data's folders, one tokenizer for all rows, rows run once and logged."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from st_xlret.files import atomic_directory, write_text_atomically
from st_xlret.modules.from_scratch import train_tokenizer
from st_xlret.training.encoders import balanced_texts

Row = TypeVar("Row", bound=tuple[Any, ...])

TATOEBA_LANGUAGES = tuple(
    ["fr", "es", "de", "el", "bg", "ru", "tr", "ar", "vi", "th", "zh", "hi", "sw", "pt", "ja", "ko", "id", "uk"]
)
"""Languages of the real data, besides English, that Tatoeba measures."""
DOCUMENTS = (
    "ebible/documents",
    "eltec_novels",
    "gnome_user_docs/documents",
    "hf_course",
    "opensource_guide",
    "russian_novels",
    "storybooks/documents",
    "tensorflow_docs",
    "thaigov",
    "tico19/documents",
    "wikipedia_2023",
)
PAIRS = (
    "gnome_user_docs/pairs",
    "hf_course/pairs",
    "indian_parallel",
    "mozilla_www",
    "opensource_guide/pairs",
    "storybooks/pairs",
    "tensorflow_docs/pairs",
    "tico19/pairs",
)


def folders_in(data: str | Path, names: Iterable[str]) -> list[str]:
    """Folders that exist. If none does, all of them, so that the reader of the data names the missing one."""
    folders = [Path(data) / name for name in names]
    return [str(folder) for folder in folders if folder.is_dir()] or [str(folder) for folder in folders]


def shared_tokenizer(
    folder: Path, sources: Callable[[], Sequence[tuple[Any, str, str]]], vocabulary: int, *, characters: int = 10**7
) -> str:
    """Path of the tokenizer that all rows share. The first call trains it and keeps it in `folder`.

    Args:
        folder: Folder of the tokenizer.
        sources: Returns data sets with the names of their text and language columns. It is called only if the
            tokenizer does not exist yet.
        vocabulary: Size of the vocabulary.
        characters: Characters to train on, spread evenly over the languages.
    """
    if not folder.is_dir():
        tokenizer = train_tokenizer(balanced_texts(sources(), characters), vocabulary, show_progress=True)
        with atomic_directory(folder) as temporary:
            tokenizer.save_pretrained(temporary)
    return str(folder)


def run_name(*parts: Any) -> str:
    """Name of a run that can be the name of a folder.

    Example:
        >>> run_name("+ CCP, no BN", 500)
        'CCP-no-BN-500'
    """
    words = " ".join(map(str, parts))
    return "-".join("".join(c if c.isalnum() else " " for c in words).split())


def run_all(plan: Iterable[Row], run: Callable[..., None], jobs: int) -> None:
    """Call `run(*row)` for each row of the plan, at most `jobs` at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda row: run(*row), plan))


def run_logged(commands: Iterable[Sequence[str]], folder: Path, jobs: int, *, append: bool = False) -> bool:
    """Run commands one after the other, with their output in `folder/log.txt`.

    Args:
        commands: Programs with their arguments. After one fails, the others are not run.
        folder: Folder of the run, which is made if it does not exist.
        jobs: Runs at a time. If there are several, each gets one thread.
        append: Append to the log instead of replacing it.

    Returns:
        Whether all commands succeeded.
    """
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": os.pathsep.join(paths)}
    if jobs > 1:
        environment["OMP_NUM_THREADS"] = "1"
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.txt"
    with open(log, "a" if append else "w") as file:
        for command in commands:
            if subprocess.run(command, env=environment, stdout=file, stderr=subprocess.STDOUT).returncode:
                print(f"{folder.name} failed: see {log}", file=sys.stderr, flush=True)
                return False
    return True


def keep_command(program: str, given: Sequence[str], output: Path) -> None:
    """Write the command of a study to `output/command.txt`."""
    command = shlex.join(["python", "-m", f"training_scripts.studies.{Path(program).stem}", *given])
    write_text_atomically(output / "command.txt", command + "\n")
