"""The generated corpus: training documents, a few parallel sentences, and a held-out parallel test set."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from st_xlret.files import atomic_file, write_text_atomically
from training_scripts.demo.corpus.lexicon import TOY_LANGUAGES
from training_scripts.demo.corpus.morphology import forms
from training_scripts.demo.corpus.realise import Meaning, realise
from training_scripts.demo.corpus.stories import Story, stories

_PIVOT = "en"
_FEWEST_CONCEPTS_OF_A_TEST_SENTENCE = 3
_STORIES_BEFORE_GIVING_UP = 20_000
_COLON: dict[str, str] = {language: ": " for language in TOY_LANGUAGES} | {"fr": " : ", "zh": "："}


@dataclass(frozen=True)
class ToyCorpus:
    """A generated corpus in the six languages of `TOY_LANGUAGES`.

    Attributes:
        documents: Language -> documents `{"id", "language", "title", "sentences"}`, which are not parallel.
        pairs: Language -> pairs `{"source_language", "target_language", "source", "target"}` with English
            sources; languages without pairs are left out.
        test: Language -> row-aligned test sentences.
    """

    documents: dict[str, list[dict[str, Any]]]
    pairs: dict[str, list[dict[str, str]]]
    test: dict[str, list[str]]


def toy_corpus(
    *,
    documents_per_language: int = 2000,
    pairs_per_language: int = 300,
    languages_without_pairs: Sequence[str] = ("zh", "ru"),
    test_sentences: int = 500,
    seed: int = 0,
) -> ToyCorpus:
    """Generate a corpus on which a small cross-lingual retriever can be trained and tested.

    Args:
        documents_per_language: Number of documents in each language, of 6 to 14 sentences each.
        pairs_per_language: Number of sentence pairs with English, for each language that has pairs.
        languages_without_pairs: Languages that have no pairs.
        test_sentences: Number of rows of the test set.
        seed: Seed of all random choices.

    Returns:
        The corpus. Neither a test sentence nor another sentence of the same meaning occurs in documents or pairs,
        in any language.

    Raises:
        ValueError: For unknown languages and negative numbers.

    Example:
        >>> corpus = toy_corpus(documents_per_language=2, pairs_per_language=3, test_sentences=4)
        >>> sorted(corpus.pairs), len(corpus.documents["zh"]), len(corpus.test["zh"])
        (['ar', 'de', 'fr'], 2, 4)
    """
    for language in languages_without_pairs:
        forms(language)  # rejects unknown languages
    documents = {
        language: generate_documents(language, documents_per_language, seed=seed) for language in TOY_LANGUAGES
    }
    pairs = {
        language: generate_pairs(_PIVOT, language, pairs_per_language, seed=seed)
        for language in TOY_LANGUAGES
        if language != _PIVOT and language not in languages_without_pairs
    }
    known = {
        language: {sentence for document in documents[language] for sentence in document["sentences"]}
        for language in TOY_LANGUAGES
    }
    for language, rows in pairs.items():
        known[_PIVOT].update(row["source"] for row in rows)
        known[language].update(row["target"] for row in rows)
    return ToyCorpus(documents, pairs, _parallel_rows(test_sentences, seed=seed, known=known))


def write_toy_corpus(folder: str | os.PathLike[str], **kwargs: Any) -> Path:
    """Generate the corpus and write it as files that `load_documents` and `load_pairs` read.

    Args:
        folder: Folder for `documents/<language>.jsonl.gz`, `pairs/en-<language>.jsonl.gz` and
            `test/<language>.txt`. It is created if it is missing.
        **kwargs: Arguments of `toy_corpus`.

    Returns:
        The folder.

    Raises:
        ValueError: For unknown languages and negative numbers.
        OSError: When a file cannot be written; each file is written whole or not at all.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sizes = {"documents_per_language": 1, "pairs_per_language": 1, "test_sentences": 1}
        ...     written = write_toy_corpus(folder, **sizes)
        ...     sorted(path.name for path in written.glob("pairs/*"))
        ['en-ar.jsonl.gz', 'en-de.jsonl.gz', 'en-fr.jsonl.gz']
    """
    corpus = toy_corpus(**kwargs)
    root = Path(folder)
    for language, documents in corpus.documents.items():
        _write_json_lines(root / "documents" / f"{language}.jsonl.gz", documents)
    for language, pairs in corpus.pairs.items():
        _write_json_lines(root / "pairs" / f"{_PIVOT}-{language}.jsonl.gz", pairs)
    for language, sentences in corpus.test.items():
        write_text_atomically(root / "test" / f"{language}.txt", "".join(sentence + "\n" for sentence in sentences))
    return root


def generate_documents(language: str, n_documents: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Generate documents of ordered, topically coherent sentences in one language.

    Documents of different languages are not parallel: they tell different stories, even for the same seed. None of
    their sentences has the meaning of a sentence of `generate_test_set`.

    Args:
        language: One of `TOY_LANGUAGES`.
        n_documents: Number of documents. The first documents are the same for every number.
        seed: Seed of all random choices.

    Returns:
        Documents `{"id", "language", "title", "sentences"}` of 6 to 14 sentences.

    Raises:
        ValueError: For another language or a negative number.

    Example:
        >>> document = generate_documents("en", 1, seed=2)[0]
        >>> sorted(document), 6 <= len(document["sentences"]) <= 14
        (['id', 'language', 'sentences', 'title'], True)
    """
    forms(language)  # rejects unknown languages
    _check_number("n_documents", n_documents)
    rng = random.Random(f"words of documents/{language}/{seed}")
    tellings = stories(f"documents/{language}/{seed}", _is_for_training)
    documents = []
    for number in range(n_documents):
        story = next(tellings)
        hero = forms(language)[story.hero][0]["_"]
        documents.append(
            {
                "id": f"toy-{language}-{seed}-{number}",
                "language": language,
                "title": f"{story.topic.titles[language]}{_COLON[language]}{hero}",
                "sentences": [realise(meaning, language, rng) for meaning in story.meanings],
            }
        )
    return documents


