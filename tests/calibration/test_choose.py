"""The calibration that was asked for, beside other strengths."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from st_xlret.calibration import FitOptions, VectorCalibration
from st_xlret.calibration.choose import fit_and_compare
from st_xlret.calibration.comparison import STRENGTHS, Comparison, best_strength
from st_xlret.calibration.language_bias import BiasFigures, LanguageBias


def compare(*arguments: Any, **how: Any) -> tuple[VectorCalibration, Comparison]:
    """Of vectors as they are, 60 of each language."""
    of_inputs = {}
    for name in ("strength", "queries", "phrases", "pairs"):
        if name in how:
            of_inputs[name] = how.pop(name)
    options = FitOptions(normalize=False, **how)
    return fit_and_compare(*arguments, options=options, texts=60, **of_inputs)


def translated(texts: int = 60, offset: float = 2.0) -> dict[str, NDArray]:
    """The same topics in three languages, each in a region of its own."""
    generator = np.random.default_rng(0)
    topics = generator.normal(size=(texts, 16))
    rows = {}
    for number, code in enumerate(("de", "en", "fr")):
        moved = topics + offset * np.eye(16)[number]
        rows[code] = moved + 0.1 * generator.normal(size=(texts, 16))
    return rows


def bias(own: float) -> LanguageBias:
    """Of four languages, with this share of results in the language of a text."""
    shares = np.full((4, 4), (1 - own) / 3)
    np.fill_diagonal(shares, own)
    return LanguageBias(
        languages=["a", "b", "c", "d"],
        shares=shares,
        expected=np.full((4, 4), 0.25),
        texts=100,
        neighbours=20,
    )


def figures(search: float, documents: float, kept: float = 1.0) -> BiasFigures:
    """By the shares of results in the language of a text, for searches and between documents.

    As it is, they are 0.7, of which 0.45 can go.
    """
    removed = min((0.7 - search) / 0.45, 0.9)
    return BiasFigures(bias(search), bias(documents), kept, removed)


STRONG = figures(0.7, 0.7)
WEAK = figures(0.6, 0.6, 0.3)


def comparison(strength: float, of_strengths: dict, **about: Any) -> Comparison:
    """Of a calibration of both sides by LSAR, or by other steps."""
    return Comparison(
        before=of_strengths.get(0.0, STRONG),
        steps=about.pop("steps", ("lsar",)),
        queries_only=False,
        strength=strength,
        strengths=of_strengths,
        **about,
    )


@pytest.mark.parametrize("queries_only", [True, False])
def test_both_ways_are_measured_at_every_strength(queries_only: bool) -> None:
    _, compared = compare(translated(), strength=1.0, queries_only=queries_only)
    for rows in (compared.strengths, compared.other_side):
        assert list(rows) == list(STRENGTHS)
        shares = [each.search.same_language_share for each in rows.values()]
        assert shares[0] > shares[5] > shares[10]
        assert rows[0.0].neighbours_kept == 1
        assert rows[1.0].neighbours_kept < 1


@pytest.mark.parametrize("queries_only", [True, False])
def test_by_default_the_strength_is_the_best(queries_only: bool) -> None:
    fitted, compared = compare(translated(), queries_only=queries_only)
    best = best_strength(compared.strengths)
    assert best > 0
    assert fitted.strength == best
    assert fitted.queries_only == queries_only
    assert compared.after == compared.strengths[best]
    assert f"| {best:g} (used) " in compared.strengths_table()
    assert f"at strength {best:g}" in compared.verdict()
    chance = compared.as_json()["after"]["documents"]["chance"]
    assert chance == pytest.approx(59 / 179)


def test_auto_leaves_an_encoder_without_bias_as_it_is() -> None:
    fitted, compared = compare(translated(offset=0))
    assert fitted.strength == 0
    assert compared.advised() == (("lsar",), 0)
    # Documents are no questions, about which nothing negative is said.
    assert "cannot show what questions gain" in compared.verdict()
    assert "| 0, as it is (used) " in compared.strengths_table()
    assert "(highest)" not in compared.strengths_table()


def test_a_strength_that_is_given_is_measured_beside_the_others() -> None:
    fitted, compared = compare(translated(), strength=0.35, keep_mean=1)
    assert fitted.strength == 0.35
    assert set(compared.strengths) == {*STRENGTHS, 0.35}
    assert "| 0.35 (used) " in compared.strengths_table()


def test_other_steps_are_measured_beside_lsar() -> None:
    _, compared = compare(translated(), steps=("shift", "scale"))
    assert compared.other_side == {}  # scale maps both sides
    assert len(compared.as_json()["lsar"]) == len(compared.lsar) > 0
    of_lsar = compare(translated())[1].strengths
    kept = {strength: each.neighbours_kept for strength, each in of_lsar.items()}
    assert {strength: each.neighbours_kept for strength, each in compared.lsar.items()} == kept
    assert "lsar, which needs no language" in compared.details()


def test_queries_with_maps_of_their_own_are_fitted_for_both_sides() -> None:
    fitted, compared = compare(translated(), queries=translated(70, offset=3))
    assert fitted.query is not None
    assert compared.reached is None  # nothing joined the fit


@pytest.mark.parametrize(
    ("strength", "of_strengths", "advised"),
    [
        (1.0, {0.0: STRONG, 1.0: figures(0.25, 0.25, 0.9)}, 1.0),
        (1.0, {0.0: STRONG, 0.6: figures(0.35, 0.3), 1.0: figures(0.42, 0.42)}, 0.6),
        # It is hardly better, ...
        (1.0, {0.0: STRONG, 0.6: figures(0.35, 0.3), 1.0: figures(0.351, 0.3)}, 1.0),
        # ... and what goes beyond nine tenths is no better.
        (1.0, {0.0: STRONG, 0.6: figures(0.26, 0.3), 1.0: figures(0.29, 0.3)}, 1.0),
        # Where there is a preference, half of it goes, at any price; else nothing does.
        (1.0, {0.0: STRONG, 0.4: STRONG, 0.5: figures(0.6, 0.6, 0.5), 1.0: WEAK}, 0.5),
        (1.0, {0.0: figures(0.35, 0.35), 1.0: figures(0.25, 0.25)}, 0.0),
    ],
)
def test_the_strength_with_the_highest_score_is_advised(
    strength: float, of_strengths: dict, advised: float
) -> None:
    compared = comparison(strength, of_strengths)
    assert compared.advised() == (("lsar",), advised)
    if advised == 0:
        assert "no preference to remove" in compared.verdict()
    else:
        assert f"at strength {advised:g}" in compared.verdict()
    assert ("its score is" in compared.verdict()) == (0 < advised != strength)


@pytest.mark.parametrize(("share", "advised"), [(0.35, ("lsar",)), (0.402, ("shift",))])
def test_lsar_is_advised_where_it_is_better_than_steps_that_need_the_language(
    share: float, advised: tuple
) -> None:
    shift = {0.0: STRONG, 1.0: figures(0.4, 0.3)}
    of_lsar = {0.0: STRONG, 0.8: figures(share, share)}
    compared = comparison(1.0, shift, steps=("shift",), lsar=of_lsar)
    assert compared.advised()[0] == advised
    assert f"calibrate by {advised[0]} at" in compared.verdict()


@pytest.mark.parametrize(("share", "is_flagged"), [(0.2, True), (0.245, False)])
def test_a_share_below_chance_is_flagged(share: float, is_flagged: bool) -> None:
    compared = comparison(1.0, {0.0: STRONG, 1.0: figures(share, share)})
    assert ("below chance" in compared.strengths_table()) == is_flagged


def test_a_report_uses_nothing() -> None:
    compared = comparison(1.0, {0.0: STRONG, 1.0: figures(0.25, 0.25)}, used=False)
    assert "(used)" not in str(compared)


def test_what_phrases_reach_is_said_in_words() -> None:
    compared = comparison(1.0, {0.0: STRONG, 1.0: figures(0.25, 0.25)}, reached=(99, 234))
    assert "reach 234 different texts, 99 before: more is better" in str(compared)


def test_a_rotation_is_fitted_once() -> None:
    rows = translated()
    pairs = {"de": (rows["de"], rows["en"]), "fr": (rows["fr"], rows["en"])}
    for strength, expected in (("auto", 1.0), (0.5, 0.5)):
        fitted, compared = compare(rows, steps=("rotate",), pairs=pairs, strength=strength)
        assert fitted.strength == expected
        assert list(compared.strengths) == [expected]
