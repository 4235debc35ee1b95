"""Words and their tokens: against a slow copy of Algorithm 1, with several tokenizers, on real text."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from st_xlret.data import DataError, PairOptions, WordSampleReport, load_pairs
from st_xlret.data.words.dictionaries import Dictionary, read_dictionary
from st_xlret.data.words.samples import build_word_samples
from st_xlret.modules import train_tokenizer, transformer_encoder
from tests.data.words.word_pieces import ENTRIES, german, tokens, word_piece


def test_a_space_mark_belongs_to_the_word_and_brackets_do_not_hide_it(tmp_path: Path) -> None:
    # A SentencePiece tokenizer whose mark is a token of its own before "hund".
    tokenizer = train_tokenizer(["the dog sleeps", "der hund schläft"] * 10, vocabulary=80)
    pairs = german(("the dog", "der hund"), ("a (dog)", "ein Hund"))
    samples = build_word_samples(
        pairs, [Dictionary("en", "de", ENTRIES)], tokenizer, cache_dir=tmp_path, show_progress=False
    )
    marks = [tokens(sample, "target", tokenizer)[0] for sample in samples]
    assert marks[0].startswith("▁")
    assert (
        tokenizer.decode(
            tokenizer(samples[1]["source"])["input_ids"][samples[1]["source_start"] : samples[1]["source_end"]]
        ).strip()
        == "dog"
    )


def test_positions_are_those_of_the_encoder(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["a big tree and a dog house", "ein baum und ein hund"] * 9, vocabulary=90)
    model = transformer_encoder(tokenizer, "tiny", max_seq_length=24).to("cpu")
    samples = build_word_samples(
        german(("A big tree", "Ein Baum"), ("The dog", "Hund: " + "ein " * 20), ("A dog", "ein " * 20 + "Hund")),
        [Dictionary("en", "de", ENTRIES)],
        model.tokenizer,
        max_seq_length=model.max_seq_length,
        cache_dir=tmp_path,
        show_progress=False,
    )
    assert samples["source_word"][:] == ["tree", "dog"]
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


def test_it_finds_what_the_printed_algorithm_finds(tmp_path: Path) -> None:
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
    report = WordSampleReport()
    samples = build_word_samples(
        german(*rows),
        [Dictionary("en", "de", entries)],
        word_piece(),
        stop_words_by_language={},
        report=report,
        cache_dir=tmp_path,
        show_progress=False,
    )
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
    counts = vars(report.languages["en>de"])
    reasons = sum(n for name, n in counts.items() if name not in ("pairs", "used", "samples"))
    assert counts["pairs"] == 400 == counts["used"] + reasons


@pytest.mark.parametrize(
    "language, source, target, entry",
    [
        ("zh", "A 😀 book", "😀 这本书很好", ("book", "书")),
        ("zh", "the library", "去图书馆看", ("library", "图书馆")),
        ("ja", "A book", "昨日、本を読む。", ("book", "本")),
        ("th", "A book", "เราอ่านหนังสือ", ("book", "หนังสือ")),
    ],
)
def test_languages_without_spaces(tmp_path: Path, language: str, source: str, target: str, entry: Any) -> None:
    pytest.importorskip("icu4py")
    characters = " ".join(target)
    tokenizer = train_tokenizer([characters, source.lower()] * 9, vocabulary=90)
    pairs = Dataset.from_list(
        [{"source": source, "target": target, "source_language": "en", "target_language": language}]
    )
    (sample,) = build_word_samples(
        pairs, [Dictionary("en", language, [entry])], tokenizer, cache_dir=tmp_path, show_progress=False
    ).to_list()
    ids = tokenizer(target)["input_ids"][sample["target_start"] : sample["target_end"]]
    assert tokenizer.decode(ids).strip() == entry[1] == sample["target_word"]


@pytest.mark.slow
@pytest.mark.real_data
def test_real_pairs_and_dictionaries(real_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("icu4py")
    pairs = load_pairs(
        real_data / "tico19/pairs",
        PairOptions(languages=["en", "es", "zh"], per_language=100),
        cache_dir=tmp_path,
        show_progress=False,
    )
    tokenizer = train_tokenizer([*pairs["source"][:], *pairs["target"][:]], vocabulary=2000)
    dictionaries = [read_dictionary(real_data / f"dictionaries/enwiktionary.en-{code}.tsv.gz") for code in ("es", "zh")]
    report = WordSampleReport()
    options = {"cache_dir": tmp_path, "show_progress": False, "report": report}
    samples = build_word_samples(pairs, dictionaries, tokenizer, max_seq_length=64, **options)
    assert all(counts.used > 0.25 * counts.pairs for counts in report.languages.values()), str(report)
    for sample in samples.select(range(0, len(samples), 7)):
        for side in ("source", "target"):
            ids = tokenizer(sample[side])["input_ids"][sample[f"{side}_start"] : sample[f"{side}_end"]]
            assert tokenizer.decode(ids).replace(" ", "") == sample[f"{side}_word"].lower().replace(" ", ""), sample
    with pytest.raises(DataError, match="did you mean to swap"):
        wrong = Dictionary("en", "es", dictionaries[0].swapped().entries)
        build_word_samples(pairs, [wrong], tokenizer, cache_dir=tmp_path, show_progress=False)