def generate_pairs(source_language: str, target_language: str, n_pairs: int, *, seed: int = 0) -> list[dict[str, str]]:
    """Generate parallel sentences: each pair expresses one meaning in two languages, and no meaning occurs twice.

    Args:
        source_language: One of `TOY_LANGUAGES`.
        target_language: Another language of `TOY_LANGUAGES`.
        n_pairs: Number of pairs. The first pairs are the same for every number.
        seed: Seed of all random choices.

    Returns:
        Pairs `{"source_language", "target_language", "source", "target"}`, none of which has the meaning of a
        sentence of `generate_test_set`.

    Raises:
        ValueError: For unknown or equal languages, or a negative number.

    Example:
        >>> pair = generate_pairs("de", "zh", 1)[0]
        >>> pair["source_language"], pair["target_language"], pair["target"].endswith("。")
        ('de', 'zh', True)
    """
    for language in (source_language, target_language):
        forms(language)  # rejects unknown languages
    _check_number("n_pairs", n_pairs)
    if source_language == target_language:
        raise ValueError(f"pairs need two languages, not {source_language!r} twice")
    languages = (source_language, target_language)
    name = f"{source_language}-{target_language}/{seed}"
    rngs = [random.Random(f"words of pairs/{name}/{language}") for language in languages]
    pairs: list[dict[str, str]] = []
    seen: set[tuple[Any, ...]] = set()
    for meaning in _one_of_each(stories(f"pairs/{name}", _is_for_training), random.Random(f"picks/{name}")):
        if len(pairs) == n_pairs:
            break
        if meaning[:2] in seen:
            continue
        seen.add(meaning[:2])
        source, target = (realise(meaning, language, rng) for language, rng in zip(languages, rngs, strict=True))
        pairs.append(
            {
                "source_language": source_language,
                "target_language": target_language,
                "source": source,
                "target": target,
            }
        )
    return pairs


def generate_test_set(n_sentences: int, *, seed: int = 0) -> dict[str, list[str]]:
    """Generate test sentences that are parallel across all languages.

    Their meanings come from a reserved part (one in 16, by a stable hash) of all meanings, from which neither
    `generate_documents` nor `generate_pairs` draws with any seed. Any two of them differ in at least two
    words of content, so that a perfect encoder finds every translation.

    Args:
        n_sentences: Number of rows.
        seed: Seed of all random choices.

    Returns:
        For each language of `TOY_LANGUAGES`, `n_sentences` distinct sentences. A row has the same meaning in all
        languages.

    Raises:
        ValueError: For a negative number, or a larger one than there are sufficiently different sentences.

    Example:
        >>> test = generate_test_set(10)
        >>> {language: len(set(sentences)) for language, sentences in test.items()}
        {'en': 10, 'fr': 10, 'de': 10, 'ru': 10, 'ar': 10, 'zh': 10}
    """
    return _parallel_rows(n_sentences, seed=seed, known={})


def _parallel_rows(n_sentences: int, *, seed: int, known: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Generate the rows of `generate_test_set`, leaving out sentences that are known in their language."""
    _check_number("n_sentences", n_sentences)
    rngs = {language: random.Random(f"words of test/{seed}/{language}") for language in TOY_LANGUAGES}
    rows: dict[str, list[str]] = {language: [] for language in TOY_LANGUAGES}
    taken = {language: set(known.get(language, ())) for language in TOY_LANGUAGES}
    near: set[tuple[str, ...]] = set()
    done = stories_since = 0
    for story in stories(f"test/{seed}", lambda meaning: True):
        if done == n_sentences:
            break
        stories_since += 1
        if stories_since > _STORIES_BEFORE_GIVING_UP:
            raise ValueError(
                f"cannot find {n_sentences} test sentences that differ in two words: ask for {done} at most"
            )
        for meaning in story.meanings:
            if done == n_sentences or not meaning.is_reserved:
                continue
            neighbourhood = _neighbourhood(meaning)
            if not neighbourhood or not near.isdisjoint(neighbourhood):
                continue
            texts = {language: realise(meaning, language, rngs[language]) for language in TOY_LANGUAGES}
            if any(text in taken[language] for language, text in texts.items()):
                continue
            near.update(neighbourhood)
            for language, text in texts.items():
                taken[language].add(text)
                rows[language].append(text)
            done, stories_since = done + 1, 0
    return rows


def _neighbourhood(meaning: Meaning) -> list[tuple[str, ...]]:
    """The concepts of a sentence, and what remains without each one: similar sentences have one of these in common."""
    concepts = sorted(meaning.concepts)
    if len(concepts) < _FEWEST_CONCEPTS_OF_A_TEST_SENTENCE:
        return []
    return [tuple(concepts), *(tuple(concepts[:i] + concepts[i + 1 :]) for i in range(len(concepts)))]


def _one_of_each(tellings: Iterator[Story], rng: random.Random) -> Iterator[Meaning]:
    for story in tellings:
        yield rng.choice(story.meanings)


def _is_for_training(meaning: Meaning) -> bool:
    return not meaning.is_reserved


def _check_number(name: str, number: int) -> None:
    if number < 0:
        raise ValueError(f"{name} is {number}, but has to be 0 or more")


def _write_json_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    with atomic_file(path) as temporary:
        temporary.write_bytes(gzip.compress(text.encode(), mtime=0))
