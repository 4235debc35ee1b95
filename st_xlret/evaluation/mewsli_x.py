"""Mewsli-X: retrieval of the entity that a mention refers to, among a million descriptions in 50 languages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tqdm.auto import tqdm

from st_xlret.data.reading.jsonl import DataError, read_jsonl
from st_xlret.data.retrieval.mentions import entity_text, mention_in_context, spans_of_sentences
from st_xlret.evaluation.retrieval.data import RetrievalData, TextCollection, find_file
from st_xlret.evaluation.retrieval.evaluator import RetrievalEvaluator

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

MewsliSplit = Literal["test", "dev"]

_LAYOUT = " of the Mewsli-X release (candidate_set_entities.jsonl, wikinews_mentions-{dev,test}.jsonl)"


class MewsliXEvaluator(RetrievalEvaluator):
    """mAP@20 of Mewsli-X: 15 000 mentions in 11 languages, 1 003 893 candidate entities in 50.

    The benchmark is part of XTREME-R (Ruder et al., 2021) and reported by MSM
    ([Zhang et al., 2023](https://arxiv.org/abs/2302.01626), Table 11). Each mention has one entity, so mAP@20 equals
    MRR@20. The average is the macro-average over the 11 languages of the mentions. Each entity is described in one
    language, drawn at random.

    A query is the mention followed by its sentence in which the mention is marked,
    `Smith: The verdict for { Smith } came.`. A candidate is the sentences of the description. Both are as in
    XTREME-R's baseline. The candidates take 0.5 GB of memory; their embeddings can come from a cache (`embed_corpus`).

    Metrics: `map_at_20` (primary), `mrr_at_100`, `recall_at_100` and `language_preference`, per
    mention language and averaged.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> model = SentenceTransformer(modules=[BoW(vocab=["taxi", "hotel"])], device="cpu")
        >>> corpus = TextCollection(["Q1", "Q2"], ["Hotel", "Taxi"], ["de", "fr"])
        >>> query = mention_in_context("Er nahm ein Taxi.", 12, 16, [(0, 17)])
        >>> query
        'Taxi: Er nahm ein { Taxi } .'
        >>> data = RetrievalData(corpus, TextCollection(["m"], [query], "de"), {"m": {"Q2": 1}})
        >>> MewsliXEvaluator({"all": data})(model)["mewsli-x_average_map_at_20"]
        1.0
    """

    benchmark = "mewsli-x"
    metrics = ("map_at_20", "mrr_at_100", "recall_at_100")
    task = "retrieval of the mentioned entity from one pool in all languages; one relevant entity a mention"
    direction = "mention in its sentence to entity descriptions"

    @classmethod
    def from_directory(
        cls,
        path: str | os.PathLike[str],
        languages: Sequence[str] | None = None,
        *,
        split: MewsliSplit = "test",
        **options: Any,
    ) -> MewsliXEvaluator:
        """Read the files that the scripts of the release write.

        Args:
            path: The folder of `candidate_set_entities.jsonl` and `wikinews_mentions-{split}.jsonl`.
            languages: Languages of the mentions; all candidates are kept. Default: all 11.
            split: `"test"` or `"dev"`.
            **options: The evaluator's own.

        Raises:
            FileNotFoundError: If a file is missing.
            ValueError: If the split is unknown, a language is not there, or a line is malformed.
        """
        show_progress = bool(options.get("show_progress_bar", False))
        data = read_mewsli_x(path, split=split, show_progress_bar=show_progress)
        if languages is not None:
            data = data.of_languages([languages] if isinstance(languages, str) else languages)
        return cls({"all": data}, split=split, **options)

    def _protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        return {
            **super()._protocol(model),
            "query": "mention: its sentence, the mention marked by braces",
            "candidate": "sentences of the entity's description, without its title",
            "average": "mean of the languages' means",
        }


def read_mewsli_x(
    path: str | os.PathLike[str], *, split: MewsliSplit = "test", show_progress_bar: bool = False
) -> RetrievalData:
    """Read the files of the release: one corpus of entities, and the mentions of a split.

    Each line is a JSON object; spans are `{"start", "end"}` in characters.

    - `candidate_set_entities.jsonl`: `entity_id` (Wikidata), `title`, `description`,
      `description_language`, `sentence_spans`.
    - `wikinews_mentions-{split}.jsonl`: an article `context` with `language`, `text`, `sentence_spans`, and its
      `mentions`, each with `example_id`, `entity_id` and `mention_span` (`start`, `end`, `text`). The download
      (`wikinews_mentions_no_text`) leaves `text` empty; the release's script fills it in.

    Raises:
        FileNotFoundError: If a file is missing.
        DataError: If a line lacks a field, a span does not fit its text, or an id occurs twice.
    """
    if split not in ("test", "dev"):
        raise ValueError(f"split must be 'test' or 'dev', got {split!r}.")
    entities = find_file(path, "candidate_set_entities.jsonl", instead=_LAYOUT)
    mentions = find_file(path, f"wikinews_mentions-{split}.jsonl", instead=_LAYOUT)
    corpus = _read_entities(entities, show_progress_bar)
    queries, qrels = _read_mentions(mentions)
    return RetrievalData(corpus, queries, qrels, str(mentions))


def _read_entities(file: Path, show_progress_bar: bool) -> TextCollection:
    line_of: dict[str, int] = {}
    texts, languages = [], []
    for number, record in tqdm(read_jsonl(file), desc="Entities", unit="", disable=not show_progress_bar):
        try:
            name, language = record["entity_id"], record["description_language"]
            text = entity_text(record)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"no entity: {_reason(error)}", file=str(file), line=number) from error
        if name in line_of:
            raise DataError(f"entity {name!r} occurs in line {line_of[name]} too", file=str(file), line=number)
        line_of[name] = number
        texts.append(text)
        languages.append(language)
    return TextCollection(list(line_of), texts, languages, source=str(file))


def _read_mentions(file: Path) -> tuple[TextCollection, dict[str, dict[str, int]]]:
    line_of: dict[str, int] = {}
    texts, languages = [], []
    qrels: dict[str, dict[str, int]] = {}
    for number, record in read_jsonl(file):
        try:
            context = record["context"]
            text, language = context["text"], context["language"]
            if not text:
                raise ValueError("context.text is empty: run the release's get-mewsli-x.sh, which fills the texts in")
            spans = spans_of_sentences(context, text)
            for mention in record["mentions"] if "mentions" in record else [record["mention"]]:
                name, span = mention["example_id"], mention["mention_span"]
                marked = text[span["start"] : span["end"]]
                if "text" in span and span["text"] != marked:
                    raise ValueError(f"mention {name!r} is {span['text']!r}, but the text has {marked!r} there")
                if name in line_of:
                    raise ValueError(f"mention {name!r} occurs in line {line_of[name]} too")
                query = mention_in_context(text, span["start"], span["end"], spans)
                entity = mention["entity_id"]
                line_of[name] = number
                texts.append(query)
                languages.append(language)
                qrels[name] = {entity: 1}
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"no mentions: {_reason(error)}", file=str(file), line=number) from error
    return TextCollection(list(line_of), texts, languages, source=str(file)), qrels


def _reason(error: Exception) -> str:
    return f"no field {error}" if isinstance(error, KeyError) else str(error)
