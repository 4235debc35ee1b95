"""Options of programs: dataclasses for the host's parser, and option files before them."""

import math
import os
import re
import sys
from argparse import ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, NoReturn

from transformers import HfArgumentParser

from st_xlret.option_files import FileOption, is_option_file, read_option_file
from st_xlret.strict_json import check_json

_PROGRAM: ContextVar[str | None] = ContextVar("program", default=None)
# Options that are texts, which may be empty or begin with a tilde; other texts may be paths.
_IS_TEXT = re.compile("query|.*prompt.*")
# Options that may be below 0.
_SIGNED = ("max_steps",)
# Of words less alike than this, none is meant for the other.
_ALIKE = 0.6


class _HelpFormatter(ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter):
    """Shows defaults, and the description as it is written."""


class _Parser(HfArgumentParser):
    """The host's parser, whose errors name the line of an option file."""

    def __init__(self, groups: Sequence[Any], **options: Any) -> None:
        super().__init__(groups, **options)
        self.places: dict[str, str] = {}

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and where, and exit."""
        argument = re.match(r"argument --(\w+)", message)
        if argument and argument[1] in self.places:
            message = f"{self.places[argument[1]]}: {message}"
        super().error(message)
        raise AssertionError  # it has ended the program


@dataclass(frozen=True)
class _Known:
    """The options that a program has: the field of each name, with underscores."""

    program: str
    fields: dict[str, Field[Any]]

    def check(self, name: str, place: str = "") -> None:
        """Refuse an option that there is not, and name the nearest one."""
        if name in self.fields or name == "help":
            return
        advice = "--help lists all"
        nearest = get_close_matches(name, self.fields, n=1, cutoff=_ALIKE)
        if nearest:
            advice = f"the nearest is --{nearest[0]}; {advice}"
        raise ValueError(f"{place}{self.program} has no option --{name}; {advice}")

    def is_list(self, name: str) -> bool:
        """Whether an option takes several values."""
        each = self.fields[name]
        return "list" in str(each.type) and "action" not in each.metadata

    def is_switch(self, name: str) -> bool:
        """Whether an option is on or off."""
        return "bool" in str(self.fields[name].type)


def option(
    default: Any,
    help: str,
    choices: Sequence[Any] | None = None,
    *,
    action: str | None = None,
) -> Any:
    """A dataclass field with its help text and the values that it may have.

    `HfArgumentParser` reads it, and argparse the help, in which % is doubled. `action` is what
    argparse does with a value, such as "extend". `_IS_TEXT` and `_SIGNED` have the
    names of options that may be an empty text, or below 0; others may not, and a `~` begins a path.
    """
    metadata: dict[str, Any] = {"help": help}
    if choices is not None:
        metadata["choices"] = list(choices)
    if action is not None:
        metadata["action"] = action
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def required_option(help: str, choices: Sequence[Any] | None = None) -> Any:
    """A dataclass field without a default, else as of `option`."""
    return option(MISSING, help, choices)


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
    of_files = []
    for file in files:
        of_files.extend(read_option_file(file))

    parser = _Parser(
        groups,
        prog=prog or _PROGRAM.get(),
        usage="%(prog)s [OPTIONS.yaml] [options]",
        description=description,
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
    )
    known = _Known(parser.prog, _fields_by_name(groups))
    names = _option_names_in(of_command)
    _check_option_names(known, of_files, names)
    every_word = [*_words_of_files(of_files, known), *of_command]
    _check_json_values(every_word)
    parser.places = {each.name: each.place for each in of_files if each.name not in names}
    # Of an option that stands twice, argparse takes the last one.
    *parsed, rest = parser.parse_args_into_dataclasses(
        every_word,
        return_remaining_strings=True,
        look_for_args_file=False,
    )
    if rest:
        raise ValueError(f"{rest[0]!r} belongs to no option; {parser.prog} --help lists them")
    for group in parsed:
        _check_option_values(group)
        _expand_home(group)
    return tuple(parsed)


def name_leading_words(arguments: Sequence[str], *names: str) -> list[str]:
    """Give the words before the first option their names.

    Option files stay in front, and the last name takes the rest.

    Example:
        >>> name_leading_words(["o.yaml", "a", "b", "c", "--model", "m"], "source", "target")
        ['o.yaml', '--source', 'a', '--target', 'b', 'c', '--model', 'm']
    """
    files = list(takewhile(is_option_file, arguments))
    after_files = arguments[len(files) :]
    values = list(takewhile(lambda word: not word.startswith("--"), after_files))
    options = after_files[len(values) :]
    named = []
    for name in names:
        count = len(values) if name == names[-1] else 1
        of_name = values[:count]
        values = values[count:]
        if of_name:
            named += [f"--{name}", *of_name]
    return [*files, *named, *options]


def check_options(
    options: object, *needed: str, unread: Sequence[str] = (), where: str = ""
) -> None:
    """Refuse a command without an option that it needs, or with one that it would not read.

    That is a `ValueError`. `where` ends the sentence that names unread ones: `with --vectors`.
    """
    missing = [name for name in needed if not getattr(options, name)]
    if missing:
        raise ValueError(f"{_options_are(missing)} missing")
    if unread:
        raise ValueError(f"{_options_are(unread)} not read {where}")


def given_options(options: object) -> list[str]:
    """The names of the options of a group, all with defaults, that are not left at these."""
    default = type(options)()
    return [name for name, value in vars(options).items() if value != getattr(default, name)]


def _options_are(names: Sequence[str]) -> str:
    """Names of options, with the verb of a sentence that goes on."""
    words = " and ".join(f"--{name}" for name in names)
    return f"{words} is" if len(names) == 1 else f"{words} are"


def _fields_by_name(groups: Sequence[Any]) -> dict[str, Field[Any]]:
    """The field of each name that an option may have, written with underscores."""
    by_name = {}
    for group in groups:
        for each in fields(group):
            by_name[each.name] = each
            if each.default is True:
                by_name[f"no_{each.name}"] = each
    return by_name


def _option_names_in(words: Sequence[str]) -> list[str]:
    """The names of the options of a command line, with underscores.

    A word with a space, as in `--options "--max_steps 7"`, is a value, as for argparse.
    """
    names = []
    for word in words:
        name, _, _ = word.partition("=")
        if name.startswith("--") and " " not in name:
            names.append(name[2:].replace("-", "_"))
    return names


def _check_option_names(
    known: _Known, of_files: Sequence[FileOption], names: Sequence[str]
) -> None:
    """Refuse an option that there is not, and a list given twice, whose first values would go."""
    for each in of_files:
        known.check(each.name, place=f"{each.place}: ")
    for name in names:
        known.check(name)
        is_repeated = names.count(name) > 1 and name != "help"
        if is_repeated and known.is_list(name):
            raise ValueError(f"--{name} is given twice: write its values after one")


def _check_json_values(words: Sequence[str]) -> None:
    """Refuse JSON of whose values one would be lost, before anything reads it."""
    option = ""
    for word in words:
        text = word
        if word.startswith("--"):
            option, _, text = word.partition("=")
        if text.lstrip().startswith(("{", "[")):
            try:
                check_json(text)
            except ValueError as error:
                raise ValueError(f"{option}: {error}") from error


def _words_of_files(of_files: Sequence[FileOption], known: _Known) -> list[str]:
    """Options of files as words of a command line, with the host's words for `on` and `off`."""
    words = []
    for each in of_files:
        if known.is_switch(each.name) and str(each.value).lower() in ("on", "off"):
            is_on = str(each.value).lower() == "on"
            words.append(f"--{each.name}={is_on}")
        else:
            words.extend(each.words())
    return words


