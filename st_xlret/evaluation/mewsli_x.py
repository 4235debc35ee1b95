"""Mewsli-X: retrieval of the entity that a mention refers to, among a million descriptions in 50 languages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from st_xlret.data.lines import DataError, read_jsonl
from st_xlret.data.question_formats import entity_text, mention_in_context, spans_of_sentences
from st_xlret.evaluation.retrieval import RetrievalEvaluator
from st_xlret.evaluation.retrieval_data import Columns, RetrievalData, TextCollection, find_file


class MewsliXEvaluator(RetrievalEvaluator):
    """mAP@20 of Mewsli-X: 15 000 mentions in 11 languages, 1 003 893 candidate entities in 50.

    The benchmark is part of XTREME-R (Ruder et al., 2021) and reported by MSM ([Zhang et al.,
    2023](https://arxiv.org/abs/2302.01626), Table 11). Each mention has one entity, so mAP@20 equals MRR@20. The
    average is the macro-average over the languages of the mentions. A query is the mention followed by its sentence in
    which the mention is marked, `Smith: The verdict for { Smith } came.`; a candidate is the sentences of the
    description. Both are as in XTREME-R's baseline. The embeddings of the candidates can come from a cache
    (`embed_corpus`). The splits are `"test"` and `"dev"`. The download (`wikinews_mentions_no_text`) leaves `text`
    empty; the release's script fills it in.

    Metrics: `map_at_20` (primary), `mrr_at_100`, `recall_at_100` and `language_preference`.
    """

    benchmark = "mewsli-x"
    metrics = ("map_at_20", "mrr_at_100", "recall_at_100")
    published_metrics = ("map_at_20",)
    layout = "candidate_set_entities.jsonl and wikinews_mentions-test.jsonl"
    splits = ("test", "dev")
    languages_in_all = 11
    task = "retrieval of the mentioned entity from one pool in all languages; one relevant entity a mention"
    direction = "mention in its sentence to entity descriptions"

    @classmethod
    def read(cls, folder: Path | None, languages: list[str] | None, *, split: str = "test", **_: Any) -> dict[str, Any]:
        """One pool of entities, and the mentions of a split."""
        assert folder is not None
        layout = f" of the Mewsli-X release ({cls.layout})"
        entities = find_file(folder, "candidate_set_entities.jsonl", layout=layout)
        mentions = find_file(folder, f"wikinews_mentions-{split}.jsonl", layout=layout)
        data = RetrievalData(_read_entities(entities), *_read_mentions(mentions), str(mentions))
        return {"pools": {"all": data if languages is None else data.of_languages(languages)}, "split": split}

    def protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        """What determines the scores, apart from the weights of the model."""
        return {
            **super().protocol(model),
            "query": "mention: its sentence, the mention marked by braces",
            "candidate": "sentences of the entity's description, without its title",
            "average": "mean of the languages' means",
        }


def _read_entities(file: Path) -> TextCollection:
    columns = Columns(str(file))
    for number, record in read_jsonl(file):
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
