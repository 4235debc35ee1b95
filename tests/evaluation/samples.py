"""Small samples in the official layouts, written by hand, that several tests share."""

import json
from itertools import product
from pathlib import Path
from typing import Any

from tests.data.files import write_jsonl, write_text

WORDS = {
    "en": ["taxi", "hotel", "bread", "water", "night", "house"],
    "fr": ["voiture", "auberge", "pain", "eau", "nuit", "maison"],
    "de": ["wagen", "gasthof", "brot", "wasser", "nacht", "haus"],
}
PARAGRAPH = {
    "en": ["A taxi at night.", "The hotel had bread."],
    "fr": ["Une voiture la nuit.", "Une auberge avec du pain."],
    "de": ["Ein wagen bei nacht.", "Der gasthof hatte brot."],
}
QUESTIONS = {
    "en": ["Who took the taxi", "hotel bread"],
    "fr": ["voiture", "pain"],
    "de": ["wagen", "brot"],
}


def write_tatoeba(folder: Path) -> Path:
    """LASER's tatoeba.fra-eng.fra and so on."""
    for code, language in (("fra", "fr"), ("deu", "de")):
        write_text(folder / f"tatoeba.{code}-eng.{code}", "\n".join(WORDS[language]) + "\n")
        write_text(folder / f"tatoeba.{code}-eng.eng", "\n".join(WORDS["en"]) + "\n")
    return folder


def write_lareqa(folder: Path, languages: tuple[str, ...] = ("en", "fr", "de")) -> Path:
    """google-research-datasets/lareqa: xquad-r/<language>.json."""
    for language in languages:
        first, second = PARAGRAPH[language]
        questions = [
            {
                "id": f"q{number}",
                "question": question,
                "answers": [{"answer_start": start, "text": "unused"}],
            }
            for number, question, start in zip(
                (1, 2), QUESTIONS[language], (2, len(first) + 3), strict=True
            )
        ]
        breaks = [[0, len(first)], [len(first) + 1, len(first) + 1 + len(second)]]
        paragraph = {"context": f"{first} {second}", "sentence_breaks": breaks, "qas": questions}
        content = {"data": [{"title": "Travel", "paragraphs": [paragraph]}], "version": "1.1"}
        write_text(folder / "xquad-r" / f"{language}.json", json.dumps(content))
    return folder


def write_beir(folder: Path, end: str = "") -> Path:
    """The same questions and sentences in BEIR's layout, with both sets of judgements."""
    corpus, queries, right = [], [], []
    for language, row in product(PARAGRAPH, (0, 1)):
        query, metadata = f"{language}-q{row + 1}", {"language": language}
        queries.append({"_id": query, "text": QUESTIONS[language][row], "metadata": metadata})
        about = {"title": "Travel", "metadata": {**metadata, "context": f"ctx-{language}-00-0"}}
        corpus.append({"_id": f"{language}-00-0-{row}", "text": PARAGRAPH[language][row], **about})
        right += [(query, f"{other}-00-0-{row}") for other in PARAGRAPH]
    same = [(query, sentence) for query, sentence in right if query[:2] == sentence[:2]]
    for split, judged in (("test", right), ("test-same-language", same)):
        lines = "".join(f"{query}\t{sentence}\t1\n" for query, sentence in judged)
        write_text(folder / "qrels" / f"{split}.tsv{end}", f"query-id\tcorpus-id\tscore\n{lines}")
    write_jsonl(folder / f"corpus.jsonl{end}", corpus)
    write_jsonl(folder / f"queries.jsonl{end}", queries)
    return folder


def write_bucc(folder: Path, splits: tuple[str, ...] = ("training", "test")) -> Path:
    """BUCC's de-en.training.de and so on, with two translations among four sentences."""
    for split in splits:
        write_text(
            folder / f"de-en.{split}.de",
            "de-0\twagen nacht\nde-1\tbrot\nde-2\thaus wasser\nde-3\tgasthof\n",
        )
        write_text(
            folder / f"de-en.{split}.en",
            "en-0\tbread\nen-1\ttaxi night\nen-2\thouse\nen-3\thotel\n",
        )
        write_text(folder / f"de-en.{split}.gold", "de-1\ten-0\nde-3\ten-3\n")
    return folder


def spans(text: str, *parts: str) -> list[dict[str, Any]]:
    """Where parts of a text are."""
    return [
        {"start": text.index(part), "end": text.index(part) + len(part), "text": part}
        for part in parts
    ]


