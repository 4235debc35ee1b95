"""Ranges of options: they stand with the option, and every program checks them."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args, get_type_hints

import pytest
from transformers import TrainingArguments

import st_xlret.commands
import st_xlret.training
import training_scripts
import training_scripts.studies
from st_xlret.options import _texts, check_ranges, option, parse, per_device_options

# Scores and factors that may be any number, and steps, of which -1 means whole epochs.
ANY_NUMBER = {"threshold", "max_steps"}


@dataclass
class Options:
    """Some numbers."""

    count: int = option(3, "A count.", minimum=1, maximum=10)
    share: float = option(0.5, "A share.", minimum=0, below=1)
    factor: float | None = option(None, "A factor.", above=0)
    sizes: list[int] = option([1], "Sizes.", minimum=1, per_device=True)


@dataclass
class Narrower(Options):
    """A script with another default."""

    count: int = option(5, "Another count.")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--count", "0"], "--count must be at least 1 and at most 10, got 0"),
        (["--count", "1000000000000"], "--count.*at most 10, got 1000000000000"),
        (["--share", "1"], "--share must be at least 0 and below 1, got 1.0"),
        (["--share", "nan"], "--share.*got nan"),
        (["--share=-0.1"], "--share.*got -0.1"),
        (["--factor", "0"], "--factor must be above 0, got 0.0"),
        (["--factor", "inf"], "--factor.*got inf"),
        (["--sizes", "3", "0"], "--sizes.*got 0"),
    ],
)
@pytest.mark.parametrize("group", [Options, Narrower])
def test_a_number_out_of_its_range_is_refused(group: type, given: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse([group], given)


def test_the_ends_of_a_range_and_none_are_in_it() -> None:
    (options,) = parse([Options], ["--count", "10", "--share", "0"])
    assert (options.count, options.factor) == (10, None)
    assert per_device_options(Narrower) == ["sizes"]
    check_ranges(options)


def groups() -> list[type]:
    """Every group of options of the commands and the scripts, once."""
    packages = (st_xlret.commands, st_xlret.training, training_scripts, training_scripts.studies)
    names = [
        f"{package.__name__}.{found.name}" for package in packages for found in pkgutil.iter_modules(package.__path__)
    ]
    found: dict[str, type] = {}
    for name in names:
        for group in vars(importlib.import_module(name)).values():
            if isinstance(group, type) and is_dataclass(group) and any(_texts(group)):
                found[f"{group.__module__}.{group.__name__}"] = group
    return [found[name] for name in sorted(found)]


@pytest.mark.parametrize("group", groups(), ids=lambda group: f"{group.__module__}.{group.__name__}")
def test_every_number_has_a_range(group: Any) -> None:
    hints = get_type_hints(group)
    own = {known.name for known in fields(group) if known.init}
    if issubclass(group, TrainingArguments):
        own -= {known.name for known in fields(TrainingArguments)} - set(_texts(group))
    texts = _texts(group)
    for name in own & set(texts):
        kinds = {kind for part in (hints[name], *get_args(hints[name])) for kind in (part, *get_args(part))}
        if {int, float} & kinds and name not in ANY_NUMBER:
            assert texts[name].range is not None, f"{name}: give its option minimum=, maximum=, above= or below="
