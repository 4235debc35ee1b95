"""The options of `st-xlret calibrate`, for encoders and for stored vectors."""

from __future__ import annotations

from dataclasses import dataclass

from st_xlret.calibration.fit_options import (
    KEPT_BY_LSAR,
    KEPT_BY_OTHERS,
    KEPT_BY_QUERIES,
    MIN_JOINING_QUERIES,
    MIN_TEXTS,
    FitOptions,
    Strength,
)
from st_xlret.calibration.steps import STEPS
from st_xlret.options import option


@dataclass
class Arguments:
    """How to calibrate, and where the result goes."""

    _argument_group_name = "calibration"

    output: str = option(
        None, "Folder for the calibrated model or the map, with the report on its language bias."
    )
    overwrite: bool = option(False, "Replace a model or a map that is there.")
    steps: list[str] = option(
        ["lsar"],
        "In this order: lsar (minus the subspace in which the languages' means differ; needs no "
        "language), shift (minus the language's mean), coral (one covariance), scale (by the "
        "standard deviation), rotate (into the pivot), lir (minus the top principal component), "
        "to_pivot (documents moved to the pivot's mean).",
        STEPS,
    )
    queries: list[str] = option(
        [],
        "Questions without labels, for maps of queries: a folder in BEIR's layout, JSON lines, "
        "tables, or text files (questions.fr.txt). With --vectors, the address of their vectors. "
        f"With --queries_only and lsar, {MIN_JOINING_QUERIES} questions of a language are enough.",
    )
    qrels: str | None = option(
        None,
        "With --vectors and --queries: BEIR's or TREC's judgements. Half of the queries choose the "
        "strength.",
    )
    queries_only: bool = option(
        False, "Map queries alone: stored documents keep their vectors. For lsar and shift."
    )
    phrases: bool = option(
        True, "Phrases of weak languages join lsar of a model, for languages without texts."
    )
    strength: str = option(
        "auto",
        "How much is removed, from 0 to 1. auto takes the strength with the highest score without "
        "labels; 1 with rotate, and for documents in one language.",
    )
    keep_mean: float | None = option(
        None,
        f"Share of the mean of all languages to keep. By default {KEPT_BY_QUERIES} for queries "
        f"only, {KEPT_BY_LSAR} for lsar, {KEPT_BY_OTHERS} for shift, else as in the papers.",
    )
    pivot: str = option(
        "en", "The language into which rotate and to_pivot map, and of texts that name none."
    )
    pairs: list[str] = option([], "Parallel sentences with the pivot, for a closed-form rotate.")
    min_texts: int = option(MIN_TEXTS, "Fewest texts of a language that joins the fit.")
    seed: int = option(0, "Seed of the draw and of the rotation.")
    details: bool = option(False, "Print the other side, and the figures of each language, too.")

    @property
    def fit_options(self) -> FitOptions:
        """How to fit a sample, whatever it is from; its checks are those of `FitOptions.check`."""
        return FitOptions(
            steps=tuple(self.steps),
            queries_only=self.queries_only,
            pivot=self.pivot,
            keep_mean=self.keep_mean,
            min_texts=self.min_texts,
            seed=self.seed,
        )

    @property
    def strength_or_auto(self) -> Strength:
        """The strength as a number, or "auto"; another text is a `ValueError`."""
        return "auto" if self.strength == "auto" else float(self.strength)
