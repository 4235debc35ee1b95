"""Data that several rows of a study share: test sets, what is left out, and parts of the texts.

    python -m training_scripts.studies.prepare --kind apart --pools xquad_r --output apart

- held-out: translations of TICO-19 in one pool of 11 languages;
- questions: English questions (--retrieval) among the sentences of their paragraphs;
- part: every fourth paragraph of XQuAD-R (--pools); apart: each of its paragraphs in one language,
  with `--english_share 0.6` that share in English;
- afriqa: questions that people asked in Hausa, Igbo, Kinyarwanda and Zulu (--pools), the English
  passages that answer them, and passages of news (--documents) that crowd them out,
  `--per_language 500` at most. The judgements `train` and `dev` are also those of the questions'
  English translations, whose scores, those of "en", are the bound;
- sentences: those of test sets (--pools, --tatoeba);
- pairs: parallel sentences `--without` some languages, or a `--third` of them;
- contexts: parallel sentences of documents (--pairs), each with those that follow it, as
  `train search --context` reads sentences and paragraphs, without those to `--exclude`;
- documents: the first sentences `--per_language`;
- head: an encoder (--model) with a head for masked words, which is trained on documents while the
  encoder stays.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from transformers import AutoModelForMaskedLM, set_seed

from st_xlret import MaskedLMLoss, load_documents, load_pairs, load_retrieval
from st_xlret.data.reading import read_jsonl, read_lines
from st_xlret.data.sources import find_file
from st_xlret.data.texts import join_sentences, normalize_text
from st_xlret.files import PathLike, atomic_directory, write_json, write_text
from st_xlret.hub.loading import load_model
from st_xlret.options import option, parse, required_option
from st_xlret.precision import autocast
from st_xlret.training.texts import TextColumn, balanced_texts
from training_scripts.demo.demo import read_sentences

Row: TypeAlias = dict[str, Any]

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
SIDES = (("source", "source_language"), ("target", "target_language"))
BLOCK = 5  # sentences that stand together


@dataclass(frozen=True)
class Asked:
    """A question, its language, and its candidates, each with its language."""

    question: str
    language: str
    candidates: list[tuple[str, str]]


@dataclass(frozen=True)
class Pool:
    """A pool in BEIR's layout: the rows of its files, and the lines of judgements of each split."""

    rows: dict[str, list[Row]]
    judged: dict[str, list[list[str]]]


