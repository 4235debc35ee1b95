"""What calibrations do to the neighbours of texts, and which one is recommended, without labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.calibration.fit import RoleCalibrations
from st_xlret.evaluation import markdown_table
from st_xlret.evaluation.language_bias import LanguageBias, measure_both
from st_xlret.search import top_k, unit_rows

TEXTS, QUERIES, NEIGHBOURS = 300, 100, 20
AS_IT_IS = "as it is"

Sides = tuple[Mapping[str, Tensor], Mapping[str, Tensor]]
_TIE = 0.005
_BELOW_CHANCE = 0.01
_LITTLE = 2.0  # times chance
_NEARLY_AS_CLOSE = 0.95


@dataclass(frozen=True)
class Compared:
    """One row of a comparison.

    Attributes:
        calibration: The calibration; None for the model as it is.
        biases: What [`measure_both`][st_xlret.evaluation.language_bias.measure_both] finds after it.
        kept: Share of the ten nearest neighbours within a language that stay.
        closeness: How much closer than an arbitrary text of the language the ten nearest are, by the embeddings as they
            are; 1 before the calibration.
    """

    calibration: RoleCalibrations | None
    biases: dict[str, LanguageBias]
    kept: float
    closeness: float = 1.0

    @property
    def score(self) -> float:
        """The criterion without labels, from 0 to 1: the root of the share kept times the evenness of the languages.

        Evenness is 1 minus the imbalance, averaged over the search and the neighbours between documents; of the search
        alone where documents stay as they are.
        """
        return self.scored(self.queries_only)

    def scored(self, queries_only: bool) -> float:
        """The score as of a calibration of queries alone, or of one of both sides."""
        counted = ["search"] if queries_only else ["search", "documents"]
        imbalance = sum(self.biases[kind].imbalance for kind in counted) / len(counted)
        return float(self.kept**0.5 * (1 - imbalance))

    @property
    def needs_language(self) -> bool:
        """Whether the language of a text has to be known."""
        return self.calibration is not None and not self.calibration.document.language_agnostic

    @property
    def queries_only(self) -> bool:
        """Whether documents stay as they are."""
        return self.calibration is not None and self.calibration.queries_only

    @property
    def lift(self) -> float:
        """How many times more often than by chance results are in the query's language."""
        return self.biases["search"].same_language_share / (self.biases["search"].chance or np.nan)

    @property
    def overshoots(self) -> bool:
        """Whether results are in the query's language less often than by chance, by more than a point."""
        search = self.biases["search"]
        return search.same_language_share < search.chance - _BELOW_CHANCE

    @property
    def how_close(self) -> str:
        """In words, how close the neighbours within a language are that replace others."""
        return "nearly as close" if self.closeness >= _NEARLY_AS_CLOSE else "less close"

    def as_json(self) -> dict[str, float]:
        """The two sides of the trade-off and the score, in JSON's types."""
        search = self.biases["search"]
        return {
            "neighbours_kept": self.kept,
            "same_language_share": search.same_language_share,
            "chance": search.chance,
            "score": self.score,
        }


