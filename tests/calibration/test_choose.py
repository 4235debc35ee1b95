"""The calibration that was asked for, beside other steps and other strengths."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from st_xlret.calibration import plots
from st_xlret.calibration.bias import AS_IT_IS, BiasFigures, LanguageBias
from st_xlret.calibration.choose import fit_and_compare
from st_xlret.calibration.report import STRENGTHS, Comparison, best_strength

RAW: dict[str, Any] = {"normalize": False, "texts": 60}


def translated(texts: int = 60, offset: float = 2.0) -> dict[str, NDArray]:
    """The same topics in three languages, each in a region of its own."""
    generator = np.random.default_rng(0)
    topics = generator.normal(size=(texts, 16))
    return {
        code: topics + offset * np.eye(16)[i] + 0.1 * generator.normal(size=(texts, 16))
        for i, code in enumerate(("de", "en", "fr"))
    }


def figures(search: float, documents: float, kept: float = 1.0, **about: Any) -> BiasFigures:
    """Shares of results in the language of a text, of four languages, for searches and between documents."""
    biases = []
    for own in (search, documents):
        shares = np.full((4, 4), (1 - own) / 3)
        np.fill_diagonal(shares, own)
        biases.append(LanguageBias([*"abcd"], shares, np.full((4, 4), 0.25), 100, 20))
    return BiasFigures(biases[0], biases[1], kept, **about)


def comparison(chosen: str, as_it_is: float | BiasFigures = 0.7, **rows: BiasFigures) -> Comparison:
    raw = as_it_is if isinstance(as_it_is, BiasFigures) else figures(as_it_is, as_it_is)
    return Comparison({AS_IT_IS: raw, **rows}, chosen, 1.0, {}, False)


@pytest.mark.parametrize("queries_only", [True, False])
def test_both_ways_are_measured_at_every_strength_and_auto_takes_the_best(
    queries_only: bool,
) -> None:
    fitted, compared = fit_and_compare(
        translated(), strength="auto", queries_only=queries_only, **RAW
    )
    assert fitted.queries_only == compared.after.queries_only == queries_only
    for only in (True, False):
        rows = compared.strengths[only]
        assert list(rows) == list(STRENGTHS) and rows[0.0].neighbours_kept == 1
        shares = [each.search.same_language_share for each in rows.values()]
        assert shares[0] > shares[5] > shares[10] and rows[1.0].neighbours_kept < 1
    best = best_strength(compared.strengths[queries_only])
    assert fitted.strength == best > 0 and compared.after == compared.strengths[queries_only][best]
    assert f"{best:g}" in compared.chosen and "(used)" in compared.calibrations_table()
    assert (
        len(compared.strengths_table().splitlines()) > 6 and str(compared).count("Recommended") == 1
    )
    assert compared.as_json()["after"]["documents"]["chance"] == pytest.approx(59 / 179)


def test_auto_leaves_an_encoder_without_bias_as_it_is() -> None:
    fitted, compared = fit_and_compare(translated(offset=0), strength="auto", **RAW)
    assert fitted.strength == 0 and compared.recommended == "lsar, strength 0"
    assert "the vectors as they are" in compared.verdict() and "little" in compared.verdict()


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
    assert next(iter(compared.figures)) == AS_IT_IS and {*others} <= compared.figures.keys()
    assert ("shift coral" in compared.figures) == ("scale" in how.get("steps", ()))


@pytest.mark.parametrize(
    ("share", "after", "recommended", "little"),
    [
        (
            0.35,
            0.27,
            AS_IT_IS,
            True,
        ),  # 0.90 against 0.88; with the documents, it would be 0.60 against 0.88
        (0.55, 0.50, AS_IT_IS, False),  # 0.70 against 0.67, and 2.2 times chance
        (0.55, 0.27, "only", False),
    ],
)
def test_queries_alone_are_compared_by_searches(
    share: float, after: float, recommended: str, little: bool
) -> None:
    raw = figures(share, 0.95)
    compared = comparison("only", raw, only=figures(after, 0.95, 0.8, queries_only=True))
    assert (
        compared.recommended == recommended
        and f"{raw.score(True):.3f} |" in compared.calibrations_table()
    )
    assert ("little" in compared.verdict()) == little


def test_what_changes_another_side_or_needs_the_language_is_no_alternative() -> None:
    rows = {
        "only": figures(0.5, 0.7, queries_only=True),
        "lsar": figures(0.3, 0.3),
        "coral": figures(0.25, 0.25, needs_language=True),
        "shift": figures(0.28, 0.28, needs_language=True),
    }
    recommended = {name: comparison(name, **rows).recommended for name in rows}
    assert recommended == {"only": "only", "lsar": "lsar", "coral": "coral", "shift": "coral"}
    near = rows | {"shift": figures(0.252, 0.252, needs_language=True)}
    assert comparison("shift", **near).recommended == "shift"


@pytest.mark.parametrize(
    ("recalls", "words"), [((0.5, 0.7, 0.6), "strength 0.4"), ((0.7, 0.6, 0.5), "as they are")]
)
def test_labels_decide_where_there_are_labels(recalls: tuple, words: str) -> None:
    judged = dict(zip((0.0, 0.4, 1.0), recalls, strict=True))
    verdict = replace(comparison("lsar", lsar=figures(0.25, 0.25)), judged=judged).verdict()
    assert (
        words in verdict.splitlines()[0]
        and "score" not in verdict
        and "The strength 1, which was used" in verdict
    )


def test_a_better_strength_of_the_chosen_one_is_recommended() -> None:
    better = figures(0.3, 0.3)
    compared = replace(
        comparison("lsar", 0.4, lsar=figures(0.42, 0.42)), strengths={False: {0.6: better}}
    )
    assert compared.recommended == "lsar" and f"score, {better.score():.3f}" in compared.verdict()
    assert (
        "Recommended: the strength 0.6" in compared.verdict()
        and "lsar, which was used, has" in compared.verdict()
    )


def test_an_overshoot_is_flagged() -> None:
    compared = comparison("lsar", lsar=figures(0.2, 0.2))
    assert "below chance" in compared.calibrations_table() and "overshoots" in compared.verdict()
    for other in (comparison("lsar", lsar=figures(0.245, 0.245)), replace(compared, strength=0.0)):
        assert "overshoots" not in other.verdict()


def test_a_rotation_is_fitted_once_at_a_strength_that_is_given() -> None:
    rows = translated()
    pairs = {code: (rows[code], rows["en"]) for code in ("de", "fr")}
    fitted, compared = fit_and_compare(rows, steps=["rotate"], pairs=pairs, strength=0.5, **RAW)
    assert (
        fitted.strength == 0.5
        and not compared.strengths[False]
        and "rotate, strength 0.5" in compared.figures
    )
    with pytest.raises(ValueError, match="'rotate'.*'auto'"):
        fit_and_compare(rows, steps=["rotate"], strength="auto", **RAW)


def test_a_point_for_each_strength(tmp_path, monkeypatch) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    monkeypatch.setattr(plots, "new_figure", lambda *_: figure)
    row = {"strength": 0.0, "neighbours_kept": 1.0, "same_language_share": 0.75, "chance": 0.5}
    plots.plot_strengths(
        [row, {**row, "strength": 1.0, "neighbours_kept": 0.5}], tmp_path / "strength.png"
    )
    (axis,) = figure.axes
    assert axis.lines[0].get_xydata().tolist() == [[100, 25], [50, 25]]
    assert [text.get_text() for text in axis.texts] == ["0", "1"]
