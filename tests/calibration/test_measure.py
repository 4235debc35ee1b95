"""Figures of calibrations, against loops over every text."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from st_xlret.calibration import VectorCalibration, measure_language_bias
from st_xlret.calibration.measure import measure_calibrations
from st_xlret.calibration.neighbours import AS_IT_IS
from st_xlret.calibration.rows import strict_unit_rows
from tests.calibration.clouds import CODES, apply, clouds

TEXTS = 30
DOCUMENTS = clouds(texts=TEXTS)
IDS = {code: np.arange(TEXTS) // 4 for code in CODES}
OWN_IDS = {code: np.arange(TEXTS) for code in CODES}
AS_QUERIES = {code: rows[:17] + 0.3 for code, rows in DOCUMENTS.items()}
QUESTIONS = clouds(3, texts=40)
NEIGHBOURS = 7


def fit(*steps: str, **how: Any) -> VectorCalibration:
    return VectorCalibration.fit(DOCUMENTS, steps=steps, normalize=False, min_texts=2, **how)


CALIBRATIONS = {
    "lsar": fit("lsar"),
    "half": fit("lsar", strength=0.5),
    "shift apart": fit("shift", queries=QUESTIONS),  # in another basis
    "coral": fit("shift", "coral"),
    "only": fit("shift", queries_only=True),
}


def mapped(calibration: VectorCalibration, rows: dict, role: str) -> dict[str, NDArray]:
    after = {}
    for code, part in rows.items():
        after[code] = apply(calibration, part, role, code)
    return after


def naive_shares(queries: dict, documents: dict, ids: dict) -> NDArray:
    """The languages of the nearest texts of other documents."""
    shares = np.zeros((4, 4))
    for own, code in enumerate(CODES):
        for place, query in enumerate(strict_unit_rows(queries[code])):
            own_document = ids[code][place]
            found = []
            for other, other_code in enumerate(CODES):
                cosines = strict_unit_rows(documents[other_code]) @ query
                for document, cosine in zip(ids[other_code], cosines, strict=True):
                    if other != own or document != own_document:
                        found.append((-cosine, other))
            for _, language in sorted(found)[:NEIGHBOURS]:
                shares[own, language] += 1
    return shares / shares.sum(axis=1, keepdims=True)


def ten_nearest(queries: NDArray, documents: NDArray) -> NDArray:
    scores = strict_unit_rows(queries) @ strict_unit_rows(documents).T
    np.fill_diagonal(scores, -np.inf)
    return np.argsort(-scores, axis=1)[:, :10]


def naive_kept(before: tuple[dict, dict], after: tuple[dict, dict]) -> float:
    """The share of the ten nearest texts of a language that stay."""
    kept = []
    for code in CODES:
        nearest = ten_nearest(before[0][code], before[1][code])
        nearest_after = ten_nearest(after[0][code], after[1][code])
        shared = 0
        for one, other in zip(nearest, nearest_after, strict=True):
            shared += len(set(one) & set(other))
        kept.append(shared / (10 * len(nearest)))
    return float(np.mean(kept))


@pytest.mark.parametrize("name", list(CALIBRATIONS))
@pytest.mark.parametrize("as_queries", [None, AS_QUERIES])
@pytest.mark.parametrize("ids", [None, IDS])
def test_one_pass_equals_every_map_applied_and_every_cosine_computed(
    name: str, as_queries: dict | None, ids: dict | None
) -> None:
    figures = measure_calibrations(DOCUMENTS, CALIBRATIONS, as_queries, ids, neighbours=NEIGHBOURS)
    assert list(figures) == [AS_IT_IS, *CALIBRATIONS]
    assert figures[AS_IT_IS].neighbours_kept == 1

    calibration = CALIBRATIONS[name]
    measured = figures[name]
    asked = as_queries or DOCUMENTS
    document_of = ids or OWN_IDS
    documents = mapped(calibration, DOCUMENTS, "document")
    queries = mapped(calibration, asked, "query")
    shares = naive_shares(queries, documents, document_of)
    between = naive_shares(documents, documents, document_of)
    np.testing.assert_allclose(measured.search.shares, shares)
    np.testing.assert_allclose(measured.documents.shares, between)

    kept = naive_kept((DOCUMENTS, DOCUMENTS), (documents, documents))
    if name == "only":
        kept = naive_kept((asked, DOCUMENTS), (queries, documents))
    assert measured.neighbours_kept == pytest.approx(kept)
    share = {key: each.search.same_language_share for key, each in figures.items()}
    before = share[AS_IT_IS]
    removable = before - min(share.values())
    removed = min((before - share[name]) / removable, 0.9)
    lost = 1 - kept
    assert measured.removed == pytest.approx(removed)
    assert measured.score() == pytest.approx(removed - 10 * lost**2)
    assert figures[AS_IT_IS].score() == 0


@pytest.mark.parametrize("as_queries", [None, AS_QUERIES])
def test_the_bias_alone_is_that_of_vectors_as_they_are_in_any_spelling(
    as_queries: dict | None,
) -> None:
    upper = {code.upper(): rows for code, rows in DOCUMENTS.items()}
    bias = measure_language_bias(upper, IDS, as_queries=as_queries, neighbours=NEIGHBOURS)
    asked = as_queries or DOCUMENTS
    np.testing.assert_array_equal(bias.shares, naive_shares(asked, DOCUMENTS, IDS))


def apart(texts: int) -> dict[str, NDArray]:
    rows = {}
    for number, code in enumerate(("de", "en", "fr")):
        rows[code] = np.random.default_rng(number).normal(size=(texts, 6))
    return rows


def test_an_encoder_that_does_not_see_languages_has_no_preference() -> None:
    # All texts of a language are from two documents, so that half of them are never measured.
    rows = apart(400)
    ids = dict.fromkeys(rows, np.arange(400) // 200)
    bias = measure_language_bias(rows, ids)
    assert bias.chance == pytest.approx(200 / 1000)
    assert bias.same_language_share == pytest.approx(bias.chance, abs=0.01)
    np.testing.assert_allclose(bias.expected[0], [0.2, 0.4, 0.4])
    english = bias.as_json()["languages"]["en"]
    assert english["same_language_share"] == bias.shares[1, 1]


def test_an_encoder_that_sees_nothing_else_has_all_of_it() -> None:
    rows = apart(30)
    for number, part in enumerate(rows.values()):
        part += 100 * np.eye(6)[number]
    bias = measure_language_bias(rows, neighbours=5)
    assert bias.same_language_share == 1


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"en": 40}, "en"),
        ({"en": 2, "fr": 2}, "'fr': 2.*20"),
        ({"en": 20, "EN": 20}, "twice"),
    ],
)
def test_too_few_languages_or_texts_are_named(texts: dict, message: str) -> None:
    rows = {code: np.eye(count) for code, count in texts.items()}
    with pytest.raises(ValueError, match=message):
        measure_language_bias(rows)


def test_no_neighbours_cannot_be_looked_at() -> None:
    with pytest.raises(ValueError, match="0 neighbours"):
        measure_language_bias(DOCUMENTS, neighbours=0)
