"""Options of programs: the command line, option files before it, and words without a name."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from st_xlret.options import option, parse, program_name


@dataclass
class Options:
    """Some options."""

    count: int = option(3, "A count.")
    rate: float = option(1.0, "A rate.")
    languages: list[str] = option([], "Languages.")
    shares: list[float] = option([], "Shares.")
    my_token: str | None = option(None, "A token.")
    in_order: bool = option(True, "Keep the order.")
    mode: str = option("fast", "How.", choices=["fast", "slow"])
    rates: str = option("{}", "Rates as JSON.")
    query: str = option("", "A text.")


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Options]:
    """Reads the content of an option file, and words after it."""
    file = tmp_path / "options.yaml"

    def read(content: str, *words: str) -> Options:
        file.write_text(content, encoding="utf-8")
        (options,) = parse([Options], [str(file), *words])
        return options

    return read


def test_a_file_has_options_of_all_kinds(read: Callable[..., Options]) -> None:
    content = """
        count: 2
        languages: ["no", de]
        my-token: --x
        in_order: false
        mode:
        rates: {head: 0.1}
    """
    assert read(content) == Options(
        count=2,
        languages=["no", "de"],
        my_token="--x",
        in_order=False,
        rates='{"head": 0.1}',
    )


def test_the_command_line_overrides_files_and_later_files_earlier_ones(
    tmp_path: Path, read: Callable[..., Options]
) -> None:
    second = tmp_path / "second.yml"
    second.write_text("count: 7\nlanguages: []\n", encoding="utf-8")
    options = read(
        "count: 2\nlanguages: [de]\nin_order: false\nrate: 3",
        str(second),
        *["--languages", "fr", "es", "--in-order", "--my-token=a-b"],
    )
    assert options.count == 7
    assert options.rate == 3
    assert options.languages == ["fr", "es"]
    assert options.in_order
    assert options.my_token == "a-b"


@pytest.mark.parametrize(
    "text",
    ["2024_01", "no", "12:30", "1e-4", "on", "010", "0x1F", "2024-01-02", "1_000.5", "=", ".inf"],
)
def test_a_text_is_what_is_written(read: Callable[..., Options], text: str) -> None:
    assert read(f"my_token: {text}").my_token == text
    assert read(f"languages: [{text}, de]").languages == [text, "de"]


@pytest.mark.parametrize(("written", "count"), [("010", 10), ("1_000", 1000), ("'7'", 7)])
def test_a_number_is_that_of_the_command_line(
    read: Callable[..., Options], written: str, count: int
) -> None:
    assert read(f"count: {written}").count == count


def test_a_rate_may_have_an_exponent_alone(read: Callable[..., Options]) -> None:
    assert read("rate: 1e-4").rate == 1e-4


@pytest.mark.parametrize(
    ("written", "value"),
    [("on", True), ("off", False), ("No", False), ("yes", True), ("TRUE", True), ("0", False)],
)
def test_a_switch_has_the_words_of_yaml(
    read: Callable[..., Options], written: str, value: bool
) -> None:
    assert read(f"in_order: {written}").in_order is value


@pytest.mark.parametrize("nothing", ["", "~", "null", "# later"])
def test_an_option_without_a_value_keeps_its_default(
    read: Callable[..., Options], nothing: str
) -> None:
    assert read(f"mode: {nothing}\nmy_token: {nothing}\nlanguages: []") == Options()


def test_a_file_that_is_no_utf_8_is_named(tmp_path: Path) -> None:
    file = tmp_path / "options.yaml"
    file.write_text("my_token: é", encoding="latin-1")
    with pytest.raises(ValueError, match="options.yaml: no text in UTF-8"):
        parse([Options], [str(file)])


def test_a_null_in_quotes_is_a_text(read: Callable[..., Options]) -> None:
    assert read("my_token: 'null'").my_token == "null"


def test_a_mapping_is_json(read: Callable[..., Options]) -> None:
    content = 'rates: {head: 1e-4, n: 010, on: "no", flag: true, day: 12:30, list: [1, .5, ~]}'
    assert read(content).rates == (
        '{"head": 0.0001, "n": 10, "on": "no", "flag": true, "day": "12:30", '
        '"list": [1, 0.5, null]}'
    )


@pytest.mark.parametrize("word", ["no", "Yes", "off"])
def test_a_word_in_a_mapping_that_may_be_a_switch_or_a_text_is_refused(
    read: Callable[..., Options], word: str
) -> None:
    with pytest.raises(ValueError, match=f'options.yaml, line 2: {word} .* "{word}", true or'):
        read(f"count: 1\nrates: {{head: {word}}}")


def test_a_tilde_is_the_home_folder_but_in_texts(
    read: Callable[..., Options], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    expected = Options(my_token="/home/me/a", languages=["/home/me/b", "c"], query="~/d")
    assert read("my_token: ~/a\nlanguages: [~/b, c]\nquery: ~/d") == expected
    words = ["--my_token=~/a", "--languages", "~/b", "c", "--query=~/d"]
    assert parse([Options], words) == (expected,)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--languages", ""], "--languages"),
        (["--languages", "de", ""], "--languages"),
        (["--my_token", ""], "--my_token"),
        (["word"], "'word'"),
        (["--languages", "de", "--languages", "fr"], "--languages is given twice"),
        (["--count=-1"], "--count=-1"),
        (["--rate", "1e400"], "--rate=inf is no finite number"),
        (["--rate=nan"], "--rate=nan is no finite number"),
        (["--shares", "0.5", "inf"], "--shares=inf is no finite number"),
        (["--rates", '{"a": 1, "a": 2}'], "--rates: a name stands twice among a, a"),
        (['--rates={"a": {"b": 1, "b": 1}}'], "--rates: a name stands twice among b, b"),
        (["--rates", '{"a": [1e400]}'], "--rates: 1e400 is no finite number"),
        (["--rates", ' [{"a": 1, "a": 2}]'], "--rates: a name stands twice among a, a"),
        (["--rates", '{"a": NaN}'], "--rates: NaN is no finite number"),
        (["--what"], "no option --what; --help lists all"),
        (["--my_tok=hf_abc"], "no option --my_tok; the nearest is --my_token"),
        (["--no-in-orders"], "no option --no_in_orders; the nearest is --no_in_order"),
    ],
)
def test_what_cannot_be_is_named(words: list[str], named: str) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        parse([Options], words)
    assert "hf_abc" not in str(caught.value)


def test_errors_and_usage_call_the_program_by_its_name(capsys: Any) -> None:
    with program_name("st-xlret train ccp"):
        with pytest.raises(ValueError, match="^st-xlret train ccp has no option --modes; .*--mode"):
            parse([Options], ["--modes"])
        with pytest.raises(SystemExit):
            parse([Options], ["--help"])
    assert capsys.readouterr().out.startswith("usage: st-xlret train ccp [OPTIONS.yaml]")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("\ncount: many", "line 2: argument --count.*many"),
        ("count: 12:30", "line 1: argument --count.*12:30"),
        ("mode: medium", "line 1: argument --mode.*medium"),
        ("count: [1, 2]", "'2'"),
        ("count: 1\n\ncounts: 1", "line 3: .*no option --counts; the nearest is --count"),
        ("count: 1\ncount: 2", "line 2: count is given twice"),
        ("count: 1\nrates: {a: 1, b: 2, a: 3}", "line 2: a name stands twice among a, b, a"),
        ("rates: {a: {b: 1, b: 2}}", "line 1: a name stands twice among b, b"),
        ("rates: {a: [1, 1e400]}", "line 1: 1e400 is no finite number"),
        ('rates: \'{"a": 1, "a": 2}\'', "--rates: a name stands twice among a, a"),
        ("rate: .inf", "line 1: argument --rate.*.inf"),
        ("rate: 1e400", "--rate=inf is no finite number"),
        ("shares: [1, nan]", "--shares=nan is no finite number"),
        ("languages: [de, ~]", "line 1: a list has texts alone"),
        ("- 1", "a mapping"),
        ("", "a mapping"),
        ("count: 1\na: [", "options.yaml, line "),
        ("count: 1\nlanguages: [de, f\x00r]", r"options.yaml, line 2: U\+0000: special"),
        ("# \x1b[0m\ncount: 1", r"options.yaml, line 1: U\+001B: special"),
    ],
)
def test_what_does_not_fit_in_a_file_is_named(
    read: Callable[..., Options], capsys: pytest.CaptureFixture[str], content: str, named: str
) -> None:
    with pytest.raises((SystemExit, ValueError)) as caught:
        read(content)
    message = f"{caught.value}{capsys.readouterr().err}"
    assert re.search(f"(?s){named}", message), message