@dataclass(frozen=True)
class Comparison:
    """Calibrations side by side; `str(comparison)` is the table with its explanation and the verdict.

    Attributes:
        rows: Name -> what was measured. The first one is the model as it is.
        chosen: Name of the one that the words are about.
        roles_apart: Whether texts were embedded as queries, too.
        used: Whether the chosen one is used; a report alone uses none.
        strengths: The chosen one at other strengths, see [`compare_strengths`][st_xlret.calibration.compare_strengths].
        scores: Scores that 90, 50 and 10 % of the results pass before the chosen calibration, and after it.
        halves: The chosen one fitted on one half of the texts and measured on the other, both ways.
        other_way: Its steps at all strengths the other way: for queries alone where the chosen one maps both sides, and
            for both where it maps queries alone.
    """

    rows: dict[str, Compared]
    chosen: str
    roles_apart: bool
    used: bool = True
    strengths: Mapping[float, Compared] = field(default_factory=dict)
    halves: Sequence[Compared] = ()
    scores: Sequence[tuple[float, float]] = ()
    other_way: Mapping[float, Compared] = field(default_factory=dict)

    @property
    def before(self) -> dict[str, LanguageBias]:
        """The language bias of the model as it is."""
        return self.rows[AS_IT_IS].biases

    @property
    def after(self) -> dict[str, LanguageBias]:
        """The language bias after the chosen calibration."""
        return self.rows[self.chosen].biases

    @property
    def recommended(self) -> str:
        """Name of the row with the highest score; the chosen one where no other is better by 0.005.

        Where the chosen calibration needs no language, those that need one are no alternative and are left out. So are
        those that change documents where the chosen one leaves them as they are, and the other way round.
        """
        chosen = self.rows[self.chosen]
        scores = {
            name: self._score(name)
            for name, row in self.rows.items()
            if (chosen.needs_language or not row.needs_language)
            and (AS_IT_IS in (name, self.chosen) or row.queries_only == chosen.queries_only)
        }
        best = max(scores, key=lambda name: scores[name])
        return self.chosen if scores[best] <= scores[self.chosen] + _TIE else best

    def _score(self, name: str) -> float:
        """The score of a row; of the model as it is, by what the chosen calibration is scored by."""
        row = self.rows[name]
        return row.scored(self.rows[self.chosen].queries_only) if name == AS_IT_IS else row.score

    def verdict(self) -> str:
        """Which calibration is recommended and why, and whether the chosen one overshoots."""
        best, row = self.recommended, self.rows[self.chosen]
        kind = "" if row.needs_language else " of the calibrations that need no language at search time"
        used = ", which was used" if self.used else ""
        changes_nothing = row.calibration is not None and row.calibration.strength == 0
        if best == self.chosen and changes_nothing:
            lines = [f"Recommended: the model as it is; {best}{used}{',' * self.used} changes nothing."]
        elif best == self.chosen:
            lines = [f"Recommended: {best}{used}: its score is the highest{kind}, or within {_TIE} of it."]
        else:
            name = "the model as it is" if best == AS_IT_IS else best
            lines = [
                f"Recommended: {name}: its score, {self._score(best):.3f}, is the highest{kind}; {self.chosen}"
                f"{used}{',' * self.used} has {row.score:.3f}."
            ]
        if best == AS_IT_IS or (best == self.chosen and changes_nothing):
            little = "The encoder prefers the query's language little. " if self.rows[AS_IT_IS].lift < _LITTLE else ""
            lines.append(
                f"{little}What a calibration gains across languages is less than what it changes within one; calibrate "
                "if results in other languages matter more."
            )
        if self.strengths:
            strength = best_strength(self.strengths)
            score = self.strengths[strength].score
            lines.append(
                f"Of the strengths, {strength:g} has the highest score without labels, {score:.3f} (--strength auto)."
            )
        if row.overshoots:
            search = row.biases["search"]
            lines.append(
                f"warning: {self.chosen} overshoots: {100 * search.same_language_share:.1f} % of the results are in "
                f"the query's language, and chance is {100 * search.chance:.1f} %. A lower strength removes less."
            )
        return "\n".join(lines)

    def in_words(self) -> str:
        """What the chosen calibration does to a search over all languages, and to one within a language."""
        before, row = self.rows[AS_IT_IS], self.rows[self.chosen]
        own = [100 * found.biases["search"].same_language_share for found in (before, row)]
        sure = ""
        if self.halves:
            shares = [f"{100 * half.biases['search'].same_language_share:.1f}" for half in self.halves]
            sure = f"\nFitted on one half of the texts and measured on the other: {' and '.join(shares)} of 100."
        scores = ""
        if self.scores:
            scores = (
                "\nScores change. A threshold of before, and the one that as many of the "
                f"{before.biases['search'].neighbours} nearest in all languages pass (cosine; within one "
                f"language it is lower): {', '.join(f'{old:.2f} -> {new:.2f}' for old, new in self.scores)}."
            )
        other = ""
        if self.other_way:
            strength = best_strength(self.other_way)
            found = self.other_way[strength]
            share = 100 * found.biases["search"].same_language_share
            other = (
                f"\n{'Both sides' if row.queries_only else 'Queries alone'} mapped instead, at the best strength, "
                f"{strength:g}: {own[0]:.1f} -> {share:.1f} of 100 results are in the query's language (lift "
                f"{before.lift:.1f} -> {found.lift:.1f}), and {100 * found.kept:.1f} of 100 neighbours within a "
                f"language stay, the others {found.how_close} ({100 * found.closeness:.1f} %)."
            )
        return (
            f"Search over all languages: {own[0]:.1f} of 100 results are in the query's language before and "
            f"{own[1]:.1f} after (chance: {100 * row.biases['search'].chance:.1f}; lift {before.lift:.1f} -> "
            f"{row.lift:.1f}). In other languages: {100 - own[0]:.1f} -> {100 - own[1]:.1f}.{sure}\n"
            f"Search within a language: {100 * row.kept:.1f} of 100 neighbours stay, and those that replace the others "
            f"are {row.how_close}: the ten nearest keep {100 * row.closeness:.1f} % of their closeness.{other}{scores}"
        )

    def strengths_table(self) -> str:
        """What each strength does to both sides and to queries alone, in Markdown: every second one, and the best."""
        ways = [self.strengths, self.other_way]
        both, alone = ways[::-1] if self.rows[self.chosen].queries_only else ways
        best = [best_strength(way) for way in (both, alone)]
        measures = ["own language (%)", "kept (%)", "score"]
        header = ["strength", *(f"{way}: {measure}" for way in ("both sides", "queries only") for measure in measures)]
        cells = []
        for strength in sorted({*list(both)[::2], *best}):
            cells.append([f"{strength:g}"])
            for way, highest in zip((both, alone), best, strict=True):
                row = way[strength]
                share = 100 * row.biases["search"].same_language_share
                mark = " (best)" if strength == highest else ""
                cells[-1] += [f"{share:.1f}", f"{100 * row.kept:.1f}", f"{row.score:.3f}{mark}"]
        return markdown_table(header, cells)

    def table(self) -> str:
        """The measures of every row, in Markdown."""
        shares = ["results in the query's language (%)", *["between documents (%)"] * self.roles_apart]
        header, cells = ["calibration", "needs the language", *shares, "lift", "neighbours kept (%)", "score"], []
        for name, row in self.rows.items():
            found = [f"{100 * bias.same_language_share:.1f}" for bias in row.biases.values()][: len(shares)]
            found[0] += " (below chance)" if row.overshoots else ""
            mark = " (used)" if self.used and name == self.chosen else ""
            needs = "yes" if row.needs_language else "no"
            rest = [f"{row.lift:.1f}", f"{100 * row.kept:.1f}", f"{self._score(name):.3f}"]
            cells.append([f"{name}{mark}", needs, *found, *rest])
        return markdown_table(header, cells)

    def __str__(self) -> str:
        bias = self.before["search"]
        apart = (
            " The first share is of texts embedded as queries, as in search; 'between documents' is of texts embedded "
            "as documents, as in mining or clustering. Their prompts differ, and so do the shares."
        )
        note = (
            f"Each text searches a pool with {bias.texts} texts of each language, and its "
            f"{bias.neighbours} nearest ones count, without those from its own document. An encoder that does not see "
            f"languages would find {100 * bias.chance:.1f} % in the text's own language.{apart * self.roles_apart}\n"
            "Lift is the share in the query's language over chance. 'Kept' are the ten nearest neighbours within one "
            "language that stay. The score is the square root of the share kept times the evenness of the neighbours' "
            "languages. It needs no labels; higher is better."
        )
        return "\n\n".join([self.table(), note, self.in_words(), self.verdict()])


