"""Dictionaries and words; Algorithm 1 of ML-CTL: case by case, against a slow copy, with several tokenizers."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from datasets import Dataset, concatenate_datasets
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from st_xlret.data import DataError, Dictionary, Report, build_word_samples, read_dictionary
from st_xlret.data.words import read_stop_words, stop_words, word_splitter
from st_xlret.modules import train_tokenizer, transformer_encoder
from tests.data.files import write_text

ENTRIES = [
    ("dog", "Hund"),
    ("house", "Haus"),
    ("the", "der"),
    ("guinea pig", "Meerschweinchen"),
    ("street", "Straße"),
    ("tree", "Baum"),
]
PIECES = "the dog house street guinea pig tree big old der hund haus baum meer ##schwein ##chen straße ##s ##house ein"


def word_piece() -> PreTrainedTokenizerFast:
    """A BERT tokenizer: words have the same tokens wherever they stand."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *PIECES.split(), *".,()'-"]
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]")


def german(*texts: tuple[str, str]) -> Dataset:
    rows = [{"source": source, "target": target} for source, target in texts]
    return Dataset.from_list([{**row, "source_language": "en", "target_language": "de"} for row in rows])


def tokens(sample: dict[str, Any], side: str, tokenizer: Any) -> list[str]:
    ids = tokenizer(sample[side])["input_ids"][sample[f"{side}_start"] : sample[f"{side}_end"]]
    return tokenizer.convert_ids_to_tokens(ids)


# One sample, so that a refused pair does not leave none at all.
GOOD = ("A big tree.", "Ein Baum.")


@pytest.fixture
def make(tmp_path: Path) -> Any:
    def run(pairs: Dataset, entries: Any = None, **options: Any) -> tuple[list[dict[str, Any]], Report]:
        given: dict[str, Any] = {
            "dictionaries": [Dictionary("en", "de", entries or ENTRIES)],
            "tokenizer": word_piece(),
            "cache_dir": tmp_path,
            "report": Report(),
        }
        return build_word_samples(pairs, **(given | options)).to_list(), given["report"]

    return run


def reason(report: Report) -> str:
    (name,) = {name for _, name in report} - {"pairs", "used", "samples"}
    return name


def test_a_word_that_stands_once_on_both_sides_is_a_sample(make: Any) -> None:
    samples, report = make(german(("The Dog sleeps.", "Der Hund schläft.")))
    assert samples == [
        {
            **{"source": "The Dog sleeps.", "target": "Der Hund schläft."},
            **{"source_language": "en", "target_language": "de", "source_word": "Dog", "target_word": "Hund"},
            **{"source_start": 2, "source_end": 3, "target_start": 2, "target_end": 3},
        }
    ]
    assert report == {("en>de", name): 1 for name in ("pairs", "used", "samples")}


def test_phrases_and_words_of_several_tokens(make: Any) -> None:
    (sample,), _ = make(german(("The (guinea pig)", "Ein Meerschweinchen.")))
    assert tokens(sample, "source", word_piece()) == ["guinea", "pig"]
    assert tokens(sample, "target", word_piece()) == ["meer", "##schwein", "##chen"]
    assert sample["source_word"] == "guinea pig"


def test_folding_that_changes_the_length_moves_no_positions(make: Any) -> None:
    # Folded, "ß" is "ss".
    samples, _ = make(german(("The street, dog", "Die STRASSE (Hund)"), ("A street, dog", "Die Straße (Hund)")))
    assert [s["target_word"] for s in samples] == ["Hund", "Straße", "Hund"]
    assert [tokens(s, "target", word_piece()) for s in samples] == [["hund"], ["straße"], ["hund"]]


@pytest.mark.parametrize(
    "source, target, expected",
    [
        ("", "Ein Hund", "empty"),
        ("dog", " ", "empty"),
        ("dog Hund", "dog Hund", "identical"),
        ("A cat.", "Eine Katze.", "no_word"),
        ("A dog.", "Eine Katze.", "no_word"),
        ("A cat.", "Ein Hund.", "no_word"),
        ("The cat.", "Der Kater.", "stop_word"),
        ("The dog and the dog.", "Der Hund.", "repeated"),
        ("The dog.", "Hund, Hund!", "repeated"),
        ("The dog, dog, cat", "Der Hund", "repeated"),
        (*GOOD, "duplicate"),
        # Once as a word, twice as tokens: dog + ##house, dog + ##s.
        ("The dog, the doghouse", "Der Hund", "tokens"),
        ("dogs dog", "Der Hund", "tokens"),
    ],
)
def test_why_a_pair_gives_none(make: Any, source: str, target: str, expected: str) -> None:
    samples, report = make(concatenate_datasets([german((source, target)), german(GOOD)]))
    assert len(samples) == 1 and reason(report) == expected
    assert report["en>de", "pairs"] == report["en>de", "used"] + report["en>de", expected] == 2
    if expected == "no_word":
        with pytest.raises(DataError, match=r"no_word(.|\n)*en>de +1"):
            make(german((source, target)))


