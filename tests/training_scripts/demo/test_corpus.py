"""The generated corpus: scripts, determinism, and a test set that training never says."""

from __future__ import annotations

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
from training_scripts.demo.corpus.choosing import fitting
from training_scripts.demo.corpus.concepts import concepts, forms, named
from training_scripts.demo.corpus.lexicon.adjectives import FITTING, REASONS
from training_scripts.demo.corpus.realise import Meaning, realise, template_slots
from training_scripts.demo.corpus.stories import stories
from training_scripts.demo.corpus.story_rules import WEIGHTS
from training_scripts.demo.corpus.topics import all_topics

CONTENT = ["noun", "verb", "adjective", "role", "place", "city", "feeling", "weather", "giving", "telling"]


@pytest.fixture(scope="module")
def corpus():
    return toy_corpus(documents_per_language=400, test_sentences=300)


@pytest.fixture(scope="module")
def told():
    tellings = stories("told", lambda meaning: True)
    return [meaning for _ in range(2000) for meaning in next(tellings).meanings]


def sentences_of(documents):
    return [sentence for document in documents for sentence in document["sentences"]]


def test_same_seed_same_text():
    sizes = {"documents_per_language": 5, "pairs_per_language": 5, "test_sentences": 5}
    assert toy_corpus(**sizes) == toy_corpus(**sizes)
    assert toy_corpus(**sizes).test != toy_corpus(**sizes, seed=1).test


def test_smaller_corpora_are_prefixes_of_larger_ones():
    assert generate_documents("de", 3) == generate_documents("de", 6)[:3]
    assert generate_pairs("en", "ar", 3) == generate_pairs("en", "ar", 6)[:3]
    assert generate_test_set(3)["ru"] == generate_test_set(6)["ru"][:3]


def test_counts(corpus):
    assert set(corpus.documents) == set(corpus.test) == set(TOY_LANGUAGES)
    assert {len(documents) for documents in corpus.documents.values()} == {400}
    assert {len(sentences) for sentences in corpus.test.values()} == {300}
    assert {language: len(pairs) for language, pairs in corpus.pairs.items()} == {
        "fr": 300,
        "de": 300,
        "ar": 300,
    }
    lengths = {len(document["sentences"]) for document in corpus.documents["ar"]}
    assert lengths == set(range(6, 15))


def test_no_test_text_in_training(corpus):
    for language in TOY_LANGUAGES:
        training = set(sentences_of(corpus.documents[language]))
        training |= {pair["target"] for pair in corpus.pairs.get(language, [])}
        if language == "en":
            training |= {pair["source"] for pairs in corpus.pairs.values() for pair in pairs}
        assert training.isdisjoint(corpus.test[language])


def test_reserved_meanings_are_never_told_in_training(monkeypatch):
    said = []

    def listen(meaning, language, rng=None):
        said.append(meaning)
        return realise(meaning, language, rng)

    monkeypatch.setattr("training_scripts.demo.corpus.generate.realise", listen)
    generate_documents("fr", 50)
    generate_pairs("en", "de", 50)
    assert said and not any(meaning.is_reserved for meaning in said)
    said.clear()
    generate_test_set(50)
    assert all(meaning.is_reserved for meaning in said)


def test_connectives_do_not_move_a_meaning_out_of_the_test_set(told):
    assert all(meaning.is_reserved == Meaning(*meaning[:2]).is_reserved for meaning in told)
    assert 0.04 < sum(meaning.is_reserved for meaning in told) / len(told) < 0.09


def test_test_rows_say_one_meaning_and_differ_in_two_concepts(monkeypatch):
    said = []

    def listen(meaning, language, rng=None):
        said.append((language, meaning))
        return realise(meaning, language, rng)

    monkeypatch.setattr("training_scripts.demo.corpus.generate.realise", listen)
    rows = generate_test_set(120)
    by_language = {language: [m for lang, m in said if lang == language] for language in TOY_LANGUAGES}
    assert all(meanings == by_language["en"] for meanings in by_language.values())
    concept_sets = [set(meaning.concepts) for meaning in by_language["en"]]
    for i, one in enumerate(concept_sets):
        for other in concept_sets[:i]:
            assert len(one | other) - min(len(one), len(other)) >= 2
    assert all(len(set(sentences)) == 120 for sentences in rows.values())


def test_documents_of_different_languages_are_not_parallel():
    topics = {lang: [d["title"].split(":")[0] for d in generate_documents(lang, 30)] for lang in ("en", "de")}
    english_titles = {topic.titles["de"]: topic.titles["en"] for topic in all_topics()}
    assert topics["en"] != [english_titles[title] for title in topics["de"]]


