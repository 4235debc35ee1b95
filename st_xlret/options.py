"""Options of programs: dataclasses for the host's parser, and YAML files of options before the command line."""

import json
import re
import sys
from argparse import ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from dataclasses import field, fields
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml
from transformers import HfArgumentParser

_IS_FILE = re.compile(r".*\.ya?ml$", re.DOTALL).match


class _HelpFormatter(ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter):
    """Shows defaults, and the description as it is written."""


def option(default: Any, help: str, choices: Sequence[Any] | None = None, **metadata: Any) -> Any:
    """A dataclass field with its help text and the values that it may have, as `HfArgumentParser` reads it."""
    metadata |= {"help": help} | ({} if choices is None else {"choices": list(choices)})
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def parse(
    groups: Sequence[Any],
    arguments: Sequence[str] | None = None,
    *,
    description: str | None = None,
    prog: str | None = None,
) -> Any:
    """Read the options of a program: those of YAML files, which come first, and of the command line, which override.

    Names are written with underscores or dashes, and never shortened. `groups` are dataclasses, as for the host's
    `HfArgumentParser`, and an instance of each is returned; `description` stands above the options in `--help`.

    Raises:
        ValueError: If an option is unknown or empty, a list given twice, a number negative, or a file no mapping.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    files = [*takewhile(_IS_FILE, words)]
    parser_options = {
        "usage": "%(prog)s [OPTIONS.yaml] [options]",
        "prog": prog,
        "description": description,
    }
    parser = HfArgumentParser(
        groups, allow_abbrev=False, formatter_class=_HelpFormatter, **parser_options
    )
    every = [each for group in groups for each in fields(group)]
    lists = [
        each.name for each in every if "list" in str(each.type) and "action" not in each.metadata
    ]
    names = [
        word[2:].partition("=")[0].replace("-", "_") for word in words if word.startswith("--")
    ]
    # The first values would be lost.
    problems = [
        f"--{name} is given twice: write its values after one"
        for name in lists
        if names.count(name) > 1
    ]
    # Words before those of the command line: of an option that stands twice, argparse takes the last one.
    of_files = [word for file in files for word in _command_line_words(file)]
    parsed = parser.parse_args_into_dataclasses(
        [*of_files, *words[len(files) :]], look_for_args_file=False
    )
    for each, value in [
        (each, getattr(group, each.name)) for group in parsed for each in fields(group)
    ]:
        if type(value) is int and value < 0 and value != each.default and each.name != "max_steps":
            problems.append(f"--{each.name}={value} is below 0")
        elif value in ("", [""]) and value != each.default and "prompt" not in each.name:
            problems.append(f"--{each.name} is empty")  # as a path, it would be the working folder
    if problems:
        raise ValueError(problems[0])
    return parsed


def name_leading_words(arguments: Sequence[str], *names: str) -> list[str]:
    """Give the words before the first option their names; files of options stay in front, the last name takes the rest.

    Example:
        >>> name_leading_words(["o.yaml", "a.txt", "b.txt", "c.txt", "--model", "m"], "source", "target")
        ['o.yaml', '--source', 'a.txt', '--target', 'b.txt', 'c.txt', '--model', 'm']
    """
    words = [*takewhile(_IS_FILE, arguments)]
    values = [*takewhile(lambda word: not word.startswith("--"), arguments[len(words) :])]
    others = arguments[len(words) + len(values) :]
    for place, name in enumerate(names):
        of_name = values[place:] if name == names[-1] else values[place : place + 1]
        words += [f"--{name}", *of_name] if of_name else []
    return [*words, *others]


def _command_line_words(file: str) -> Iterator[str]:
    """A file of options as words of a command line; an option without a value keeps its default."""
    try:
        options = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        options = error
    if not isinstance(options, dict):
        raise ValueError(
            f"{file}: a file of options is a mapping of names to values, got {options}"
        )
    for name, value in options.items():
        if isinstance(value, list):
            yield from (f"--{name}", *map(str, value)) if value else ()
        elif value is not None:
            yield f"--{name}={json.dumps(value) if isinstance(value, dict) else value}"