def test_words_after_the_last_token_that_is_read(make: Any) -> None:
    long = ("the big old big old big dog", "der Hund")
    samples, report = make(german(long, GOOD), max_seq_length=6)
    assert len(samples) == 1 and reason(report) == "truncated"
    assert len(make(german(long, GOOD), max_seq_length=9)[0]) == 2
    # A word that is cut in its middle is not read as a whole either.
    cut = ("A guinea pig", "ein ein Meerschweinchen")
    _, report = make(german(cut, GOOD), max_seq_length=6)
    assert reason(report) == "truncated"


def test_a_dictionary_serves_the_other_direction_and_regions(make: Any) -> None:
    rows = [
        {"source": "Ein Baum", "target": "A tree", "source_language": "de", "target_language": "en"},
        {"source": "A tree!", "target": "Ein Baum!", "source_language": "en", "target_language": "de-at"},
        {"source": "A tree", "target": "Un arbre", "source_language": "en", "target_language": "fr"},
    ]
    samples, report = make(Dataset.from_list(rows))
    assert [(s["source_word"], s["target_language"]) for s in samples] == [("Baum", "en"), ("tree", "de-at")]
    assert report["en>fr", "no_dictionary"] == 1


def test_at_most_so_many_samples_of_a_pair(make: Any) -> None:
    pairs = german(("dog house tree street", "Hund Haus Baum Straße"))
    everything, _ = make(pairs)
    two, _ = make(pairs, samples_per_pair=2)
    assert len(everything) == 4 and len(two) == 2 and all(sample in everything for sample in two)
    chosen = {tuple(s["source_word"] for s in make(pairs, samples_per_pair=2, seed=seed)[0]) for seed in range(12)}
    assert len(chosen) > 1
    with pytest.raises(ValueError, match="samples_per_pair.*0"):
        make(pairs, samples_per_pair=0)
    with pytest.raises(ValueError, match="SimpleNamespace"):
        make(pairs, tokenizer=SimpleNamespace(is_fast=False))


def test_the_same_call_takes_the_kept_samples(make: Any, tmp_path: Path) -> None:
    first, again = make(german(GOOD)), make(german(GOOD))
    assert again == first and len(list(tmp_path.glob("*.arrow"))) == 1
    changes: list[dict[str, Any]] = [{"max_seq_length": 8}, {"stop_words_by_language": {}}, {"samples_per_pair": 3}]
    changes += [{"seed": 4}, {"tokenizer": train_tokenizer(["a big tree ein baum"] * 9, vocabulary=60)}]
    for number, changed in enumerate(changes, start=2):
        make(german(GOOD), **changed)
        assert len(list(tmp_path.glob("*.arrow"))) == number
    make(german(GOOD), [*ENTRIES, ("x", "y")])
    assert len(list(tmp_path.glob("*.arrow"))) == len(changes) + 2


def test_a_space_mark_belongs_to_the_word_and_brackets_do_not_hide_it(make: Any) -> None:
    # A SentencePiece tokenizer whose mark is a token of its own before "hund".
    tokenizer = train_tokenizer(["the dog sleeps", "der hund schläft"] * 10, vocabulary=80)
    samples, _ = make(german(("the dog", "der hund"), ("a (dog)", "ein Hund")), tokenizer=tokenizer)
    marks = [tokens(sample, "target", tokenizer)[0] for sample in samples]
    assert marks[0].startswith("▁")
    assert "".join(tokens(samples[1], "source", tokenizer)).strip("▁") == "dog"


def test_positions_are_those_of_the_encoder(make: Any) -> None:
    tokenizer = train_tokenizer(["a big tree and a dog house", "ein baum und ein hund"] * 9, vocabulary=90)
    model = transformer_encoder(tokenizer, "tiny", max_seq_length=24).to("cpu")
    samples, _ = make(
        german(("A big tree", "Ein Baum"), ("The dog", "Hund: " + "ein " * 20), ("A dog", "ein " * 20 + "Hund")),
        tokenizer=model.tokenizer,
        max_seq_length=model.max_seq_length,
    )
    assert [sample["source_word"] for sample in samples] == ["tree", "dog"]
    for sample in samples:
        for side in ("source", "target"):
            ids = model.preprocess([sample[side]])["input_ids"][0].tolist()
            text = tokenizer.decode(ids[sample[f"{side}_start"] : sample[f"{side}_end"]])
            assert text.strip() == sample[f"{side}_word"].lower()


