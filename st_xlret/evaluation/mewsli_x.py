"""Mewsli-X: retrieval of the entity that a mention refers to, among a million in 50 languages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import Self

from st_xlret.data.reading import parse_entries, read_jsonl
from st_xlret.data.sources import find_file
from st_xlret.evaluation.pools import RetrievalData, TextRow, text_row, texts_table
from st_xlret.evaluation.retrieval import RETRIEVAL_OPTIONS, RetrievalEvaluator

_BRACES = re.compile(r"\{(.*?)\}")


class MewsliXEvaluator(RetrievalEvaluator):
    """mAP@20 of Mewsli-X: 15 000 mentions in 11 languages, 1 003 893 candidate entities in 50.

    The benchmark is part of XTREME-R (Ruder et al., 2021) and reported by MSM ([Zhang et al.,
    2023](https://arxiv.org/abs/2302.01626), Table 11). Each mention has one entity, so mAP@20
    equals MRR@20. A query is that of `mention_in_context`, a candidate the sentences of the
    description, both as in XTREME-R's baseline. The splits are `"test"` and `"dev"`.

    Metrics: `map_at_20` (primary), `mrr_at_100`, `recall_at_100`, and those of
    [`language_metrics`][st_xlret.evaluation.language_metrics].
    """

    benchmark = "mewsli-x"
    title = "MewsliX"
    question_languages = ("ar", "de", "en", "es", "fa", "ja", "pl", "ro", "ta", "tr", "uk")
    reference = "https://aclanthology.org/2021.emnlp-main.802"
    metrics = ("map_at_20", "mrr_at_100", "recall_at_100")
    published_metrics = ("map_at_20",)
    layout = "candidate_set_entities.jsonl and wikinews_mentions-test.jsonl"
    splits = ("test", "dev")
    options = RETRIEVAL_OPTIONS
    languages_in_all = 11
    task = (
        "retrieval of the mentioned entity from one pool in all languages; one relevant entity a "
        "mention"
    )
    direction = "mention in its sentence to entity descriptions"

    @classmethod
    def from_files(
        cls, folder: Any, languages: Sequence[str] | None, *, split: str = "test", **options: Any
    ) -> Self:
        """The evaluator of the pool of entities, with the mentions of a split."""
        entities = find_file(folder, "candidate_set_entities.jsonl")
        mentions = find_file(folder, f"wikinews_mentions-{split}.jsonl")
        queries = []
        qrels = {}
        for of_text in parse_entries(read_jsonl(mentions), _queries_and_entities, mentions):
            for query, entity in of_text:
                queries.append(query)
                qrels[query.id] = {entity: 1}
        corpus = texts_table(parse_entries(read_jsonl(entities), _entity_row, entities))
        data = RetrievalData(corpus, texts_table(queries), qrels, str(mentions))
        notes = {
            "query": "mention: its sentence, the mention marked by braces",
            "candidate": "sentences of the entity's description, without its title",
            "average": "mean of the languages' means",
        }
        return cls({"all": data.select_languages(languages)}, split=split, notes=notes, **options)


def mention_in_context(
    text: str, start: int, end: int, sentence_spans: Sequence[tuple[int, int]]
) -> str:
    """The text of a query: a mention, then its sentence with the mention marked.

    This is as XTREME-R's baseline does it. Braces in the text become parentheses. The whole text is
    taken where no sentence overlaps the mention.

    Example:
        >>> mention_in_context("Rain. Ann {A} won. Sun.", 6, 9, [(0, 5), (6, 18), (19, 23)])
        'Ann: { Ann } (A) won.'
    """
    touched = [span for span in sentence_spans if span[0] < end and start < span[1]]
    first, _ = touched[0] if touched else (0, len(text))
    _, last = touched[-1] if touched else (0, len(text))
    first = min(first, start)
    last = max(last, end)
    mention = text[start:end]
    before = _BRACES.sub(r"(\1)", text[first:start])
    after = _BRACES.sub(r"(\1)", text[end:last])
    marked = f"{mention}: {before} {{ {mention} }} {after}"
    return " ".join(marked.split())


def _sentence_spans(record: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Where the sentences of a record begin and end, half-open, in characters."""
    return [(span["start"], span["end"]) for span in record["sentence_spans"]]


def _entity_row(record: Mapping[str, Any]) -> TextRow:
    """The sentences of a description, or the whole of it if it has none."""
    description = record["description"]
    text = " ".join(description[start:end] for start, end in _sentence_spans(record))
    if not text.strip():
        text = description
    text = " ".join(text.split())
    return text_row(record["entity_id"], "", text, record["description_language"])


def _queries_and_entities(record: Mapping[str, Any]) -> list[tuple[TextRow, str]]:
    """A query, and its entity, for each mention of a record, or for its only one."""
    context = record["context"]
    mentions = record["mentions"] if "mentions" in record else [record["mention"]]
    return [_query_and_entity(mention, context) for mention in mentions]


def _query_and_entity(
    mention: Mapping[str, Any], context: Mapping[str, Any]
) -> tuple[TextRow, str]:
    """The query of a mention, and the id of the entity that it is to find.

    A `ValueError` refuses a mention that is not in its text.
    """
    text = context["text"]
    span = mention["mention_span"]
    start = span["start"]
    end = span["end"]
    is_inside = 0 <= start < end <= len(text)
    marked = text[start:end]
    if not is_inside or span.get("text", marked) != marked:
        raise ValueError(f"{span} is not in the text; get-mewsli-x.sh fills texts in")
    query = mention_in_context(text, start, end, _sentence_spans(context))
    row = text_row(mention["example_id"], "", query, context["language"])
    return row, mention["entity_id"]
