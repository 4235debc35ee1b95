"""The API reference has every public name."""

from __future__ import annotations

import sys
from pathlib import Path

import st_xlret

REPOSITORY = Path(__file__).resolve().parents[2]


def test_every_public_name_is_on_a_page() -> None:
    sys.path.insert(0, str(REPOSITORY / "docs" / "tools"))
    try:
        from api_pages import PAGES, names_of
    finally:
        sys.path.pop(0)
    on_pages = {name for room in PAGES for name in names_of(REPOSITORY / "st_xlret", room)}
    assert {*st_xlret.__all__} - {"__version__", "functional"} <= on_pages


def test_the_picture_of_the_house_has_the_rooms_in_their_order() -> None:
    sys.path.insert(0, str(REPOSITORY / "docs" / "tools"))
    try:
        from house import ROOMS, house
    finally:
        sys.path.pop(0)
    from tests.test_house import ROOMS as checked

    order = [name for name, _ in ROOMS]
    assert order == checked[: len(order)]
    assert (REPOSITORY / "docs" / "assets" / "house.svg").read_text(encoding="utf-8") == house()
