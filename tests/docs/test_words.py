"""The pages are short enough to be read."""

from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

README = REPOSITORY / "README.md"
PAGES = sorted((REPOSITORY / "docs").rglob("*.md"))
EVIDENCE = REPOSITORY / "docs" / "studies.md"  # may be longer than other pages


def words_of(page: Path) -> int:
    return len(page.read_text(encoding="utf-8").split())


def test_the_readme_has_at_most_800_words() -> None:
    assert words_of(README) <= 800


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_at_most_900_words(page: Path) -> None:
    assert page == EVIDENCE or words_of(page) <= 900
