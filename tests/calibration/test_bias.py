"""Figures of calibrations, against loops over every text."""

import numpy as np
import pytest
from numpy.typing import NDArray

from st_xlret.calibration import VectorCalibration, measure_language_bias
from st_xlret.calibration.bias import AS_IT_IS, measure_calibrations
from st_xlret.calibration.rows import strict_unit_rows
from tests.calibration.clouds import CODES, apply, clouds

DOCUMENTS = clouds(texts=30)
IDS = {code: np.arange(30) // 4 for code in CODES}
AS_QUERIES = {code: rows[:17] + 0.3 for code, rows in clouds(texts=30).items()}
RAW = {"normalize": False, "min_texts": 2}


def brute_shares(queries: dict, documents: dict, ids: dict, k: int) -> NDArray:
    entries = [
        (code, ids[code][i], row)
        for code in CODES
        for i, row in enumerate(strict_unit_rows(documents[code]))
    ]
    shares = np.zeros((len(CODES), len(CODES)))
    for i, code in enumerate(CODES):
        for place, query in enumerate(strict_unit_rows(queries[code])):
            others = [each for each in entries if each[:2] != (code, ids[code][place])]
            for other, *_ in sorted(others, key=lambda each: -float(query @ each[2]))[:k]:
                shares[i, CODES.index(other)] += 1
    return shares / shares.sum(axis=1, keepdims=True)


def brute_kept(before: tuple[dict, dict], after: tuple[dict, dict]) -> float:
    kept = []
    for code in CODES:
        nearest = []
        for queries, documents in (before, after):
            scores = strict_unit_rows(queries[code]) @ strict_unit_rows(documents[code]).T
            np.fill_diagonal(scores, -np.inf)
            nearest.append(np.argsort(-scores, axis=1)[:, :10])
        kept.append(
            np.mean([len({*one} & {*other}) / 10 for one, other in zip(*nearest, strict=True)])
        )
    return float(np.mean(kept))


@pytest.mark.parametrize("as_queries", [None, AS_QUERIES])
@pytest.mark.parametrize("with_ids", [True, False])
def test_one_pass_equals_every_map_applied_and_every_cosine_computed(
    as_queries: dict | None, with_ids: bool
) -> None:
    questions, ids = (
        clouds(3, texts=40),
        IDS if with_ids else {code: np.arange(30) for code in CODES},
    )
    fit = VectorCalibration.fit
    calibrations = {
        "lsar": fit(DOCUMENTS, **RAW),
        "half": fit(DOCUMENTS, strength=0.5, **RAW),
        "shift apart": fit(
            DOCUMENTS, queries=questions, steps=["shift"], **RAW
        ),  # in another basis
        "coral": fit(DOCUMENTS, steps=["shift", "coral"], **RAW),
        "only": fit(DOCUMENTS, steps=["shift"], queries_only=True, **RAW),
    }
    figures = measure_calibrations(
        DOCUMENTS, calibrations, as_queries, ids if with_ids else None, neighbours=7
    )
    asked = as_queries or DOCUMENTS
    assert list(figures) == [AS_IT_IS, *calibrations] and figures[AS_IT_IS].neighbours_kept == 1
    for name, calibration in calibrations.items():
        measured = figures[name]
        documents = {
            code: apply(calibration, rows, "document", code) for code, rows in DOCUMENTS.items()
        }
        queries = {code: apply(calibration, rows, "query", code) for code, rows in asked.items()}
        np.testing.assert_allclose(
            measured.search.shares, brute_shares(queries, documents, ids, 7), err_msg=name
        )
        np.testing.assert_allclose(
            measured.documents.shares, brute_shares(documents, documents, ids, 7), err_msg=name
        )
        before, after = (DOCUMENTS, DOCUMENTS), (documents, documents)
        if name == "only":
            before, after = (asked, DOCUMENTS), (queries, documents)
        assert measured.neighbours_kept == pytest.approx(brute_kept(before, after)), name
        biases = [measured.search] if name == "only" else [measured.search, measured.documents]
        evenness = 1 - np.mean([bias.imbalance for bias in biases])
        assert measured.score() == pytest.approx(measured.neighbours_kept**0.5 * evenness)
        assert (measured.queries_only, measured.needs_language) == (
            name == "only",
            bool(calibration.languages),
        )
    upper = {code.upper(): rows for code, rows in DOCUMENTS.items()}  # languages have one spelling
    bias = measure_language_bias(upper, ids, queries=as_queries, neighbours=7)
    np.testing.assert_array_equal(bias.shares, figures[AS_IT_IS].search.shares)
    with pytest.raises(ValueError, match="0 neighbours"):
        measure_language_bias(DOCUMENTS, neighbours=0)


def test_the_imbalance_lies_between_an_encoder_without_languages_and_one_with_nothing_else() -> (
    None
):
    # All texts of a language are from two documents, so that half of its texts are never measured.
    rows = {
        code: np.random.default_rng(i).normal(size=(400, 6))
        for i, code in enumerate(("de", "en", "fr"))
    }
    bias = measure_language_bias(rows, {code: np.arange(400) // 200 for code in rows})
    assert bias.chance == pytest.approx(200 / 1000) and bias.imbalance < 0.05
    np.testing.assert_allclose(bias.expected[0], [0.2, 0.4, 0.4])
    assert bias.as_json()["languages"]["en"]["same_language_share"] == bias.shares[1, 1]
    apart = {code: part[:30] + 100 * np.eye(6)[i] for i, (code, part) in enumerate(rows.items())}
    bias = measure_language_bias(apart, neighbours=5)
    assert bias.same_language_share == 1 and bias.imbalance == pytest.approx(1 - bias.chance)


@pytest.mark.parametrize(
    ("texts", "message"),
    [({"en": 40}, "en"), ({"en": 2, "fr": 2}, "2 texts.*20"), ({"en": 9, "EN": 9}, "twice")],
)
def test_too_few_languages_or_texts_are_named(texts: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure_language_bias({code: np.eye(count) for code, count in texts.items()})
