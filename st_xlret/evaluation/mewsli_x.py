"""Mewsli-X: retrieval of the entity that a mention refers to, among a million descriptions in 50 languages."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import Self

from st_xlret.data.reading import find_file, read_jsonl
from st_xlret.evaluation.base import name_file_in_errors
from st_xlret.evaluation.retrieval import RetrievalData, RetrievalEvaluator, texts_table


class MewsliXEvaluator(RetrievalEvaluator):
    """mAP@20 of Mewsli-X: 15 000 mentions in 11 languages, 1 003 893 candidate entities in 50.

    The benchmark is part of XTREME-R (Ruder et al., 2021) and reported by MSM ([Zhang et al.,
    2023](https://arxiv.org/abs/2302.01626), Table 11). Each mention has one entity, so mAP@20 equals MRR@20. A query is
    that of `mention_in_context`, a candidate the sentences of the description, both as in XTREME-R's baseline. The
    splits are `"test"` and `"dev"`.

    Metrics: `map_at_20` (primary), `mrr_at_100`, `recall_at_100`, and those of
    [`language_metrics`][st_xlret.evaluation.language_metrics].
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
    def from_files(
        cls, folder: Any, languages: Sequence[str] | None, *, split: str = "test", **options: Any
    ) -> Self:
        """The evaluator of the pool of entities, with the mentions of a split."""
        entities = find_file(folder, "candidate_set_entities.jsonl")
        mentions = find_file(folder, f"wikinews_mentions-{split}.jsonl")
        qrels: dict[str, dict[str, int]] = {}
        queries = texts_table(_read_mentions(mentions, qrels))
        data = RetrievalData(texts_table(_read_entities(entities)), queries, qrels, str(mentions))
        notes = {
            "query": "mention: its sentence, the mention marked by braces",
            "candidate": "sentences of the entity's description, without its title",
            "average": "mean of the languages' means",
        }
        return cls({"all": data.select_languages(languages)}, split=split, notes=notes, **options)


def mention_in_context(
    text: str, start: int, end: int, sentence_spans: Sequence[tuple[int, int]]
) -> str:
    """The text of a query of Mewsli-X: a mention, then its sentence with the mention marked, as XTREME-R's baseline.

    Braces in the text become parentheses. The whole text is taken where no sentence overlaps the mention.

    Example:
        >>> mention_in_context("Rain. Ann {A} won. Sun.", 6, 9, [(0, 5), (6, 18), (19, 23)])
        'Ann: { Ann } (A) won.'
    """
    touched = [(left, right) for left, right in sentence_spans if left < end and start < right] or [
        (0, len(text))
    ]
    first, last = min(touched[0][0], start), max(touched[-1][1], end)
    before, after = (
        re.sub(r"\{(.*?)\}", r"(\1)", part) for part in (text[first:start], text[end:last])
    )
    return " ".join(f"{text[start:end]}: {before} {{ {text[start:end]} }} {after}".split())


def _sentence_spans(record: Mapping[str, Any]) -> list[tuple[int, int]]:
    return [(span["start"], span["end"]) for span in record["sentence_spans"]]


def _read_entities(file: Path) -> Iterator[tuple[str, str, str, str]]:
    """The sentences of each description, or the whole of it if it has none."""
    for number, record in read_jsonl(file):
        with name_file_in_errors(file, number):
            description = record["description"]
            sentences = " ".join(description[start:end] for start, end in _sentence_spans(record))
            text = " ".join((sentences if sentences.strip() else description).split())
            row = record["entity_id"], "", text, record["description_language"]
        yield row


def _read_mentions(
    file: Path, qrels: dict[str, dict[str, int]]
) -> Iterator[tuple[str, str, str, str]]:
    """A query for each mention, or for the only one of a record; fills in the judgements."""
    for number, record in read_jsonl(file):
        rows = []
        with name_file_in_errors(file, number):
            context = record["context"]
            for mention in record["mentions"] if "mentions" in record else [record["mention"]]:
                text, (start, end) = (
                    context["text"],
                    (mention["mention_span"][side] for side in ("start", "end")),
                )
                marked = text[start:end]
                if (
                    not 0 <= start < end <= len(text)
                    or mention["mention_span"].get("text", marked) != marked
                ):
                    raise ValueError(
                        f"{mention['mention_span']} is not in the text; get-mewsli-x.sh fills texts in"
                    )
                qrels[mention["example_id"]] = {mention["entity_id"]: 1}
                query = mention_in_context(text, start, end, _sentence_spans(context))
                rows.append((mention["example_id"], "", query, context["language"]))
        yield from rows
