"""Small samples in the official layouts, written by hand, that several tests share."""

from __future__ import annotations

import json
from pathlib import Path

from tests.evaluation.conftest import WORDS

PARAGRAPH = {
    "en": ["A taxi at night.", "The hotel had bread."],
    "fr": ["Une voiture la nuit.", "Une auberge avec du pain."],
    "de": ["Ein wagen bei nacht.", "Der gasthof hatte brot."],
}
QUESTIONS = {"en": ["Who took the taxi", "hotel bread"], "fr": ["voiture", "pain"], "de": ["wagen", "brot"]}


def write_lareqa(folder: Path, languages: tuple[str, ...] = ("en", "fr", "de")) -> Path:
    """google-research-datasets/lareqa: xquad-r/<language>.json."""
    (folder / "xquad-r").mkdir(parents=True)
    for language in languages:
        first, second = PARAGRAPH[language]
        paragraph = {
            "context": f"{first} {second}",
            "sentence_breaks": [[0, len(first)], [len(first) + 1, len(first) + 1 + len(second)]],
            "qas": [
                {"id": "q1", "question": QUESTIONS[language][0], "answers": [{"answer_start": 2, "text": first[2:5]}]},
                {
                    "id": "q2",
                    "question": QUESTIONS[language][1],
                    "answers": [{"answer_start": len(first) + 3, "text": second[2:5]}],
                },
            ],
        }
        content = {"data": [{"title": "Travel", "paragraphs": [paragraph]}], "version": "1.1"}
        (folder / "xquad-r" / f"{language}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def write_beir(folder: Path, languages: tuple[str, ...] = ("en", "fr", "de")) -> Path:
    """The same questions and sentences in BEIR's layout, with both sets of judgements."""
    corpus, queries = [], []
    judgements: dict[str, list[str]] = {"test": [], "test-same-language": []}
    for language in languages:
        for row, text in enumerate(PARAGRAPH[language]):
            metadata = {"language": language, "context": f"ctx-{language}-00-0"}
            corpus.append({"_id": f"{language}-00-0-{row}", "title": "Travel", "text": text, "metadata": metadata})
        for row, text in enumerate(QUESTIONS[language]):
            queries.append({"_id": f"{language}-q{row + 1}", "text": text, "metadata": {"language": language}})
            for other in languages:
                line = f"{language}-q{row + 1}\t{other}-00-0-{row}\t1"
                judgements["test"].append(line)
                if other == language:
                    judgements["test-same-language"].append(line)
    (folder / "qrels").mkdir(parents=True)
    for name, records in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in records), encoding="utf-8")
    for split, lines in judgements.items():
        content = "\n".join(["query-id\tcorpus-id\tscore", *lines, ""])
        (folder / "qrels" / f"{split}.tsv").write_text(content, encoding="utf-8")
    return folder


def write_bucc(folder: Path) -> Path:
    """BUCC's de-en.training.de and so on, with two translations among four sentences."""
    sentences = {
        "de": ["wagen nacht", "brot", "haus wasser", "gasthof"],
        "en": ["bread", "taxi night", "house", "hotel"],
    }
    for split in ("training", "test"):
        for side, texts in sentences.items():
            lines = "".join(f"{side}-{row}\t{text}\n" for row, text in enumerate(texts))
            (folder / f"de-en.{split}.{side}").write_text(lines)
        (folder / f"de-en.{split}.gold").write_text("de-1\ten-0\nde-3\ten-3\n")
    return folder


def write_mewsli_x(folder: Path) -> Path:
    """candidate_set_entities.jsonl and wikinews_mentions-{dev,test}.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    entities = []
    for row, language in enumerate(("en", "fr", "de", "en", "fr", "de")):
        word = WORDS[language][row]
        description = f"A {word}.\nIt is a {word}."
        spans = [{"start": 0, "end": len(word) + 3}, {"start": len(word) + 4, "end": len(description)}]
        entities.append(
            {
                "entity_id": f"Q{row}",
                "title": word,
                "description": description,
                "description_language": language,
                "sentence_spans": spans,
            }
        )
    articles = []
    for language in ("en", "de"):
        words = WORDS[language]
        text = f"First. {words[0]} and {words[4]} met. Then {words[1]}."
        second = text.index(words[0])
        third = text.index("Then")
        spans = [(0, 6), (second, third - 1), (third, len(text))]
        mentions = [
            {
                "example_id": f"{language}-{row}",
                "entity_id": f"Q{row}",
                "mention_span": {
                    "start": text.index(words[row]),
                    "end": text.index(words[row]) + len(words[row]),
                    "text": words[row],
                },
            }
            for row in (0, 1, 4)
        ]
        context = {
            "language": language,
            "text": text,
            "sentence_spans": [{"start": start, "end": end} for start, end in spans],
        }
        articles.append({"context": context, "mentions": mentions})
    for name, records in (
        ("candidate_set_entities", entities),
        ("wikinews_mentions-test", articles),
        ("wikinews_mentions-dev", articles[:1]),
    ):
        lines = "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return folder
