"""The calibration that was asked for, beside other steps, other strengths, and itself on halves of the texts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from st_xlret.calibration import CalibrationOptions, compare_strengths, fit_and_compare, usual_calibrations
from st_xlret.calibration.comparison import best_strength


def translated(texts: int = 80) -> dict[str, Tensor]:
    """The same topics in three languages, each in a region of its own."""
    topics = torch.randn(texts, 16)
    return {
        code: topics + 2 * torch.eye(16)[i] + 0.1 * torch.randn(texts, 16) for i, code in enumerate(("de", "en", "fr"))
    }


@pytest.mark.parametrize("queries_only", [True, False])
def test_a_higher_strength_finds_more_in_other_languages_and_keeps_less(queries_only: bool) -> None:
    rows = compare_strengths(translated(), queries_only=queries_only)
    assert list(rows) == [i / 10 for i in range(11)]
    assert rows[0.0].kept == pytest.approx(1)
    own = [row.biases["search"].same_language_share for row in rows.values()]
    assert own[0] > own[5] > own[10] and rows[1.0].kept < 1
    assert rows[1.0].as_json()["same_language_share"] == own[10]


@pytest.mark.parametrize("queries", [False, True])
def test_auto_takes_the_strength_with_the_highest_score(queries: bool) -> None:
    clouds = translated()
    layers, comparison = fit_and_compare(clouds, asked=clouds if queries else None, strength="auto")
    best = best_strength(comparison.strengths)
    assert all(row.score <= comparison.strengths[best].score for row in comparison.strengths.values())
    assert layers.strength == best > 0
    assert f"Of the strengths, {best:g} has the highest score" in comparison.verdict()


def test_auto_leaves_an_encoder_without_bias_as_it_is() -> None:
    torch.manual_seed(0)
    topics = torch.randn(60, 16)
    clouds = {code: topics + 0.1 * torch.randn(60, 16) for code in ("de", "en", "fr")}
    layers, comparison = fit_and_compare(clouds, strength="auto")
    assert layers.strength == 0 and comparison.after["search"].same_language_share < 0.4
    verdict = comparison.verdict()
    assert "Recommended: the model as it is; lsar, strength 0, which was used, changes nothing." in verdict
    assert "prefers the query's language little" in verdict


def test_a_fit_on_halves_says_how_sure_the_measures_are() -> None:
    _, comparison = fit_and_compare(translated())
    shares = [half.biases["search"].same_language_share for half in comparison.halves]
    assert max(abs(share - comparison.after["search"].same_language_share) for share in shares) < 0.1
    assert f"{100 * shares[0]:.1f} and {100 * shares[1]:.1f} of 100" in comparison.in_words()
    assert not fit_and_compare(translated(19), options=CalibrationOptions(min_texts=2))[1].halves


def test_usual_calibrations_have_maps_of_queries_where_there_are_queries() -> None:
    clouds = {code: torch.randn(60, 4) for code in ("en", "fr")}
    names = ["lsar", "shift", "shift coral"]
    only = [f"{name}, queries only" for name in names[:2]]
    assert list(usual_calibrations(clouds)) == [*names, *only]
    with_queries = usual_calibrations(clouds, clouds)
    assert list(with_queries) == [*names, *(f"{name}, queries apart" for name in names), *only]
    assert all((layers.query is not None) == (", queries" in name) for name, layers in with_queries.items())


@pytest.mark.parametrize(("languages", "has_lsar"), [(4, True), (5, False)])
def test_lsar_is_left_out_where_it_would_leave_nothing(languages: int, has_lsar: bool) -> None:
    clouds = {f"l{i}": torch.randn(60, 4) + torch.randn(4) for i in range(languages)}
    assert ("lsar" in usual_calibrations(clouds, clouds)) == has_lsar
    layers, comparison = fit_and_compare(clouds, steps=["shift"])
    assert layers.document.steps == ["shift"] and "shift coral" in comparison.rows
    assert any("lsar" in name for name in comparison.rows) == has_lsar
    if not has_lsar:
        with pytest.raises(ValueError, match="or the step shift"):
            fit_and_compare(clouds)
