"""Makes JSON lines that the readers of st-xlret take of published files.

python examples/convert.py squad train-v1.1.json squad.jsonl
python examples/convert.py mr-tydi mrtydi-v1.1-swahili/train.jsonl.gz sw.jsonl --language sw
python examples/convert.py dpr dpr_train_data.json xor.jsonl --questions xor_train.jsonl
"""

import argparse
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from st_xlret.data import read_jsonl
from st_xlret.evaluation.mewsli_x import mention_in_context

Row = dict[str, Any]
LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


def dpr(file: Path, language: str, questions: Path | None = None) -> Iterator[Row]:
    """DPR's files, and XOR-TyDi's, whose other file names the languages of the questions."""
    languages = {}
    if questions is not None:
        for _, one in read_jsonl(questions):
            languages[one["question"]] = one["lang"]
    for one in json.loads(file.read_text(encoding="utf-8")):
        passage = one["positive_ctxs"][0]
        others = one["hard_negative_ctxs"] or one["negative_ctxs"]
        yield {
            "query": one["question"],
            "positive": passage["text"],
            "title": passage["title"],
            "answers": one["answers"],
            "negatives": [titled(other) for other in others],
            "language": languages.get(one["question"], language),
        }


def squad(file: Path, language: str) -> Iterator[Row]:
    """SQuAD, and data sets in its format. SQuAD 2 has questions without answers."""
    for article in json.loads(file.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                if question["answers"]:
                    yield {
                        "query": question["question"],
                        "positive": paragraph["context"],
                        "title": article["title"].replace("_", " "),
                        "answers": [answer["text"] for answer in question["answers"]],
                        "answer_start": question["answers"][0]["answer_start"],
                        "language": language,
                    }


def ms_marco(file: Path, language: str) -> Iterator[Row]:
    """Triples of texts: a question, its passage, and another one."""
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            query, passage, other = line.rstrip("\n").split("\t")
            yield {
                "query": query,
                "positive": passage,
                "negatives": [other],
                "language": language,
            }


def mr_tydi(file: Path, language: str) -> Iterator[Row]:
    """Mr.TyDi, MIRACL and Tevatron."""
    for _, one in read_jsonl(file):
        for passage in one["positive_passages"]:
            yield {
                "query": one["query"],
                "positive": passage["text"],
                "title": passage["title"],
                "negatives": [titled(other) for other in one["negative_passages"]],
                "language": language,
            }


def mewsli_x(file: Path, language: str) -> Iterator[Row]:
    """Mewsli-X: a mention in its sentence, and the description of the entity."""
    for _, one in read_jsonl(file):
        context = one["contextual_mention"]["context"]
        mention = one["contextual_mention"]["mention"]["mention_span"]
        spans = [(span["start"], span["end"]) for span in context["sentence_spans"]]
        text = one["entity"]["description"]
        sentences = []
        for span in one["entity"]["sentence_spans"]:
            sentences.append(text[span["start"] : span["end"]])
        yield {
            "query": mention_in_context(context["text"], mention["start"], mention["end"], spans),
            "positive": " ".join(sentences) or text,
            "language": context["language"],
        }


def verses(file: Path, language: str) -> Iterator[Row]:
    """Documents with `verses`: sentences with the same reference are a pair with `language`."""
    texts: dict[str, dict[str, str]] = {}
    for _, one in read_jsonl(file):
        for verse, text in zip(one["verses"], one["sentences"], strict=True):
            texts.setdefault(verse, {}).setdefault(one["language"], text)
    for of_verse in texts.values():
        yield from pairs(of_verse, language)


def tmx(file: Path, language: str) -> Iterator[Row]:
    """Translation memories. The first language of a unit is the source."""
    for _, unit in ElementTree.iterparse(file):
        if unit.tag == "tu":
            texts = {}
            for side in unit.iter("tuv"):
                segment = side.find("seg")
                if segment is not None:
                    texts[side.get(LANGUAGE)] = "".join(segment.itertext())
            yield from pairs(texts, next(iter(texts)))
            unit.clear()


def pairs(texts: dict[str, str], source: str) -> Iterator[Row]:
    """A pair of the source with each other language."""
    for language, text in texts.items():
        if source in texts and language != source:
            yield {
                "source_language": source,
                "source": texts[source],
                "target_language": language,
                "target": text,
            }


def titled(passage: Row) -> str:
    return f"{passage['title']} {passage['text']}"


FORMATS: dict[str, Callable[..., Iterable[Row]]] = {
    "dpr": dpr,
    "squad": squad,
    "ms-marco": ms_marco,
    "mr-tydi": mr_tydi,
    "mewsli-x": mewsli_x,
    "verses": verses,
    "tmx": tmx,
}


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("file", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--language", default="en", help="of texts that name none")
    parser.add_argument("--questions", type=Path, help="of dpr: a file with their languages")
    arguments = parser.parse_args(given)
    options = {} if arguments.questions is None else {"questions": arguments.questions}
    with open(arguments.output, "x", encoding="utf-8") as out:
        for row in FORMATS[arguments.format](arguments.file, arguments.language, **options):
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
