"""How a calibration is fitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from st_xlret.calibration.steps import OF_MEANS, STEPS

Strength: TypeAlias = float | Literal["auto"]
"""From 0, which leaves vectors as they are, to 1; or what scores highest without labels."""

MIN_TEXTS = 20
"""Fewest texts of a language whose mean joins a fit, by default."""

TEXTS_FOR_MEANS = 300
"""Texts of each language for steps that means determine, by default; more change little.

Texts for people name this number and the next: the docstrings of `calibrate` and
`VectorCalibration.fit`, and the guides.
"""

TEXTS_FOR_OTHER_STEPS = 1500
"""The same for steps that covariances or rotations determine."""

MIN_JOINING_QUERIES = 5
"""Fewest queries of a language that join a fit, where `FitOptions.joins_queries`."""

# Shares of the mean of all languages that are kept by default; the docstring of
# `VectorCalibration.fit` names them. With lsar on both sides it is small: where most documents are
# in one language, a quarter costs up to four points.
KEPT_BY_QUERIES = 0.4
KEPT_BY_LSAR = 0.05
KEPT_BY_OTHERS = 0.25

QUERY_STEPS = frozenset({"lsar", "shift"})
"""The steps that may map queries alone, while documents stay as they are."""

_OF_ROTATIONS = "'rotate' alone takes pairs; it has no maps of queries"


@dataclass(frozen=True)
class FitOptions:
    """How a calibration is fitted: arguments of `VectorCalibration.fit`, which describes them.

    From them follows what joins a fit, and what a sample needs for it.
    """

    steps: tuple[str, ...] = ("lsar",)
    queries_only: bool = False
    pivot: str = "en"
    keep_mean: float | None = None
    lsar_rank: int | None = None
    lir_components: int = 1
    min_texts: int = MIN_TEXTS
    adversarial: bool = True
    normalize: bool = True
    metric: str | None = None
    model: str | None = None
    seed: int = 0

    @property
    def is_lsar(self) -> bool:
        """Whether LSAR is the only step: then one map serves all languages, and phrases join."""
        return self.steps == ("lsar",)

    @property
    def rotates(self) -> bool:
        """Whether vectors are rotated, which is searched at one strength: by `"auto"`, at 1."""
        return "rotate" in self.steps

    @property
    def may_map_queries_alone(self) -> bool:
        """Whether the steps can: all are `QUERY_STEPS`."""
        return QUERY_STEPS.issuperset(self.steps)

    @property
    def joins_queries(self) -> bool:
        """Whether queries, of any language, join the fit of documents, which may be in one.

        Else queries in languages of the documents get maps of their own.
        """
        return self.is_lsar and self.queries_only

    @property
    def min_languages(self) -> int:
        """Fewest languages of a sample of documents, which a panel of others may join."""
        return 1 if self.joins_queries else 2

    @property
    def min_queries(self) -> int:
        """Fewest queries of a language that are taken from a sample."""
        return min(self.min_texts, MIN_JOINING_QUERIES) if self.joins_queries else self.min_texts

    @property
    def default_texts_per_language(self) -> int:
        """How many texts of each language are taken where the user does not say."""
        return TEXTS_FOR_MEANS if OF_MEANS.issuperset(self.steps) else TEXTS_FOR_OTHER_STEPS

    def for_encoder(self) -> FitOptions:
        """The same for vectors as an encoder gives them, whatever their lengths.

        The map becomes a module of the encoder, behind which lengths are as they were: it must be
        fitted on such vectors. Whoever fits for an encoder, to calibrate it or to report on it,
        fits by these options.
        """
        return replace(self, normalize=False, metric=None, model=None)

    def check(
        self, strength: Strength, *, has_queries: bool = False, has_pairs: bool = False
    ) -> None:
        """Refuse what cannot be fitted whatever the vectors, by a `ValueError`.

        That is no step, an unknown one or one twice; a strength out of [0, 1]; queries alone mapped
        by steps that would move documents; queries with a rotation, or pairs without one.
        """
        is_known = set(self.steps) <= set(STEPS)
        problem = None
        if not self.steps or not is_known or len(set(self.steps)) < len(self.steps):
            problem = f"take a sequence out of {', '.join(STEPS)}, each once"
        elif strength != "auto" and not 0 <= strength <= 1:
            problem = "a strength lies between 0 and 1"
        elif self.queries_only and not self.may_map_queries_alone:
            choice = " or ".join(sorted(QUERY_STEPS))
            problem = f"queries_only: they would move documents; take {choice}"
        elif (self.rotates and has_queries) or (has_pairs and not self.rotates):
            problem = _OF_ROTATIONS
        if problem is not None:
            raise ValueError(f"steps {self.steps!r} at strength {strength!r}: {problem}")
