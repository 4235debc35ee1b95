"""What an encoder of queries learns from: translations, or questions and documents to rank."""

from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.calibration import embed_by_language, sample_questions, sample_texts
from st_xlret.calibration.panels import panel_paragraphs, weak_language_phrases
from st_xlret.calibration.vectors import VectorCalibration
from st_xlret.columns import Role
from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.options import option
from st_xlret.training.data import PairOptions

_ENOUGH = 5  # queries of a language, for a map of their own


@dataclass
class QueryOptions:
    """The collection, and what queries learn from."""

    _argument_group_name = "data"

    documents: list[str] = option(
        [], "What is searched: JSON lines, folders of them, or a folder in BEIR's layout."
    )
    queries: list[str] = option(
        [], "Questions without labels: JSON lines, text files, a folder in BEIR's layout."
    )
    pairs: list[str] = option(
        [], "Translations: JSON lines, Moses, WikiMatrix, or two columns (X.en-fr.tsv)."
    )
    pivot: str = option("en", "The language that pairs translate from or into.")
    languages: list[str] = option(
        [], "Languages of documents, or of both sides of pairs, to keep. Default: all."
    )
    documents_per_language: int = option(
        1500, "Texts of the documents to rank, of each language, at most."
    )
    queries_per_language: int = option(300, "Queries of each language to learn from, at most.")
    pairs_per_language: int | None = option(
        None, "Translations of each language pair to learn from, at most."
    )
    evaluation_pairs: int = option(
        20, "Translations of each language pair to hold out: they measure queries."
    )

    def load_pairs(self, seed: int) -> tuple[Dataset | None, TatoebaEvaluator | None]:
        """Translations, and an evaluator of queries by those held out; None without any."""
        others = [*self.queries, *self.documents]
        if self.pairs and others:
            raise ValueError(f"--pairs or {others}: train twice, first from the translations alone")
        options = PairOptions(
            languages=self.languages,
            pairs=self.pairs,
            pairs_per_language=self.pairs_per_language,
            evaluation_pairs=self.evaluation_pairs,
        )
        return options.load_pairs(seed, "query")

    def load_documents(self, seed: int) -> dict[str, list[str]]:
        """Texts of the documents to rank, by language."""
        drawn = sample_texts(
            self.documents,
            languages=self.languages,
            texts_per_language=self.documents_per_language,
            min_texts=50,
            min_languages=1,
            seed=seed,
        )
        return {language: sample.texts for language, sample in drawn.items()}

    def load_queries(self, seed: int) -> dict[str, list[str]]:
        """Questions, by language; without any, sentences of the documents in their place."""
        if self.queries:
            return sample_questions(
                self.queries, None, texts_per_language=self.queries_per_language, seed=seed
            )
        drawn = sample_texts(
            self.documents,
            languages=self.languages,
            texts_per_language=self.queries_per_language,
            min_languages=1,
            unit="sentence",
            seed=seed,
        )
        return {language: sample.texts for language, sample in drawn.items()}


def numbered_queries(queries: dict[str, list[str]]) -> Dataset:
    """Queries as a data set, whose `label` is the number of a query, and so of its goal."""
    rows: list[dict[str, Any]] = []
    for language, texts in queries.items():
        for text in texts:
            rows.append({"query": text, "language": language, "label": len(rows)})
    return Dataset.from_list(rows)


def calibrated_queries(
    model: SentenceTransformer,
    queries: dict[str, list[str]],
    documents: dict[str, Tensor],
    precision: str,
) -> Tensor:
    """The vectors (n, d) of queries as `st-xlret calibrate --queries_only` maps them.

    It keeps less of the mean than a search by the map alone does: its student then finds more.
    """

    def embed(texts: dict[str, list[str]], role: Role = "query") -> dict[str, Tensor]:
        return embed_by_language(
            model, texts, role=role, precision=precision, show_progress_bar=True
        )

    vectors = embed(queries)
    phrases = embed(weak_language_phrases())
    joining = {language: rows for language, rows in vectors.items() if len(rows) >= _ENOUGH}
    if len(documents) == 1:
        documents = {**embed(panel_paragraphs(), "document"), **documents}
    calibration = VectorCalibration.fit(
        documents,
        queries=joining or None,
        phrases={"mul": torch.cat(list(phrases.values()))},
        queries_only=True,
        keep_mean=0.2,
        min_texts=min(len(rows) for rows in documents.values()),
    )
    everything = torch.cat(list(vectors.values()))
    return torch.from_numpy(calibration.transform(everything, "query"))
