"""What the pages name is there: modules, classes and files of this repository."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.docs.test_commands import PAGES

NAME = re.compile(r"\bst_xlret(?:\.\w+)+")
FILE = re.compile(r"`(\w+/[\w./-]*\w\.(?:py|yaml|json|bib))`")
FOLDERS = {path.name for path in (*REPOSITORY.iterdir(), *(REPOSITORY / "st_xlret").iterdir())}
FOLDERS -= {"runs", "build"}  # which commands write


def load(name: str) -> object:
    """A module, or what stands in one; an `AttributeError` names what is not there."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return getattr(load(module), attribute)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_and_file_of_a_page_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in set(NAME.findall(text)):
        load(name)
    for file in set(FILE.findall(text)):
        if file.partition("/")[0] in FOLDERS:
            in_package = REPOSITORY / "st_xlret" / file
            assert in_package.is_file() or (REPOSITORY / file).is_file(), file
