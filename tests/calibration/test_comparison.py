"""The score, the verdict and the words of a comparison, from measures that are given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from st_xlret.calibration import RoleCalibrations, fit_role_calibrations
from st_xlret.calibration.comparison import AS_IT_IS, Compared, Comparison, within_a_language
from st_xlret.evaluation.language_bias import LanguageBias

CLOUDS = {code: torch.randn(60, 8, generator=torch.Generator().manual_seed(i)) for i, code in enumerate(("en", "fr"))}
BOTH = fit_role_calibrations(CLOUDS)
QUERIES = fit_role_calibrations(CLOUDS, queries_only=True)


def compared(calibration: RoleCalibrations | None, search: float, documents: float, kept: float = 1.0) -> Compared:
    """Shares of results in the language of a text, of four languages, for searches and between documents."""
    biases = {}
    for kind, own in (("search", search), ("documents", documents)):
        shares = np.full((4, 4), (1 - own) / 3)
        np.fill_diagonal(shares, own)
        biases[kind] = LanguageBias([*"abcd"], shares, np.full((4, 4), 0.25), np.zeros((4, 4)), 100, 20)
    return Compared(calibration, biases, kept)


def comparison(*rows: tuple[str, Compared]) -> Comparison:
    return Comparison(dict(rows), rows[-1][0], roles_apart=False)


def test_queries_alone_are_scored_by_the_search_and_both_sides_by_documents_too() -> None:
    assert compared(QUERIES, 0.35, 0.95, kept=0.81).score == pytest.approx(0.9 * (1 - 0.1))
    assert compared(BOTH, 0.35, 0.95, kept=0.81).score == pytest.approx(0.9 * (1 - (0.1 + 0.7) / 2))


@pytest.mark.parametrize(
    ("share", "after", "recommended", "little"),
    [
        (0.35, 0.27, AS_IT_IS, True),  # 0.90 against 0.88; with the documents, it would be 0.60 against 0.88
        (0.55, 0.50, AS_IT_IS, False),  # 0.70 against 0.67, and 2.2 times chance
        (0.55, 0.27, "lsar, queries only", False),
    ],
)
def test_the_verdict_on_queries_alone_compares_searches(
    share: float, after: float, recommended: str, little: bool
) -> None:
    before = compared(None, share, 0.95)
    found = comparison((AS_IT_IS, before), ("lsar, queries only", compared(QUERIES, after, 0.95, kept=0.8)))
    assert found.recommended == recommended
    assert ("prefers the query's language little" in found.verdict()) == little
    assert ("Recommended: the model as it is" in found.verdict()) == (recommended == AS_IT_IS)
    assert f"{before.scored(True):.3f} |" in found.table()


def test_a_calibration_of_documents_is_no_alternative_to_one_of_queries_alone() -> None:
    better = compared(BOTH, 0.25, 0.25)
    rows = (AS_IT_IS, compared(None, 0.7, 0.7)), ("lsar", better), ("lsar, queries only", compared(QUERIES, 0.5, 0.7))
    assert comparison(*rows).recommended == "lsar, queries only"
    assert comparison(rows[0], rows[2], rows[1]).recommended == "lsar"


@pytest.mark.parametrize("queries_only", [True, False])
def test_both_ways_are_in_the_words_and_in_the_table_of_strengths(queries_only: bool) -> None:
    ways = {
        True: {0.0: compared(QUERIES, 0.8, 0.8), 0.1: compared(QUERIES, 0.3, 0.8, 0.9)},
        False: {0.0: compared(BOTH, 0.8, 0.8), 0.1: compared(BOTH, 0.26, 0.26, 0.7)},
    }
    found = comparison((AS_IT_IS, compared(None, 0.8, 0.8)), ("lsar", ways[queries_only][0.1]))
    assert "instead" not in found.in_words()
    found = replace(found, strengths=ways[queries_only], other_way=ways[not queries_only])
    assert {
        True: "Both sides mapped instead, at the best strength, 0.1: 80.0 -> 26.0 of 100 results are in the "
        "query's language (lift 3.2 -> 1.0), and 70.0 of 100 neighbours within a language stay",
        False: "Queries alone mapped instead, at the best strength, 0.1: 80.0 -> 30.0 of 100 results are in the "
        "query's language (lift 3.2 -> 1.2), and 90.0 of 100 neighbours within a language stay",
    }[queries_only] in found.in_words()
    header, _, *rows = (line.replace(" ", "") for line in found.strengths_table().splitlines())
    assert header.index("bothsides:own") < header.index("queriesonly:own")
    assert rows == [
        "|0|80.0|100.0|0.450|80.0|100.0|0.450|",
        "|0.1|26.0|70.0|0.828(best)|30.0|90.0|0.901(best)|",
    ]


def test_few_texts_of_a_language_have_neighbours_too() -> None:
    few = {code: rows[:6] for code, rows in CLOUDS.items()}
    moved = {code: rows + torch.ones(8) for code, rows in few.items()}
    kept, closeness = within_a_language((few, few), (moved, moved))
    assert 0 < kept < 1 and 0 < closeness < 1
