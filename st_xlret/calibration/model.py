"""Calibrating a model in one call: texts are drawn and embedded, and the calibration becomes a part of the model."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.calibration.checks import check_steps
from st_xlret.calibration.choose import QUERIES, QUESTIONS, fit_and_compare
from st_xlret.calibration.report import Comparison
from st_xlret.calibration.steps import OF_MEANS
from st_xlret.columns import Role
from st_xlret.data.beir import queries_of
from st_xlret.data.documents import Unit, read_documents
from st_xlret.data.reading import BadLines, DataError, first_record, read_lines, split_sources
from st_xlret.data.rows import by_language as pairs_by_language
from st_xlret.encoding import embeds_roles_apart, encode, role_prompt
from st_xlret.hub.card import set_card_data
from st_xlret.hub.export import check_routes, export, load_model, pooled_rows
from st_xlret.languages import check_language, check_languages, language_in_name, match_language

_POOLED = 500  # texts whose pooled vectors are measured
_TEXT_COLUMNS = ("text", "sentence", "query", "question")

_Entries = Iterator[tuple[str, str, str, str]]
"""Language, text, file and document of texts."""


class Sample(NamedTuple):
    """Distinct texts of one language, and the numbers of the documents that they are from (n,)."""

    texts: list[str]
    documents: NDArray[np.int64]


def calibrate(
    model: SentenceTransformer | str,
    texts: Any,
    *,
    steps: Sequence[str] = ("lsar",),
    queries: Any = None,
    phrases: bool = True,
    pairs: Dataset | None = None,
    queries_only: bool = False,
    strength: float | Literal["auto"] = 1.0,
    pivot: str = "en",
    keep_mean: float | None = None,
    languages: Sequence[str] | None = None,
    texts_per_language: int | None = None,
    min_texts: int = 50,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    batch_size: int = 64,
    precision: str = "auto",
    seed: int = 0,
    report: Callable[[Comparison], object] | None = None,
    show_progress_bar: bool = True,
) -> SentenceTransformer:
    """Remove a model's preference for the language of the query, on texts without labels.

    The texts are sampled and embedded, the calibration is fitted and becomes a part of the model, which has modules of
    Sentence Transformers alone. By default it needs no language: `encode_query` and `encode_document` give calibrated
    vectors. The other steps need the language of each text: [`encode`][st_xlret.encode].

    Args:
        model: A Sentence Transformer, a folder, or a name on the Hub. It is not changed.
        texts: What is to be searched, or other texts in its languages, as for `sample_texts`, whose arguments
            `languages`, `texts_per_language` (by default 300 where means determine the steps, else 1 500) and
            `min_texts` are.
        steps: These, `queries_only`, `pivot` and `keep_mean` are those of
            [`VectorCalibration.fit`][st_xlret.VectorCalibration].
        queries: Questions without labels, as for `sample_questions`, for maps of queries of their own; with `"lsar"`
            and `queries_only` a few in any languages, which join the fit.
        phrases: Whether `"lsar"` alone also takes out what 105 phrases in 21 languages that most encoders know badly
            have in common, embedded as queries. Questions in languages that nobody gave gain by it.
        pairs: Parallel sentences with the pivot, for the step `"rotate"`, as `load_pairs` returns them.
        queries_only: Map queries alone, so that an index of documents goes on working.
        strength: From 0, which leaves the model as it is, to 1; `"auto"` takes what scores highest on the sample.
        pivot: The language that others are rotated into.
        keep_mean: Share of the mean of all languages that is kept.
        languages: Languages to calibrate. Default: all of the texts.
        texts_per_language: Texts of each language to embed.
        min_texts: Fewest of them.
        query_prompt: Put before queries: a text, or the name of one of the model's prompts. Default: its own.
        document_prompt: The same for documents. The result keeps both prompts.
        batch_size: Size of a forward pass, in texts of 64 tokens.
        precision: `"auto"` is bfloat16 where the processor computes in it; or `"fp32"`, `"bf16"`.
        seed: Seed of the draws and of the rotation.
        report: Called with a `Comparison` of this and other calibrations: `report=print` shows its tables.
        show_progress_bar: Show progress bars.

    Example:
        >>> import random
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> words = {"en": ["red", "blue", "big"], "fr": ["rouge", "bleu", "grand"]}
        >>> random.seed(0)
        >>> texts = {code: [" ".join(random.choices(known, k=9)) for _ in range(80)] for code, known in words.items()}
        >>> model = SentenceTransformer(modules=[BoW(vocab=[*words["en"], *words["fr"]])], device="cpu")
        >>> calibrated = calibrate(model, texts, show_progress_bar=False)
        >>> calibrated.encode_document(["big red", "rouge"]).shape
        (2, 6)
    """
    check_steps(
        steps,
        strength,
        queries_only=queries_only,
        apart=queries is not None,
        pairs=pairs is not None,
    )
    texts_per_language = texts_per_language or usual_texts_per_language(steps)
    draw_options: Any = {
        "texts_per_language": texts_per_language,
        "min_texts": min_texts,
        "seed": seed,
    }
    sample = sample_texts(texts, languages=languages, **draw_options)
    by_language = {code: part.texts for code, part in sample.items()}
    is_lsar = list(steps) == ["lsar"]
    questions = None
    if queries is not None:
        joins = queries_only and is_lsar
        draw_options["min_texts"] = min(min_texts, QUESTIONS) if joins else min_texts
        questions = sample_questions(queries, None if joins else list(sample), **draw_options)
    encoder = load_model(model) if isinstance(model, str) else model
    check_routes(encoder, by_language=not is_lsar)
    given_prompts: dict[Any, str | None] = {"query": query_prompt, "document": document_prompt}
    prompts = {role: role_prompt(encoder, role, prompt) for role, prompt in given_prompts.items()}
    batches: Any = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
    as_queries: Any = {
        "role": "query",
        "prompt": prompts["query"],
        "precision": precision,
        **batches,
    }
    weak, parallel = None, None
    if phrases and is_lsar:
        weak = {
            "mul": torch.cat(
                [*embed_by_language(encoder, weak_language_phrases(), **as_queries).values()]
            )
        }
    if pairs is not None:
        others = [code for code in sample if code != pivot]
        parallel = embed_pairs(encoder, pairs, pivot=pivot, languages=others, **batches)
    fitted, comparison = fit_and_compare(
        *embed_both_roles(encoder, by_language, prompts, precision=precision, **batches),
        {code: part.documents for code, part in sample.items()},
        questions=None
        if questions is None
        else embed_by_language(encoder, questions, **as_queries),
        phrases=weak,
        steps=steps,
        strength=strength,
        queries_only=queries_only,
        pivot=pivot,
        keep_mean=keep_mean,
        pairs=parallel,
        min_texts=min_texts,
        normalize=False,
        seed=seed,
    )
    if report is not None:
        report(comparison)
    layer = fitted.layer()
    before, after = comparison.before.search, comparison.after.search
    layer.notes["results in the query's language"] = (
        f"{100 * before.same_language_share:.1f} % before, {100 * after.same_language_share:.1f} % after (chance: "
        f"{100 * after.chance:.1f} %), on the texts of the calibration"
    )
    few_of_each = [
        text for part in by_language.values() for text in part[: -(-_POOLED // len(by_language))]
    ]
    pooled = pooled_rows(encoder, few_of_each, prompts) if is_lsar else None
    query_layer = fitted.layer("query") if fitted.query is not None else None
    calibrated = export(encoder, layer, query_calibration=query_layer, pooled=pooled)
    calibrated.prompts.update(prompts)
    name = model if isinstance(model, str) else None
    set_card_data(
        calibrated, languages=sorted(sample), base_model=name, tags=["calibration", *steps]
    )
    return calibrated


def weak_language_phrases() -> dict[str, list[str]]:
    """Language -> beginnings of five sentences of the Universal Declaration of Human Rights, each as a question."""
    return dict(json.loads((Path(__file__).parent / "phrases.json").read_text(encoding="utf-8")))


def embed_by_language(
    model: SentenceTransformer,
    texts: Mapping[str, Sequence[str]],
    *,
    batch_size: int = 64,
    **encode_options: Any,
) -> dict[str, Tensor]:
    """Embed the texts of each language, at the full width of the model whatever its `truncate_dim`.

    Returns language -> (n, d), float32 on the CPU; `encode_options` are those of [`encode`][st_xlret.encode].
    """
    codes = [code for code, part in texts.items() for _ in part]
    everything = [text for part in texts.values() for text in part]
    with model.truncate_embeddings(
        None
    ):  # a calibration maps whole embeddings, which are cut afterwards
        rows = encode(
            model,
            everything,
            codes,
            batch_size=batch_size,
            convert_to_tensor=True,
            **encode_options,
        )
    return dict(
        zip(texts, rows.float().cpu().split([len(part) for part in texts.values()]), strict=True)
    )


def embed_both_roles(
    model: SentenceTransformer,
    texts: Mapping[str, Sequence[str]],
    prompts: Mapping[Role, str],
    **encode_options: Any,
) -> tuple[dict[str, Tensor], dict[str, Tensor] | None]:
    """Texts of each language as documents, and the first ones as queries; None where a query is embedded like these."""
    asked = None
    if embeds_roles_apart(model, prompts["query"], prompts["document"]):
        few = min(QUERIES, *map(len, texts.values()))
        first = {code: part[:few] for code, part in texts.items()}
        asked = embed_by_language(
            model, first, role="query", prompt=prompts["query"], **encode_options
        )
    return embed_by_language(
        model, texts, role="document", prompt=prompts["document"], **encode_options
    ), asked


def embed_pairs(
    model: SentenceTransformer,
    pairs: Dataset,
    *,
    pivot: str = "en",
    languages: Iterable[str] | None = None,
    **how: Any,
) -> dict[str, tuple[Tensor, Tensor]]:
    """Embed both sides of parallel sentences that have the pivot on one side, and one of `languages` on the other.

    Pairs are what [`load_pairs`][st_xlret.load_pairs] returns. Returns language -> row-aligned embeddings (n, d) of its
    sentences and of the pivot's, float32 on the CPU; `how` are the options of `embed_by_language`.
    """
    sides = pairs_by_language(pairs, pivot)
    wanted = set(sides if languages is None else languages) - {pivot}
    texts = {
        code: sources + targets
        for code, (sources, targets) in sorted(sides.items())
        if code in wanted
    }
    if not texts:
        raise ValueError(
            f"none of the {len(pairs)} pairs is between the pivot {pivot!r} and {wanted or 'another'}"
        )
    rows = embed_by_language(model, texts, **how)
    return {code: (both[: len(both) // 2], both[len(both) // 2 :]) for code, both in rows.items()}


def usual_texts_per_language(steps: Sequence[str]) -> int:
    """Texts of each language that a calibration needs: 300 for steps that means determine, and 1 500 for others."""
    return 300 if OF_MEANS.issuperset(steps) else 1500


def sample_texts(
    texts: Any,
    *,
    languages: Sequence[str] | None = None,
    texts_per_language: int = 1500,
    min_texts: int = 1,
    unit: Unit | None = None,
    skip_bad_lines: bool = False,
    seed: int = 0,
) -> dict[str, Sample]:
    """Draw distinct texts of each language at random: evenly from its files, and within a file from its documents.

    Args:
        texts: Language -> texts; or a data set with the columns `text` or `sentence`, `language` and, if texts are from
            documents, `document`, as `load_documents` returns it; or the path of a folder in BEIR's layout, or paths of
            documents as `load_documents` reads them. Samples that were drawn before are taken as they are.
        languages: Languages to keep; all by default. Two at least are needed.
        texts_per_language: How many, at most. A smaller sample is the beginning of a larger one.
        min_texts: Fewest texts of a language.
        unit: What a text of files is, as for `read_documents`. By default a document of a folder in BEIR's layout, and
            a sentence of other sources.
        skip_bad_lines: Skip bad lines of files, and log how many there were.
        seed: Seed of the draw.

    Example:
        >>> drawn = sample_texts({"en": ["one", "two", "two"], "fr": ["un", "deux"]}, texts_per_language=2)
        >>> {code: sorted(sample.texts) for code, sample in drawn.items()}
        {'en': ['one', 'two'], 'fr': ['deux', 'un']}
    """
    wanted = check_languages(languages or None)
    if isinstance(texts, Mapping) and all(isinstance(part, Sample) for part in texts.values()):
        drawn = {code: part for code, part in texts.items() if wanted is None or code in wanted}
    else:
        drawn = _draw_samples(
            _text_entries(texts, wanted, unit, skip_bad_lines), texts_per_language, [seed, 29]
        )
    few = {
        code: len(drawn[code].texts) if code in drawn else 0
        for code in sorted({*drawn, *(wanted or ())})
    }
    if len(few) < 2 or min(few.values()) < min_texts:
        needed = (
            f"texts in two languages at least, and {min_texts} distinct ones of each (min_texts)"
        )
        raise DataError(f"needed are {needed}, got {few}; `languages` can leave one out")
    return drawn


def sample_questions(
    questions: Any,
    languages: Sequence[str] | None,
    *,
    texts_per_language: int = 1500,
    min_texts: int = 1,
    seed: int = 0,
) -> dict[str, list[str]]:
    """Draw distinct questions of each language at random; returns language -> questions.

    `questions` are language -> questions; a data set with the columns `text`, `query` or `question` and `language`; or
    paths: folders in BEIR's layout, JSON lines with such fields, or text files with a question per line, named after
    their language (`questions.fr.txt`). Those in no language of `languages`, those of the documents, or None for all,
    are left out, as are languages with fewer than `min_texts`. Where none is named, it is identified (extra `langid`).
    """
    entries = (
        (code, text, "", text)
        for code, text in _question_entries(questions, check_languages(languages))
    )
    drawn = {
        code: part.texts
        for code, part in _draw_samples(entries, texts_per_language, [seed, 31]).items()
    }
    enough = {code: texts for code, texts in drawn.items() if len(texts) >= min_texts}
    if len(enough) < (1 if languages is None else 2):
        counts = {code: len(texts) for code, texts in drawn.items()}
        where = "in two languages of the documents, or in any one with lsar and queries_only"
        raise DataError(f"{min_texts} distinct questions (min_texts) are needed {where}: {counts}")
    return enough


def _draw_samples(entries: _Entries, texts_per_language: int, seed: list[int]) -> dict[str, Sample]:
    places: dict[
        str, dict[str, tuple[int, int]]
    ] = {}  # language -> text -> the numbers of its file and document
    files: dict[str, int] = {}
    numbers: dict[tuple[str, str], int] = {}
    for language, text, file, document in entries:
        place = (
            files.setdefault(file, len(files)),
            numbers.setdefault((file, document), len(numbers)),
        )
        places.setdefault(language, {}).setdefault(text, place)
    generator, drawn = np.random.default_rng(seed), {}
    for language in sorted(places):
        distinct = list(places[language])
        file_of, documents = np.array(list(places[language].values())).T
        # One of each document before a second one of any: else long documents, such as novels, would decide.
        order = generator.permutation(len(documents))
        order = order[_turn_order(documents[order])]
        order = order[_turn_order(file_of[order])][:texts_per_language]
        drawn[language] = Sample([distinct[i] for i in order], documents[order])
    return drawn


def _turn_order(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places of rows such that each group gives its first row before any gives its second one."""
    turns_of: defaultdict[int, Iterator[int]] = defaultdict(count)
    return np.argsort([next(turns_of[group]) for group in groups.tolist()], kind="stable")


