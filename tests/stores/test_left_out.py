from st_xlret.stores.base import Origin
from st_xlret.stores.left_out import LeftOut, Reason, counts_in_words


def test_labels_that_are_no_codes_are_counted_under_the_first_one() -> None:
    left_out = LeftOut()
    left_out.add(Reason.NO_VECTOR, 0)
    left_out.add(Reason.NO_CODE, 2, "prose")
    left_out.add(Reason.NO_MAP, 1, "fr")
    left_out.add(Reason.NO_CODE, 3, "verse {}")
    left_out.add(Reason.NO_MAP, 1, "pt")
    words = (
        "5 rows with a language that is no code, such as 'prose'; "
        "1 row in fr, for which there is no map; 1 row in pt, for which there is no map"
    )
    assert counts_in_words(left_out.counts_by_words()) == words
    assert left_out.count_of(Reason.NO_CODE) == 5
    assert left_out.count_of(Reason.NO_MAP) == 2


def test_a_mark_is_read_as_it_is_written() -> None:
    origin = Origin("0123abcd", "all of them")
    assert Origin.parse(str(origin)) == origin
