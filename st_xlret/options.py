"""Options of programs: dataclasses with help texts, a short `--help`, and YAML files of options."""

from __future__ import annotations

import difflib
import json
import math
import operator
import re
import sys
from argparse import SUPPRESS, Action, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Any

import yaml
from transformers import HfArgumentParser

_SHOWN_OF_THE_HOST = (
    "output_dir",
    "per_device_train_batch_size",
    "max_steps",
    "num_train_epochs",
    "learning_rate",
    "eval_steps",
    "save_steps",
    "seed",
    "use_cpu",
    "push_to_hub",
    "hub_model_id",
)
_FILES, _MOST_BYTES = (".yaml", ".yml"), 1_000_000
_LIMITS = {"at least": operator.ge, "above": operator.gt, "at most": operator.le, "below": operator.lt}

LIMITS_HELP = (
    "Longest line of a file and longest sentence, as line_bytes=67108864 sentence_characters=10000, the defaults. A "
    "longer line is a bad line; a longer sentence is cut and counted."
)
"""Help of the option `--limits` of all programs that read data."""


class _Help(str):
    """A help text, and more about its option: the host's parser hands all other metadata of a field to argparse."""

    limits: dict[str, float]
    per_device: bool
    expert: bool


def option(
    default: Any,
    help: str,
    choices: Sequence[Any] | None = None,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    per_device: bool = False,
    expert: bool = False,
) -> Any:
    """A dataclass field with its help text, as `HfArgumentParser` reads it.

    Args:
        default: Value without the option.
        help: What it does.
        choices: The values that it may have.
        minimum: Smallest value of a number, or of each number of a list. `parse` checks the range; where a subclass
            defines the option again without one, it keeps this one.
        maximum: Largest value.
        above: The value is larger than this.
        below: The value is smaller than this.
        per_device: The number is that of each process of a distributed run, as a batch size is.
        expert: Few people set it: `--help` leaves it out, and `--help_all` shows it.
    """
    text = _Help(help)
    limits = zip(_LIMITS, (minimum, above, maximum, below), strict=True)
    text.limits = {word: limit for word, limit in limits if limit is not None}
    text.per_device, text.expert = per_device, expert
    metadata: dict[str, Any] = {"help": text} | ({} if choices is None else {"choices": list(choices)})
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


class _Join(Action):
    """The values of a list that is given again follow those given before."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, values if before is self.default else [*before, *values])


class _Parser(HfArgumentParser):
    """The host's parser with each option spelled once, lists that join, and a help that shows what people set."""

    def __init__(self, groups: Any, *, show_all: bool, **settings: Any) -> None:
        texts = {name: text for group in groups for name, text in _texts(group).items()}
        of_the_host = {known.name for group in groups if _is_the_hosts(group) for known in fields(group)}
        experts = {name for name, text in texts.items() if text.expert}
        self.hidden = set() if show_all else experts | of_the_host - {*_SHOWN_OF_THE_HOST, *texts}
        super().__init__(groups, formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False, **settings)

    def add_argument(self, *names: Any, **settings: Any) -> Action:
        return super().add_argument(*_one_spelling(names), **self._short(names[0][2:], settings))

    def add_argument_group(self, *titles: Any, **about: Any) -> Any:
        group: Any = super().add_argument_group(*titles, **about)
        add = group.add_argument
        group.add_argument = lambda *names, **settings: add(
            *_one_spelling(names), **self._short(names[0][2:], settings)
        )
        return group

    def _short(self, name: str, settings: dict[str, Any]) -> dict[str, Any]:
        text, kind, several = settings.get("help"), settings.get("type"), settings.get("nargs")
        more: dict[str, Any] = {"action": _Join} if several == "+" else {}
        if kind is not None and "choices" not in settings:
            letter = "N" if kind is int else "X" if kind is float else "BOOL" if several == "?" else None
            more["metavar"] = letter or name.rpartition("_")[2].upper()
        if settings.get("action") == "store_false" or name in self.hidden:
            more["help"] = SUPPRESS
        elif text and settings.get("default") not in (None, [], "", SUPPRESS):
            more["help"] = f"{text} (default: %(default)s)"
        return settings | more


def _one_spelling(names: Sequence[str]) -> list[str]:
    return [name for name in names if "-" not in name.lstrip("-")]


