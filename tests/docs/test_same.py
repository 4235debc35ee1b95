"""What README and the first pages both say is said alike."""

import re

from st_xlret.calibration.panels import weak_language_phrases
from tests.conftest import REPOSITORY

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
INDEX = (REPOSITORY / "docs" / "index.md").read_text(encoding="utf-8")
START = (REPOSITORY / "docs" / "getting-started.md").read_text(encoding="utf-8")


def installs_of(page: str) -> list[str]:
    return re.findall(r"^pip install .*$", page, re.MULTILINE)


def gains_of(page: str) -> list[str]:
    table = re.findall(r"^\|.*\|$", page.partition("takes |")[2], re.MULTILINE)
    return [row for row in table if row.endswith(("| |", "minutes |", "anew |", "hour |"))]


def test_the_package_is_installed_by_one_line() -> None:
    assert installs_of(README) == installs_of(INDEX) == installs_of(START)


def test_the_gains_are_the_same() -> None:
    rows = gains_of(README)
    assert len(rows) == 5
    assert [row.replace("](docs/", "](") for row in rows] == gains_of(INDEX)


def test_the_page_of_one_language_lists_the_languages_of_the_phrases() -> None:
    page = (REPOSITORY / "docs" / "guides" / "one-language.md").read_text(encoding="utf-8")
    assert f"`{' '.join(sorted(weak_language_phrases()))}`" in page
