"""Options of programs: dataclasses with help texts, `--help` in groups, and files of options."""

from __future__ import annotations

import json
import sys
from argparse import SUPPRESS, Action, ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Any

import yaml
from transformers import HfArgumentParser, TrainingArguments

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
    "bf16",
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


def option(default: Any, help: str, choices: Sequence[Any] | None = None) -> Any:
    """A dataclass field with its help text, as `HfArgumentParser` reads it."""
    metadata: dict[str, Any] = {"help": help}
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
        ValueError: If a file of options cannot be read, or an option is unknown.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Options:
        ...     steps: int = option(3, "How many steps.")
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
    if any(issubclass(group, TrainingArguments) for group in groups):
        parser.add_argument("--help_all", "--help-all", action="help", help="Show all options of the host too.")
        if not {"--help_all", "--help-all"} & set(given):
            _hide_most_of_the_host(parser)
    options: list[str] = []
    while given and given[0].endswith((".yaml", ".yml", ".json")):
        options += _options_of_file(given.pop(0))
    return parser.parse_args_into_dataclasses([*options, *given])


def own_options(groups: Sequence[type]) -> list[str]:
    """Names of the options of a script that are not the host's."""
    own = [group for group in groups if not issubclass(group, TrainingArguments)]
    return [option.name for group in own for option in fields(group) if option.init]  # type: ignore[arg-type]


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
