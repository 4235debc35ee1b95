"""Options of programs: dataclasses for the host's parser, and files of options before them."""

import os
import re
import sys
from argparse import ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import Field, field, fields
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, NoReturn

from transformers import HfArgumentParser

from st_xlret.option_files import FileOption, is_option_file, read_option_file

_PROGRAM: ContextVar[str | None] = ContextVar("program", default=None)
# Options that are texts, which may be empty or begin with a tilde; other texts may be paths.
_IS_TEXT = re.compile("query|.*prompt.*")


class _HelpFormatter(ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter):
    """Shows defaults, and the description as it is written."""


class _Parser(HfArgumentParser):
    """The host's parser, whose errors name the line of a file of options."""

    places: dict[str, str] = {}

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and where, and exit."""
        name = re.match(r"argument --(\w+)", message)
        place = self.places.get(name[1]) if name else None
        super().error(f"{place}: {message}" if place else message)


def option(default: Any, help: str, choices: Sequence[Any] | None = None, **metadata: Any) -> Any:
    """A dataclass field with its help text and the values that it may have.

    `HfArgumentParser` reads it.
    """
    metadata["help"] = help
    if choices is not None:
        metadata["choices"] = list(choices)
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@contextmanager
def program_name(name: str) -> Iterator[None]:
    """Let `--help` and errors within call the program by this name."""
    before = _PROGRAM.set(name)
    try:
        yield
    finally:
        _PROGRAM.reset(before)


def parse(
    groups: Sequence[Any],
    arguments: Sequence[str] | None = None,
    *,
    description: str | None = None,
    prog: str | None = None,
) -> Any:
    """Read the options of a program: those of YAML files first, then those of the command line.

    The latter override. Names are written with underscores or dashes, and never shortened; a path
    may begin with `~`. `groups` are dataclasses, as for the host's `HfArgumentParser`, and an
    instance of each is returned; `description` stands above the options in `--help`.

    Raises:
        ValueError: If an option is unknown or empty, a list given twice, a number negative, or a
            file no mapping.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    files = list(takewhile(is_option_file, words))
    of_command = words[len(files) :]
    of_files = [each for file in files for each in read_option_file(file)]

    parser = _Parser(
        groups,
        prog=prog or _PROGRAM.get(),
        usage="%(prog)s [OPTIONS.yaml] [options]",
        description=description,
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
    )
    by_name = _fields_by_name(groups)
    _check_names(parser.prog, by_name, of_files, of_command)
    given = _names_in(of_command)
    parser.places = {each.name: each.place for each in of_files if each.name not in given}

    # Of an option that stands twice, argparse takes the last one.
    of_files_as_words = [word for each in of_files for word in _words_of(each, by_name)]
    *parsed, rest = parser.parse_args_into_dataclasses(
        [*of_files_as_words, *of_command], return_remaining_strings=True, look_for_args_file=False
    )
    if rest:
        raise ValueError(f"{rest[0]!r} belongs to no option; {parser.prog} --help lists them")
    for group in parsed:
        for each in fields(group):
            _check_value(each, getattr(group, each.name))
            _expand_home(group, each)
    return tuple(parsed)


def name_leading_words(arguments: Sequence[str], *names: str) -> list[str]:
    """Give the words before the first option their names.

    Files of options stay in front, and the last name takes the rest.

    Example:
        >>> name_leading_words(["o.yaml", "a", "b", "c", "--model", "m"], "source", "target")
        ['o.yaml', '--source', 'a', '--target', 'b', 'c', '--model', 'm']
    """
    files = list(takewhile(is_option_file, arguments))
    after_files = arguments[len(files) :]
    values = list(takewhile(lambda word: not word.startswith("--"), after_files))
    named = []
    for place, name in enumerate(names):
        is_last = name == names[-1]
        of_name = values[place:] if is_last else values[place : place + 1]
        if of_name:
            named += [f"--{name}", *of_name]
    return [*files, *named, *after_files[len(values) :]]


def _fields_by_name(groups: Sequence[Any]) -> dict[str, Field[Any]]:
    """The field of each name that an option may have, written with underscores."""
    by_name = {}
    for group in groups:
        for each in fields(group):
            by_name[each.name] = each
            if each.default is True:
                by_name[f"no_{each.name}"] = each
    return by_name


def _names_in(words: Sequence[str]) -> list[str]:
    """The names of the options of a command line, with underscores.

    A word with a space, as in `--options "--max_steps 7"`, is a value, as for argparse.
    """
    names = []
    for word in words:
        name, _, _ = word.partition("=")
        if name.startswith("--") and " " not in name:
            names.append(name[2:].replace("-", "_"))
    return names


def _check_names(
    program: str,
    by_name: dict[str, Field[Any]],
    of_files: Sequence[FileOption],
    of_command: Sequence[str],
) -> None:
    """Refuse an option that there is not, and a list given twice, whose first values would go."""
    for each in of_files:
        if each.name.replace("-", "_") not in by_name:
            raise ValueError(f"{each.place}: {_no_such_option(program, each.name, by_name)}")
    names = _names_in(of_command)
    for name in names:
        if name not in by_name and name != "help":
            raise ValueError(_no_such_option(program, f"--{name}", by_name))
        if names.count(name) > 1 and _is_list(by_name[name]):
            raise ValueError(f"--{name} is given twice: write its values after one")


def _no_such_option(program: str, name: str, known: dict[str, Field[Any]]) -> str:
    plain = name.lstrip("-").replace("-", "_")
    nearest = get_close_matches(plain, known, n=1, cutoff=0.6)
    advice = f"the nearest is --{nearest[0]}; --help lists all" if nearest else "--help lists all"
    return f"{program} has no option {name}: {advice}"


def _is_list(each: Field[Any]) -> bool:
    return "list" in str(each.type) and "action" not in each.metadata


def _words_of(given: FileOption, by_name: dict[str, Field[Any]]) -> list[str]:
    """An option of a file as words, with the host's words for YAML's `on` and `off`."""
    is_bool = "bool" in str(by_name[given.name.replace("-", "_")].type)
    if is_bool and isinstance(given.value, str) and given.value.lower() in ("on", "off"):
        value = "true" if given.value.lower() == "on" else "false"
        return [f"--{given.name}={value}"]
    return given.words()


def _check_value(each: Field[Any], value: Any) -> None:
    """Refuse a count below 0, and an empty text, which as a path would be the working folder."""
    if value == each.default:
        return
    if type(value) is int and value < 0 and each.name != "max_steps":
        raise ValueError(f"--{each.name}={value} is below 0")
    is_empty = value == "" or (isinstance(value, list) and "" in value)
    if is_empty and not _IS_TEXT.fullmatch(each.name):
        raise ValueError(f"--{each.name} is empty")


def _expand_home(group: Any, each: Field[Any]) -> None:
    """Write the home folder in the place of a path's `~`, for inputs and outputs alike."""
    value = getattr(group, each.name)
    if _IS_TEXT.fullmatch(each.name):
        return
    if isinstance(value, str) and value.startswith("~"):
        setattr(group, each.name, os.path.expanduser(value))
    elif isinstance(value, list) and any(str(one).startswith("~") for one in value):
        setattr(group, each.name, [os.path.expanduser(str(one)) for one in value])
