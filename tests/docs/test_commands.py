"""Every command of the documentation names options that its program has."""

import re
import shlex
from importlib import import_module
from itertools import dropwhile
from pathlib import Path
from unittest.mock import patch

import pytest
from transformers import HfArgumentParser

from st_xlret import commands
from tests.conftest import REPOSITORY

PAGES = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")]
PAGES += sorted((REPOSITORY / "docs").rglob("*.md"))
PAGES += sorted((REPOSITORY / "model_cards").glob("*.md"))
FENCE = re.compile(r"^ *```bash\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
LAUNCHERS = {"python", "torchrun"}


def commands_of(page: Path) -> list[list[str]]:
    """The words of every command of a page that runs a training script, a study, or st-xlret."""
    chosen = []
    for block in FENCE.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            words = list(dropwhile(lambda word: "=" in word, shlex.split(line, comments=True)))
            if words and (
                words[0] == "st-xlret" or (words[0] in LAUNCHERS and "training_scripts" in line)
            ):
                chosen.append(words)
    return chosen


def needs_clone(block: str) -> bool:
    """Whether a block of commands runs a program of the repository, which is not installed."""
    return (
        re.search(r"(python|torchrun) .*(training_scripts|evaluation/|benchmarks)", block)
        is not None
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_says_that_its_commands_need_a_clone_before_the_first_of_them(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for fence in FENCE.finditer(text):
        if needs_clone(fence[1]):
            assert "clone" in text[: fence.start()], fence[1]


def parse(words: list[str]) -> None:
    """Run a command up to the point where its options are understood."""

    class Parsed(Exception):
        pass

    as_it_is = HfArgumentParser.parse_args_into_dataclasses

    def parse_and_stop(self: HfArgumentParser, *args: object, **kwargs: object) -> None:
        as_it_is(self, *args, **kwargs)  # type: ignore[arg-type]
        raise Parsed

    if words[:2] == ["st-xlret", "train"]:
        words = ["python", f"training_scripts/train_{words[2].replace('-', '_')}.py", *words[3:]]
        words = [
            f"training_scripts/recipes/{word}" if word.endswith(".yaml") else word for word in words
        ]
    with (
        patch.object(HfArgumentParser, "parse_args_into_dataclasses", parse_and_stop),
        pytest.raises(Parsed),
    ):
        if words[0] == "st-xlret":
            commands.run_command(words[1], words[2:], prog="st-xlret")
        place = next(i for i, word in enumerate(words) if word.startswith("training_scripts"))
        import_module(words[place].removesuffix(".py").replace("/", ".")).main(words[place + 1 :])


CASES = [(page, words) for page in PAGES for words in commands_of(page)]


@pytest.mark.parametrize(
    ("page", "words"),
    CASES,
    ids=[f"{page.relative_to(REPOSITORY)}-{i}" for i, (page, _) in enumerate(CASES)],
)
def test_the_options_exist(page: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    if words[1:] != ["--help"]:
        parse(words)
