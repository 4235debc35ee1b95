"""What calibrations do to the neighbours of texts, and which one is recommended, without labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.calibration.fit import CalibrationOptions, RoleCalibrations, fit_calibration, fit_role_calibrations
from st_xlret.evaluation import markdown_table
from st_xlret.evaluation.language_bias import LanguageBias, measure_both, neighbours_kept

TEXTS, NEIGHBOURS = 300, 20
AS_IT_IS = "as it is"

_COMPARED: tuple[tuple[tuple[str, ...], float], ...] = (
    (("lsar",), 1.0),
    (("lsar",), 0.75),
    (("shift",), 1.0),
    (("shift", "coral"), 1.0),
    (("to_pivot",), 1.0),
)
_TIE = 0.005
_BELOW_CHANCE = 0.01


@dataclass(frozen=True)
class Compared:
    """One row of a comparison.

    Attributes:
        calibration: The calibration; None for the model as it is.
        biases: What [`measure_both`][st_xlret.evaluation.language_bias.measure_both] finds after it.
        kept: Share of the ten nearest neighbours within a language that stay.
    """

    calibration: RoleCalibrations | None
    biases: dict[str, LanguageBias]
    kept: float

    @property
    def score(self) -> float:
        """The criterion without labels, from 0 to 1: the root of the share kept times the evenness of the languages.

        Evenness is 1 minus the imbalance, averaged over the search and the neighbours between documents.
        """
        imbalance = (self.biases["search"].imbalance + self.biases["documents"].imbalance) / 2
        return float(self.kept**0.5 * (1 - imbalance))

    @property
    def needs_language(self) -> bool:
        """Whether the language of a text has to be known."""
        return self.calibration is not None and not self.calibration.document.language_agnostic

    @property
    def overshoots(self) -> bool:
        """Whether results are in the query's language less often than by chance, by more than a point."""
        search = self.biases["search"]
        return search.same_language_share < search.chance - _BELOW_CHANCE


@dataclass(frozen=True)
class Comparison:
    """Calibrations side by side; `str(comparison)` is the table with its explanation and the verdict.

    Attributes:
        rows: Name -> what was measured. The first one is the model as it is.
        chosen: Name of the one that is used.
        roles_apart: Whether texts were embedded as queries, too.
        alignment: A table of how far apart the languages are after each step, for calibrations as in the CCP paper.
    """

    rows: dict[str, Compared]
    chosen: str
    roles_apart: bool
    alignment: str = ""

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

        Where the chosen calibration needs no language, those that need one are no alternative and are left out.
        """
        free = not self.rows[self.chosen].needs_language
        scores = {name: row.score for name, row in self.rows.items() if not (free and row.needs_language)}
        best = max(scores, key=lambda name: scores[name])
        return self.chosen if scores[best] <= scores[self.chosen] + _TIE else best

    def verdict(self) -> str:
        """Which calibration is recommended and why, in a sentence, and whether the chosen one overshoots."""
        best, row = self.recommended, self.rows[self.chosen]
        kind = "" if row.needs_language else " of the calibrations that need no language at search time"
        if best == self.chosen:
            text = f"Recommended: {best}, which was used: its score is the highest{kind}, or within {_TIE} of it."
        else:
            name = "the model as it is" if best == AS_IT_IS else best
            text = (
                f"Recommended: {name}: its score, {self.rows[best].score:.3f}, is the highest{kind}; {self.chosen}, "
                f"which was used, has {row.score:.3f}."
            )
        if row.overshoots:
            search = row.biases["search"]
            text += (
                f"\nwarning: {self.chosen} overshoots: {100 * search.same_language_share:.1f} % of the results are in "
                f"the query's language, and chance is {100 * search.chance:.1f} %. A lower strength removes less."
            )
        return text

    def table(self) -> str:
        """The measures of every row, in Markdown."""
        shares = share_columns(self.roles_apart)
        header, cells = ["calibration", "needs the language", *shares, "neighbours kept (%)", "score"], []
        for name, row in self.rows.items():
            found = [f"{100 * bias.same_language_share:.1f}" for bias in row.biases.values()][: len(shares)]
            found[0] += " (below chance)" if row.overshoots else ""
            mark = " (used)" if name == self.chosen else ""
            needs = "yes" if row.needs_language else "no"
            cells.append([f"{name}{mark}", needs, *found, f"{100 * row.kept:.1f}", f"{row.score:.3f}"])
        return markdown_table(header, cells)

    def __str__(self) -> str:
        note = (
            "'Kept' are the ten nearest neighbours within one language that stay. The score is the square root of the "
            "share kept times the evenness of the neighbours' languages. It needs no labels; higher is better."
        )
        stages = f"{self.alignment}\n\n" if self.alignment else ""
        return f"{stages}{self.table()}\n\n{explain(self.before, self.roles_apart)}\n{note}\n\n{self.verdict()}"


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
        queries: Language -> (n, d) embeddings of the same texts as queries, where the model embeds them differently.
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
        >>> layer = fit_calibration(clouds)
        >>> comparison = compare_calibrations({"lsar": RoleCalibrations(layer)}, clouds)
        >>> comparison.before["search"].same_language_share > comparison.after["search"].same_language_share
        True
    """
    size = min(texts, *(len(rows) for rows in documents.values()))
    documents = {code: rows[:size] for code, rows in documents.items()}
    queries = None if queries is None else {code: queries[code][:size] for code in documents}
    ids = None if ids is None else {code: ids[code][:size] for code in documents}
    neighbours = min(neighbours, size * len(documents) - 2)
    found = {}
    named = {AS_IT_IS: None, **calibrations}
    for name in tqdm(named, desc="comparing calibrations", unit="calibration", disable=not show_progress_bar):
        found[name] = _measured(named[name], documents, queries, {"ids": ids, "neighbours": neighbours})
    return Comparison(found, chosen or next(iter(calibrations)), queries is not None)