def write_mewsli_x(folder: Path) -> Path:
    """candidate_set_entities.jsonl and wikinews_mentions-{dev,test}.jsonl."""
    entities, articles = [], []
    for row, language in enumerate(("en", "fr", "de", "en", "fr", "de")):
        word = WORDS[language][row]
        sentences = f"A {word}.", f"It is a {word}."
        entity = {"entity_id": f"Q{row}", "title": word, "description": "\n".join(sentences)}
        about = {
            "description_language": language,
            "sentence_spans": spans(entity["description"], *sentences),
        }
        entities.append({**entity, **about})
    for language in ("en", "de"):
        words = WORDS[language]
        sentences = "First.", f"{words[0]} and {words[4]} met.", f"Then {words[1]}."
        text = " ".join(sentences)
        mentions = [
            {
                "example_id": f"{language}-{row}",
                "entity_id": f"Q{row}",
                "mention_span": spans(text, words[row])[0],
            }
            for row in (0, 1, 4)
        ]
        context = {"language": language, "text": text, "sentence_spans": spans(text, *sentences)}
        articles.append({"context": context, "mentions": mentions})
    write_jsonl(folder / "candidate_set_entities.jsonl", entities)
    write_jsonl(folder / "wikinews_mentions-test.jsonl", articles)
    write_jsonl(folder / "wikinews_mentions-dev.jsonl", articles[:1])
    return folder


# Passages (id, title, text), and questions with the passages that are right; one without any does not count.
MR_TYDI = {
    "swahili": (
        [
            ("10#0", "sun", "moon star rain"),
            ("10#1", "sun", "snow tree"),
            ("11#0", "leaf", "root fish"),
        ],
        [("1", "moon star", ["10#0"]), ("2", "root fish", ["10#1", "11#0"]), ("3", "snow", [])],
    ),
    "telugu": (
        [("7#0", "tree", "leaf root"), ("7#1", "", "fish bird"), ("8#0", "wolf", "bear sun")],
        [("5", "wolf", ["8#0"]), ("6", "fish bird leaf", ["7#0"])],
    ),
}
# Files of passages, questions and judgements. The Hub's two data sets stand side by side or in one folder.
HUB_TOPICS = "mr-tydi/{}/ir-format-data/"
MR_TYDI_FILES = {
    "release": ("{}/collection/docs.jsonl.gz", "{}/topic.test.tsv", "{}/qrels.test.txt"),
    "hub": (
        "mr-tydi-corpus/{}/corpus.jsonl.gz",
        f"{HUB_TOPICS}topics.test.txt",
        f"{HUB_TOPICS}qrels.test.txt",
    ),
    "merged": ("{}/corpus.jsonl.gz", "{}/test.jsonl.gz", ""),
}


def write_mr_tydi(root: Path, layout: str = "release") -> Path:
    """Two languages, in mrtydi-v1.1-swahili/ and mrtydi-v1.1-telugu/."""
    for language, (passages, questions) in MR_TYDI.items():
        corpus, topics, qrels = (
            root / name.format(f"mrtydi-v1.1-{language}") for name in MR_TYDI_FILES[layout]
        )
        records = {
            name: {"docid": name, "title": title, "text": text} for name, title, text in passages
        }
        contents = [
            {"id": name, "contents": f"{title}\n\n{text}" if title else text}
            for name, title, text in passages
        ]
        write_jsonl(corpus, contents if layout == "release" else records.values())
        if layout == "merged":
            asked = (
                {
                    "query_id": query,
                    "query": text,
                    "positive_passages": [records[name] for name in right],
                }
                for query, text, right in questions
            )
            write_jsonl(topics, asked)
        else:
            write_text(topics, "".join(f"{query}\t{text}\n" for query, text, _ in questions))
            write_text(
                qrels,
                "".join(
                    f"{query}\tQ0\t{name}\t1\n" for query, _, right in questions for name in right
                ),
            )
    return root


def write_xor(folder: Path) -> Path:
    """psgs_w100.tsv, quoted as the csv module does, and the questions of the dev split, one of which has no answer."""
    passages = (
        '1\ttaxi in Helsinki\tA\n2\tbread since 1905\tB\n3\t"He said ""no"" twice"\t"""Heroes"""\n'
    )
    write_text(folder / "psgs_w100.tsv", f"id\ttext\ttitle\n{passages}")
    asked = [
        ("taxi", "fi", "Helsinki"),
        ("hotel", "fi", "Oslo"),
        ("bread", "ko", "1905"),
        ("night", "ko", "yes"),
    ]
    questions = (
        {"id": question, "question": question, "lang": code, "answers": [a]}
        for question, code, a in asked
    )
    write_jsonl(folder / "xor_dev_retrieve_eng_span_v1_1.jsonl", questions)
    return folder
