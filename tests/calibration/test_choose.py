"""The calibration that was asked for, beside other steps and other strengths."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from st_xlret.calibration.bias import AS_IT_IS, BiasFigures, LanguageBias
from st_xlret.calibration.choose import fit_and_compare
from st_xlret.calibration.report import STRENGTHS, Comparison, best_strength

RAW: dict[str, Any] = {"normalize": False, "texts": 60}


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


def figures(search: float, documents: float, kept: float = 1.0, **about: Any) -> BiasFigures:
    """By the shares of results in the language of a text, for searches and between documents."""
    return BiasFigures(bias(search), bias(documents), kept, **about)


def comparison(chosen: str, raw: BiasFigures, **others: BiasFigures) -> Comparison:
    return Comparison({AS_IT_IS: raw, **others}, chosen, 1.0, {}, False)


STRONG = figures(0.7, 0.7)


@pytest.mark.parametrize("queries_only", [True, False])
def test_both_ways_are_measured_at_every_strength(queries_only: bool) -> None:
    _, compared = fit_and_compare(translated(), queries_only=queries_only, **RAW)
    for only in (True, False):
        rows = compared.strengths[only]
        assert list(rows) == list(STRENGTHS)
        shares = [each.search.same_language_share for each in rows.values()]
        assert shares[0] > shares[5] > shares[10]
        assert rows[0.0].neighbours_kept == 1
        assert rows[1.0].neighbours_kept < 1


@pytest.mark.parametrize("queries_only", [True, False])
def test_auto_takes_the_best_strength(queries_only: bool) -> None:
    fitted, compared = fit_and_compare(
        translated(), strength="auto", queries_only=queries_only, **RAW
    )
    best = best_strength(compared.strengths[queries_only])
    assert best > 0
    assert fitted.strength == best
    assert fitted.queries_only == queries_only
    assert compared.after == compared.strengths[queries_only][best]
    assert f"{best:g}" in compared.chosen
    assert "(used)" in compared.calibrations_table()
    assert len(compared.strengths_table().splitlines()) > 6
    assert str(compared).count("Recommended") == 1
    chance = compared.as_json()["after"]["documents"]["chance"]
    assert chance == pytest.approx(59 / 179)


def test_auto_leaves_an_encoder_without_bias_as_it_is() -> None:
    fitted, compared = fit_and_compare(translated(offset=0), strength="auto", **RAW)
    assert fitted.strength == 0
    assert compared.recommended == "lsar, strength 0"
    assert "the vectors as they are" in compared.verdict()
    assert "little" in compared.verdict()


@pytest.mark.parametrize(
    ("how", "others"),
    [
        ({}, ["shift", "lsar, queries only", "shift, queries only", "lsar"]),
        (
            {"steps": ["shift", "scale"]},
            ["lsar", "lsar, queries only", "shift", "shift, queries only", "shift coral"],
        ),
        ({"keep_mean": 1, "strength": 0.35}, ["lsar", "lsar, strength 0.35, keep_mean 1"]),
        ({"questions": translated(70)}, ["lsar", "lsar, queries apart", "shift, queries apart"]),
    ],
)
def test_what_it_is_compared_with(how: dict, others: list[str]) -> None:
    _, compared = fit_and_compare(translated(), **how, **RAW)
    names = list(compared.figures)
    assert names[0] == AS_IT_IS
    assert set(others) <= set(names)
    needs_language = "scale" in how.get("steps", ())
    assert ("shift coral" in names) == needs_language


@pytest.mark.parametrize(
    ("share", "after", "recommended", "little"),
    [
        # 0.90 against 0.88; with the documents, it would be 0.60 against 0.88.
        (0.35, 0.27, AS_IT_IS, True),
        # 0.70 against 0.67, and 2.2 times chance.
        (0.55, 0.50, AS_IT_IS, False),
        (0.55, 0.27, "only", False),
    ],
)
def test_queries_alone_are_compared_by_searches(
    share: float, after: float, recommended: str, little: bool
) -> None:
    raw = figures(share, 0.95)
    compared = comparison("only", raw, only=figures(after, 0.95, 0.8, queries_only=True))
    assert compared.recommended == recommended
    assert f"{raw.score(True):.3f} |" in compared.calibrations_table()
    assert ("little" in compared.verdict()) == little


CANDIDATES = {
    "only": figures(0.5, 0.7, queries_only=True),
    "lsar": figures(0.3, 0.3),
    "coral": figures(0.25, 0.25, needs_language=True),
    "shift": figures(0.28, 0.28, needs_language=True),
}


@pytest.mark.parametrize(
    ("chosen", "recommended"),
    [("only", "only"), ("lsar", "lsar"), ("coral", "coral"), ("shift", "coral")],
)
def test_what_changes_another_side_or_needs_the_language_is_no_alternative(
    chosen: str, recommended: str
) -> None:
    assert comparison(chosen, STRONG, **CANDIDATES).recommended == recommended


def test_the_chosen_one_stays_where_another_is_hardly_better() -> None:
    near = {**CANDIDATES, "shift": figures(0.252, 0.252, needs_language=True)}
    assert comparison("shift", STRONG, **near).recommended == "shift"


@pytest.mark.parametrize(
    ("judged", "words"),
    [
        ({0.0: 0.5, 0.4: 0.7, 1.0: 0.6}, "strength 0.4"),
        ({0.0: 0.7, 0.4: 0.6, 1.0: 0.5}, "as they are"),
    ],
)
def test_labels_decide_where_there_are_labels(judged: dict[float, float], words: str) -> None:
    compared = comparison("lsar", STRONG, lsar=figures(0.25, 0.25))
    verdict = replace(compared, judged=judged).verdict()
    assert words in verdict.splitlines()[0]
    assert "score" not in verdict
    assert "The strength 1, which was used" in verdict


def test_a_better_strength_of_the_chosen_one_is_recommended() -> None:
    better = figures(0.3, 0.3)
    compared = comparison("lsar", figures(0.4, 0.4), lsar=figures(0.42, 0.42))
    compared = replace(compared, strengths={False: {0.6: better}})
    assert compared.recommended == "lsar"
    verdict = compared.verdict()
    assert f"score, {better.score():.3f}" in verdict
    assert "Recommended: the strength 0.6" in verdict
    assert "lsar, which was used, has" in verdict


def test_an_overshoot_is_flagged() -> None:
    compared = comparison("lsar", STRONG, lsar=figures(0.2, 0.2))
    assert "below chance" in compared.calibrations_table()
    assert "overshoots" in compared.verdict()


def test_a_share_near_chance_and_a_map_that_does_nothing_do_not_overshoot() -> None:
    near_chance = comparison("lsar", STRONG, lsar=figures(0.245, 0.245))
    assert "overshoots" not in near_chance.verdict()
    far_below = comparison("lsar", STRONG, lsar=figures(0.2, 0.2))
    assert "overshoots" not in replace(far_below, strength=0.0).verdict()


def test_a_rotation_is_fitted_once_at_a_strength_that_is_given() -> None:
    rows = translated()
    pairs = {"de": (rows["de"], rows["en"]), "fr": (rows["fr"], rows["en"])}
    fitted, compared = fit_and_compare(rows, steps=["rotate"], pairs=pairs, strength=0.5, **RAW)
    assert fitted.strength == 0.5
    assert not compared.strengths[False]
    assert "rotate, strength 0.5" in compared.figures
    with pytest.raises(ValueError, match="'rotate'.*'auto'"):
        fit_and_compare(rows, steps=["rotate"], strength="auto", **RAW)