def _question_entries(questions: Any, wanted: frozenset[str] | None) -> Iterator[tuple[str, str]]:
    """Language and text of questions; those that name no language are identified one by one."""
    if isinstance(questions, Mapping | Dataset):
        yield from (
            (language, text) for language, text, *_ in _text_entries(questions, wanted, None, False)
        )
        return
    for source in split_sources(
        [questions] if isinstance(questions, str | Path) else list(questions)
    )[0]:
        path = queries_of(Path(source)) or Path(source)
        records: Any = path
        column, language = None, dict[str, str]()
        if ".jsonl" in path.name:
            column = next((name for name in _TEXT_COLUMNS if name in first_record(path)), None)
        else:
            with suppress(ValueError):
                language = {"language": language_in_name(path)}
            records = [{"text": text} | language for _, text in read_lines(path)]
        for document in read_documents([records], languages=wanted, unit="text", column=column):
            yield from ((document.language, text) for text in filter(None, document.sentences))


def _text_entries(
    texts: Any, wanted: frozenset[str] | None, unit: Unit | None, skip_bad_lines: bool
) -> _Entries:
    rows: Iterable[tuple[str, str, str]]
    if isinstance(texts, Mapping):
        rows = ((code, text, str(row)) for code in texts for row, text in enumerate(texts[code]))
    elif isinstance(texts, Dataset):
        column = next((name for name in _TEXT_COLUMNS if name in texts.column_names), "text")
        documents = texts["document"] if "document" in texts.column_names else range(len(texts))
        rows = zip(texts["language"], texts[column], map(str, documents), strict=True)
    else:
        bad_lines = BadLines(skip_bad_lines)
        sources = [texts] if isinstance(texts, str | Path) else list(texts)
        for entry in read_documents(sources, languages=wanted, unit=unit, bad_lines=bad_lines):
            for text in filter(
                None, entry.sentences
            ):  # a document in several languages is one in each
                yield entry.language, text, entry.file, f"{entry.language} {entry.name}"
        bad_lines.warn()
        return
    for code, text, document in rows:
        language = match_language(check_language(code), wanted)
        if language is not None and text.strip():
            yield language, text.strip(), language, document