def parse(
    groups: Sequence[type],
    arguments: Sequence[str] | None = None,
    *,
    description: str | None = None,
    prog: str | None = None,
) -> Any:
    """Read the options of a program from the command line and from files.

    YAML files of options may come first; options on the command line override theirs. Names are written with
    underscores or dashes, and never shortened. A list that is given twice is one list.

    Args:
        groups: Dataclasses, as for the host's `HfArgumentParser`.
        arguments: The command line. Default: that of the program.
        description: Text above the options in `--help`.
        prog: Name of the program in `--help`. Default: that of the process.

    Returns:
        A tuple with an instance of each dataclass.

    Raises:
        ValueError: If a file of options cannot be read, an option is unknown, or a number is out of its range.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Options:
        ...     steps: int = option(3, "How many steps.", minimum=1)
        >>> parse([Options], ["--steps", "5"])
        (Options(steps=5),)
    """
    given = [
        re.sub(r"^--[a-zA-Z][\w-]*(?==|$)", lambda name: "--" + name[0][2:].replace("-", "_"), word)
        for word in (sys.argv[1:] if arguments is None else arguments)
    ]
    usage = "%(prog)s [OPTIONS.yaml] [options]"
    parser = _Parser(groups, show_all="--help_all" in given, prog=prog, usage=usage, description=description)
    parser.add_argument("--help_all", action="help", help="Show all options.")
    types = {known.name: str(known.type) for group in groups for known in fields(group) if known.init}
    from_files: list[str] = []
    while given and given[0].endswith(_FILES):
        from_files += _options_of_file(given.pop(0), types)
    named = {word.partition("=")[0] for word in given} | {f"--{word[5:]}" for word in given if word[:5] == "--no_"}
    from_files = [word for word in from_files if word.partition("=")[0] not in named]
    *parsed, unknown = parser.parse_args_into_dataclasses(
        [*from_files, *given], return_remaining_strings=True, look_for_args_file=False
    )
    if unknown:
        raise ValueError(f"unknown option {unknown[0]}{_closest(unknown[0], types)}; see --help_all")
    for instance in parsed:
        check_ranges(instance)
    return tuple(parsed)


def check_ranges(options: Any) -> None:
    """Check the numbers of an instance of a dataclass of options.

    Raises:
        ValueError: If a number is out of the range that its `option` gives. The message names the option.
    """
    for name, text in _texts(type(options)).items():
        value = getattr(options, name)
        for number in value if isinstance(value, list) else [value]:
            inside = number is None or all(_LIMITS[word](number, limit) for word, limit in text.limits.items())
            if text.limits and not (inside and (number is None or math.isfinite(number))):
                limits = " and ".join(f"{word} {limit}" for word, limit in text.limits.items())
                raise ValueError(f"--{name} must be {limits}, got {number}")


def per_device_options(group: type) -> list[str]:
    """Names of the options of a group whose number is that of each process."""
    return [name for name, text in _texts(group).items() if text.per_device]


def _is_the_hosts(group: type) -> bool:
    # Commands without training options need not import them.
    return issubclass(group, getattr(sys.modules.get("transformers.training_args"), "TrainingArguments", ()))


def _texts(group: type) -> dict[str, _Help]:
    """The help of each option; what a class does not say of an option, its bases do."""
    texts: dict[str, _Help] = {}
    for base in reversed(group.__mro__):
        for name, known in getattr(base, "__dataclass_fields__", {}).items():
            text = known.metadata.get("help")
            if isinstance(text, _Help):
                before = texts.get(name, text)
                text.limits = text.limits or before.limits
                text.per_device = text.per_device or before.per_device
                text.expert = text.expert or before.expert
                texts[name] = text
    return texts


def _closest(word: str, names: Any) -> str:
    close = difflib.get_close_matches(word.partition("=")[0].lstrip("-"), names, n=1)
    return f" (did you mean --{close[0]}?)" if close else ""


def _options_of_file(file: str, types: dict[str, str]) -> list[str]:
    """The options of a YAML file as words of a command line, lists as repeated options."""
    try:
        if not Path(file).is_file():
            raise ValueError("there is no such file")
        with open(file, "rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ValueError("it is larger than 1 MB")
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(content, Loader=yaml.SafeLoader)):
            raise ValueError("it has aliases (*name); write the values out")
        read = yaml.safe_load(content)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"{file}: cannot be read as a file of options: {error}") from error
    if not isinstance(read, dict):
        raise ValueError(f"{file}: a file of options is a mapping of names to values, got {type(read).__name__}")
    words: list[str] = []
    for given, value in read.items():
        name = str(given).replace("-", "_")
        if name not in types:
            raise ValueError(f"{file}: unknown option {given}{_closest(name, types)}")
        if isinstance(value, list) and "list" not in types[name].lower():
            raise ValueError(f"{file}: {given} takes one value, got a list of {len(value)}")
        for one in value if isinstance(value, list) else [] if value is None else [value]:
            if isinstance(one, bool) and "bool" not in types[name]:
                raise ValueError(
                    f"{file}: {given} has a value that YAML reads as {one}: put codes such as no, on and y in quotes"
                )
            words.append(f"--{name}={json.dumps(one) if isinstance(one, dict) else one}")
    return words


def name_leading_words(arguments: Sequence[str], *names: str) -> list[str]:
    """Give the words before the first option their names; files of options stay in front, the last name takes the rest.

    Example:
        >>> name_leading_words(["o.yaml", "a.txt", "b.txt", "--model", "m"], "source", "target")
        ['o.yaml', '--source', 'a.txt', '--target', 'b.txt', '--model', 'm']
        >>> name_leading_words(["a", "b", "--model", "m"], "documents")
        ['--documents', 'a', 'b', '--model', 'm']
    """
    given = list(arguments)
    first = next((i for i, word in enumerate(given) if not word.endswith(_FILES)), len(given))
    end = next((i for i, word in enumerate(given) if word.startswith("--")), len(given))
    words, named = given[first:end], given[:first]
    for i, name in enumerate(names):
        own = words[i:] if i == len(names) - 1 else words[i : i + 1]
        named += [f"--{name}", *own] if own else []
    return named + given[end:]