def slow_algorithm(row: dict[str, str], entries: Iterable[tuple[str, str]], tokenizer: Any) -> set[tuple[Any, ...]]:
    """Algorithm 1 as it is printed: a scan of the dictionary, counts of strings and of tokens."""

    def count(tokens_of_all: list[int], part: list[int]) -> list[int]:
        return [i for i in range(len(tokens_of_all)) if tokens_of_all[i : i + len(part)] == part]

    def place(text: str, word: str) -> tuple[int, int] | None:
        if len(re.findall(rf"(?<!\w){re.escape(word.lower())}(?!\w)", text.lower())) != 1:
            return None
        part = tokenizer(word, add_special_tokens=False)["input_ids"]
        places = count(tokenizer(text)["input_ids"], part)
        return (places[0], places[0] + len(part)) if len(places) == 1 else None

    found = set()
    for source, target in entries:
        here, there = place(row["source"], source), place(row["target"], target)
        if here and there:
            found.add((row["source"], source, target, *here, *there))
    return found


def test_it_finds_what_the_printed_algorithm_finds(make: Any) -> None:
    dice = random.Random(0)
    english = ["dog", "doghouse", "dogs", "house", "street", "guinea", "pig", "tree", "big", "old"]
    foreign = ["hund", "hunds", "haus", "straße", "meerschweinchen", "baum", "baums", "ein"]
    rows = []
    for _ in range(400):
        texts = [
            "".join(word + dice.choice([" ", " ", ", ", " (", ") ", "-"]) for word in dice.choices(words, k=size))
            for words, size in ((english, dice.randint(1, 7)), (foreign, dice.randint(1, 5)))
        ]
        rows.append((" ".join(texts[0].split()), " ".join(texts[1].split())))
    entries = [*ENTRIES[:2], *ENTRIES[3:], ("big", "ein"), ("old", "hund"), ("dog", "haus"), ("dogs", "hunds")]
    entries.append(("guinea", "Baum"))
    samples, report = make(german(*rows), entries, stop_words_by_language={})
    columns = ("source_start", "source_end", "target_start", "target_end")
    words = {(s.lower(), t.lower()): (s, t) for s, t in entries}
    got = {
        (s["source"], *words[s["source_word"].lower(), s["target_word"].lower()], *(s[c] for c in columns))
        for s in samples
    }
    tokenizer = word_piece()
    expected = set()
    for source, target in set(rows):
        expected |= slow_algorithm({"source": source, "target": target}, entries, tokenizer)
    assert got == expected and len(expected) > 100
    assert (
        report["en>de", "pairs"] == 400 == sum(n for (_, name), n in report.items() if name not in ("pairs", "samples"))
    )


@pytest.mark.parametrize(
    "language, source, target, entry",
    [
        ("zh", "A 😀 book", "😀 这本书很好", ("book", "书")),
        ("zh", "the library", "去图书馆看", ("library", "图书馆")),
        ("ja", "A book", "昨日、本を読む。", ("book", "本")),
        ("th", "A book", "เราอ่านหนังสือ", ("book", "หนังสือ")),
    ],
)
def test_languages_without_spaces(make: Any, language: str, source: str, target: str, entry: Any) -> None:
    pytest.importorskip("icu4py")
    characters = " ".join(target)
    tokenizer = train_tokenizer([characters, source.lower()] * 9, vocabulary=90)
    pairs = Dataset.from_list(
        [{"source": source, "target": target, "source_language": "en", "target_language": language}]
    )
    (sample,), _ = make(pairs, dictionaries=[Dictionary("en", language, [entry])], tokenizer=tokenizer)
    ids = tokenizer(target)["input_ids"][sample["target_start"] : sample["target_end"]]
    assert tokenizer.decode(ids).strip() == entry[1] == sample["target_word"]