def _check_option_values(group: Any) -> None:
    """Refuse an empty text, a number below 0 or one that is not finite, where none may be."""
    for each in fields(group):
        value = getattr(group, each.name)
        if value == each.default:
            continue
        for one in value if isinstance(value, list) else [value]:
            problem = _problem_with_value(each.name, one)
            if problem:
                raise ValueError(f"--{each.name}{problem}")


def _expand_home(group: Any) -> None:
    """Write the home folder in the place of the `~` of paths."""
    for each in fields(group):
        value = getattr(group, each.name)
        if _IS_TEXT.fullmatch(each.name):
            continue
        if isinstance(value, str):
            setattr(group, each.name, os.path.expanduser(value))
        elif isinstance(value, list):
            setattr(group, each.name, [_with_home(one) for one in value])


def _problem_with_value(name: str, value: Any) -> str | None:
    """What is wrong with a value, in words; None if nothing is."""
    if value == "" and not _IS_TEXT.fullmatch(name):
        return " is empty"  # as a path, it would be the working folder
    if type(value) is int and value < 0 and name not in _SIGNED:
        return f"={value} is below 0"
    if isinstance(value, float) and not math.isfinite(value):
        return f"={value} is no finite number"
    return None


def _with_home(value: Any) -> Any:
    return os.path.expanduser(value) if isinstance(value, str) else value
