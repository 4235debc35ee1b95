"""The generated corpus: scripts, determinism, and a test set that training never contains."""

from __future__ import annotations

import doctest
import gzip
import hashlib
import importlib
import random
import re
import unicodedata

import pytest

from st_xlret.data import load_documents, load_pairs
from training_scripts.demo.corpus import (
    TOY_LANGUAGES,
    generate_documents,
    generate_pairs,
    generate_test_set,
    toy_corpus,
    write_toy_corpus,
)
from training_scripts.demo.corpus.lexicon import lexicon
from training_scripts.demo.corpus.realise import Meaning, realise
from training_scripts.demo.corpus.stories import stories

SCRIPTS = {"en": "LATIN", "fr": "LATIN", "de": "LATIN", "ru": "CYRILLIC", "ar": "ARABIC", "zh": "CJK"}


@pytest.fixture(scope="module")
def corpus():
    return toy_corpus(documents_per_language=200, test_sentences=150)


@pytest.fixture(scope="module")
def told():
    tellings = stories("told", lambda meaning: True)
    return [meaning for _ in range(600) for meaning in next(tellings).meanings]


@pytest.fixture
def heard(monkeypatch):
    """All meanings that are realised, with their languages."""
    said = []

    def listen(meaning, language, rng=None):
        said.append((language, meaning))
        return realise(meaning, language, rng)

    monkeypatch.setattr("training_scripts.demo.corpus.generate.realise", listen)
    return said


def sentences_of(documents):
    return [sentence for document in documents for sentence in document["sentences"]]


@pytest.mark.parametrize("module", ["generate", "lexicon", "morphology", "realise", "russian"])
def test_examples(module):
    results = doctest.testmod(importlib.import_module(f"training_scripts.demo.corpus.{module}"))
    assert results.attempted and not results.failed


def test_the_text_of_a_seed_never_changes(tmp_path):
    write_toy_corpus(tmp_path, documents_per_language=30, pairs_per_language=40, test_sentences=30, seed=3)
    digest = hashlib.sha256()
    for file in sorted(tmp_path.rglob("*.*")):
        content = file.read_bytes()
        digest.update(file.name.encode())
        digest.update(gzip.decompress(content) if file.suffix == ".gz" else content)
    assert digest.hexdigest() == "2f1a648d4130730d6b3988ae23b82bcbc65bbb84aa486e656e55499d330220e7"


def test_another_seed_gives_another_text():
    sizes = {"documents_per_language": 3, "pairs_per_language": 3, "test_sentences": 3}
    one, other = toy_corpus(**sizes), toy_corpus(**sizes, seed=1)
    assert one.documents != other.documents and one.pairs != other.pairs and one.test != other.test


def test_smaller_corpora_are_prefixes_of_larger_ones():
    assert generate_documents("de", 3) == generate_documents("de", 6)[:3]
    assert generate_pairs("en", "ar", 3) == generate_pairs("en", "ar", 6)[:3]
    assert generate_test_set(3)["ru"] == generate_test_set(6)["ru"][:3]


def test_counts(corpus):
    assert set(corpus.documents) == set(corpus.test) == set(TOY_LANGUAGES)
    assert {len(documents) for documents in corpus.documents.values()} == {200}
    assert {len(sentences) for sentences in corpus.test.values()} == {150}
    assert {language: len(pairs) for language, pairs in corpus.pairs.items()} == {"fr": 300, "de": 300, "ar": 300}
    assert {len(document["sentences"]) for document in corpus.documents["ar"]} == set(range(6, 15))


def test_no_test_text_in_training(corpus):
    for language in TOY_LANGUAGES:
        training = set(sentences_of(corpus.documents[language]))
        training |= {pair["target"] for pair in corpus.pairs.get(language, [])}
        if language == "en":
            training |= {pair["source"] for pairs in corpus.pairs.values() for pair in pairs}
        assert training.isdisjoint(corpus.test[language])


def test_reserved_meanings_are_never_told_in_training(heard):
    generate_documents("fr", 50)
    generate_pairs("en", "de", 50)
    assert heard and not any(meaning.is_reserved for _, meaning in heard)
    heard.clear()
    generate_test_set(50)
    assert all(meaning.is_reserved for _, meaning in heard)


