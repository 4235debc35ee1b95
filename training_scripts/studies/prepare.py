"""Data that several rows of a study share: test sets, what must not be trained on, and parts of the texts.

    python -m training_scripts.studies.prepare --kind held-out --output held-out
    python -m training_scripts.studies.prepare --kind sentences --pools xquad_r --tatoeba v1 --output test.txt
    python -m training_scripts.studies.prepare --kind pairs --pairs pairs/ --without el hi --output half.jsonl
    python -m training_scripts.studies.prepare --kind documents --documents docs/ --per_language 500 --output some.jsonl
    python -m training_scripts.studies.prepare --kind head --model M --documents docs/ --output with-head
    python -m training_scripts.studies.prepare --kind questions --retrieval squad.json --output questions
    python -m training_scripts.studies.prepare --kind part --pools xquad_r --languages ar en --output quarter
    python -m training_scripts.studies.prepare --kind apart --pools xquad_r --output apart
    python -m training_scripts.studies.prepare --kind contexts --pairs pairs/* --exclude test.txt --output c.jsonl

held-out: translations of TICO-19 in one pool of 11 languages. questions: English questions among the sentences of their
paragraphs. part: every fourth paragraph of XQuAD-R. apart: each of its paragraphs in one language, so that no candidate
has a translation. head: an encoder with a head for masked words, which is trained while the encoder stays as it is.
sentences: the sentences of test sets. pairs: parallel sentences without some languages. documents: the first sentences
of each language. contexts: parallel sentences of documents, each with those that follow it, as `train search --context`
reads sentences and paragraphs.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from transformers import AutoModelForMaskedLM, set_seed

from st_xlret import MaskedLMLoss
from st_xlret.data import PairOptions, load_documents, load_pairs, load_retrieval, normalise_text
from st_xlret.data.lines import DataError, read_jsonl, read_lines, required_field
from st_xlret.data.question_formats import sentence_in_paragraph
from st_xlret.data.sources import texts_to_exclude
from st_xlret.data.text import join_sentences
from st_xlret.files import atomic_directory, write_json, write_text
from st_xlret.hub.export import load_model
from st_xlret.options import option, parse
from st_xlret.precision import autocast
from st_xlret.training.encoders import balanced_texts
from training_scripts.demo.demo import read_sentences

OF_PAIRS = ("id", "source_language", "target_language", "source", "target")


def test_sentences(pools: Iterable[str], tatoeba: str | None) -> set[str]:
    """The texts of pools in BEIR's layout, and the English sides of Tatoeba."""
    english: set[str] = set()
    for pool in pools:
        for name in ("corpus", "queries"):
            english |= {row["text"] for _, row in read_jsonl(next(Path(pool).glob(f"{name}.jsonl*")))}
    for file in Path(tatoeba).glob("*.eng") if tatoeba else ():
        english |= set(file.read_text(encoding="utf-8").splitlines())
    return {" ".join(text.split()) for text in english}


