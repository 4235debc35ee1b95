"""Questions with the passages, or the sentences, that answer them: BEIR folders, and rows of one's own."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import index
from pathlib import Path
from typing import Any, Literal, NamedTuple

import datasets
from tqdm.auto import tqdm

from st_xlret.data import beir, reading
from st_xlret.data.reading import BadLines, Counts, clean_text, read_jsonl
from st_xlret.files import PathLike
from st_xlret.languages import check_language, language_of, match_language

FORMATS = (
    'folders in BEIR\'s layout (corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv), and JSON lines {"query", "positive", '
    '"title", "negatives", "answers", "answer_start", "language"} (.jsonl), of which the first two are needed; the '
    "guide has recipes for the files of DPR, SQuAD, MS MARCO, Mr.TyDi, XOR-TyDi and Mewsli-X"
)


class Example(NamedTuple):
    """A question as read, its passage, its answers, and (title, text) of passages that do not answer it."""

    query: str
    title: str
    text: str
    answers: list[str]
    language: str | None
    negatives: Sequence[tuple[str, str]] = ()
    passage_language: str | None = None
    answer_start: int | None = None


def load_retrieval(
    sources: PathLike | Sequence[PathLike],
    *,
    negatives: int = 0,
    positives: Literal["passage", "sentence"] = "passage",
    context: bool = False,
    titles: bool = True,
    split: str = "train",
    language: str = "en",
    languages: Iterable[str] | None = None,
    exclude: Sequence[PathLike] = (),
    skip_bad_lines: bool = False,
    counts: Counts | None = None,
    cache_dir: PathLike | None = None,
) -> datasets.Dataset:
    """Read questions with the passages that answer them into one memory-mapped data set.

    Its string columns are `query`, `positive`, `negative_1` ... and `language`. The table is kept, and the other
    arguments are, as in [`load_documents`][st_xlret.load_documents].

    Args:
        sources: One or several files or folders, as `FORMATS` says.
        negatives: Hard negatives per question; questions with fewer repeat theirs, those without any are left out.
        positives: `"passage"`, or `"sentence"` for the sentence that contains the answer: sentences without any answer
            are negatives then, and a passage in which no sentence has it stays whole.
        context: Put its passage after each sentence, as `LAReQAEvaluator` with `context` reads candidates.
        titles: Put the titles of passages before their texts.
        split: Which judgements of a BEIR folder to use.
        language: Language of questions and passages that name none.
        languages: Languages of questions to keep.
        exclude: Text files, one text per line. An example is left out if its question or passage occurs in them.
        skip_bad_lines: Skip and count bad lines.
        counts: Filled with counts by source: of `examples`, and of those left out by their reason.
        cache_dir: Folder of the table.
    """
    if positives not in ("passage", "sentence") or (context and positives != "sentence"):
        raise ValueError(
            f"positives must be 'passage' or 'sentence', which context needs, got {positives!r}"
        )
    language, loader = (
        check_language(language),
        reading.Loader(languages, exclude, skip_bad_lines, counts),
    )
    streams, files = list[tuple[PathLike, Iterator[Example]]](), list[Path]()
    for source in reading.split_sources(sources)[0]:
        if beir.is_beir_folder(Path(source).expanduser()):
            found = beir.BeirFiles.of_folder(source, split)
            streams.append((source, _beir_examples(found, loader.bad_lines)))
            part = [found.corpus, found.queries, found.qrels]
        else:
            part = reading.source_files([source], _holds_questions, f"questions: {FORMATS}")
            for file in part:
                records = read_jsonl(file, loader.bad_lines)
                streams.append(
                    (
                        file,
                        reading.parse_or_report(records, _example_of_row, file, loader.bad_lines),
                    )
                )
        files += part

    def table_rows() -> Iterator[tuple[str, ...]]:
        seen: set[int] = set()
        for source, examples in tqdm(streams, desc="Reading", unit=" sources", disable=None):
            for example in examples:
                positive, others = _passages(
                    example, positives == "sentence", context, titles, language
                )
                query, code = (
                    example.query,
                    match_language(example.language or language, loader.languages),
                )
                distinct = [text for text in dict.fromkeys(others) if text and text != positive]
                outcome = "examples"
                if code is None:
                    outcome = "other_languages"
                elif not query or not positive:
                    outcome = "empty"
                elif negatives and not distinct:
                    outcome = "no_negative"
                elif loader.excludes(query, positive):
                    outcome = "excluded"
                elif (row := hash((query, positive, *(distinct if negatives else ())))) in seen:
                    outcome = "duplicate"
                else:
                    seen.add(row)
                    yield (
                        query,
                        positive,
                        *(distinct[i % len(distinct)] for i in range(negatives)),
                        code,
                    )
                loader.counts[str(source), outcome] += 1

    options = [negatives, positives, context, titles, language]
    columns = ["query", "positive", *(f"negative_{i}" for i in range(1, negatives + 1)), "language"]
    return loader.cached_table(
        "questions", dict.fromkeys(columns, "string"), table_rows(), options, files, cache_dir
    )


def _holds_questions(file: Path) -> bool:
    is_jsonl = file.name.removesuffix(".gz").endswith(".jsonl")
    return is_jsonl and {"query", "positive"} <= reading.first_record(file).keys()


def _example_of_row(record: Mapping[str, Any]) -> Example:
    query, text = (clean_text(record[name]) for name in ("query", "positive"))
    title, code = clean_text(record.get("title") or ""), language_of(record)
    negatives, answers = (_clean_texts(record.get(name)) for name in ("negatives", "answers"))
    if (start := record.get("answer_start")) is not None:
        start, text = (
            index(start),
            record["positive"],
        )  # a number of characters of the text as it stands
    return Example(
        query, title, text, answers, code, [("", one) for one in negatives], answer_start=start
    )


def _beir_examples(files: beir.BeirFiles, bad_lines: BadLines) -> Iterator[Example]:
    """A question gives an example for each relevant passage.

    Passages judged 0 are its hard negatives.
    """
    judged = beir.read_qrels(files.qrels, bad_lines)
    names = {name for judgements in judged.values() for name in judgements}
    passages = _clean_texts_by_id(files.corpus, names, bad_lines)
    asked = _clean_texts_by_id(files.queries, judged.keys(), bad_lines)
    missing = names - passages.keys()
    if missing:
        reading.logger.warning(
            "%s: %d judged passages are not in %s and left out, such as %r",
            files.qrels,
            len(missing),
            files.corpus.name,
            min(missing),
        )
    for query, judgements in judged.items():
        question = asked.get(query)
        if question is None:
            bad_lines(f"the query {query!r} is not in {files.queries.name}", files.qrels, 0)
            continue
        relevant = []
        negatives = []
        for name, grade in judgements.items():
            passage = passages.get(name)
            if passage is None:
                continue
            if grade > 0:
                relevant.append(passage)
            else:
                negatives.append((passage.title, passage.text))
        for passage in relevant:
            yield Example(
                query=question.text,
                title=passage.title,
                text=passage.text,
                answers=question.answers,
                language=question.language,
                negatives=negatives,
                passage_language=passage.language,
            )


def _clean_texts_by_id(
    file: Path, ids: Collection[str], bad_lines: BadLines
) -> dict[str, beir.BeirText]:
    """The texts with these ids, cleaned; another text of an id is a bad line."""
    texts: dict[str, beir.BeirText] = {}
    for number, text in beir.read_texts(file, bad_lines, ids=ids):
        try:
            clean = replace(
                text,
                title=clean_text(text.title),
                text=clean_text(text.text),
                answers=_clean_texts(text.answers),
            )
        except ValueError as error:
            bad_lines(str(error), file, number)
            continue
        if texts.setdefault(text.id, clean) != clean:
            bad_lines(f"another text above has the id {text.id!r}", file, number)
    return texts


def _clean_texts(value: Any) -> list[str]:
    return [clean_text(text) for text in ([value] if isinstance(value, str) else value or [])]


def _passages(
    example: Example, sentences: bool, context: bool, titles: bool, language: str
) -> tuple[str, list[str]]:
    """The positive text and the negative ones: passages, or `sentences` of the passage, with and without an answer."""

    def full(title: str, text: str) -> str:
        return clean_text(f"{title} {text}" if titles else text)

    text, others = example.text, [full(*negative) for negative in example.negatives]
    if sentences:
        parts = reading.split_sentences(text, example.passage_language or language)
        answering = _answering_sentence(parts, text, example.answers, example.answer_start)
        if answering is not None:
            without = [
                part
                for part in parts
                if not any(answer and answer in part for answer in example.answers)
            ]
            text, *rest = (f"{part} {text}" if context else part for part in (answering, *without))
            others += [full(example.title, part) for part in rest]
    return full(example.title, text), others


def _answering_sentence(
    sentences: Sequence[str], text: str, answers: Sequence[str], start: int | None
) -> str | None:
    """The sentence at the position of the first answer, or the first with an answer."""
    if start is not None and answers:
        # Splitting changes white space: characters are counted without it.
        position = len("".join(text[:start].split()))
        for sentence in sentences:
            if position < (length := len("".join(sentence.split()))):
                return sentence if answers[0] in sentence else None
            position -= length
    return next((one for answer in answers for one in sentences if answer and answer in one), None)
