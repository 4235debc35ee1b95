"""What calibrations do to the neighbours of a sample of texts, and which one is recommended, without labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.evaluation.language_bias import LanguageBias, measure_both, neighbours_kept
from st_xlret.evaluation.reporting.tables import markdown_table
from st_xlret.modules.calibration_layer import CalibrationLayer


@dataclass(frozen=True)
class Variant:
    """A calibration that is compared with others.

    Attributes:
        options: The options of `st-xlret calibrate` that choose it.
        documents: Its maps of documents; None for the model as it is.
        queries: Its maps of queries, if they are others.
    """

    options: str
    documents: CalibrationLayer | None = None
    queries: CalibrationLayer | None = None

    @property
    def needs_language(self) -> bool:
        """Whether the language of a text has to be known."""
        return self.documents is not None and not self.documents.language_agnostic


@dataclass(frozen=True)
class Measured:
    """A sample that the language bias is measured on.

    Attributes:
        documents: Language to (n, d) embeddings of texts as documents.
        queries: The same texts as queries; None where the model embeds them alike.
        ids: Language to (n,) ids of the documents that the texts are from.
        neighbours: How many neighbours to look at.
    """

    documents: Mapping[str, Tensor]
    queries: Mapping[str, Tensor] | None
    ids: Mapping[str, Tensor]
    neighbours: int

    def bias(self, variant: Variant) -> tuple[dict[str, LanguageBias], float]:
        """The language bias after a calibration, and the share of neighbours within a language that it keeps."""
        layer = variant.documents
        if layer is None:
            return measure_both(self.documents, self.queries, self.ids, neighbours=self.neighbours), 1.0
        asked = self.documents if self.queries is None else self.queries
        if layer.steps == ["to_pivot"]:  # documents go to the language of the queries, whichever it is

            def pool_for(language: str) -> dict[str, Tensor]:
                assert layer is not None
                back = layer.map_of(language)[1]
                return {code: layer.transform(rows, code) - back for code, rows in self.documents.items()}

            found = measure_both(self.documents, asked, self.ids, neighbours=self.neighbours, pool_for=pool_for)
            return found, neighbours_kept(self.documents, pool_for(next(iter(self.documents))))
        maps = variant.queries or layer
        documents = {code: layer.transform(rows, code) for code, rows in self.documents.items()}
        apart = self.queries is not None or variant.queries is not None
        queries = {code: maps.transform(rows, code) for code, rows in asked.items()} if apart else None
        found = measure_both(documents, queries, self.ids, neighbours=self.neighbours)
        return found, neighbours_kept(self.documents, documents)


def score_of(biases: Mapping[str, LanguageBias], kept: float) -> float:
    """The criterion without labels, from 0 to 1: the root of the share kept times the evenness of the languages.

    Evenness is 1 minus the imbalance, averaged over the search and the neighbours between documents.
    """
    imbalance = (biases["search"].imbalance + biases["documents"].imbalance) / 2
    return float(kept**0.5 * (1 - imbalance))


def compare(sample: Measured, variants: Sequence[Variant], chosen: Variant) -> dict[str, dict[str, LanguageBias]]:
    """Print what each calibration does to the neighbours of the sampled texts, and which one is recommended.

    Args:
        sample: The embeddings to measure on.
        variants: The calibrations. The first one is the model as it is.
        chosen: The one of them that will be saved.

    Returns:
        `"before"` and `"after"` -> what [`measure_both`][st_xlret.evaluation.language_bias.measure_both] finds, without
        a calibration and after the chosen one.
    """
    found, rows, scores = {}, [], {}
    for variant in tqdm(variants, desc="comparing calibrations", unit="calibration"):
        found[variant.options], kept = sample.bias(variant)
        biases, scores[variant.options] = found[variant.options], score_of(found[variant.options], kept)
        shares = [f"{100 * bias.same_language_share:.1f}" for bias in biases.values()]
        rows.append(
            [
                f"{variant.options} (saved)" if variant is chosen else variant.options,
                "yes" if variant.needs_language else "no",
                *(shares if sample.queries is not None else shares[:1]),
                f"{100 * kept:.1f}",
                f"{scores[variant.options]:.3f}",
            ]
        )
    header = ["calibration", "needs the language", *columns(sample.queries is not None), "neighbours kept (%)", "score"]
    print(f"\n{markdown_table(header, rows)}\n")
    before = found[variants[0].options]
    print(explain(before, sample.queries is not None))
    print(
        "'Kept' are the ten nearest neighbours within one language that stay. The score is the square root of the "
        "share kept times the evenness of the neighbours' languages. It needs no labels; higher is better."
    )
    best = max(variants, key=lambda variant: scores[variant.options])
    print(f"\nRecommended by the score: {_named(best)}.", end=" ")
    if best.needs_language:
        free = max((v for v in variants if not v.needs_language), key=lambda variant: scores[variant.options])
        print(f"If the language of a text is not always known: {_named(free)}.", end=" ")
    print("This is what is saved." if best is chosen else f"Saved is {_named(chosen)}.")
    if scores[chosen.options] < scores[variants[0].options]:
        print("warning: by the score the model was better as it is")
    return {"before": before, "after": found[chosen.options]}


def columns(apart: bool) -> list[str]:
    """The headers of the shares of own-language neighbours; `apart` if queries are embedded differently."""
    if not apart:
        return ["results in the own language (%)"]
    return ["results in the query's language (%)", "between documents (%)"]


def explain(biases: Mapping[str, LanguageBias], apart: bool) -> str:
    """What the shares mean, and what chance is."""
    bias = biases["search"]
    lines = [
        f"Each of {bias.texts} texts a language searches all of them, and its {bias.neighbours} nearest ones count, "
        f"without those from its own document. An encoder that does not see languages would find "
        f"{100 * bias.chance:.1f} % in the text's own language."
    ]
    if apart:
        lines.append(
            "The first share is of texts embedded as queries, as in search; 'between documents' is of texts "
            "embedded as documents, as in mining or clustering. Their prompts differ, and so do the shares."
        )
    return " ".join(lines)


def _named(variant: Variant) -> str:
    return "the model as it is" if variant.documents is None else variant.options
