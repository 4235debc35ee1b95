"""The commands of runs, as a card prints them, and what they say about a run."""

from __future__ import annotations

import os
import re
from glob import escape, glob
from itertools import groupby
from pathlib import Path

DATA = "DATA"
FEW = 5  # As many names of one folder are printed as they are; more become a pattern.
START, END = r"(?<![^\s='\"])", r"(?=[/\s'\"]|$)"


def shown(command: str, data: str) -> str:
    """A command without the paths of a machine: the data's folder is DATA, the working folder is left out.

    Many files of one folder become the shell pattern that names exactly them, if the folder is at hand.

    Args:
        command: As it was run.
        data: The data's folder, in any spelling.

    Example:
        >>> shown("python train.py --pairs ../data/books/pairs --output runs/a", "../data/")
        'python train.py --pairs DATA/books/pairs --output runs/a'
    """
    command = _with_patterns(command.strip())
    names = {os.path.normpath(data), os.path.abspath(data), os.path.relpath(data), os.path.realpath(data)}
    for name in sorted(names, key=len, reverse=True):
        command = re.sub(START + re.escape(name) + END, DATA, command)
    return re.sub(START + re.escape(f"{Path.cwd()}/"), "", command)


def values(command: str, option: str) -> list[str]:
    """What an option of a command was given; of one that is given twice the last counts.

    Example:
        >>> values("python train.py --languages en fr --output runs/a", "--languages")
        ['en', 'fr']
    """
    found: list[str] = []
    current = None
    for word in command.split():
        if word.startswith("--"):
            name, _, value = word.partition("=")
            current = name.replace("_", "-")
            if current == option:
                found = [value] if value else []
        elif current == option:
            found.append(word)
    return found


def start(command: str | None) -> str:
    """What a run's encoder started from, in words."""
    if command is None:
        return "from a start that is absent here, since the run kept no command"
    if model := values(command, "--model"):
        return f"from `{model[0]}`"
    return f"from random weights (`{' '.join(values(command, '--from-scratch'))}` encoder)"


def _with_patterns(command: str) -> str:
    words: list[str] = []
    for folder, group in groupby(command.split(" "), os.path.dirname):
        names = list(group)
        if folder and len(names) > FEW:
            parts = [os.path.basename(name) for name in names]
            before = os.path.commonprefix(parts)
            after = os.path.commonprefix([part[len(before) :][::-1] for part in parts])[::-1]
            if sorted(glob(f"{escape(f'{folder}/{before}')}*{escape(after)}")) == sorted(names):
                names = [f"{folder}/{before}*{after}"]
        words += names
    return " ".join(words)
