"""Data that several rows of a study share: test sets, what must not be trained on, and parts of the texts.

    python -m training_scripts.studies.prepare --kind apart --pools xquad_r --output apart

- held-out: translations of TICO-19 in one pool of 11 languages;
- questions: English questions (--retrieval) among the sentences of their paragraphs;
- part: every fourth paragraph of XQuAD-R (--pools); apart: each of its paragraphs in one language, with
  `--english_share 0.6` that share in English;
- afriqa: questions that people asked in Hausa, Igbo, Kinyarwanda and Zulu (--pools), the English passages that answer
  them, and passages of news (--documents) that crowd them out, `--per_language 500` at most. The judgements `train` and
  `dev` are also those of the questions' English translations, whose scores, those of "en", are the bound;
- sentences: those of test sets (--pools, --tatoeba);
- pairs: parallel sentences `--without` some languages, or a `--third` of them;
- contexts: parallel sentences of documents (--pairs), each with those that follow it, as `train search --context` reads
  sentences and paragraphs, without those to `--exclude`;
- documents: the first sentences `--per_language`;
- head: an encoder (--model) with a head for masked words, which is trained on documents while the encoder stays.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoModelForMaskedLM, set_seed

from st_xlret import MaskedLMLoss, load_documents, load_pairs, load_retrieval
from st_xlret.data.reading import read_jsonl, read_lines
from st_xlret.data.sources import find_file
from st_xlret.data.texts import join_sentences, normalise_text
from st_xlret.files import atomic_directory, write_json, write_text
from st_xlret.hub.export import load_model
from st_xlret.options import option, parse
from st_xlret.precision import autocast
from st_xlret.training.encoders import balanced_texts
from training_scripts.demo.demo import read_sentences

KINDS = [
    "held-out",
    "questions",
    "part",
    "apart",
    "sentences",
    "pairs",
    "documents",
    "head",
    "contexts",
    "afriqa",
]
Asked = tuple[
    str, str, list[tuple[str, str]]
]  # a question, its language, and candidates with theirs


@dataclass
class Arguments:
    """What to make."""

    kind: str = field(metadata={"help": "What to make.", "choices": KINDS})
    output: str = field(
        metadata={"help": "The file, or the folder of held-out, questions, part, apart and head."}
    )
    pairs: list[str] = option(
        [], "Parallel sentences; for contexts, files of JSON lines with an `id`."
    )
    exclude: list[str] = option([], "contexts: text files of sentences that no block may have.")
    documents: list[str] = option(
        [], "Documents; for afriqa, files of JSON lines with a `title` and `sentences`."
    )
    retrieval: list[str] = option([], "questions: questions with answers.")
    model: str | None = option(None, "head: the encoder.")
    languages: list[str] = option([], "Languages to keep. All by default.")
    third: int | None = option(None, "pairs: keep this third of them (0, 1 or 2).")
    without: list[str] = option([], "pairs: languages to leave without parallel sentences.")
    per_language: int = option(
        10**9, "documents, afriqa: maximum sentences, or passages of news, of each language."
    )
    characters: int = option(3_000_000, "head: characters of text to train on.")
    pools: list[str] = option([], "sentences: test sets in BEIR's layout. part, apart: XQuAD-R.")
    english_share: float = option(0.0, "apart: share of the paragraphs that is in English.")
    topics: list[str] = option(
        [], "afriqa: MIRACL's files of topics, as questions in other languages."
    )
    tatoeba: str | None = option(None, "sentences: folder of Tatoeba.")


def read_pool(
    pool: str, *splits: str
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, list[list[str]]]]:
    """The rows of a pool in BEIR's layout, and the judgements of splits as the cells of their lines."""
    rows = {
        name: [row for _, row in read_jsonl(find_file(pool, f"{name}.jsonl"))]
        for name in ("corpus", "queries")
    }
    files = {split: find_file(pool, f"qrels/{split}.tsv") for split in splits}
    return rows, {
        split: [line.split("\t") for _, line in read_lines(file)][1:]
        for split, file in files.items()
    }


