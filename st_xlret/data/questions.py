"""Questions with the passages, or the sentences, that answer them: BEIR folders, and rows of one's own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import datasets
from tqdm.auto import tqdm

from st_xlret.data.reading import (
    BadLines,
    DataError,
    PathLike,
    Report,
    clean_text,
    files_of,
    find_file,
    first_record,
    kept_table,
    key_of,
    normalise_text,
    normalised_lines,
    read_jsonl,
    read_qrels,
    split_sentences,
    split_sources,
)
from st_xlret.languages import check_language, check_languages, match_language

FORMATS = (
    'folders in BEIR\'s layout (corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv), and JSON lines {"query", "positive", '
    '"title", "negatives", "answers", "answer_start", "language"} (.jsonl), of which the first two are needed; the '
    "guide has recipes for the files of DPR, SQuAD, MS MARCO, Mr.TyDi, XOR-TyDi and Mewsli-X"
)


class Example(NamedTuple):
    """A question as read, with its passage, (title, text) of passages that do not answer it, and its answers."""

    query: str
    title: str
    text: str
    negatives: list[tuple[str, str]]
    answers: list[str]
    language: str | None
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
    report: Report | None = None,
    cache_dir: PathLike | None = None,
) -> datasets.Dataset:
    r"""Read questions with the passages that answer them into one memory-mapped data set.

    The table is kept, and a second call with the same unchanged files and options uses it again.

    Args:
        sources: One or several files or folders, as `FORMATS` says.
        negatives: Hard negatives per question; questions with fewer repeat theirs, those without any are left out.
        positives: `"passage"`, or `"sentence"` for the sentence that contains the answer: sentences without any answer
            are negatives then, and a passage in which no sentence has it stays whole.
        context: Put its passage after each sentence, as `LAReQAEvaluator` with `context` reads candidates.
        titles: Put the titles of passages before their texts.
        split: Which judgements of a BEIR folder to use.
        language: Language of questions and passages that name none.
        languages: Languages of questions to keep. All by default.
        exclude: Text files, one text per line. An example is left out if its question or passage occurs in them,
            whatever the case, punctuation and white space.
        skip_bad_lines: Skip and count bad lines instead of raising an error.
        report: Filled with counts by source: of `examples`, and of those left out by their reason.
        cache_dir: Folder of the table. By default `st_xlret` inside the cache of `datasets`.

    Returns:
        String columns `query`, `positive`, `negative_1` ... and `language`.

    Raises:
        DataError: For a bad line (file and line are named), another format, or if no example is left.
        FileNotFoundError: If a BEIR folder lacks a file or the split.
        ValueError: For a bad option.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp(), "rows.jsonl")
        >>> _ = file.write_text('{"query": "who", "positive": "me", "negatives": ["it"]}', encoding="utf-8")
        >>> load_retrieval(file, negatives=1, cache_dir=file.parent)[0]
        {'query': 'who', 'positive': 'me', 'negative_1': 'it', 'language': 'en'}
    """
    if positives not in ("passage", "sentence") or (context and positives != "sentence"):
        raise ValueError(f"positives must be 'passage' or 'sentence', which context needs, got {positives!r}")
    language, wanted, excluded = check_language(language), check_languages(languages), normalised_lines(exclude)
    report, bad_lines, files = Report() if report is None else report, BadLines(skip_bad_lines), list[Path]()
    streams: list[tuple[PathLike, Iterator[Example]]] = []
    for source in split_sources(sources)[0]:
        if any(Path(source).expanduser().glob("corpus.jsonl*")):
            names = ("corpus.jsonl", "queries.jsonl", f"qrels/{split}.tsv")
            part = [find_file(Path(source).expanduser(), name) for name in names]
            streams.append((source, _of_beir(part, bad_lines)))
        else:
            part = files_of([source], _has_rows, f"questions: {FORMATS}")
            streams += [(file, _of_rows(file, bad_lines)) for file in part]
        files += part

    def rows() -> Iterator[tuple[str, ...]]:
        seen: set[int] = set()
        for source, examples in tqdm(streams, desc="Reading", unit=" sources", disable=None):
            for example in examples:
                query, positive, others = _texts(example, positives == "sentence", context, titles, language)
                code = match_language(example.language or language, wanted)
                distinct = [text for text in dict.fromkeys(others) if text and text != positive]
                outcome = "examples"
                if code is None:
                    outcome = "other_languages"
                elif not query or not positive:
                    outcome = "empty"
                elif negatives and not distinct:
                    outcome = "no_negative"
                elif excluded and not excluded.isdisjoint(map(normalise_text, (query, positive))):
                    outcome = "excluded"
                elif (row := hash((query, positive, *(distinct if negatives else ())))) in seen:
                    outcome = "duplicate"
                else:
                    seen.add(row)
                    yield query, positive, *(distinct[i % len(distinct)] for i in range(negatives)), code
                report[str(source), outcome] += 1
        bad_lines.warn()
        if not seen:
            raise DataError(f"no questions are left to train on:\n{report}")

    options = [negatives, positives, context, titles, language, sorted(wanted or []), sorted(excluded), skip_bad_lines]
    columns = ["query", "positive", *(f"negative_{i}" for i in range(1, negatives + 1)), "language"]
    name = f"retrieval-{key_of(options, files)}"
    return kept_table(name, dict.fromkeys(columns, "string"), rows(), report=report, cache_dir=cache_dir)


def _has_rows(file: Path) -> bool:
    return file.name.removesuffix(".gz").endswith(".jsonl") and {"query", "positive"} <= first_record(file).keys()


def _of_rows(file: Path, bad_lines: BadLines) -> Iterator[Example]:
    for number, record in read_jsonl(file, bad_lines):
        try:
            query, text = (clean_text(record[name]) for name in ("query", "positive"))
            title, code, start = (
                clean_text(record.get("title") or ""),
                record.get("language"),
                record.get("answer_start"),
            )
            negatives, answers = (_texts_in(record.get(name)) for name in ("negatives", "answers"))
            if not isinstance(start := record.get("answer_start"), int | None):
                raise ValueError(f"answer_start must be a number of characters, found {start!r:.40}")
            # The position of an answer is one in the text as it stands.
            text, code = text if start is None else record["positive"], code and check_language(code)
        except (KeyError, ValueError) as error:
            bad_lines(f"no field {error}" if isinstance(error, KeyError) else str(error), file, number)
        else:
            yield Example(query, title, text, [("", one) for one in negatives], answers, code, answer_start=start)


def _of_beir(files: Sequence[Path], bad_lines: BadLines) -> Iterator[Example]:
    """A question gives an example for each relevant passage; passages judged 0 are its hard negatives."""
    corpus, queries, qrels = files
    judged = read_qrels(qrels, bad_lines)
    passages = _by_id(corpus, {name for judgements in judged.values() for name in judgements}, bad_lines)
    asked = _by_id(queries, judged.keys(), bad_lines)
    for query, judgements in judged.items():
        unknown = [name for name in judgements if name not in passages]
        if unknown or query not in asked:
            reason = f"query {query!r} or passages {unknown[:3]} are not in {queries.name} and {corpus.name}"
            bad_lines(reason, qrels, 0)
        if query in asked:
            texts = {name: passages[name] for name in judgements if name in passages}
            negatives = [(one.title, one.text) for name, one in texts.items() if judgements[name] <= 0]
            _, text, answers, code = asked[query]
            for passage in (one for name, one in texts.items() if judgements[name] > 0):
                yield Example(text, passage.title, passage.text, negatives, answers, code, passage.language)


class _Text(NamedTuple):
    """A passage or a query of a BEIR folder."""

    title: str
    text: str
    answers: list[str]
    language: str | None


def _by_id(file: Path, ids: Collection[str], bad_lines: BadLines) -> dict[str, _Text]:
    """The texts with these ids; only they are held in memory."""
    texts = {}
    for number, record in read_jsonl(file, bad_lines):
        if (name := str(record.get("_id", record.get("id")))) in ids:
            try:
                about = {**record, **(record.get("metadata") or {})}
                title, text, code = clean_text(record.get("title") or ""), record.get("text"), about.get("language")
                answers = _texts_in(about.get("answers") or about.get("answer"))
                texts[name] = _Text(title, clean_text(text), answers, code and check_language(code))
            except (TypeError, ValueError) as error:
                bad_lines(str(error), file, number)
    return texts


def _texts_in(value: Any) -> list[str]:
    """A list of texts, or a single one."""
    return [clean_text(text) for text in ([value] if isinstance(value, str) else value or [])]


def _texts(example: Example, sentences: bool, context: bool, titles: bool, language: str) -> tuple[str, str, list[str]]:
    """The texts of question, positive and negatives; of the sentence with the answer instead of the passage."""

    def full(title: str, text: str) -> str:
        return clean_text(f"{title} {text}" if titles else text)

    text, others = example.text, [full(*negative) for negative in example.negatives]
    if sentences:
        parts = split_sentences(text, example.passage_language or language)
        answering = _answering(parts, text, example.answers, example.answer_start)
        if answering is not None:
            without = [part for part in parts if not any(answer and answer in part for answer in example.answers)]
            text, *rest = (f"{part} {text}" if context else part for part in (answering, *without))
            others += [full(example.title, part) for part in rest]
    return example.query, full(example.title, text), others


def _answering(sentences: Sequence[str], text: str, answers: Sequence[str], start: int | None) -> str | None:
    """The sentence at the position of the first answer, or the first with an answer."""
    if start is not None and answers:
        # Splitting changes white space: characters are counted without it.
        position = len("".join(text[:start].split()))
        for sentence in sentences:
            if position < (length := len("".join(sentence.split()))):
                return sentence if answers[0] in sentence else None
            position -= length
    return next((one for answer in answers for one in sentences if answer and answer in one), None)
