"""Options of programs: dataclasses with help texts, `--help` in groups, and files of options."""

from __future__ import annotations

import json
import math
import sys
from argparse import SUPPRESS, Action, ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml
from transformers import HfArgumentParser

_SHOWN_OF_THE_HOST = (
    "output_dir",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "max_steps",
    "num_train_epochs",
    "learning_rate",
    "learning_rate_mapping",
    "warmup_steps",
    "weight_decay",
    "max_grad_norm",
    "logging_steps",
    "eval_steps",
    "save_steps",
    "save_strategy",
    "seed",
    "use_cpu",
    "push_to_hub",
    "hub_model_id",
    "report_to",
)

LIMITS_HELP = (
    "Longest line of a file and longest sentence, as line_bytes=67108864 sentence_characters=10000, the defaults. A "
    "longer line is a bad line; a longer sentence is cut and counted."
)
"""Help of the option `--limits` of all programs that read data."""


@dataclass(frozen=True)
class Range:
    """The values that a number may have.

    Args:
        minimum: Smallest value.
        maximum: Largest value.
        above: The value is larger than this.
        below: The value is smaller than this.
    """

    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None

    def __contains__(self, value: float) -> bool:
        # NaN and the infinities are in no range.
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
            and math.isfinite(value)
        )

    def __str__(self) -> str:
        words = {"at least": self.minimum, "above": self.above, "at most": self.maximum, "below": self.below}
        return " and ".join(f"{word} {limit}" for word, limit in words.items() if limit is not None)


class _Help(str):
    """A help text, and what else `parse` and runs must know of an option.

    It is not in the metadata of the field, because the host's parser hands everything in there to argparse.
    """

    range: Range | None = None
    per_device: bool = False


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
    """
    text = _Help(help)
    if any(limit is not None for limit in (minimum, maximum, above, below)):
        text.range = Range(minimum, maximum, above, below)
    text.per_device = per_device
    metadata: dict[str, Any] = {"help": text}
    if choices is not None:
        metadata["choices"] = list(choices)
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


class HelpFormat(ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter):
    """Help with defaults, under the script's description as it is written.

    An option without a default says in its own text what happens without it.
    """

    def _get_help_string(self, action: Action) -> str | None:
        return action.help if action.default in (None, [], "") else super()._get_help_string(action)


def parse(
    groups: Sequence[type],
    arguments: Sequence[str] | None = None,
    *,
    description: str | None = None,
    prog: str | None = None,
) -> Any:
    """Read the options of a script from the command line and from files.

    A YAML or JSON file of options may come first; options after it override it. Names are written with underscores
    or dashes.

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
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = HfArgumentParser(
        groups,  # type: ignore[arg-type]
        prog=prog,
        usage="%(prog)s [OPTIONS.yaml] [options]",
        description=description,
        formatter_class=HelpFormat,
    )
    if any(map(_is_the_hosts, groups)):
        parser.add_argument("--help_all", "--help-all", action="help", help="Show all options of the host too.")
        if not {"--help_all", "--help-all"} & set(given):
            _hide_most_of_the_host(parser)
    options: list[str] = []
    while given and given[0].endswith((".yaml", ".yml", ".json")):
        options += _options_of_file(given.pop(0))
    parsed = parser.parse_args_into_dataclasses([*options, *given])
    for instance in parsed:
        check_ranges(instance)
    return parsed


def check_ranges(options: Any) -> None:
    """Check the numbers of an instance of a dataclass of options.

    Raises:
        ValueError: If a number is out of the range that its `option` gives. The message names the option.
    """
    for name, text in _texts(type(options)).items():
        value = getattr(options, name)
        for number in value if isinstance(value, list) else [value]:
            if text.range is not None and number is not None and number not in text.range:
                raise ValueError(f"--{name} must be {text.range}, got {number}")


def per_device_options(group: type) -> list[str]:
    """Names of the options of a group whose number is that of each process."""
    return [name for name, text in _texts(group).items() if text.per_device]


def _texts(group: type) -> dict[str, _Help]:
    """The help of each option; what a class does not say of an option, its bases do."""
    texts: dict[str, _Help] = {}
    for base in reversed(group.__mro__):
        for name, known in getattr(base, "__dataclass_fields__", {}).items():
            text = known.metadata.get("help")
            if isinstance(text, _Help):
                before = texts.get(name, text)
                texts[name] = _Help(text)
                texts[name].range = text.range or before.range
                texts[name].per_device = text.per_device or before.per_device
    return texts


def own_options(groups: Sequence[type]) -> list[str]:
    """Names of the options of a script that are not the host's."""
    own = [group for group in groups if not _is_the_hosts(group)]
    return [option.name for group in own for option in fields(group) if option.init]  # type: ignore[arg-type]


def _is_the_hosts(group: type) -> bool:
    """Whether a group is of the host's training options. They import torch, which commands without them do not need."""
    host = sys.modules.get("transformers.training_args")
    return host is not None and issubclass(group, host.TrainingArguments)


def _hide_most_of_the_host(parser: HfArgumentParser) -> None:
    from sentence_transformers import SentenceTransformerTrainingArguments

    host = {option.name for option in fields(SentenceTransformerTrainingArguments)} - {*_SHOWN_OF_THE_HOST}
    for action in parser._actions:  # argparse has no public list of its options
        if action.dest in host:
            action.help = SUPPRESS


def _options_of_file(file: str) -> list[str]:
    try:
        read = yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{file}: cannot be read as a file of options: {error}") from error
    if not isinstance(read, dict):
        raise ValueError(f"{file}: a file of options is a mapping of names to values, got {type(read).__name__}")
    options: list[str] = []
    for name, value in read.items():
        if value is None:
            continue
        values = value if isinstance(value, list) else [json.dumps(value) if isinstance(value, dict) else value]
        options += [f"--{name}", *map(str, values)]
    return options


def name_leading_words(arguments: Sequence[str], *names: str) -> list[str]:
    """Give the words before the first option their names; the last name takes all that are left.

    Example:
        >>> name_leading_words(["a.txt", "b.txt", "--model", "m"], "source", "target")
        ['--source', 'a.txt', '--target', 'b.txt', '--model', 'm']
        >>> name_leading_words(["a", "b", "--model", "m"], "documents")
        ['--documents', 'a', 'b', '--model', 'm']
    """
    given = list(arguments)
    count = next((i for i, word in enumerate(given) if word.startswith("--")), len(given))
    words, rest = given[:count], given[count:]
    named: list[str] = []
    for i, name in enumerate(names):
        own = words[i:] if i == len(names) - 1 else words[i : i + 1]
        named += [f"--{name}", *own] if own else []
    return named + rest