def write_rows(file: Path, rows: Iterable[Any]) -> None:
    """Write JSON lines."""
    write_text(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_pool(
    folder: Path, rows: Mapping[str, Iterable[Any]], judged: Mapping[str, Sequence[Sequence[str]]]
) -> None:
    """Write a pool in BEIR's layout."""
    with atomic_directory(folder, overwrite=True) as temporary:
        for name, part in rows.items():
            write_rows(temporary / f"{name}.jsonl", part)
        for split, lines in judged.items():
            text = "".join(
                "\t".join(cells) + "\n" for cells in (("query-id", "corpus-id", "score"), *lines)
            )
            write_text(temporary / f"qrels/{split}.tsv", text)


def translations() -> Iterator[Asked]:
    """Each sentence of TICO-19 asks in one language, and its translations are the answers."""
    for number, row in enumerate(read_sentences()):
        asked = list(row)[number % len(row)]
        yield (
            row[asked],
            asked,
            [(text, language) for language, text in row.items() if language != asked],
        )


def english_questions(sources: Sequence[str]) -> Iterator[Asked]:
    """500 questions from all of the data; the sentence with the answer comes first, then three of its paragraph."""
    questions = load_retrieval(sources, positives="sentence", negatives=3, titles=False)
    for row in questions.select(range(0, len(questions), max(1, len(questions) // 500))[:500]):
        question, *texts, language = row.values()
        yield question, language, [(text, language) for text in texts]


def write_questions(questions: Iterable[Asked], folder: Path, answers: int | None = None) -> None:
    """Write a pool of which the first candidates of a question, by default all, are answers."""
    names, asked, judged = dict[tuple[str, str], str](), [], []
    for number, (question, language, candidates) in enumerate(questions):
        asked.append({"_id": f"q{number}", "text": question, "metadata": {"language": language}})
        documents = [names.setdefault(candidate, f"d{len(names)}") for candidate in candidates]
        judged += [(f"q{number}", name, "1") for name in documents[:answers]]
    corpus = [
        {"_id": name, "text": text, "metadata": {"language": code}}
        for (text, code), name in names.items()
    ]
    write_pool(folder, {"corpus": corpus, "queries": asked}, {"test": judged})


def part_of_pool(
    pool: str, folder: Path, languages: Sequence[str], english_share: float | None
) -> None:
    """Write each paragraph of XQuAD-R in one language, by the share of English, or every fourth in all, if None."""
    rows, judged = read_pool(pool, "test", "test-same-language")
    corpus, queries = (
        {row["_id"]: row["metadata"] for row in rows[name]} for name in ("corpus", "queries")
    )
    codes = sorted(languages or {about["language"] for about in corpus.values()})
    paragraphs = list(dict.fromkeys(about["document"] for about in corpus.values()))
    languages_of = dict.fromkeys(paragraphs[::4], codes)
    if english_share is not None:
        others = [code for code in codes if code != "en"] if english_share else codes
        for number, paragraph in enumerate(paragraphs):
            before, after = int(number * english_share), int((number + 1) * english_share)
            languages_of[paragraph] = [
                "en" if after > before else others[(number - before) % len(others)]
            ]
    kept = {
        name
        for name, about in corpus.items()
        if about["language"] in languages_of.get(about["document"], ())
    }
    for split, lines in judged.items():
        judged[split] = [
            cells for cells in lines if queries[cells[0]]["language"] in codes and cells[1] in kept
        ]
    kept |= {cells[0] for lines in judged.values() for cells in lines}
    write_pool(
        folder,
        {name: (row for row in part if row["_id"] in kept) for name, part in rows.items()},
        judged,
    )


def write_afriqa(
    pool: str, news: Sequence[str], topics: Sequence[str], folder: Path, per_language: int
) -> None:
    """Write AfriQA among passages of news that are as long, each language's from all of its articles.

    Each question stands once as it was asked, and once in its English translation; those of `train` are pairs, too, and
    a log without labels (`log.jsonl`). `questions.jsonl` has the questions that stand in the news, and `topics.jsonl`
    those of MIRACL's files of topics, `topics.miracl-v1.0-yo-dev.tsv`.
    """
    rows, judged = read_pool(pool, "train", "dev")
    length = np.median([len(row["text"]) for row in rows["corpus"]])
    passages: dict[str, list[dict[str, Any]]] = {}
    rows["questions"] = []
    for article in (row for file in news for _, row in read_jsonl(file)):
        language, text = article["language"], ""
        of_language = passages.setdefault(language, [])
        texts = (article["title"], *article["sentences"])
        rows["questions"] += [
            {"text": line, "language": language} for line in texts if line.endswith("?")
        ]
        for sentence in article["sentences"]:
            text = f"{text} {sentence}".strip()
            if len(text) >= length:  # what is left of an article is no passage
                about = {
                    "title": article["title"],
                    "text": text,
                    "metadata": {"language": language},
                }
                of_language.append({"_id": f"news-{language}-{len(of_language)}", **about})
                text = ""
    for of_language in passages.values():
        rows["corpus"] += of_language[:: math.ceil(len(of_language) / per_language)]
    asked, train = rows["queries"], {query for query, *_ in judged["train"]}
    rows["queries"] = asked + [
        {
            "_id": f"{row['_id']}-en",
            "text": row["metadata"]["english"],
            "metadata": {"language": "en"},
        }
        for row in asked
    ]
    rows["pairs"] = [
        {"source": row["text"], "source_language": row["metadata"]["language"]}
        | {"target": row["metadata"]["english"], "target_language": "en"}
        for row in asked
        if row["_id"] in train
    ]
    if topics:
        rows["topics"] = [
            {"text": line.split("\t")[1], "language": Path(file).name.split("-")[2]}
            for file in topics
            for _, line in read_lines(file)
        ]
    rows["log"] = [
        {"text": pair["source"], "language": pair["source_language"]} for pair in rows["pairs"]
    ]
    for lines in judged.values():
        lines += [[f"{query}-en", *cells] for query, *cells in lines]
    write_pool(folder, rows, judged)


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


def in_contexts(files: Iterable[str], exclude: Sequence[str]) -> Iterator[dict[str, str]]:
    """The first of every five parallel sentences of a document with all five, but for those with an excluded sentence.

    The document is what stands before the last `#`, `:` or `-` of a pair's `id`; one sentence alone has no context.
    """
    excluded = {normalise_text(text) for file in exclude for _, text in read_lines(file)}
    for file in files:
        rows = (row for _, row in read_jsonl(file))
        for _, document in groupby(
            rows, lambda row: (re.sub("[#:-][^#:-]*$", "", row["id"]), row["target_language"])
        ):
            while len(block := list(islice(document, 5))) > 1:
                if excluded.isdisjoint(normalise_text(pair["source"]) for pair in block):
                    row: dict[str, str] = {}
                    for side, field in (
                        ("source", "source_language"),
                        ("target", "target_language"),
                    ):
                        context = join_sentences([pair[side] for pair in block], block[0][field])
                        row |= {field: block[0][field], side: f"{block[0][side]} {context}"}
                    yield row


def main(arguments: Sequence[str] | None = None) -> None:
    """Make a file or folder."""
    (options,) = parse([Arguments], arguments, description=__doc__)
    output, languages = Path(options.output), options.languages or None
    if output.is_file():
        raise FileExistsError(
            f"{output} is there already: nothing is overwritten, give another name"
        )
    if options.kind == "held-out":
        write_questions(translations(), output)
    elif options.kind == "questions":
        write_questions(english_questions(options.retrieval), output, answers=1)
    elif options.kind in ("part", "apart"):
        share = options.english_share if options.kind == "apart" else None
        part_of_pool(options.pools[0], output, options.languages, share)
    elif options.kind == "head":
        sources = [(load_documents(options.documents, languages=languages), "sentence", "language")]
        encoder_with_head(
            str(options.model), list(balanced_texts(sources, options.characters)), output
        )
    elif options.kind == "sentences":
        texts = {
            row["text"]
            for pool in options.pools
            for rows in read_pool(pool)[0].values()
            for row in rows
        }
        for file in Path(options.tatoeba).glob("*.eng") if options.tatoeba else ():
            texts |= set(file.read_text(encoding="utf-8").splitlines())
        write_text(output, "\n".join(sorted({" ".join(text.split()) for text in texts})) + "\n")
    elif options.kind == "afriqa":
        write_afriqa(
            options.pools[0], options.documents, options.topics, output, options.per_language
        )
    elif options.kind == "contexts":
        write_rows(output, in_contexts(options.pairs, options.exclude))
    elif options.kind == "documents":
        rows: Any = load_documents(options.documents, languages=languages).select_columns(
            ["language", "sentence"]
        )
        first = rows.to_pandas().groupby("language").head(options.per_language)
        write_rows(
            output, ({"language": code, "sentences": [text]} for code, text in first.to_numpy())
        )
    else:
        pairs, apart = load_pairs(options.pairs, languages=languages), set(options.without)
        pairs = pairs.filter(
            lambda row: apart.isdisjoint((row["source_language"], row["target_language"]))
        )
        if options.third is not None:
            pairs = pairs.shard(num_shards=3, index=options.third, contiguous=False)
        pairs.to_json(str(output), force_ascii=False)


if __name__ == "__main__":
    main()
