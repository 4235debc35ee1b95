"""The API reference has every public name, and the pictures are those of their programs."""

import st_xlret
from docs.tools.api_pages import PAGES, names_of
from docs.tools.house import ROOMS, house
from docs.tools.results import results
from tests.conftest import REPOSITORY
from tests.test_house import ROOMS as CHECKED


def test_every_public_name_is_on_a_page() -> None:
    on_pages = {name for room in PAGES for name in names_of(room)}
    assert {*st_xlret.__all__} - {"__version__", "functional"} <= on_pages


def test_the_picture_of_the_house_has_the_rooms_in_their_order() -> None:
    order = [name for name, _ in ROOMS]
    assert order == CHECKED[: len(order)]
    assert (REPOSITORY / "docs" / "assets" / "house.svg").read_text(encoding="utf-8") == house()
    assert (REPOSITORY / "docs" / "assets" / "results.svg").read_text(encoding="utf-8") == results()
