"""A small copy of each benchmark in its official layout, over which the tests of all run."""

import json
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class BadLine:
    """A change of a file that makes it wrong.

    Attributes:
        old: Regular expression of what is replaced.
        message: Regular expression of what the error says.
    """

    file: str
    old: str
    new: str
    message: str


@dataclass(frozen=True)
class Sample:
    """A small copy of a benchmark.

    Attributes:
        write: Writes it into a folder.
        needed: Files without each of which there is no evaluator, or their ends or beginnings.
        languages: Those to evaluate, by default all.
    """

    write: Callable[[Path], Path]
    bad_lines: list[BadLine]
    needed: list[str]
    languages: list[str] | None = None


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
        start_of_second = len(first) + 1
        ask_first, ask_second = QUESTIONS[language]
        paragraph = {
            "context": f"{first} {second}",
            "sentence_breaks": [
                [0, len(first)],
                [start_of_second, start_of_second + len(second)],
            ],
            "qas": [
                squad_question("q1", ask_first, answer_start=2),
                squad_question("q2", ask_second, answer_start=start_of_second + 2),
            ],
        }
        content = {"data": [{"title": "Travel", "paragraphs": [paragraph]}], "version": "1.1"}
        write_text(folder / "xquad-r" / f"{language}.json", json.dumps(content))
    return folder


def squad_question(name: str, question: str, *, answer_start: int) -> dict[str, Any]:
    answers = [{"answer_start": answer_start, "text": "unused"}]
    return {"id": name, "question": question, "answers": answers}


def write_beir(folder: Path, end: str = "") -> Path:
    """The same questions and sentences in BEIR's layout, with both sets of judgements."""
    corpus = []
    queries = []
    in_all_languages = []
    in_its_language = []
    for language, sentences in PARAGRAPH.items():
        for row, sentence in enumerate(sentences):
            query = f"{language}-q{row + 1}"
            question = QUESTIONS[language][row]
            queries.append({"_id": query, "text": question, "metadata": {"language": language}})
            about = {"language": language, "context": f"ctx-{language}-00-0"}
            name = f"{language}-00-0-{row}"
            corpus.append({"_id": name, "text": sentence, "title": "Travel", "metadata": about})
            in_its_language.append(f"{query}\t{name}\t1\n")
            for other in PARAGRAPH:
                in_all_languages.append(f"{query}\t{other}-00-0-{row}\t1\n")
    header = "query-id\tcorpus-id\tscore\n"
    qrels = folder / "qrels"
    write_text(qrels / f"test.tsv{end}", header + "".join(in_all_languages))
    write_text(qrels / f"test-same-language.tsv{end}", header + "".join(in_its_language))
    write_jsonl(folder / f"corpus.jsonl{end}", corpus)
    write_jsonl(folder / f"queries.jsonl{end}", queries)
    return folder


def write_bucc(folder: Path, splits: tuple[str, ...] = ("training", "test")) -> Path:
    """BUCC's de-en.training.de and so on, with two translations among four sentences."""
    german = "de-0\twagen nacht\nde-1\tbrot\nde-2\thaus wasser\nde-3\tgasthof\n"
    english = "en-0\tbread\nen-1\ttaxi night\nen-2\thouse\nen-3\thotel\n"
    for split in splits:
        write_text(folder / f"de-en.{split}.de", german)
        write_text(folder / f"de-en.{split}.en", english)
        write_text(folder / f"de-en.{split}.gold", "de-1\ten-0\nde-3\ten-3\n")
    return folder


def spans(text: str, *parts: str) -> list[dict[str, Any]]:
    """Where parts of a text are."""
    found = []
    for part in parts:
        start = text.index(part)
        found.append({"start": start, "end": start + len(part), "text": part})
    return found


def write_mewsli_x(folder: Path) -> Path:
    """candidate_set_entities.jsonl and wikinews_mentions-{dev,test}.jsonl."""
    entities = []
    for row, language in enumerate(["en", "fr", "de", "en", "fr", "de"]):
        entities.append(mewsli_entity(row, language))
    articles = [mewsli_article("en"), mewsli_article("de")]
    write_jsonl(folder / "candidate_set_entities.jsonl", entities)
    write_jsonl(folder / "wikinews_mentions-test.jsonl", articles)
    write_jsonl(folder / "wikinews_mentions-dev.jsonl", articles[:1])
    return folder


def mewsli_entity(row: int, language: str) -> dict[str, Any]:
    word = WORDS[language][row]
    first = f"A {word}."
    second = f"It is a {word}."
    description = f"{first}\n{second}"
    return {
        "entity_id": f"Q{row}",
        "title": word,
        "description": description,
        "description_language": language,
        "sentence_spans": spans(description, first, second),
    }