def test_connectives_do_not_move_a_meaning_out_of_the_test_set(told):
    assert all(meaning.is_reserved == Meaning(*meaning[:2]).is_reserved for meaning in told)
    assert 0.04 < sum(meaning.is_reserved for meaning in told) / len(told) < 0.09


def test_test_rows_have_one_meaning_and_differ_in_two_concepts(heard):
    rows = generate_test_set(120)
    by_language = {language: [meaning for of, meaning in heard if of == language] for language in TOY_LANGUAGES}
    assert all(meanings == by_language["en"] for meanings in by_language.values())
    concept_sets = [set(meaning.concepts) for meaning in by_language["en"]]
    for i, one in enumerate(concept_sets):
        for other in concept_sets[:i]:
            assert len(one | other) - min(len(one), len(other)) >= 2
    assert all(len(set(sentences)) == 120 for sentences in rows.values())


def test_documents_of_different_languages_are_not_parallel():
    titles = {
        language: [d["title"].split(":")[0] for d in generate_documents(language, 30)] for language in ("en", "de")
    }
    english = {topic.titles["de"]: topic.titles["en"] for topic in lexicon().topics}
    assert titles["en"] != [english[title] for title in titles["de"]]


@pytest.mark.parametrize("language", TOY_LANGUAGES)
def test_sentences_are_clean_text_of_one_script(corpus, language):
    sentences = sentences_of(corpus.documents[language])
    for sentence in sentences:
        assert sentence == sentence.strip() and "  " not in sentence
        assert sentence[-1] in ".?。？؟"
        assert not re.search(r"[{}<>\[\]|_~@+&=;/-]{2,}|[{}<>\[\]|_~@+&=;/]", sentence), sentence
        assert not re.search(" " if language == "zh" else " [.,]", sentence), sentence
    letters = {letter for letter in "".join(corpus.test[language] + sentences) if letter.isalpha()}
    assert {unicodedata.name(letter).split()[0] for letter in letters} == {SCRIPTS[language]}
    assert len(set(sentences)) > 0.9 * len(sentences)


@pytest.mark.parametrize("language", TOY_LANGUAGES)
def test_different_meanings_get_different_texts(told, language):
    said: dict[str, Meaning] = {}
    for meaning in told:
        assert said.setdefault(realise(meaning, language, random.Random(0)), meaning) == meaning


def test_neighbouring_sentences_share_people_or_things():
    tellings = stories("coherence", lambda meaning: True)
    shared = []
    for _ in range(200):
        meanings = next(tellings).meanings
        for one, other in zip(meanings, meanings[1:], strict=False):
            shared.append(bool(set(one.concepts) & set(other.concepts)) or other.concepts[0].endswith("_pronoun"))
    assert sum(shared) / len(shared) > 0.6


def test_every_template_is_told(told):
    assert {meaning.template for meaning in told} == set(lexicon().templates)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: generate_documents("es", 1), "'es'"),
        (lambda: generate_documents("en", -1), "n_documents is -1"),
        (lambda: generate_pairs("en", "en", 1), "'en' twice"),
        (lambda: generate_pairs("en", "xx", 1), "'xx'"),
        (lambda: toy_corpus(languages_without_pairs=("pl",)), "'pl'"),
        (lambda: generate_test_set(-3), "n_sentences is -3"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_written_files_load(tmp_path):
    sizes = {"documents_per_language": 4, "pairs_per_language": 6, "test_sentences": 5}
    corpus = toy_corpus(**sizes)
    folder = write_toy_corpus(tmp_path / "corpus", **sizes)
    documents = load_documents(folder / "documents", show_progress=False, cache_dir=tmp_path / "cache")
    expected = [sentence for language in TOY_LANGUAGES for sentence in sentences_of(corpus.documents[language])]
    assert sorted(documents["sentence"]) == sorted(expected)
    pairs = load_pairs(folder / "pairs", show_progress=False)
    assert pairs["source_language"] == ["en"] * 18
    assert sorted(pairs["target"]) == sorted(pair["target"] for rows in corpus.pairs.values() for pair in rows)
    assert (folder / "test" / "zh.txt").read_text(encoding="utf-8").splitlines() == corpus.test["zh"]


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_toy_corpus(tmp_path, documents_per_language=1, pairs_per_language=1, test_sentences=1)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
