"""Mewsli-X: retrieval of the entity that a mention refers to, among a million descriptions in 50 languages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from sentence_transformers import SentenceTransformer
from tqdm.auto import tqdm

from st_xlret.data.lines import DataError, read_jsonl
from st_xlret.data.question_formats import entity_text, mention_in_context, spans_of_sentences
from st_xlret.evaluation.retrieval import Columns, RetrievalData, RetrievalEvaluator, TextCollection, find_file

MewsliSplit = Literal["test", "dev"]

_LAYOUT = " of the Mewsli-X release (candidate_set_entities.jsonl, wikinews_mentions-{dev,test}.jsonl)"


class MewsliXEvaluator(RetrievalEvaluator):
    """mAP@20 of Mewsli-X: 15 000 mentions in 11 languages, 1 003 893 candidate entities in 50.

    The benchmark is part of XTREME-R (Ruder et al., 2021) and reported by MSM ([Zhang et al.,
    2023](https://arxiv.org/abs/2302.01626), Table 11). Each mention has one entity, so mAP@20 equals MRR@20. The
    average is the macro-average over the languages of the mentions. A query is the mention followed by its sentence in
    which the mention is marked, `Smith: The verdict for { Smith } came.`; a candidate is the sentences of the
    description. Both are as in XTREME-R's baseline. The embeddings of the candidates can come from a cache
    (`embed_corpus`).

    Metrics: `map_at_20` (primary), `mrr_at_100`, `recall_at_100` and `language_preference`.
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
        """Read the files that the scripts of the release write, see `read_mewsli_x`.

        Args:
            path: The folder of `candidate_set_entities.jsonl` and `wikinews_mentions-{split}.jsonl`.
            languages: Languages of the mentions; all candidates are kept. Default: all 11.
            split: `"test"` or `"dev"`.
            **options: The evaluator's own.
        """
        show_progress = bool(options.get("show_progress_bar", False))
        data = read_mewsli_x(path, split=split, show_progress_bar=show_progress)
        if languages is not None:
            data = data.of_languages(languages)
        return cls({"all": data}, split=split, **options)

    def protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        return {
            **super().protocol(model),
            "query": "mention: its sentence, the mention marked by braces",
            "candidate": "sentences of the entity's description, without its title",
            "average": "mean of the languages' means",
        }


def read_mewsli_x(
    path: str | os.PathLike[str], *, split: MewsliSplit = "test", show_progress_bar: bool = False
) -> RetrievalData:
    """Read the files of the release: one corpus of entities, and the mentions of a split.

    The download (`wikinews_mentions_no_text`) leaves `text` empty; the release's script fills it in.

    Raises:
        FileNotFoundError: If a file is missing.
        DataError: If a line lacks a field, a span does not fit its text, or an id occurs twice.
    """
    if split not in ("test", "dev"):
        raise ValueError(f"split must be 'test' or 'dev', got {split!r}.")
    entities = find_file(path, "candidate_set_entities.jsonl", layout=_LAYOUT)
    mentions = find_file(path, f"wikinews_mentions-{split}.jsonl", layout=_LAYOUT)
    corpus = _read_entities(entities, show_progress_bar)
    queries, qrels = _read_mentions(mentions)
    return RetrievalData(corpus, queries, qrels, str(mentions))


def _read_entities(file: Path, show_progress_bar: bool) -> TextCollection:
    columns = Columns(str(file))
    for number, record in tqdm(read_jsonl(file), desc="Entities", unit="", disable=not show_progress_bar):
        try:
            found = record["entity_id"], entity_text(record), record["description_language"]
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"no entity: {_reason(error)}", file=str(file), line=number) from error
        columns.add(*found, number)
    return columns.collection()


def _read_mentions(file: Path) -> tuple[TextCollection, dict[str, dict[str, int]]]:
    columns = Columns(str(file))
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
                qrels[name] = {mention["entity_id"]: 1}
                columns.add(name, mention_in_context(text, span["start"], span["end"], spans), language, number)
        except DataError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"no mentions: {_reason(error)}", file=str(file), line=number) from error
    return columns.collection(), qrels


def _reason(error: Exception) -> str:
    return f"no field {error}" if isinstance(error, KeyError) else str(error)