def best_strength(rows: Mapping[float, Compared]) -> float:
    """The strength with the highest score."""
    return max(rows, key=lambda amount: rows[amount].score)


def compare_calibrations(
    calibrations: Mapping[str, RoleCalibrations],
    documents: Mapping[str, Tensor],
    queries: Mapping[str, Tensor] | None = None,
    ids: Mapping[str, Tensor] | None = None,
    *,
    chosen: str | None = None,
    texts: int = TEXTS,
    neighbours: int = NEIGHBOURS,
    show_progress_bar: bool = False,
) -> Comparison:
    """Measure what calibrations do to the language bias of embeddings, and to the neighbours within a language.

    Args:
        calibrations: Name -> calibration, such as `usual_calibrations` fits. The embeddings as they are come first by
            themselves.
        documents: Language -> (n, d) embeddings of texts as documents.
        queries: Language -> (m, d) embeddings of the first of these texts as queries, where the model embeds them
            differently.
        ids: Language -> (n,) numbers of the documents that the texts are from. Neighbours from a text's own document do
            not count.
        chosen: The calibration that is used. Default: the first one.
        texts: Texts of each language that are looked at; the first ones.
        neighbours: Nearest neighbours to look at.
        show_progress_bar: Show a progress bar over the calibrations.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> clouds = {"en": torch.randn(60, 8) + 1, "fr": torch.randn(60, 8) - 1}
        >>> from st_xlret.calibration import fit_calibration
        >>> layer = fit_calibration(clouds)
        >>> comparison = compare_calibrations({"lsar": RoleCalibrations(layer)}, clouds)
        >>> comparison.before["search"].same_language_share > comparison.after["search"].same_language_share
        True
    """
    size = min(texts, *map(len, documents.values()))
    documents = {code: rows[:size] for code, rows in documents.items()}
    if queries is not None:
        asked = min(size, *(len(queries[code]) for code in documents))
        queries = {code: queries[code][:asked] for code in documents}
    ids = None if ids is None else {code: ids[code][:size] for code in documents}
    neighbours = min(neighbours, size * len(documents) - 2)
    found = {}
    named = {AS_IT_IS: None, **calibrations}
    for name in tqdm(named, desc="comparing calibrations", unit="calibration", disable=not show_progress_bar):
        found[name] = _measured(named[name], documents, queries, {"ids": ids, "neighbours": neighbours})
    chosen = chosen or next(iter(calibrations))
    scores: Any = ()
    if chosen in calibrations:
        scores = translate_scores(calibrations[chosen], queries or documents, documents, neighbours)
    return Comparison(found, chosen, queries is not None, scores=scores)