def mewsli_article(language: str) -> dict[str, Any]:
    """A text that mentions three entities."""
    words = WORDS[language]
    sentences = ["First.", f"{words[0]} and {words[4]} met.", f"Then {words[1]}."]
    text = " ".join(sentences)
    mentions = []
    for row in (0, 1, 4):
        [span] = spans(text, words[row])
        mentions.append(
            {"example_id": f"{language}-{row}", "entity_id": f"Q{row}", "mention_span": span}
        )
    context = {"language": language, "text": text, "sentence_spans": spans(text, *sentences)}
    return {"context": context, "mentions": mentions}


@dataclass(frozen=True)
class MrTyDiLanguage:
    """Passages (id, title, text), and questions (id, text, ids of passages that are right)."""

    passages: list[tuple[str, str, str]]
    questions: list[tuple[str, str, list[str]]]


# A question without a passage that is right does not count.
MR_TYDI = {
    "swahili": MrTyDiLanguage(
        passages=[
            ("10#0", "sun", "moon star rain"),
            ("10#1", "sun", "snow tree"),
            ("11#0", "leaf", "root fish"),
        ],
        questions=[
            ("1", "moon star", ["10#0"]),
            ("2", "root fish", ["10#1", "11#0"]),
            ("3", "snow", []),
        ],
    ),
    "telugu": MrTyDiLanguage(
        passages=[
            ("7#0", "tree", "leaf root"),
            ("7#1", "", "fish bird"),
            ("8#0", "wolf", "bear sun"),
        ],
        questions=[("5", "wolf", ["8#0"]), ("6", "fish bird leaf", ["7#0"])],
    ),
}
MR_TYDI_LAYOUTS = ("release", "hub", "merged")
"""The Hub's two data sets stand side by side ("hub") or in one folder ("merged")."""


def write_mr_tydi(root: Path, layout: str = "release") -> Path:
    """Two languages, in mrtydi-v1.1-swahili/ and mrtydi-v1.1-telugu/."""
    writers = {"release": write_release, "hub": write_hub, "merged": write_merged}
    for language, content in MR_TYDI.items():
        writers[layout](root, f"mrtydi-v1.1-{language}", content)
    return root


def write_release(root: Path, name: str, content: MrTyDiLanguage) -> None:
    records = []
    for passage, title, text in content.passages:
        contents = f"{title}\n\n{text}" if title else text
        records.append({"id": passage, "contents": contents})
    write_jsonl(root / name / "collection" / "docs.jsonl.gz", records)
    write_text(root / name / "topic.test.tsv", topics_of(content))
    write_text(root / name / "qrels.test.txt", qrels_of(content))


def write_hub(root: Path, name: str, content: MrTyDiLanguage) -> None:
    write_jsonl(root / "mr-tydi-corpus" / name / "corpus.jsonl.gz", hub_passages(content).values())
    topics = root / "mr-tydi" / name / "ir-format-data"
    write_text(topics / "topics.test.txt", topics_of(content))
    write_text(topics / "qrels.test.txt", qrels_of(content))


def write_merged(root: Path, name: str, content: MrTyDiLanguage) -> None:
    passages = hub_passages(content)
    records = []
    for query, text, right in content.questions:
        positive = [passages[passage] for passage in right]
        records.append({"query_id": query, "query": text, "positive_passages": positive})
    write_jsonl(root / name / "corpus.jsonl.gz", passages.values())
    write_jsonl(root / name / "test.jsonl.gz", records)


def hub_passages(content: MrTyDiLanguage) -> dict[str, dict[str, str]]:
    records = {}
    for name, title, text in content.passages:
        records[name] = {"docid": name, "title": title, "text": text}
    return records


def topics_of(content: MrTyDiLanguage) -> str:
    return "".join(f"{query}\t{text}\n" for query, text, _ in content.questions)


def qrels_of(content: MrTyDiLanguage) -> str:
    lines = []
    for query, _, right in content.questions:
        lines += [f"{query}\tQ0\t{passage}\t1\n" for passage in right]
    return "".join(lines)


def write_xor(folder: Path) -> Path:
    """psgs_w100.tsv, quoted as the csv module does, and the questions of the dev split.

    One question has no answer that counts.
    """
    lines = [
        "id\ttext\ttitle",
        "1\ttaxi in Helsinki\tA",
        "2\tbread since 1905\tB",
        '3\t"He said ""no"" twice"\t"""Heroes"""',
    ]
    write_text(folder / "psgs_w100.tsv", "\n".join(lines) + "\n")
    questions = [
        {"id": "taxi", "question": "taxi", "lang": "fi", "answers": ["Helsinki"]},
        {"id": "hotel", "question": "hotel", "lang": "fi", "answers": ["Oslo"]},
        {"id": "bread", "question": "bread", "lang": "ko", "answers": ["1905"]},
        {"id": "night", "question": "night", "lang": "ko", "answers": ["yes"]},
    ]
    write_jsonl(folder / "xor_dev_retrieve_eng_span_v1_1.jsonl", questions)
    return folder


