"""What an encoder of queries learns from: translations, or questions and documents to rank."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from datasets import Dataset
from torch import Tensor

from st_xlret.calibration import sample_queries, sample_texts
from st_xlret.calibration.embedding import RoleEncoder
from st_xlret.calibration.fit_options import MIN_TEXTS, FitOptions
from st_xlret.calibration.panels import fit_with_panels
from st_xlret.data.documents import Unit
from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.options import option
from st_xlret.training.data import PairOptions

_DOCUMENTS = 1500  # of each language, at most, to rank
_QUERIES = 300  # of each language, at most, to learn from
_MOST_TIMES = 5  # that a question which was asked stands among those of others
_KEPT_MEAN = 0.2  # less than a search by the map alone keeps: the student then finds more


@dataclass(frozen=True)
class Questions:
    """Questions without labels, by language.

    Attributes:
        asked: Those of one's own users.
        further: Those of others.
    """

    asked: dict[str, list[str]]
    further: dict[str, list[str]]

    def by_language(self) -> dict[str, list[str]]:
        """All questions, those that were asked first: in this order, they have numbers."""
        both = {language: list(texts) for language, texts in self.asked.items()}
        for language, texts in self.further.items():
            both.setdefault(language, []).extend(texts)
        return both

    def rows(self) -> Dataset:
        """A data set, whose `label` is the number of a question in `by_language`.

        Questions that were asked are repeated, to be half of it if five times make a half.
        """
        rows: list[dict[str, Any]] = []
        asked: list[dict[str, Any]] = []
        for language, texts in self.by_language().items():
            count_asked = len(self.asked.get(language, []))
            for place, text in enumerate(texts):
                row = {"query": text, "language": language, "label": len(rows)}
                rows.append(row)
                if place < count_asked:
                    asked.append(row)
        if asked:
            others = len(rows) - len(asked)
            times = min(round(others / len(asked)), _MOST_TIMES)
            rows += asked * (times - 1)
        return Dataset.from_list(rows)


@dataclass
class QueryOptions:
    """The collection, and what queries learn from."""

    _argument_group_name = "data"

    documents: list[str] = option(
        [], "What is searched: JSON lines, folders of them, or a folder in BEIR's layout."
    )
    unit: str = option(
        "document",
        "What is ranked of documents: take what you search; text: a line or an element.",
        ["sentence", "text", "document"],
    )
    queries: list[str] = option(
        [],
        "Questions that were asked, without labels: JSON lines, tables, text files, a folder in "
        "BEIR's layout.",
    )
    further_queries: list[str] = option(
        [], "Questions of others, in any languages, likewise: half of a batch beside yours."
    )
    pairs: list[str] = option(
        [], "Translations: JSON lines, Moses, WikiMatrix, or two columns (X.en-fr.tsv)."
    )
    pivot: str = option("en", "The language that pairs translate from or into.")
    languages: list[str] = option(
        [], "Languages of documents, or of both sides of pairs, to keep. Default: all."
    )
    pairs_per_language: int | None = option(
        None, "Translations of each language pair to learn from, at most."
    )
    evaluation_pairs: int = option(
        20, "Translations of each language pair to hold out: they measure queries."
    )

    def __post_init__(self) -> None:
        """Refuse translations beside what would not be read then."""
        others = [*self.queries, *self.further_queries, *self.documents]
        if self.pairs and others:
            raise ValueError(f"--pairs or {others}: train twice, first from the translations alone")

    def pairs_and_evaluator(self, seed: int) -> tuple[Dataset | None, TatoebaEvaluator | None]:
        """Translations, and an evaluator of queries by those held out; None without any."""
        options = PairOptions(
            languages=self.languages,
            pairs=self.pairs,
            pairs_per_language=self.pairs_per_language,
            evaluation_pairs=self.evaluation_pairs,
        )
        return options.pairs_and_evaluator(seed, role="query", pivot=self.pivot)

    def load_documents(self, seed: int) -> dict[str, list[str]]:
        """Texts of the documents to rank, by language."""
        drawn = sample_texts(
            self.documents,
            languages=self.languages,
            texts_per_language=_DOCUMENTS,
            min_texts=MIN_TEXTS,
            min_languages=1,
            unit=cast("Unit", self.unit),  # one of its choices
            seed=seed,
        )
        return {language: sample.texts for language, sample in drawn.items()}

    def load_questions(self, seed: int) -> Questions:
        """Questions; without any, sentences of the documents in their place."""
        asked = self._load_questions(self.queries, seed)
        further = self._load_questions(self.further_queries, seed)
        if asked or further:
            return Questions(asked, further)
        drawn = sample_texts(
            self.documents,
            languages=self.languages,
            texts_per_language=_QUERIES,
            min_languages=1,
            unit="sentence",
            seed=seed,
        )
        return Questions({}, {language: sample.texts for language, sample in drawn.items()})

    def _load_questions(self, sources: list[str], seed: int) -> dict[str, list[str]]:
        """The questions of some sources by language; none without sources."""
        if not sources:
            return {}
        return sample_queries(sources, None, texts_per_language=_QUERIES, seed=seed)


def calibrated_query_vectors(
    encoder: RoleEncoder, queries: dict[str, list[str]], documents: dict[str, Tensor]
) -> Tensor:
    """The vectors (n, d) of queries, in their order, as `calibrate --queries_only` maps them.

    They are language after language, as `Questions.rows` numbers them; `documents` are vectors.
    The teacher is at strength 1, which taught most; a search by the map alone takes less.
    """
    options = FitOptions(queries_only=True, keep_mean=_KEPT_MEAN)
    vectors = encoder.embed(queries, "query")
    joining = {code: rows for code, rows in vectors.items() if len(rows) >= options.min_queries}
    calibration, _ = fit_with_panels(
        documents, options, 1.0, encoder=encoder, queries=joining, compare=False
    )
    everything = torch.cat(list(vectors.values()))
    return torch.from_numpy(calibration.transform(everything, "query"))