@pytest.mark.parametrize(
    ("language", "script"),
    [("en", "LATIN"), ("fr", "LATIN"), ("de", "LATIN"), ("ru", "CYRILLIC"), ("ar", "ARABIC"), ("zh", "CJK")],
)
def test_letters_are_of_one_script(corpus, language, script):
    text = "".join(corpus.test[language] + sentences_of(corpus.documents[language]))
    letters = {character for character in text if character.isalpha()}
    assert {unicodedata.name(letter).split()[0] for letter in letters} == {script}


@pytest.mark.parametrize("language", TOY_LANGUAGES)
def test_spacing_and_punctuation(corpus, language):
    for sentence in sentences_of(corpus.documents[language]):
        assert sentence == sentence.strip() and "  " not in sentence
        assert sentence[-1] in ".?。？؟"
        assert not re.search(r"[{}<>\[\]|_~@+&=;/-]{2,}|[{}<>\[\]|_~@+&=;/]", sentence), sentence
        if language == "zh":
            assert " " not in sentence
        else:
            assert not re.search(r" [.,]", sentence)


@pytest.mark.parametrize("language", TOY_LANGUAGES)
def test_most_sentences_are_distinct(corpus, language):
    sentences = sentences_of(corpus.documents[language])
    assert len(set(sentences)) > 0.9 * len(sentences)


@pytest.mark.parametrize("language", TOY_LANGUAGES)
def test_different_meanings_get_different_texts(told, language):
    said: dict[str, Meaning] = {}
    for meaning in told:
        text = realise(meaning, language, random.Random(0))
        assert said.setdefault(text, meaning) == meaning


def test_neighbouring_sentences_share_people_or_things():
    tellings = stories("coherence", lambda meaning: True)
    shared = total = 0
    for _ in range(200):
        meanings = next(tellings).meanings
        for one, other in zip(meanings, meanings[1:], strict=False):
            same = set(one.concepts) & set(other.concepts)
            pronoun = other.concepts[0].endswith("_pronoun")
            shared += bool(same) or pronoun
            total += 1
    assert shared / total > 0.6


def test_the_lexicon_is_large():
    assert sum(len(named(kind)) for kind in CONTENT) >= 350
    assert len(template_slots()) >= 25 and len(all_topics()) >= 12
    assert set(WEIGHTS) == set(template_slots())


def test_every_template_is_told(told):
    assert {meaning.template for meaning in told} == set(WEIGHTS)


def test_adjectives_and_reasons_name_concepts():
    used = {a for table in (FITTING, REASONS) for adjectives in table.values() for a in adjectives}
    assert used == set(named("adjective"))
    assert set(REASONS) <= set(named("verb"))
    assert all(fitting(thing) for thing in named("noun"))


@pytest.mark.parametrize("language", TOY_LANGUAGES)
def test_every_pattern_finds_its_forms(told, language):
    for seed, meaning in enumerate(told[:6000]):
        assert realise(meaning, language, random.Random(seed))


@pytest.mark.parametrize("language", TOY_LANGUAGES)
def test_no_two_concepts_of_a_kind_share_a_word(language):
    owner: dict[tuple[str, str], str] = {}
    for name, synonyms in forms(language).items():
        kind = concepts()[name].kind
        for table in synonyms:
            if "_" in table and kind not in ("pronoun", "number"):
                assert owner.setdefault((kind, table["_"]), name) == name


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: generate_documents("es", 1), "no generated corpus for language 'es'"),
        (lambda: generate_documents("en", -1), "n_documents is -1"),
        (lambda: generate_pairs("en", "en", 1), "two languages, not 'en' twice"),
        (lambda: generate_pairs("en", "xx", 1), "language 'xx'"),
        (lambda: toy_corpus(languages_without_pairs=("pl",)), "language 'pl'"),
        (lambda: generate_test_set(-3), "n_sentences is -3"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_written_files_load_and_repeat(tmp_path):
    sizes = {"documents_per_language": 4, "pairs_per_language": 6, "test_sentences": 5}
    corpus = toy_corpus(**sizes)
    first, second = (write_toy_corpus(tmp_path / name, **sizes) for name in "ab")
    files = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    assert len(files) == 6 + 3 + 6
    assert all((first / file).read_bytes() == (second / file).read_bytes() for file in files)
    documents = load_documents(first / "documents", show_progress=False, cache_dir=tmp_path / "cache")
    expected = [sentence for language in TOY_LANGUAGES for sentence in sentences_of(corpus.documents[language])]
    assert sorted(documents["sentence"]) == sorted(expected)
    pairs = load_pairs(first / "pairs", show_progress=False)
    assert sorted(pairs["source_language"]) == ["en"] * 18
    assert (first / "test" / "zh.txt").read_text(encoding="utf-8").splitlines() == corpus.test["zh"]


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_toy_corpus(tmp_path, documents_per_language=1, pairs_per_language=1, test_sentences=1)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
