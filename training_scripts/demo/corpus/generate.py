"""Documents, parallel sentences and test sentences, drawn from stories."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from training_scripts.demo.corpus.concepts import TOY_LANGUAGES, forms
from training_scripts.demo.corpus.realise import Meaning, realise
from training_scripts.demo.corpus.stories import stories

_FEWEST_CONCEPTS_OF_A_TEST_SENTENCE = 3
_STORIES_BEFORE_GIVING_UP = 20_000


def generate_documents(language: str, n_documents: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Generate documents of ordered, topically coherent sentences in one language.

    Documents of different languages tell different stories, also for equal seeds: they are not parallel. None
    of their sentences says what a sentence of ``generate_test_set`` says.

    Args:
        language: One of ``TOY_LANGUAGES``.
        n_documents: Number of documents; a smaller number gives the first ones of a larger.
        seed: Seed of all choices.

    Returns:
        Documents ``{"id", "language", "title", "sentences"}`` of 6 to 14 sentences.

    Raises:
        ValueError: For another language or a negative number.

    Example:
        >>> document = generate_documents("en", 1, seed=2)[0]
        >>> sorted(document), 6 <= len(document["sentences"]) <= 14
        (['id', 'language', 'sentences', 'title'], True)
    """
    _check_language(language)
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
    """Generate parallel sentences: each pair says one meaning in two languages, no meaning twice.

    Args:
        source_language: One of ``TOY_LANGUAGES``.
        target_language: Another one.
        n_pairs: Number of pairs; a smaller number gives the first ones of a larger.
        seed: Seed of all choices.

    Returns:
        Pairs ``{"source_language", "target_language", "source", "target"}``, none of which says what a
        sentence of ``generate_test_set`` says.

    Raises:
        ValueError: For other languages, equal ones or a negative number.

    Example:
        >>> pair = generate_pairs("de", "zh", 1)[0]
        >>> pair["source_language"], pair["target_language"], pair["target"].endswith("。")
        ('de', 'zh', True)
    """
    _check_language(source_language)
    _check_language(target_language)
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
    ``generate_documents`` nor ``generate_pairs`` draws with any seed. Any two of them differ in at least two
    words of content, so that a perfect encoder finds every translation.

    Args:
        n_sentences: Number of rows.
        seed: Seed of all choices.

    Returns:
        For each language of ``TOY_LANGUAGES``, ``n_sentences`` distinct sentences; equal rows say the same.

    Raises:
        ValueError: For a negative number, or one too large for that many different sentences.

    Example:
        >>> test = generate_test_set(10)
        >>> {language: len(set(sentences)) for language, sentences in test.items()}
        {'en': 10, 'fr': 10, 'de': 10, 'ru': 10, 'ar': 10, 'zh': 10}
    """
    return parallel_rows(n_sentences, seed=seed, known={})


def parallel_rows(n_sentences: int, *, seed: int, known: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Test rows as of ``generate_test_set``, of which no text is among the known ones of its language."""
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
            raise ValueError(f"no {n_sentences} test sentences differ in two words: ask for {done} at most")
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
    """The sentence's concepts, and what is left without any one of them: near sentences share one."""
    concepts = sorted(meaning.concepts)
    if len(concepts) < _FEWEST_CONCEPTS_OF_A_TEST_SENTENCE:
        return []
    return [tuple(concepts), *(tuple(concepts[:i] + concepts[i + 1 :]) for i in range(len(concepts)))]


def _one_of_each(tellings: Iterator[Any], rng: random.Random) -> Iterator[Meaning]:
    for story in tellings:
        yield rng.choice(story.meanings)


def _is_for_training(meaning: Meaning) -> bool:
    return not meaning.is_reserved


def _check_language(language: str) -> None:
    forms(language)


def _check_number(name: str, number: int) -> None:
    if number < 0:
        raise ValueError(f"{name} is {number}: ask for none or more")


_COLON: dict[str, str] = {language: ": " for language in TOY_LANGUAGES} | {"fr": " : ", "zh": "："}
