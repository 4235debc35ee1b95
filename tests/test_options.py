"""Options of programs: the command line, files of options before it, and words without a name."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from st_xlret.options import option, parse


@dataclass
class Options:
    """Some options."""

    count: int = option(3, "A count.")
    languages: list[str] = option([], "Languages.")
    my_token: str | None = option(None, "A token.")
    in_order: bool = option(True, "Keep the order.")
    mode: str = option("fast", "How.", choices=["fast", "slow"])
    rates: str = option("{}", "Rates as JSON.")


def test_the_command_line_overrides_files_and_names_have_underscores_or_dashes(
    tmp_path: Path,
) -> None:
    first, second = str(tmp_path / "options.yaml"), str(tmp_path / "second.yml")
    content = 'count: 2\nlanguages: ["no", de]\nmy-token: --x\nin_order: false\nmode:\nrates: {head: 0.1}\n'
    Path(first).write_text(content, encoding="utf-8")
    Path(second).write_text("count: 7\nlanguages: []\n", encoding="utf-8")
    of_file = Options(
        count=2, languages=["no", "de"], my_token="--x", in_order=False, rates='{"head": 0.1}'
    )
    assert parse([Options], [first]) == (of_file,)
    (options,) = parse(
        [Options], [first, second, "--languages", "fr", "es", "--in-order", "--my-token=a-b"]
    )
    given = (options.count, options.languages, options.in_order, options.my_token)
    assert (
        given == (7, ["fr", "es"], True, "a-b")
        and not parse([Options], ["--no-in-order"])[0].in_order
    )


EMPTY = [["--languages", ""], ["--my_token", ""]]
WRONG = [
    *EMPTY,
    ["--what"],
    ["--my_tok=hf_abc"],
    ["word"],
    ["--languages", "de"] * 2,
    ["--count=-1"],
]


@pytest.mark.parametrize("words", WRONG)
def test_options_that_are_unknown_empty_or_given_twice_and_a_count_below_zero_are_named(
    words: list[str],
) -> None:
    with pytest.raises(ValueError, match=words[0]):
        parse([Options], words)


def test_what_does_not_fit_in_a_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = {
        "count: many": "count",
        "mode: medium": "medium",
        "count: [1, 2]": "2",
        "counts: 1": "counts",
    }
    for content, named in (lines | {"- 1": "options.yaml", "a: [": "options.yaml"}).items():
        (tmp_path / "options.yaml").write_text(content, encoding="utf-8")
        with pytest.raises((SystemExit, ValueError)) as caught:
            parse([Options], [str(tmp_path / "options.yaml")])
        assert named in f"{caught.value}{capsys.readouterr().err}"