@pytest.mark.parametrize("name", ["en-de.txt", "words.en-de.tsv.gz"])
def test_dictionaries_are_read_packed_or_not(tmp_path: Path, name: str) -> None:
    file = write_text(tmp_path / name, "dog Hund\n\nguinea  pig\tMeerschweinchen\ndog Hund\r\nDog\tHund \n")
    dictionary, entries = read_dictionary(file), [("dog", "Hund"), ("guinea pig", "Meerschweinchen"), ("Dog", "Hund")]
    assert (dictionary.source_language, dictionary.target_language, dictionary.entries) == ("en", "de", entries)
    more = write_text(tmp_path / "more.en-de.tsv", "dog\tHund\nc\td\n")
    assert sorted(read_dictionary([file, more]).entries) == sorted([*entries, ("c", "d")])
    for others in ([file, write_text(tmp_path / "en-fr.txt", "a b\n")], [write_text(tmp_path / "en-fr.tsv", "\n")]):
        with pytest.raises(DataError, match=r"en-fr\.t"):
            read_dictionary(others)


@pytest.mark.parametrize("line", ["dog", "guinea pig Meerschweinchen", "dog\tHund\tn", "dog\t ", "dog\tH\ufffdnd"])
def test_a_bad_line_of_a_dictionary_is_named_or_skipped(tmp_path: Path, line: str) -> None:
    file = write_text(tmp_path / "en-de.tsv", f"cat\tKatze\n{line}\nsun\tSonne\n")
    with pytest.raises(DataError, match=r"en-de\.tsv, line 2"):
        read_dictionary(file)
    assert len(read_dictionary(file, skip_bad_lines=True)) == 2


ENGLISH = ["sun", "moon", "star", "rain", "wind", "snow", "tree", "leaf", "root", "fish", "bird", "wolf"]
FRENCH = ["soleil", "lune", "astre", "pluie", "vent", "neige", "arbre", "feuille", "racine", "poisson", "ours", "loup"]
RUSSIAN = ["солнце", "луна", "звезда", "дождь", "ветер", "снег", "дерево", "лист", "корень", "рыба", "птица", "волк"]


@pytest.mark.parametrize("code, foreign", [("fr", FRENCH), ("ru", RUSSIAN)])
def test_the_wrong_direction_is_noticed(code: str, foreign: list[str]) -> None:
    entries = list(zip(ENGLISH, foreign, strict=True))
    sentences = [" ".join(ENGLISH).title()], [", ".join(foreign)]
    Dictionary("en", code, entries).check_direction(*sentences)
    wrong = Dictionary("en", code, [(b, a) for a, b in entries], "words.en.tsv")
    with pytest.raises(DataError, match=rf"words\.en\.tsv.*24.*words\.{code}-en"):
        wrong.check_direction(*sentences)


def words(text: str, language: str) -> list[str]:
    return [text[start:end] for start, end in word_splitter(language)(text)]


@pytest.mark.parametrize(
    "text, language, expected",
    [
        ("It's 3.5 km, well-known!", "en", ["It", "s", "3", "5", "km", "well", "known"]),
        ("l'été déjà vu", "fr", ["l", "été", "déjà", "vu"]),
        ("cafe\u0301 noir", "fr", ["cafe\u0301", "noir"]),
        ("किताब पढ़ना", "hi", ["किताब", "पढ़ना"]),
        ("می\u200cروم", "fa", ["می\u200cروم"]),
        ("snake_case 😀 ok", "en", ["snake", "case", "ok"]),
        ("...", "en", []),
        ("", "en", []),
    ],
)
def test_words_are_runs_of_letters_marks_and_digits(text: str, language: str, expected: list[str]) -> None:
    assert words(text, language) == expected


def test_a_missing_segmenter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "icu4py.breakers", None)
    word_splitter.cache_clear()
    with pytest.raises(ImportError, match=r"'th'.*st-xlret\[words\]"):
        word_splitter("th")("เรา")
    assert words("we read", "en") == ["we", "read"]
    word_splitter.cache_clear()


def test_stop_words_are_those_of_the_language() -> None:
    assert "the" in stop_words("en") and "house" not in stop_words("en")
    assert "und" in stop_words("de") and "e" in stop_words("pt-br")
    assert stop_words("nb") == stop_words("no") and stop_words("no")
    assert stop_words("te") == frozenset()


def test_own_stop_words_are_named_after_their_language(tmp_path: Path) -> None:
    file = tmp_path / "short.pt-BR.txt"
    file.write_text("\ufeffUm\n\n  uma \n", encoding="utf-8")
    assert read_stop_words(file) == ("pt-br", {"um", "uma"})
    with pytest.raises(ValueError, match="words"):
        read_stop_words(tmp_path / "stop words.txt")
