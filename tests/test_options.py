"""Options of programs: the command line, files of options before it, and words without a name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from st_xlret.options import name_leading_words, option, parse


@dataclass
class Options:
    """Some options."""

    count: int = option(3, "A count.")
    languages: list[str] = option([], "Languages.")
    my_token: str | None = option(None, "A token.")
    in_order: bool = option(True, "Keep the order.")
    mode: str = option("fast", "How.", choices=["fast", "slow"])
    rates: str = option("{}", "Rates as JSON.")


def parsed(*words: str) -> Any:
    (options,) = parse([Options], words)
    return options


def test_names_have_underscores_or_dashes() -> None:
    options = parsed("--languages", "de", "fr", "--my-token=a-b", "--no-in-order")
    assert (options.languages, options.my_token, options.in_order) == (["de", "fr"], "a-b", False)


def test_the_command_line_overrides_a_file(tmp_path: Path) -> None:
    file = tmp_path / "options.yaml"
    file.write_text(
        'count: 2\nlanguages: ["no", de]\nmy-token: --x\nin_order: false\nmode:\nrates: {head: 0.1}\n', encoding="utf-8"
    )
    of_file = Options(count=2, languages=["no", "de"], my_token="--x", in_order=False, rates='{"head": 0.1}')
    assert parsed(str(file)) == of_file
    options = parsed(str(file), "--languages", "fr", "--in-order")
    assert (options.languages, options.in_order, options.count) == (["fr"], True, 2)
    (tmp_path / "second.yml").write_text("count: 7\nlanguages: []\n", encoding="utf-8")
    assert parsed(str(file), str(tmp_path / "second.yml")).count == 7


@pytest.mark.parametrize("words", [["--whatever"], ["--my_tok=hf_abc"], ["word"]])
def test_an_unknown_option_is_named(words: list[str]) -> None:
    with pytest.raises(ValueError, match=words[0]):
        parsed(*words)


@pytest.mark.parametrize(
    ("content", "named"),
    [("count: many", "count"), ("mode: medium", "medium"), ("count: [1, 2]", "2"), ("counts: 1", "counts")],
)
def test_a_value_that_does_not_fit_is_named(
    content: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "options.yaml").write_text(content, encoding="utf-8")
    with pytest.raises((SystemExit, ValueError)) as caught:
        parsed(str(tmp_path / "options.yaml"))
    assert named in f"{caught.value}{capsys.readouterr().err}"


@pytest.mark.parametrize("content", ["- 1", "a: ["])
def test_a_file_without_options_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "options.yaml").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match="options.yaml"):
        parsed(str(tmp_path / "options.yaml"))


def test_a_list_that_is_given_twice_is_named() -> None:
    with pytest.raises(ValueError, match="--languages"):
        parse([Options], ["--languages", "de", "--languages", "fr"])


def test_words_before_the_first_option_get_names() -> None:
    words = ["o.yaml", "a", "b", "c", "--model", "m"]
    named = ["o.yaml", "--source", "a", "--target", "b", "c", "--model", "m"]
    assert name_leading_words(words, "source", "target") == named
    assert name_leading_words(["--model", "m"], "source") == ["--model", "m"]
