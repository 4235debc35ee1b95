"""Options: ranges that stand with the option, files, spellings, and what the help shows."""

from __future__ import annotations

import importlib
import os
import pkgutil
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from sentence_transformers import SentenceTransformerTrainingArguments
from transformers import TrainingArguments

import st_xlret.commands
import st_xlret.training
import training_scripts
import training_scripts.studies
from st_xlret.options import _texts, check_ranges, name_leading_words, option, parse, per_device_options

# Scores and factors that may be any number, and steps, of which -1 means whole epochs.
ANY_NUMBER = {"threshold", "max_steps"}


@dataclass
class Options:
    """Some options."""

    _argument_group_name = "some"

    count: int = option(3, "A count.", minimum=1, maximum=10)
    share: float = option(0.5, "A share.", minimum=0, below=1)
    factor: float | None = option(None, "A factor.", above=0, expert=True)
    sizes: list[int] = option([1], "Sizes.", minimum=1, per_device=True)
    languages: list[str] = option([], "Languages.")
    my_token: str | None = option(None, "A token.")
    in_order: bool = option(True, "Keep the order.")


@dataclass
class Narrower(Options):
    """A script with another default."""

    count: int = option(5, "Another count.")


def parsed(*given: str) -> Any:
    (options,) = parse([Options], given)
    return options


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
        (["--my_tok=hf_abc"], "unknown option --my_tok=hf_abc .did you mean --my_token"),
        (["--whatever"], "unknown option --whatever; see --help_all"),
    ],
)
@pytest.mark.parametrize("group", [Options, Narrower])
def test_what_is_refused(group: type, given: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse([group], given)


def test_the_ends_of_a_range_and_none_are_in_it() -> None:
    options = parsed("--count", "10", "--share", "0")
    assert (options.count, options.factor) == (10, None)
    assert per_device_options(Narrower) == ["sizes"]
    check_ranges(options)


def test_dashes_work_and_lists_join() -> None:
    options = parsed("--languages", "de", "--my-token=a-b", "--languages", "fr", "is", "--no-in-order")
    assert (options.languages, options.my_token, options.in_order) == (["de", "fr", "is"], "a-b", False)
    assert parsed("--sizes", "2").sizes == [2]  # not after the default


def test_options_of_a_file_yield_to_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "options.yaml"
    file.write_text('count: 2\nlanguages: ["no", de]\nmy-token: --x\nin_order: false\nfactor:\n', encoding="utf-8")
    options = parsed(str(file))
    assert options == Options(count=2, languages=["no", "de"], my_token="--x", in_order=False)
    assert parsed(str(file), "--languages", "fr", "--in-order").languages == ["fr"]
    assert parsed(str(file), "--in-order").in_order
    assert name_leading_words([str(file), "a", "--model", "m"], "b") == [str(file), "--b", "a", "--model", "m"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("languages: [no]", "languages has a value that YAML reads as False: put codes such as no.*in quotes"),
        ("count: [1, 2]", "count takes one value, got a list of 2"),
        ("counts: 1", r"unknown option counts \(did you mean --count\?\)"),
        ("- 1", "a mapping of names to values, got list"),
        ("a: &a [1]\nb: [*a, *a]", r"aliases \(\*name\)"),
        ("# " + "x" * 1_000_000, "larger than 1 MB"),
        ("[" * 5_000, "cannot be read as a file of options"),
        ("a: [", "cannot be read as a file of options"),
        (None, "there is no such file"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "options.yaml"
    if content is None:
        os.mkfifo(file)
    else:
        file.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        parsed(str(file))
    assert str(caught.value).startswith(str(file))


def test_help_shows_what_people_set_and_each_option_once(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for word in ("--help", "--help_all"):
        with pytest.raises(SystemExit):
            parse([Options, SentenceTransformerTrainingArguments], [word])
        shown.append(capsys.readouterr().out)
    few, all_options = shown
    for text in shown:
        assert "--in_order" in text and "--max_steps" in text and "(default: 3)" in text
        assert "--in-order" not in text and "--no_in_order" not in text
    assert "--factor" not in few and "--factor" in all_options
    assert "--lr_scheduler_type" not in few and "--lr_scheduler_type" in all_options


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
            assert texts[name].limits, f"{name}: give its option minimum=, maximum=, above= or below="
