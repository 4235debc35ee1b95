"""The page on attacks says what the tests are."""

from __future__ import annotations

import re

import pytest

from tests.attacks import ATTACKS, PAGE, REPOSITORY, collected, count


def test_every_listed_test_is_there() -> None:
    for attack in ATTACKS:
        for test in attack.tests:
            file, _, name = test.partition("::")
            source = (REPOSITORY / "tests" / file).read_text(encoding="utf-8")
            assert not name or f"def {name}(" in source, test


def written() -> dict[str, int]:
    """The cases of each attack, as the page has them."""
    rows = re.findall(r"^\| ([^|]+) \|.*\| (\d+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {what: int(number) for what, number in rows}


def test_the_page_has_every_attack() -> None:
    rows = written()
    total = rows.pop("all")
    assert set(rows) == {attack.what for attack in ATTACKS}
    assert sum(rows.values()) == total >= 200


@pytest.mark.slow
def test_the_tests_have_as_many_cases_as_the_page_says() -> None:
    there = count(collected())
    for what, number in written().items():
        assert what == "all" or there[what] >= number, f"{what}: run python -m tests.attacks --write"
