"""Fit a calibration at the strength that is best without labels, and compare it with others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from st_xlret.calibration.bias import AS_IT_IS, NEIGHBOURS, TEXTS, BiasFigures, measure_calibrations
from st_xlret.calibration.calibration import QUERY_STEPS, VectorCalibration, as_array, check_steps, strict_unit_rows
from st_xlret.evaluation.tables import markdown_table, new_figure, plot_language_bias, save_figure
from st_xlret.files import write_json

STRENGTHS = tuple(tenth / 10 for tenth in range(11))
QUERIES = 100  # texts of each language that are embedded as queries, to compare
QUESTIONS = 5  # of a language, so that they join a fit
TIE, LITTLE, BELOW_CHANCE = 0.005, 2.0, 0.01


def fit_and_compare(
    documents: Mapping[str, ArrayLike],
    queries: Mapping[str, ArrayLike] | None = None,
    ids: Mapping[str, ArrayLike] | None = None,
    *,
    questions: Mapping[str, ArrayLike] | None = None,
    steps: Sequence[str] = ("lsar",),
    strength: float | Literal["auto"] = 1.0,
    queries_only: bool = False,
    texts: int = TEXTS,
    neighbours: int = NEIGHBOURS,
    **fit_options: Any,
) -> tuple[VectorCalibration, Comparison]:
    """Fit a calibration, take the strength with the highest score or the one given, and compare it with others.

    Both ways (both sides, and queries alone where the steps can) are measured at all strengths, in one pass. A
    calibration that needs the language is also compared with `shift coral`. A rotation is fitted once.

    `documents`, `queries`, `ids`, `texts` and `neighbours` are those of `measure_calibrations`; the other arguments are
    those of [`VectorCalibration.fit`][st_xlret.VectorCalibration], whose `queries` are called `questions` here.

    Example:
        >>> clouds = {code: np.random.normal(mean, 1, (60, 8)) for code, mean in (("en", 1), ("fr", -1))}
        >>> fitted, comparison = fit_and_compare(clouds, strength="auto")
        >>> fitted.strength > 0, comparison.chosen == comparison.recommended
        (True, True)
    """
    check_steps(steps, strength)
    first = 1.0 if strength == "auto" else strength
    is_lsar = list(steps) == ["lsar"]
    may_join = {"phrases": fit_options.get("phrases"), "questions": questions if queries_only else None}
    parts_joining = {name: part for name, part in may_join.items() if is_lsar and part}
    joining = {f"{name} {code}": rows for name, part in parts_joining.items() for code, rows in part.items()}
    mapped_apart = None if "questions" in parts_joining else questions
    options: Any = {**fit_options, "queries": mapped_apart, "steps": steps, "phrases": joining}
    ways = [queries_only, not queries_only] if {*steps} <= {*QUERY_STEPS} else [queries_only]
    strengths = () if "rotate" in steps else STRENGTHS
    usual = _usual_calibrations(documents, not is_lsar, options)
    fits: dict[tuple[bool, float], VectorCalibration] = {}  # whether they map queries alone, and strength -> fit
    for only in ways:
        fit = VectorCalibration.fit(documents, strength=first, queries_only=only, **options)
        fits |= {(only, at): fit.at(at) for at in strengths} | {(only, first): fit}
    measured = measure_calibrations(documents, {**usual, **fits}, queries, ids, texts=texts, neighbours=neighbours)
    at_strengths = {only: {at: measured[only, at] for at in strengths} for only in ways}
    amount = best_strength(at_strengths[queries_only]) if strength == "auto" else strength
    fitted = fits[queries_only, amount]
    words = [f"keep_mean {options['keep_mean']:g}"] if options.get("keep_mean") is not None else []
    words += [f"with {' and '.join(parts_joining)}"] if joining else []
    chosen = _calibration_name(steps, amount, *words, apart=mapped_apart is not None, queries_only=queries_only)
    figures = {name: measured[name] for name in (AS_IT_IS, *usual) if name != chosen}
    figures[chosen] = measured[queries_only, amount]
    reached: dict[str, int] = {}
    if joining:
        options["phrases"] = None
        without = VectorCalibration.fit(documents, strength=amount, queries_only=queries_only, **options)
        sides = [np.concatenate([as_array(rows)[:texts] for rows in side.values()]) for side in (joining, documents)]
        maps = {AS_IT_IS: fitted.at(0), f"without {' and '.join(parts_joining)}": without, chosen: fitted}
        reached = {name: _count_texts_reached(each, *sides) for name, each in maps.items()}
    conditions: Any = {"same_document": ids is not None, "roles_apart": queries is not None or mapped_apart is not None}
    return fitted, Comparison(figures, chosen, amount, at_strengths, reached=reached, **conditions)


def _count_texts_reached(calibration: VectorCalibration, asked: NDArray[Any], pool: NDArray[Any]) -> int:
    """How many different texts are among the ten nearest of all queries: few where queries resemble each other."""
    scores = calibration.transform(asked, "query") @ strict_unit_rows(calibration.transform(pool, "document")).T
    return len(np.unique(np.argpartition(-scores, min(10, len(pool) - 1), axis=1)[:, :10]))


def best_strength(figures: Mapping[float, BiasFigures]) -> float:
    """The strength with the highest score."""
    return max(figures, key=lambda strength: figures[strength].score())


def _calibration_name(steps: Sequence[str], strength: float, *words: str, apart: bool, queries_only: bool) -> str:
    """A calibration in words, such as "shift, strength 0.7, queries only"."""
    parts = [" ".join(steps), *[f"strength {strength:g}"] * (strength != 1), *words]
    return ", ".join([*parts, *["queries apart"] * apart, *["queries only"] * queries_only])


def _usual_calibrations(
    documents: Mapping[str, ArrayLike], with_languages: bool, options: Mapping[str, Any]
) -> dict[str, VectorCalibration]:
    """The calibrations that suit search, by their names, with the default of what they keep of the mean."""
    plain = {name: options[name] for name in ("min_texts", "normalize", "metric") if name in options}
    compared: list[tuple[str, ...]] = [("shift",), *[("shift", "coral")] * with_languages]
    if len(documents) <= np.shape(next(iter(documents.values())))[1]:  # with more languages lsar would leave nothing
        compared = [("lsar",), *compared]
    usual, questions = {}, [] if options["queries"] is None else [(options["queries"], False)]
    for steps in compared:
        for queries, only in ((None, False), *questions, (None, True)):
            if not only or {*steps} <= {*QUERY_STEPS}:
                name = _calibration_name(steps, 1.0, apart=queries is not None, queries_only=only)
                usual[name] = VectorCalibration.fit(documents, queries=queries, steps=steps, queries_only=only, **plain)
    return usual


@dataclass(frozen=True)
class Comparison:
    """Calibrations side by side; `str(comparison)` has the tables, what the chosen one does, and the verdict.

    Attributes:
        figures: Name -> what was measured. The first one is of the vectors as they are.
        chosen: Name of the one that the words are about, which has the `strength`.
        strengths: Whether queries alone are mapped -> strength -> what was measured.
        roles_apart: Whether searches and neighbours between documents differ.
        used: Whether the chosen one is used; a report alone uses none.
        judged: Strength -> recall@10 of the judged queries that choose, where there are labels.
        same_document: Whether neighbours from a text's own document were left out.
        reached: Calibration -> how many different texts the phrases or questions that join the fit find among ten.
    """

    figures: Mapping[str, BiasFigures]
    chosen: str
    strength: float
    strengths: Mapping[bool, Mapping[float, BiasFigures]]
    roles_apart: bool = False
    used: bool = True
    judged: Mapping[float, float] = field(default_factory=dict)
    same_document: bool = False
    reached: Mapping[str, int] = field(default_factory=dict)

    @property
    def before(self) -> BiasFigures:
        """The vectors as they are."""
        return self.figures[AS_IT_IS]

    @property
    def after(self) -> BiasFigures:
        """What the chosen calibration does."""
        return self.figures[self.chosen]

    @property
    def recommended(self) -> str:
        """Name of the calibration with the highest score; the chosen one where it, at any strength, is within 0.005.

        Calibrations that need the language, where the chosen one does not, and those that map another side are no
        alternatives. Labels decide between the chosen one and none, where there are labels.
        """
        if self.judged:
            return self.chosen if max(self.judged, key=lambda at: self.judged[at]) else AS_IT_IS
        scores = {
            name: self._score(name)
            for name, each in self.figures.items()
            if name == AS_IT_IS
            or (each.queries_only == self.after.queries_only and each.needs_language <= self.after.needs_language)
        }
        best = max(scores, key=lambda name: scores[name])
        ahead = self._best_strength_and_score()[1] > scores[best] + TIE
        return self.chosen if ahead or scores[best] <= scores[self.chosen] + TIE else best

    def _best_strength_and_score(self) -> tuple[float, float]:
        """The strength at which the chosen calibration has the highest score, and that score."""
        figures = self.strengths.get(self.after.queries_only) or {self.strength: self.after}
        strength = best_strength(figures)
        return strength, figures[strength].score()

    def _score(self, name: str) -> float:
        """The score; of the vectors as they are, by what the chosen calibration is scored by."""
        return self.figures[name].score(self.after.queries_only if name == AS_IT_IS else None)

    def calibrations_table(self) -> str:
        """The figures of every calibration, in Markdown."""
        header = ["calibration", "needs the language", "results in the query's language (%)"]
        header += ["between documents (%)"] * self.roles_apart + ["lift", "neighbours kept (%)", "score"]
        cells = []
        for name, each in self.figures.items():
            share = f"{100 * each.search.same_language_share:.1f}{' (below chance)' * _overshoots(each)}"
            between = [f"{100 * each.documents.same_language_share:.1f}"] * self.roles_apart
            used = " (used)" * (self.used and name == self.chosen)
            rest = [f"{each.search.lift:.1f}", f"{100 * each.neighbours_kept:.1f}", f"{self._score(name):.3f}"]
            cells.append([f"{name}{used}", "yes" if each.needs_language else "no", share, *between, *rest])
        return markdown_table(header, cells)

    def languages_table(self) -> str:
        """How often each language finds itself, before and after, in Markdown."""
        before, after = self.before.search, self.after.search
        cells = []
        diagonals = (np.diag(each) for each in (before.shares, after.shares, before.expected))
        for code, *shares, chance in zip(before.languages, *diagonals, strict=True):
            lifts = [f"{share / (chance or np.nan):.1f}" for share in shares]
            cells.append([code, *(f"{100 * share:.1f}" for share in (*shares, chance)), *lifts])
        return markdown_table(["language", "before (%)", "after (%)", "chance (%)", "lift before", "lift after"], cells)

    def strengths_table(self) -> str:
        """What each strength does to both sides and to queries alone, in Markdown: every second one, and the best."""
        ways = {only: self.strengths[only] for only in (False, True) if self.strengths.get(only)}
        best = {only: best_strength(figures) for only, figures in ways.items()}
        sides = ["queries only" if only else "both sides" for only in ways]
        header = [f"{side}: {what}" for side in sides for what in ("own language (%)", "kept (%)", "score")]
        cells = []
        for strength in sorted({*STRENGTHS[::2], *best.values()}) if ways else ():
            cells.append([f"{strength:g}"])
            for only, figures in ways.items():
                each, mark = figures[strength], " (best)" * (strength == best[only])
                share = 100 * each.search.same_language_share
                cells[-1] += [f"{share:.1f}", f"{100 * each.neighbours_kept:.1f}", f"{each.score():.3f}{mark}"]
        return markdown_table(["strength", *header], cells) if cells else ""

    def verdict(self) -> str:
        """Which calibration is recommended and why, and whether the chosen one overshoots."""
        best, used = self.recommended, ", which was used" * self.used
        is_raw = best == AS_IT_IS or (best == self.chosen and self.strength == 0)
        if self.judged:
            strength = max(self.judged, key=lambda at: self.judged[at])
            what = f"the strength {strength:g}" if strength else "the vectors as they are"
            recalls = [f"{100 * self.judged[at]:.1f}" for at in (strength, 0.0, self.strength)]
            lines = [
                f"Recommended: {what}, by the judged queries: recall@10 of the half that chooses is {recalls[0]}, and "
                f"{recalls[1]} as it is."
            ]
            if strength != self.strength:
                lines[0] += f" The strength {self.strength:g}, which was used, has {recalls[2]}."
        else:
            kind = "maps of queries alone" if self.after.queries_only else "maps of both sides"
            kind += "" if self.after.needs_language else " that need no language"
            (strength, highest), reached = self._best_strength_and_score(), self._score(best)
            what = "the vectors as they are" if is_raw else best
            is_ahead = best == self.chosen and highest > reached + TIE
            if is_ahead:
                what, reached = f"the strength {strength:g}", highest
            lines = [f"Recommended: {what}: of {kind}, its score, {reached:.3f}, is within {TIE} of the highest."]
            if best != self.chosen or is_ahead:
                lines[0] += f" {self.chosen}{used}{',' * self.used} has {self._score(self.chosen):.3f}."
            if is_raw:
                little = "The encoder prefers the query's language little. " * (self.before.search.lift < LITTLE)
                lines.append(
                    f"{little}What a calibration gains across languages is less than what it changes within one; "
                    "calibrate if results in other languages matter more."
                )
            if self.strengths.get(self.after.queries_only):
                lines += [f"Of the strengths, {strength:g} has the highest score without labels, {highest:.3f} (auto)."]
        if self.strength and _overshoots(self.after):
            search = self.after.search
            lines.append(
                f"warning: {self.chosen} overshoots: {100 * search.same_language_share:.1f} % of the results are in "
                f"the query's language, and chance is {100 * search.chance:.1f} %. A lower strength removes less."
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        before, after = self.before.search, self.after.search
        apart = " The first share is of texts embedded as queries, the second between texts embedded as documents."
        words = (
            f"Each text searches a pool with {before.texts} texts of each language; its {before.neighbours} nearest "
            f"ones count, without {'those of its own document' if self.same_document else 'itself'}. Lift is the share "
            "in the query's language over chance. 'Kept' are the ten nearest neighbours within one language that stay. "
            "The score is the root of the share kept times the evenness of the neighbours' languages."
            f"{apart * self.roles_apart}\n\n"
            f"Search over all languages: {100 * before.same_language_share:.1f} of 100 results are in the query's "
            f"language before and {100 * after.same_language_share:.1f} after (chance: {100 * after.chance:.1f}; lift "
            f"{before.lift:.1f} -> {after.lift:.1f}).\n"
            f"Search within a language: {100 * self.after.neighbours_kept:.1f} of 100 neighbours stay."
        )
        if self.reached:
            counts = ", ".join(f"{count} {name}" for name, count in self.reached.items())
            words += f"\nDifferent texts that the phrases or questions which joined the fit find among ten: {counts}."
        parts = [self.languages_table(), self.strengths_table(), self.calibrations_table(), words, self.verdict()]
        return "\n\n".join(filter(None, parts))

    def as_json(self) -> dict[str, Any]:
        """The language bias before and after, and the figures of each strength, in JSON's types."""
        rows = [
            {
                "strength": strength,
                "neighbours_kept": each.neighbours_kept,
                "same_language_share": each.search.same_language_share,
                "chance": each.search.chance,
                "score": each.score(),
            }
            for strength, each in self.strengths.get(self.after.queries_only, {}).items()
        ]
        return {"before": self.before.as_json(), "after": self.after.as_json()} | ({"strengths": rows} if rows else {})

    def write(self, folder: str | os.PathLike[str], **more: Any) -> None:
        """Write `language_bias.json`, with entries `more`, and pictures into a folder that is there."""
        report, path = self.as_json(), Path(folder)
        for when, each in (("before", self.before), ("after", self.after)):
            plot_language_bias(each.search.languages, each.search.shares, path / f"language_bias_{when}.png")
        if "strengths" in report:
            _plot_strengths(report["strengths"], path / "strength.png")
        write_json(path / "language_bias.json", report | more)


def _overshoots(figures: BiasFigures) -> bool:
    """Whether results are in the query's language less often than by chance, by more than a point."""
    return figures.search.same_language_share < figures.search.chance - BELOW_CHANCE


def _plot_strengths(rows: Sequence[Mapping[str, float]], path: Path) -> None:
    """Draw what a calibration keeps within a language against what it finds in others, a point for each strength."""
    if (figure := new_figure(path, 6, 4.5)) is None:
        return
    axis = figure.subplots()
    points = [(100 * row["neighbours_kept"], 100 * (1 - row["same_language_share"])) for row in rows]
    axis.plot(*zip(*points, strict=True), marker="o")
    for row, point in zip(rows, points, strict=True):
        axis.annotate(f"{row['strength']:g}", point, xytext=(5, 5), textcoords="offset points", fontsize="small")
    axis.axhline(100 * (1 - rows[0]["chance"]), linestyle="--", color="grey", label="without language bias")
    axis.set(xlabel="neighbours kept within a language (%)", ylabel="results in other languages (%)", title="strength")
    axis.invert_xaxis()  # from the vectors as they are, at the left
    axis.grid(alpha=0.3)
    axis.legend(loc="lower right")
    save_figure(figure, path)