def parallel_pool(sentences: Iterable[dict[str, str]]) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Each sentence asks in one language, and its translations are the answers."""
    for number, row in enumerate(sentences):
        asked = list(row)[number % len(row)]
        yield row[asked], asked, [(text, language) for language, text in row.items() if language != asked]


def english_questions(sources: Sequence[str], count: int = 500) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Questions from all of the data; the sentence with the answer comes first, then three of its paragraph."""
    found = load_retrieval(sources, positives="sentence", negatives=3, titles=False)
    for row in found.select(range(0, len(found), max(1, len(found) // count))[:count]):
        texts = [row["positive"], *(row[f"negative_{i}"] for i in range(1, 4))]
        yield row["query"], row["language"], [(text, row["language"]) for text in texts]


def write_rows(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write JSON lines."""
    write_text(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_pool(
    questions: Iterable[tuple[str, str, list[tuple[str, str]]]], folder: Path, answers: int | None = None
) -> None:
    """Write a pool in BEIR's layout.

    Args:
        questions: Question, its language, and candidates with theirs.
        folder: The new folder.
        answers: How many of the first candidates are answers. All by default.
    """
    names: dict[tuple[str, str], str] = {}
    asked, judged = [], ["query-id\tcorpus-id\tscore"]
    for number, (question, language, candidates) in enumerate(questions):
        asked.append({"_id": f"q{number}", "text": question, "metadata": {"language": language}})
        for place, candidate in enumerate(candidates):
            name = names.setdefault(candidate, f"d{len(names)}")
            if answers is None or place < answers:
                judged.append(f"q{number}\t{name}\t1")
    corpus = [{"_id": name, "text": text, "metadata": {"language": code}} for (text, code), name in names.items()]
    with atomic_directory(folder, overwrite=True) as temporary:
        for name, rows in (("corpus", corpus), ("queries", asked)):
            write_rows(temporary / f"{name}.jsonl", rows)
        write_text(temporary / "qrels" / "test.tsv", "\n".join(judged) + "\n")


def part_of_pool(pool: Path, folder: Path, languages: Collection[str] = (), nth: int = 4, apart: bool = False) -> None:
    """Write every nth paragraph of XQuAD-R, in some languages or all, or each in one of them, with its questions."""
    rows = {name: [row for _, row in read_jsonl(next(pool.glob(f"{name}.jsonl*")))] for name in ("corpus", "queries")}
    paragraphs = list(dict.fromkeys(row["metadata"]["document"] for row in rows["corpus"]))
    chosen = set(paragraphs[::nth])
    every = (row for found in rows.values() for row in found)
    spoken = {row["_id"] for row in every if not languages or row["metadata"]["language"] in languages}
    kept = {row["_id"] for row in rows["corpus"] if row["metadata"]["document"] in chosen} & spoken
    if apart:
        codes = sorted({row["metadata"]["language"] for row in rows["corpus"] if row["_id"] in kept})
        code_of = {paragraph: codes[number % len(codes)] for number, paragraph in enumerate(paragraphs)}
        about = {row["_id"]: row["metadata"] for row in rows["corpus"]}
        kept = {name for name in kept if about[name]["language"] == code_of[about[name]["document"]]}
    with atomic_directory(folder, overwrite=True) as temporary:
        for split in ("test", "test-same-language"):
            head, *judged = (line for _, line in read_lines(next((pool / "qrels").glob(f"{split}.tsv*"))))
            lines = [line for line in judged if line.split("\t")[0] in spoken and line.split("\t")[1] in kept]
            kept |= {line.split("\t")[0] for line in lines}
            write_text(temporary / "qrels" / f"{split}.tsv", "\n".join([head, *lines]) + "\n")
        for name, found in rows.items():
            lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in found if row["_id"] in kept]
            write_text(temporary / f"{name}.jsonl", "".join(lines))


def encoder_with_head(checkpoint: str, texts: Sequence[str], folder: Path) -> None:
    """Write an encoder with a head for masked words, trained on the encoder as it is, and the curve of its loss."""
    model = load_model(checkpoint)
    set_seed(0)  # of the weights of the head
    loss = MaskedLMLoss(model, fresh_head=True, seed=0)
    with autocast("auto", model.device):
        curve = loss.train_head(texts)
    encoder: Any = model[0].auto_model
    whole = AutoModelForMaskedLM.from_config(encoder.config)
    whole.base_model.load_state_dict(encoder.state_dict(), strict=False)
    whole.load_state_dict(loss.lm_head.transform.state_dict(), strict=False)
    whole.get_output_embeddings().bias.data.copy_(loss.lm_head.bias)
    with atomic_directory(folder, overwrite=True) as temporary:
        model.save(str(temporary))
        whole.save_pretrained(temporary)
        write_json(temporary / "held_out_losses.json", curve)


def documents_of(sources: Sequence[str], languages: list[str] | None, count: int | None) -> Iterator[dict[str, Any]]:
    """A document of each sentence, until a language has so many."""
    kept: Counter[str] = Counter()
    for row in load_documents(sources, languages=languages):
        kept[row["language"]] += 1
        if count is None or kept[row["language"]] <= count:
            yield {"language": row["language"], "sentences": [row["sentence"]]}


def pairs_of_documents(file: str) -> Iterator[dict[str, str]]:
    """The parallel sentences of a file, each with the `id` that names its document."""
    for line, record in read_jsonl(file):
        try:
            row = {name: required_field(record, name, str) for name in OF_PAIRS}
        except ValueError as error:
            reason = f"{error}; a pair of a document needs {', '.join(OF_PAIRS)}, with an id such as 'guide#12'"
            raise DataError(reason, file=file, line=line) from error
        yield row


def in_contexts(files: Iterable[str], exclude: Sequence[str]) -> Iterator[dict[str, str]]:
    """The first of every five parallel sentences of a document with all five, but for those with an excluded sentence.

    The document is what stands before the last `#`, `:` or `-` of a pair's `id`.
    """
    excluded = texts_to_exclude(exclude)
    for file in files:
        pairs = pairs_of_documents(file)
        for _, document in groupby(
            pairs, lambda row: (re.split(r"[#:-][^#:-]*$", row["id"])[0], row["target_language"])
        ):
            while len(block := list(islice(document, 5))) > 1:
                if not any(normalise_text(row["source"]) in excluded for row in block):
                    languages = {side: block[0][f"{side}_language"] for side in ("source", "target")}
                    yield {f"{side}_language": code for side, code in languages.items()} | {
                        side: sentence_in_paragraph(block[0][side], join_sentences([row[side] for row in block], code))
                        for side, code in languages.items()
                    }


KINDS = ["held-out", "questions", "part", "apart", "sentences", "pairs", "documents", "head", "contexts"]


@dataclass
class Arguments:
    """What to make."""

    kind: str = field(metadata={"help": "What to make.", "choices": KINDS})
    output: str = field(metadata={"help": "The file, or the folder of held-out, questions, part, apart and head."})
    pairs: list[str] = option([], "Parallel sentences; for contexts, files of JSON lines with an `id`.")
    exclude: list[str] = option([], "contexts: text files of sentences that no block may have.")
    documents: list[str] = option([], "Documents.")
    retrieval: list[str] = option([], "questions: questions with answers.")
    model: str | None = option(None, "head: the encoder.")
    languages: list[str] = option([], "Languages to keep. All by default.")
    third: int | None = option(None, "pairs: keep this third of them (0, 1 or 2).")
    without: list[str] = option([], "pairs: languages to leave without parallel sentences.")
    per_language: int | None = option(None, "documents: maximum sentences of each language.")
    characters: int = option(3_000_000, "head: characters of text to train on.")
    pools: list[str] = option([], "sentences: test sets in BEIR's layout. part, apart: XQuAD-R.")
    tatoeba: str | None = option(None, "sentences: folder of Tatoeba.")


def main(given: Sequence[str] | None = None) -> None:
    """Make a file or folder."""
    (arguments,) = parse([Arguments], given, description=__doc__)
    output, languages = Path(arguments.output), arguments.languages or None
    if arguments.kind == "held-out":
        write_pool(parallel_pool(read_sentences()), output)
    elif arguments.kind == "questions":
        write_pool(english_questions(arguments.retrieval), output, answers=1)
    elif arguments.kind == "part":
        part_of_pool(Path(arguments.pools[0]), output, arguments.languages)
    elif arguments.kind == "apart":
        part_of_pool(Path(arguments.pools[0]), output, arguments.languages, nth=1, apart=True)
    elif arguments.kind == "head":
        documents = load_documents(arguments.documents, languages=languages)
        texts = list(balanced_texts([(documents, "sentence", "language")], arguments.characters))
        encoder_with_head(str(arguments.model), texts, output)
    elif arguments.kind == "sentences":
        found = test_sentences(arguments.pools, arguments.tatoeba)
        write_text(output, "\n".join(sorted(found)) + "\n")
    elif arguments.kind == "contexts":
        write_rows(output, in_contexts(arguments.pairs, arguments.exclude))
    elif arguments.kind == "pairs":
        pairs = load_pairs(arguments.pairs, PairOptions(languages=languages))
        apart = set(arguments.without)
        pairs = pairs.filter(lambda row: apart.isdisjoint((row["source_language"], row["target_language"])))
        if arguments.third is not None:
            pairs = pairs.shard(num_shards=3, index=arguments.third, contiguous=False)
        pairs.to_json(str(output), force_ascii=False)
    else:
        write_rows(output, documents_of(arguments.documents, languages, arguments.per_language))


if __name__ == "__main__":
    main()
