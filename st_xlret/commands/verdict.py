"""What `calibrate` and `report` print: a verdict, the command for it, one table, and the time."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from st_xlret.commands.calibrate_options import Arguments
from st_xlret.secrets import without_secrets

if TYPE_CHECKING:
    from st_xlret.calibration.comparison import Comparison
    from st_xlret.commands.sources import SampleArguments, StoreArguments

_SECONDS_OF_A_TEXT = 0.015  # of one core, by an encoder of 12 small layers


def command_in_words(command: str, *groups: Any, **changes: object) -> str:
    """A command that gives the options of groups which are not the defaults, but for changes.

    Groups are dataclasses of options, which all have defaults; `changes` are named like options.
    Secrets are not shown.
    """
    words = ["st-xlret", command]
    for group in groups:
        usual = type(group)()
        for each in fields(group):
            value = changes.get(each.name, getattr(group, each.name))
            if value == getattr(usual, each.name):
                continue
            if isinstance(value, bool):
                words.append(f"--{each.name}" if value else f"--no_{each.name}")
                continue
            values = value if isinstance(value, list) else [value]
            words += [f"--{each.name}", *map(str, values)]
    return without_secrets(shlex.join(words))


def _advised_command(
    comparison: Comparison,
    options: Arguments,
    texts: SampleArguments,
    stored: StoreArguments | None = None,
) -> str:
    """The command that the verdict leads to, or why there is none.

    `stored` are the vectors that are calibrated; without them, an encoder is.
    """
    sources = [texts] if stored is None else [texts, stored]
    steps, strength = comparison.advised()
    if (steps, strength) == (comparison.steps, comparison.strength) and strength:
        return f"nothing more to run, {options.output} is calibrated like this"
    if strength:
        return command_in_words(
            "calibrate",
            *sources,
            options,
            steps=list(steps),
            strength=f"{strength:g}",
            overwrite=True,
        )
    # Documents show nothing to remove: questions with known answers measure what they cannot.
    if stored is None:
        return (
            f"st-xlret evaluate --model {shlex.quote(options.output)} --benchmark retrieval "
            "--data FOLDER --output scores.json"
        )
    asked = {"queries": ["QUERIES"], "qrels": "QRELS", "overwrite": True}
    return command_in_words("calibrate", *sources, options, **asked)


def print_verdict(comparison: Comparison, command: str, *, details: bool) -> None:
    """Print the verdict, the command for it and the table; with details further tables."""
    print(f"\nVerdict: {comparison.verdict()}\nCommand: {command}")
    print(f"\n{comparison.explained_table()}\n")
    if details:
        print(f"{comparison.details()}\n")


def print_result(
    comparison: Comparison | None,
    languages: Sequence[str],
    options: Arguments,
    texts: SampleArguments,
    stored: StoreArguments | None = None,
) -> None:
    """Print what a calibration does; of documents in one language, that they cannot show it."""
    from st_xlret.calibration.panels import panel_paragraphs

    if comparison is not None:
        command = _advised_command(comparison, options, texts, stored)
        print_verdict(comparison, command, details=options.details)
        return
    panel = ", ".join(code for code in panel_paragraphs() if code not in languages)
    print(
        f"\nThe documents are in one language ({languages[0]}). Paragraphs in others ({panel}) "
        "joined the fit.\nThe documents cannot show what questions in other languages gain: "
        "measure it with questions of\nyour own (st-xlret evaluate --benchmark retrieval).\n"
    )


def print_time_of_embedding(texts: Mapping[str, Sequence[str]]) -> None:
    """Say how long an encoder will take, which embeds the first texts as queries too."""
    from st_xlret.calibration.embedding import AS_QUERIES

    count = sum(len(part) for part in texts.values())
    as_queries = sum(min(len(part), AS_QUERIES) for part in texts.values())
    print(
        f"embedding {count} texts in {len(texts)} languages: a small encoder takes about "
        f"{_duration_in_words((count + as_queries) * _SECONDS_OF_A_TEXT)} of one core"
    )


@contextmanager
def printed_duration() -> Iterator[None]:
    """Say at the end how long it took; of a failure, nothing."""
    start = time.monotonic()
    yield
    print(f"It took {_duration_in_words(time.monotonic() - start)}.")


def _duration_in_words(seconds: float) -> str:
    """Whole seconds, and minutes if there are any."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