def usual_calibrations(
    documents: Mapping[str, Tensor],
    queries: Mapping[str, Tensor] | None = None,
    *,
    pivot: str = "en",
    options: CalibrationOptions | None = None,
    show_progress_bar: bool = False,
) -> dict[str, RoleCalibrations]:
    """Fit the calibrations that suit search: LSAR in full and in part, shift, shift and CORAL, and to the pivot.

    With embeddings of queries, those with maps of their own for queries are fitted as well. Of the options, `keep_mean`
    and `lsar_rank` keep their defaults.

    Returns:
        Name -> calibration.
    """
    plain = replace(options or CalibrationOptions(), keep_mean=None, lsar_rank=None)
    pivot = pivot if pivot in documents else next(iter(documents))
    jobs = [(steps, strength, False) for steps, strength in _COMPARED]
    if queries is not None:  # they stay as they are with to_pivot
        jobs += [(steps, strength, True) for steps, strength in _COMPARED if steps != ("to_pivot",)]
    fitted = {}
    for steps, strength, apart in tqdm(
        jobs, desc="fitting calibrations to compare with", unit="calibration", disable=not show_progress_bar
    ):
        how: Any = {"steps": steps, "pivot": pivot, "strength": strength, "options": plain}
        fitted[name_of(steps, strength, by_role=apart)] = (
            fit_role_calibrations(documents, queries, **how)
            if apart and queries is not None
            else RoleCalibrations(fit_calibration(documents, **how))
        )
    return fitted


def name_of(steps: Any, strength: float = 1.0, keep_mean: float | None = None, *, by_role: bool = False) -> str:
    """A calibration in words, such as "shift coral, strength 0.75, queries apart"."""
    parts = [" ".join(steps)]
    parts += [f"strength {strength:g}"] if strength != 1 else []
    parts += [f"keep_mean {keep_mean:g}"] if keep_mean is not None else []
    return ", ".join([*parts, "queries apart"] if by_role else parts)


def share_columns(roles_apart: bool) -> list[str]:
    """The headers of the shares of own-language neighbours."""
    if not roles_apart:
        return ["results in the own language (%)"]
    return ["results in the query's language (%)", "between documents (%)"]


def explain(biases: Mapping[str, LanguageBias], roles_apart: bool) -> str:
    """What the shares mean, and what chance is."""
    bias = biases["search"]
    lines = [
        f"Each of {bias.texts} texts a language searches all of them, and its {bias.neighbours} nearest ones count, "
        f"without those from its own document. An encoder that does not see languages would find "
        f"{100 * bias.chance:.1f} % in the text's own language."
    ]
    if roles_apart:
        lines.append(
            "The first share is of texts embedded as queries, as in search; 'between documents' is of texts "
            "embedded as documents, as in mining or clustering. Their prompts differ, and so do the shares."
        )
    return " ".join(lines)


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
    if layer.steps == ["to_pivot"]:  # documents go to the language of the queries, whichever it is

        def pool_for(language: str) -> dict[str, Tensor]:
            back = layer.map_of(language)[1]
            return {code: layer.transform(rows, code) - back for code, rows in documents.items()}

        found = measure_both(documents, asked, pool_for=pool_for, **how)
        return Compared(calibration, found, neighbours_kept(documents, pool_for(next(iter(documents)))))
    mapped = {code: layer.transform(rows, code) for code, rows in documents.items()}
    questions = None
    if queries is not None or calibration.query is not None:
        maps = calibration.query or layer
        questions = {code: maps.transform(rows, code) for code, rows in asked.items()}
    return Compared(calibration, measure_both(mapped, questions, **how), neighbours_kept(documents, mapped))
