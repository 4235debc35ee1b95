"""Dictionaries and words; Algorithm 1 of ML-CTL, case by case and against a slow copy."""

import random
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, concatenate_datasets
from transformers import BertTokenizerFast

from st_xlret.data import Counts, DataError, Dictionary, build_word_samples, read_dictionary
from st_xlret.data.words import read_stop_words, stop_words, word_splitter
from st_xlret.modules import train_tokenizer
from tests.data.files import counting, pair, write_text

ENTRIES = [("dog", "Hund"), ("house", "Haus"), ("the", "der"), ("guinea pig", "Meerschweinchen")]
ENTRIES += [("street", "Straße"), ("tree", "Baum")]
GOOD = ("A big tree.", "Ein Baum.")  # one sample, so that a refused pair does not leave none at all
PIECES = "the dog house street guinea pig tree big old der hund haus baum meer ##schwein ##chen"
PIECES += " straße ##s ##house ein"


def word_piece() -> BertTokenizerFast:
    """Words have the same tokens wherever they stand."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *PIECES.split(), *".,()'-"]
    return BertTokenizerFast({token: i for i, token in enumerate(tokens)}, strip_accents=False)


def pairs_of(*texts: tuple[str, str], languages: tuple[str, str] = ("en", "de")) -> Dataset:
    return Dataset.from_list([pair(*both, *languages) for both in texts])


def tokens(sample: dict[str, Any], side: str, tokenizer: Any) -> list[str]:
    ids = tokenizer(sample[side])["input_ids"][sample[f"{side}_start"] : sample[f"{side}_end"]]
    return tokenizer.convert_ids_to_tokens(ids)


def make(
    pairs: Dataset, entries: Any = ENTRIES, **options: Any
) -> tuple[list[dict[str, Any]], Counts]:
    defaults = {"dictionaries": [Dictionary("en", "de", entries)], "tokenizer": word_piece()}
    table, counts = counting(build_word_samples)(pairs, **(defaults | options))
    return table.to_list(), counts


@pytest.mark.parametrize(
    ("source", "target", "words", "pieces"),
    [
        ("The Dog sleeps.", "Der Hund schläft.", ("Dog", "Hund"), "hund"),
        (
            "The (guinea pig)",
            "Ein Meerschweinchen.",
            ("guinea pig", "Meerschweinchen"),
            "meer ##schwein ##chen",
        ),
        # Folding that changes the length moves no positions: "ß" becomes "ss".
        ("The street, dog", "Die STRASSE (Hund)", ("dog", "Hund"), "hund"),
        ("A street, dog", "Die Straße (Hund)", ("street", "Straße"), "straße"),
    ],
)
def test_words_phrases_and_their_tokens(source: str, target: str, words: Any, pieces: str) -> None:
    sample = make(pairs_of((source, target)))[0][0]
    assert (sample["source_word"], sample["target_word"]) == words
    assert tokens(sample, "target", word_piece()) == pieces.split()
    assert tokens(sample, "source", word_piece()) == words[0].lower().split()


@pytest.mark.parametrize(
    "source, target, expected",
    [
        ("", "Ein Hund", "empty"),
        ("dog", " ", "empty"),
        ("dog Hund", "dog Hund", "identical"),
        ("A dog.", "Eine Katze.", "no_word"),
        ("A cat.", "Ein Hund.", "no_word"),
        ("The cat.", "Der Kater.", "stop_word"),
        ("The dog and the dog.", "Der Hund.", "repeated"),
        ("The dog.", "Hund, Hund!", "repeated"),
        (*GOOD, "duplicate"),
        # Once as a word, twice as tokens: dog + ##house, dog + ##s.
        ("The dog, the doghouse", "Der Hund", "tokens"),
        ("dogs dog", "Der Hund", "tokens"),
    ],
)
def test_why_a_pair_gives_none(source: str, target: str, expected: str) -> None:
    samples, counts = make(concatenate_datasets([pairs_of((source, target)), pairs_of(GOOD)]))
    assert len(samples) == 1 and {name for _, name in counts} == {
        "pairs",
        "used",
        "samples",
        expected,
    }
    assert counts["en>de", "pairs"] == counts["en>de", "used"] + counts["en>de", expected] == 2
    if expected == "no_word":
        with pytest.raises(DataError, match=r"no_word(.|\n)*en>de +1"):
            make(pairs_of((source, target)))


def test_words_after_the_last_token_that_is_read() -> None:
    # One of them is cut in its middle.
    pairs = pairs_of(
        ("the big old big old big dog", "der Hund"),
        ("A guinea pig", "ein ein Meerschweinchen"),
        GOOD,
    )
    for max_seq_length, truncated in ((6, 2), (7, 1), (9, 0)):
        samples, counts = make(pairs, max_seq_length=max_seq_length)
        assert len(samples) == 3 - truncated and counts["en>de", "truncated"] == truncated


def test_a_dictionary_serves_the_other_direction_and_regions() -> None:
    pairs = {
        ("de", "en"): ("Ein Baum", "A tree"),
        ("en", "de-at"): GOOD,
        ("en", "fr"): ("A tree", "Un arbre"),
    }
    samples, counts = make(
        concatenate_datasets([pairs_of(both, languages=codes) for codes, both in pairs.items()])
    )
    assert [(s["source_word"], s["target_language"]) for s in samples] == [
        ("Baum", "en"),
        ("tree", "de-at"),
    ]
    assert counts["en>fr", "no_dictionary"] == 1


def test_at_most_so_many_samples_of_a_pair() -> None:
    pairs = pairs_of(("dog house tree street", "Hund Haus Baum Straße"))
    everything, _ = make(pairs, samples_per_pair=4)
    assert len(everything) == 4
    choices = set()
    for seed in range(8):
        two, _ = make(pairs, samples_per_pair=2, seed=seed)
        places = [everything.index(sample) for sample in two]
        assert len(places) == 2 and places == sorted(places)
        choices.add(tuple(places))
    assert len(choices) > 1
    with pytest.raises(DataError, match="no word-positioned samples"):
        make(pairs, samples_per_pair=-1)


def test_the_same_call_takes_the_kept_samples(tmp_path: Path) -> None:
    assert (
        make(pairs_of(GOOD)) == make(pairs_of(GOOD)) and len(list(tmp_path.rglob("*.arrow"))) == 1
    )
    tokenizer = train_tokenizer(["a big tree ein baum"] * 9, vocabulary=60)
    options = {"max_seq_length": 8, "stop_words_by_language": {}, "samples_per_pair": 3, "seed": 4}
    for number, changed in enumerate(
        {**options, "tokenizer": tokenizer, "entries": ENTRIES[:-1]}.items(), start=2
    ):
        make(pairs_of(GOOD, ("The dog", "Der Hund")), **dict([changed]))
        assert len(list(tmp_path.rglob("*.arrow"))) == number


def slow_algorithm(text: str, word: str, tokenizer: Any) -> tuple[int, int] | None:
    """Algorithm 1 as it is printed: the place of a word that occurs once, as string and tokens."""
    whole_word = rf"(?<!\w){re.escape(word.lower())}(?!\w)"
    if len(re.findall(whole_word, text.lower())) != 1:
        return None
    part = tokenizer(word, add_special_tokens=False)["input_ids"]
    ids = tokenizer(text)["input_ids"]
    places = [start for start in range(len(ids)) if ids[start : start + len(part)] == part]
    if len(places) != 1:
        return None
    return places[0], places[0] + len(part)


def test_it_finds_what_the_printed_algorithm_finds() -> None:
    dice, tokenizer = random.Random(0), word_piece()

    def text(words: str, most: int) -> str:
        drawn = dice.choices(words.split(), k=dice.randint(1, most))
        return " ".join(
            "".join(word + dice.choice([" ", " ", ", ", " (", ") ", "-"]) for word in drawn).split()
        )

    words = (
        "dog doghouse dogs house street guinea pig tree big old",
        "hund hunds haus straße meerschweinchen baum ein",
    )
    rows = [(text(words[0], 7), text(words[1], 5)) for _ in range(400)]
    entries = [
        *ENTRIES[:2],
        *ENTRIES[3:],
        ("big", "ein"),
        ("old", "hund"),
        ("dog", "haus"),
        ("dogs", "hunds"),
    ]
    entries.append(("guinea", "Baum"))
    samples, counts = make(pairs_of(*rows), entries, stop_words_by_language={})
    names = ("source", "target", "source_start", "source_end", "target_start", "target_end")
    expected = set()
    for both, words in product(set(rows), entries):
        source, target = (
            slow_algorithm(*side, tokenizer) for side in zip(both, words, strict=True)
        )
        if source and target:
            expected.add((*both, *source, *target))
    assert {tuple(sample[name] for name in names) for sample in samples} == expected and len(
        expected
    ) > 100
    assert counts["en>de", "pairs"] == 400 == sum(counts.values()) - 400 - len(samples)


@pytest.mark.parametrize(
    ("language", "source", "target", "entry"),
    [
        # A tokenizer marks the space before a word, here by a token of its own, and none after a
        # bracket.
        ("de", "the dog", "der hund", ("dog", "hund")),
        ("de", "a (dog)", "ein hund", ("dog", "hund")),
        ("zh", "A 😀 book", "😀 这本书很好", ("book", "书")),
        ("ja", "A book", "昨日、本を読む。", ("book", "本")),
        ("th", "A book", "เราอ่านหนังสือ", ("book", "หนังสือ")),
    ],
)
def test_marks_of_spaces_and_languages_without_any(
    language: str, source: str, target: str, entry: Any
) -> None:
    if language != "de":
        pytest.importorskip("icu4py")
    tokenizer = train_tokenizer([" ".join(target), source.lower()] * 9, vocabulary=90)
    pairs, dictionaries = (
        pairs_of((source, target), languages=("en", language)),
        [Dictionary("en", language, [entry])],
    )
    (sample,), _ = make(pairs, dictionaries=dictionaries, tokenizer=tokenizer)
    for side, word in zip(("source", "target"), entry, strict=True):
        assert "".join(tokens(sample, side, tokenizer)).strip("▁") == word == sample[f"{side}_word"]
    assert tokens(sample, "target", tokenizer)[0].startswith("▁") == (language == "de")


@pytest.mark.parametrize("name", ["en-de.txt", "words.en-de.tsv.gz"])
def test_dictionaries_are_read_packed_or_not(tmp_path: Path, name: str) -> None:
    file = write_text(
        tmp_path / name, "dog Hund\n\nguinea  pig\tMeerschweinchen\ndog Hund\r\nDog\tHund \n"
    )
    dictionary, entries = (
        read_dictionary(file),
        [("dog", "Hund"), ("guinea pig", "Meerschweinchen"), ("Dog", "Hund")],
    )
    assert dictionary == Dictionary("en", "de", entries, str(file))
    more = write_text(tmp_path / "more.en-de.tsv", "dog\tHund\nc\td\n")
    assert sorted(read_dictionary([file, more]).entries) == sorted([*entries, ("c", "d")])
    for others in (
        [file, write_text(tmp_path / "en-fr.txt", "a b\n")],
        [write_text(tmp_path / "en-fr.tsv", "\n")],
    ):
        with pytest.raises(DataError, match=r"en-fr\.t"):
            read_dictionary(others)


def test_a_dictionary_has_the_quotes_that_pairs_have(tmp_path: Path) -> None:
    lines = ['"dog"\t"Hund"', '"12"" disk"\tScheibe', '"ice\tcream"\tEis']
    quoted = write_text(tmp_path / "quoted.en-de.tsv", "\n".join(lines))
    expected = [("dog", "Hund"), ('12" disk', "Scheibe"), ("ice cream", "Eis")]
    assert read_dictionary(quoted).entries == expected
    plain = write_text(tmp_path / "plain.en-de.tsv", 'dog\tHund\n12"\t"groß"\n')
    assert read_dictionary(plain).entries == [("dog", "Hund"), ('12"', '"groß"')]


def test_the_wrong_direction_is_noticed() -> None:
    entries = [(f"sun{i}", f"солнце{i}") for i in range(12)]
    dictionary = Dictionary("en", "ru", entries, "words.en.tsv")
    sources, targets = ([", ".join(words).title()] for words in zip(*entries, strict=True))
    dictionary.check_direction(sources, targets)
    with pytest.raises(DataError, match=r"words\.en\.tsv.*24.*words\.ru-en"):
        dictionary.check_direction(targets, sources)


def test_the_wrong_direction_is_noticed_in_pairs_of_the_other_direction() -> None:
    entries = [(f"sun{i}", f"солнце{i}") for i in range(12)]
    wrong = Dictionary("ru", "en", entries, "words.ru-en.tsv")
    english, russian = (", ".join(words) for words in zip(*entries, strict=True))
    pairs = pairs_of((english, russian), languages=("en", "ru"))
    with pytest.raises(DataError, match=r"words\.ru-en\.tsv.*such as words\.en-ru\.tsv"):
        make(pairs, dictionaries=[wrong])


@pytest.mark.parametrize(
    "text, language, expected",
    [
        ("It's 3.5 km, well-known!", "en", ["It", "s", "3", "5", "km", "well", "known"]),
        ("cafe\u0301 noir", "fr", ["cafe\u0301", "noir"]),
        ("किताब पढ़ना", "hi", ["किताब", "पढ़ना"]),
        ("می\u200cروم", "fa", ["می\u200cروم"]),
        ("snake_case 😀 ok", "en", ["snake", "case", "ok"]),
        ("...", "en", []),
    ],
)
def test_words_are_runs_of_letters_marks_and_digits(
    text: str, language: str, expected: list[str]
) -> None:
    assert [text[start:end] for start, end in word_splitter(language)(text)] == expected


def test_stop_words_are_those_of_the_language_or_of_a_file(tmp_path: Path) -> None:
    assert (
        "the" in stop_words("en") and "house" not in stop_words("en") and "e" in stop_words("pt-br")
    )
    assert (
        stop_words("nb") == stop_words("no")
        and stop_words("no")
        and stop_words("te") == frozenset()
    )
    file = write_text(tmp_path / "short.pt-BR.txt", "\ufeffUm\n\n  uma \n")
    assert read_stop_words(file) == ("pt-br", {"um", "uma"})