_MENTIONS = "wikinews_mentions-test.jsonl"
_ENTITIES = "candidate_set_entities.jsonl"
_XOR_QUESTIONS = "xor_dev_retrieve_eng_span_v1_1.jsonl"
_SWAHILI = "mrtydi-v1.1-swahili"

SAMPLES = {
    "tatoeba": Sample(
        write_tatoeba,
        bad_lines=[
            BadLine("tatoeba.fra-eng.eng", "house\n", "", r"'fr': \(6, 5\)"),
        ],
        needed=["tatoeba.fra-eng.fra"],
    ),
    "tatoeba-pairs": Sample(
        write_tatoeba,
        bad_lines=[
            BadLine("tatoeba.fra-eng.eng", "(?s).+", "other\n" * 6, r"'fr-de': \(0, 0\)"),
        ],
        needed=["tatoeba.fra-eng.fra"],
        languages=["fr-de"],
    ),
    "bucc": Sample(
        write_bucc,
        bad_lines=[
            BadLine("de-en.training.de", "de-1\t", "de-1 ", "training.de, line 2"),
            BadLine("de-en.test.en", "en-2\t", "en-1\t", "test.en, line 3"),
            BadLine("de-en.training.gold", "de-3\t", "de-9\t", "gold, line 2: .*'de-9'"),
        ],
        needed=["de-en.training.de"],
    ),
    "lareqa": Sample(
        write_lareqa,
        bad_lines=[
            BadLine("xquad-r/en.json", "sentence_breaks", "breaks", "en.json.*sentence_breaks"),
            BadLine("xquad-r/en.json", '"hotel bread"', "null", "en.json.*a string.*None"),
        ],
        needed=["*.json"],
    ),
    "mewsli-x": Sample(
        write_mewsli_x,
        bad_lines=[
            BadLine(_MENTIONS, '"text": "First.*?"', '"text": ""', "line 1: .*get-mewsli-x"),
            BadLine(_MENTIONS, '"text": "wagen"', '"text": "bus"', "line 2: .*'bus'"),
            BadLine(_ENTITIES, "description_language", "code", "line 1: .*'description_lang"),
            BadLine(_ENTITIES, '"Q1"', "1", "line 2: .*a string.*1"),
            BadLine(_MENTIONS, '"language": "de"', '"language": "x"', "line 2: .*'x'"),
        ],
        needed=[_ENTITIES, _MENTIONS],
    ),
    "mrtydi": Sample(
        write_mr_tydi,
        bad_lines=[
            BadLine(f"{_SWAHILI}/topic.test.tsv", "3\tsnow", "3 snow", "topic.test.tsv, line 3"),
            BadLine(
                f"{_SWAHILI}/collection/docs.jsonl.gz",
                "contents",
                "content",
                "docs.jsonl.gz, line 1",
            ),
        ],
        needed=["qrels.test.txt", "topic.test.tsv", "docs.jsonl*"],
    ),
    "retrieval": Sample(
        write_beir,
        bad_lines=[
            BadLine("corpus.jsonl", "en-00-0-1", "en-00-0-0", "'en-00-0-0'"),
            BadLine("corpus.jsonl", '"text": "A', '"text": 3, "x": "A', "corpus.jsonl, line 1"),
            BadLine("queries.jsonl", '"language": "fr"', '"x": 1', "queries.jsonl, line 3"),
            BadLine("qrels/test.tsv", "en-q2\ten", "xx-q2\ten", "test.tsv: .*'xx-q2'"),
        ],
        needed=["corpus.jsonl", "queries.jsonl", "test.tsv"],
    ),
    "xor-retrieve": Sample(
        write_xor,
        bad_lines=[
            BadLine("psgs_w100.tsv", "\n2\t", "\n2 ", "psgs_w100.tsv, line 3"),
            BadLine("psgs_w100.tsv", "(?s)\n.*", "\n", "psgs_w100.tsv: no passages"),
            BadLine(_XOR_QUESTIONS, '"lang"', '"language"', "xor_dev.*, line 1: .*'lang'"),
            BadLine(_XOR_QUESTIONS, '"ko"', "null", "line 3: .*a string.*None"),
            BadLine(_XOR_QUESTIONS, '"question": "bread"', '"question": 7', "line 3: .*a string"),
            BadLine(_XOR_QUESTIONS, '"id": "bread"', '"id": "taxi"', "line 3: .*'taxi'"),
            BadLine(_XOR_QUESTIONS, r'"answers": \[.*\]', '"answers": ["yes"]', "has no"),
        ],
        needed=["psgs_w100.tsv", "xor_dev_retrieve_eng_span*"],
    ),
}
"""Name of a benchmark to its sample."""
