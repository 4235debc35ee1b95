"""The pages are short enough to be read."""

import re
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

README = REPOSITORY / "README.md"
PAGES = sorted((REPOSITORY / "docs").rglob("*.md"))
EVIDENCE = REPOSITORY / "docs" / "studies.md"  # may be longer than other pages


def words_of(page: Path) -> int:
    text = page.read_text(encoding="utf-8")
    # A table that the code declares is looked up, not read.
    read = re.sub(r"<!-- table: .+?<!-- end of table -->", "", text, flags=re.DOTALL)
    return len(re.findall(r"\S*\w\S*", read))  # bars and rules are no words


def test_the_readme_has_at_most_800_words() -> None:
    assert words_of(README) <= 800


def test_all_pages_have_at_most_15_000_words() -> None:
    assert words_of(README) + sum(words_of(page) for page in PAGES) <= 15_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_at_most_900_words(page: Path) -> None:
    assert page == EVIDENCE or words_of(page) <= 900