def _measured(
    calibration: RoleCalibrations | None,
    documents: Mapping[str, Tensor],
    queries: Mapping[str, Tensor] | None,
    how: dict[str, Any],
) -> Compared:
    if calibration is None:
        return Compared(None, measure_both(documents, queries, **how), 1.0)
    layer = calibration.document
    asked = documents if queries is None else queries
    mapped = {code: layer.transform(rows, code) for code, rows in documents.items()}
    questions = None
    if queries is not None or calibration.query is not None:
        maps = calibration.query or layer
        questions = {code: maps.transform(rows, code) for code, rows in asked.items()}
    before, after = (documents, documents), (mapped, mapped)
    if calibration.queries_only and questions is not None:
        before, after = (asked, documents), (questions, mapped)
    return Compared(calibration, measure_both(mapped, questions, **how), *within_a_language(before, after))


def within_a_language(before: Sides, after: Sides, *, neighbours: int = 10) -> tuple[float, float]:
    """What a calibration leaves of the nearest neighbours within a language, means over all texts.

    Args:
        before: Queries and documents, language -> (m, d) and (n, d), whose first m are the same texts: a text is no
            neighbour of itself.
        after: The same as the calibration maps them.
        neighbours: How many neighbours to look at; at most half of the other texts.

    Returns:
        `kept` and `closeness`, see `Compared`.
    """
    kept, closeness = [], []
    for code in before[0]:
        scores, mapped = (
            unit_rows(queries[code]) @ unit_rows(documents[code]).T for queries, documents in (before, after)
        )
        k = min(neighbours, scores.shape[1] // 2)
        arbitrary = (scores.sum() - scores.trace()) / (scores.numel() - len(scores))
        found = [side.clone().fill_diagonal_(-torch.inf).topk(k).indices for side in (scores, mapped)]
        close = [scores.gather(1, rows).mean() - arbitrary for rows in found]
        kept.append((found[0][:, :, None] == found[1][:, None, :]).any(dim=2).float().mean())
        closeness.append(close[1] / close[0].clamp(min=1e-6))
    return float(torch.stack(kept).mean()), float(torch.stack(closeness).mean())


def translate_scores(
    calibration: RoleCalibrations, queries: Mapping[str, Tensor], documents: Mapping[str, Tensor], neighbours: int
) -> list[tuple[float, float]]:
    """Which score after a calibration as many results pass as pass a score before it.

    Args:
        calibration: The calibration.
        queries: Language -> (m, d) embeddings of texts as queries.
        documents: Language -> (n, d), whose first m are the same texts; a text is no result of its own.
        neighbours: Nearest neighbours to look at.

    Returns:
        `(before, after)` for scores that 90, 50 and 10 % of the results pass.
    """
    maps = calibration.query or calibration.document
    asked = {code: maps.transform(rows, code) for code, rows in queries.items()}
    mapped = {code: calibration.document.transform(rows, code) for code, rows in documents.items()}
    shares = torch.tensor([0.1, 0.5, 0.9])
    places = torch.arange(sum(map(len, documents.values()))).split([*map(len, documents.values())])
    own = torch.cat([rows[: len(queries[code])] for code, rows in zip(documents, places, strict=True)])
    columns = []
    for sides in ((queries, documents), (asked, mapped)):
        left, right = (unit_rows(torch.cat(list(side.values()))) for side in sides)
        scores, rows = top_k(left, right, min(neighbours + 1, len(right)))
        others = rows != own[:, None]
        columns.append(scores[others].quantile(shares).tolist())
    return list(zip(*columns, strict=True))