@dataclass
class Arguments:
    """What to make."""

    kind: str = required_option("What to make.", KINDS)
    output: str = required_option(
        "The file, or the folder of held-out, questions, part, apart and head."
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


def read_pool(pool: str, *splits: str) -> Pool:
    """Read a pool, and the judgements of splits."""
    rows = {}
    for name in ("corpus", "queries"):
        file = find_file(pool, f"{name}.jsonl")
        rows[name] = read_rows(file)
    judged = {}
    for split in splits:
        file = find_file(pool, f"qrels/{split}.tsv")
        _, *lines = read_table(file)
        judged[split] = lines
    return Pool(rows, judged)


def read_rows(file: PathLike) -> list[Row]:
    """Read JSON lines."""
    return [row for _, row in read_jsonl(file)]


def read_table(file: PathLike) -> list[list[str]]:
    """Read lines of cells between tabs."""
    return [line.split("\t") for _, line in read_lines(file)]


def write_rows(file: Path, rows: Iterable[Any]) -> None:
    """Write JSON lines."""
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    write_lines(file, lines)


def write_table(file: Path, rows: Iterable[Sequence[str]]) -> None:
    """Write lines of cells between tabs."""
    lines = ["\t".join(cells) for cells in rows]
    write_lines(file, lines)


def write_lines(file: Path, lines: Iterable[str]) -> None:
    """Write lines, each with its end."""
    ended = [f"{line}\n" for line in lines]
    write_text(file, "".join(ended))


def write_pool(folder: Path, pool: Pool) -> None:
    """Write a pool in BEIR's layout."""
    with atomic_directory(folder, overwrite=True) as temporary:
        for name, rows in pool.rows.items():
            write_rows(temporary / f"{name}.jsonl", rows)
        for split, judged in pool.judged.items():
            header = ["query-id", "corpus-id", "score"]
            write_table(temporary / f"qrels/{split}.tsv", [header, *judged])


# Kinds: each makes the output that the options say.


def write_translations(options: Arguments, output: Path) -> None:
    """held-out: each sentence of TICO-19 asks in one language, its translations are the answers."""
    questions = []
    for number, row in enumerate(read_sentences()):
        languages = list(row)
        place = number % len(languages)
        language = languages[place]
        question = row.pop(language)
        answers = [(text, code) for code, text in row.items()]
        questions.append(Asked(question, language, answers))
    pool = pool_of_questions(questions)
    write_pool(output, pool)


def write_english_questions(options: Arguments, output: Path) -> None:
    """questions: 500 from all of the data, each with its answer and three other sentences."""
    rows = load_retrieval(options.retrieval, positives="sentence", negatives=3, titles=False)
    every = max(1, len(rows) // 500)
    places = range(0, len(rows), every)
    names = ("positive", "negative_1", "negative_2", "negative_3")
    questions = []
    for row in rows.select(places[:500]):
        language = row["language"]
        candidates = [(row[name], language) for name in names]
        questions.append(Asked(row["query"], language, candidates))
    pool = pool_of_questions(questions, answers=1)
    write_pool(output, pool)


def pool_of_questions(questions: Iterable[Asked], answers: int | None = None) -> Pool:
    """A pool of which the first candidates of a question, by default all, are answers."""
    names: dict[tuple[str, str], str] = {}
    queries = []
    judged = []
    for number, asked in enumerate(questions):
        query = f"q{number}"
        row = row_of_text(query, asked.question, asked.language)
        queries.append(row)
        for candidate in asked.candidates:
            names.setdefault(candidate, f"d{len(names)}")
        for candidate in asked.candidates[:answers]:
            judged.append([query, names[candidate], "1"])
    corpus = []
    for (text, language), name in names.items():
        row = row_of_text(name, text, language)
        corpus.append(row)
    return Pool({"corpus": corpus, "queries": queries}, {"test": judged})


def row_of_text(name: str, text: str, language: str) -> Row:
    """A text in BEIR's layout."""
    return {"_id": name, "text": text, "metadata": {"language": language}}


def write_part(options: Arguments, output: Path) -> None:
    """part: every fourth paragraph of XQuAD-R in all languages."""
    pool = read_xquad(options)
    codes = languages_of(pool, options)
    every_fourth = paragraphs_of(pool)[::4]
    kept = dict.fromkeys(every_fourth, codes)
    part = some_paragraphs(pool, kept, codes)
    write_pool(output, part)


def write_apart(options: Arguments, output: Path) -> None:
    """apart: each paragraph of XQuAD-R in one language, a share of them in English.

    Without a share, English is a language like the others.
    """
    share = options.english_share
    pool = read_xquad(options)
    codes = languages_of(pool, options)
    others = codes
    if share:
        others = [code for code in codes if code != "en"]
    kept = {}
    for number, paragraph in enumerate(paragraphs_of(pool)):
        english_before = int(number * share)
        english_after = int((number + 1) * share)
        others_before = number - english_before
        language = others[others_before % len(others)]
        if english_after > english_before:
            language = "en"
        kept[paragraph] = [language]
    apart = some_paragraphs(pool, kept, codes)
    write_pool(output, apart)


def read_xquad(options: Arguments) -> Pool:
    """XQuAD-R with the judgements of one pool of all languages, and of one of each.

    The published protocol searches sentences without the titles of the file.
    """
    pool = read_pool(options.pools[0], "test", "test-same-language")
    for row in pool.rows["corpus"]:
        row["title"] = ""
    return pool


def languages_of(pool: Pool, options: Arguments) -> list[str]:
    """The languages to keep, by default all of a pool."""
    if options.languages:
        return sorted(options.languages)
    return sorted({language_of(row) for row in pool.rows["corpus"]})


def language_of(text: Row) -> str:
    """The language of a text in BEIR's layout."""
    language: str = text["metadata"]["language"]
    return language


def paragraph_of(sentence: Row) -> str:
    """The name of the paragraph of a sentence in BEIR's layout."""
    paragraph: str = sentence["metadata"]["document"]
    return paragraph


def paragraphs_of(pool: Pool) -> list[str]:
    """The paragraphs of a pool in their order."""
    paragraphs = dict.fromkeys(paragraph_of(row) for row in pool.rows["corpus"])
    return list(paragraphs)


def some_paragraphs(pool: Pool, kept: dict[str, list[str]], codes: Sequence[str]) -> Pool:
    """Paragraphs of a pool, each in the languages that are kept of it, with their questions."""
    corpus = []
    for row in pool.rows["corpus"]:
        languages = kept.get(paragraph_of(row), [])
        if language_of(row) in languages:
            corpus.append(row)
    names = {row["_id"] for row in corpus}
    asked = {row["_id"] for row in pool.rows["queries"] if language_of(row) in codes}
    judged: dict[str, list[list[str]]] = {}
    answered = set()
    for split, lines in pool.judged.items():
        judged[split] = []
        for cells in lines:
            query, name, *_ = cells
            if query in asked and name in names:
                judged[split].append(cells)
                answered.add(query)
    queries = [row for row in pool.rows["queries"] if row["_id"] in answered]
    return Pool({"corpus": corpus, "queries": queries}, judged)


def write_afriqa(options: Arguments, output: Path) -> None:
    """afriqa: AfriQA among passages of news that are as long, each language's from all articles.

    Each question stands once as it was asked, and once in its English translation; those of `train`
    are pairs, too, and a log without labels (`log.jsonl`). `questions.jsonl` has the questions that
    stand in the news, and `topics.jsonl` those of MIRACL's files of topics,
    `topics.miracl-v1.0-yo-dev.tsv`.
    """
    pool = read_pool(options.pools[0], "train", "dev")
    corpus = pool.rows["corpus"]
    queries = pool.rows["queries"]
    articles = []
    for file in options.documents:
        articles += read_rows(file)
    lengths = [len(row["text"]) for row in corpus]
    length = float(np.median(lengths))
    news = passages_of_news(articles, length, options.per_language)
    english = [in_english(row) for row in queries]
    train = {query for query, *_ in pool.judged["train"]}
    asked = [row for row in queries if row["_id"] in train]
    rows = {
        "corpus": [*corpus, *news],
        "queries": [*queries, *english],
        "questions": questions_in_news(articles),
        "pairs": [translated_pair(row) for row in asked],
        "log": [row_of_log(row) for row in asked],
    }
    if options.topics:
        rows["topics"] = read_topics(options.topics)
    judged = {}
    for split, lines in pool.judged.items():
        of_english = [[f"{query}-en", *cells] for query, *cells in lines]
        judged[split] = [*lines, *of_english]
    write_pool(output, Pool(rows, judged))


def passages_of_news(articles: Iterable[Row], length: float, per_language: int) -> list[Row]:
    """Passages of at least a length, evenly from all articles of a language."""
    passages: dict[str, list[Row]] = {}
    for article in articles:
        language = article["language"]
        of_language = passages.setdefault(language, [])
        text = ""
        for sentence in article["sentences"]:
            text = f"{text} {sentence}".strip()
            if len(text) >= length:  # what is left of an article is no passage
                row = row_of_text(f"news-{language}-{len(of_language)}", text, language)
                row["title"] = article["title"]
                of_language.append(row)
                text = ""
    kept = []
    for of_language in passages.values():
        if of_language:
            every = math.ceil(len(of_language) / per_language)
            kept += of_language[::every]
    return kept


def questions_in_news(articles: Iterable[Row]) -> list[Row]:
    """The titles and sentences of articles that are questions."""
    questions = []
    for article in articles:
        for text in (article["title"], *article["sentences"]):
            if text.endswith("?"):
                questions.append({"text": text, "language": article["language"]})
    return questions


def in_english(question: Row) -> Row:
    """A question of AfriQA in its English translation."""
    name = f"{question['_id']}-en"
    about = question["metadata"]
    return row_of_text(name, about["english"], "en")


def translated_pair(question: Row) -> Row:
    """A question of AfriQA and its English translation as parallel sentences."""
    about = question["metadata"]
    return {
        "source": question["text"],
        "source_language": about["language"],
        "target": about["english"],
        "target_language": "en",
    }


def row_of_log(question: Row) -> Row:
    """A question of AfriQA as a log of searches has it, without labels."""
    return {"text": question["text"], "language": language_of(question)}


def read_topics(files: Iterable[str]) -> list[Row]:
    """The questions of MIRACL's files of topics, which name their language."""
    rows = []
    for file in files:
        _, _, language, *_ = Path(file).name.split("-")
        for _, text, *_ in read_table(file):
            rows.append({"text": text, "language": language})
    return rows


def write_encoder_with_head(options: Arguments, output: Path) -> None:
    """head: an encoder with a head for masked words, and the curve of the head's loss.

    The head is trained on the encoder as it is.
    """
    documents = load_documents(options.documents, languages=options.languages or None)
    sentences = TextColumn(documents, "sentence", "language")
    texts = balanced_texts([sentences], options.characters)
    model = load_model(str(options.model))
    set_seed(0)  # of the weights of the head
    loss = MaskedLMLoss(model, fresh_head=True, seed=0)
    with autocast("auto", model.device):
        curve = loss.train_head(list(texts))
    encoder: Any = model[0].auto_model
    whole = AutoModelForMaskedLM.from_config(encoder.config)
    whole.base_model.load_state_dict(encoder.state_dict(), strict=False)
    whole.load_state_dict(loss.lm_head.transform.state_dict(), strict=False)
    projection = whole.get_output_embeddings()
    projection.bias.data.copy_(loss.lm_head.bias)
    with atomic_directory(output, overwrite=True) as temporary:
        model.save(str(temporary))
        whole.save_pretrained(temporary)
        write_json(temporary / "held_out_losses.json", curve)


def write_sentences(options: Arguments, output: Path) -> None:
    """sentences: all texts of test sets, which are not to be trained on."""
    texts: set[str] = set()
    for pool in options.pools:
        for rows in read_pool(pool).rows.values():
            texts.update(row["text"] for row in rows)
    if options.tatoeba:
        for file in Path(options.tatoeba).glob("*.eng"):
            content = file.read_text(encoding="utf-8")
            texts.update(content.splitlines())
    lines = {" ".join(text.split()) for text in texts}
    write_lines(output, sorted(lines))


def write_pairs(options: Arguments, output: Path) -> None:
    """pairs: parallel sentences without some languages, or a third of them."""

    def is_kept(row: Row) -> bool:
        languages = {row["source_language"], row["target_language"]}
        return languages.isdisjoint(options.without)

    pairs = load_pairs(options.pairs, languages=options.languages or None)
    pairs = pairs.filter(is_kept)
    if options.third is not None:
        pairs = pairs.shard(num_shards=3, index=options.third, contiguous=False)
    pairs.to_json(str(output), force_ascii=False)


def write_contexts(options: Arguments, output: Path) -> None:
    """contexts: the first of every five parallel sentences of a document with all five.

    Those with an excluded sentence are left out; one sentence alone has no context.
    """
    excluded = set()
    for file in options.exclude:
        for _, text in read_lines(file):
            excluded.add(normalize_text(text))
    rows = []
    for file in options.pairs:
        for block in blocks_of(file):
            sources = {normalize_text(pair["source"]) for pair in block}
            if len(block) > 1 and excluded.isdisjoint(sources):
                rows.append(with_context(block))
    write_rows(output, rows)


def blocks_of(file: str) -> Iterator[list[Row]]:
    """The parallel sentences of a file, in runs of five of one document and language."""
    pairs = read_rows(file)
    for _, document in groupby(pairs, document_of):
        sentences = list(document)
        for start in range(0, len(sentences), BLOCK):
            yield sentences[start : start + BLOCK]


def document_of(pair: Row) -> tuple[str, str]:
    """The document of a pair, which stands before the last `#`, `:` or `-` of its `id`."""
    document = re.sub("[#:-][^#:-]*$", "", pair["id"])
    return document, pair["target_language"]


def with_context(block: Sequence[Row]) -> Row:
    """The first of some parallel sentences, each side followed by all of them."""
    first = block[0]
    row: Row = {}
    for side, language in SIDES:
        sentences = [pair[side] for pair in block]
        context = join_sentences(sentences, first[language])
        row[language] = first[language]
        row[side] = f"{first[side]} {context}"
    return row


def write_documents(options: Arguments, output: Path) -> None:
    """documents: the first sentences of each language, each a document of its own."""
    documents = load_documents(options.documents, languages=options.languages or None)
    table: Any = documents.select_columns(["language", "sentence"]).to_pandas()
    first = table.groupby("language").head(options.per_language)
    rows = []
    for language, sentence in first.to_numpy():
        row = {"language": language, "sentences": [sentence]}
        rows.append(row)
    write_rows(output, rows)


MAKERS: dict[str, Callable[[Arguments, Path], None]] = {
    "held-out": write_translations,
    "questions": write_english_questions,
    "part": write_part,
    "apart": write_apart,
    "sentences": write_sentences,
    "pairs": write_pairs,
    "documents": write_documents,
    "head": write_encoder_with_head,
    "contexts": write_contexts,
    "afriqa": write_afriqa,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Make a file or folder.

    A `FileExistsError` refuses to replace a file.
    """
    (options,) = parse([Arguments], arguments, description=__doc__)
    output = Path(options.output)
    if output.is_file():
        raise FileExistsError(
            f"{output} is there already: nothing is overwritten, give another name"
        )
    MAKERS[options.kind](options, output)


if __name__ == "__main__":
    main()
