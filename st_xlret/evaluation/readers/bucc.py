"""Reading BUCC: sentences with ids on two sides, and the pairs of ids that are translations."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

HUB_DATASET = "mteb/BUCC"
BUCC_LANGUAGES = ("de", "fr", "ru", "zh")

BUCCSplit = Literal["sample", "training", "test"]


@dataclass(frozen=True)
class BUCCSide:
    """The sentences of one language, with their ids, in the order of the file."""

    ids: list[str]
    sentences: list[str]

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.sentences):
            raise ValueError(f"{len(self.ids)} ids and {len(self.sentences)} sentences: each sentence needs one id.")
        name, count = Counter(self.ids).most_common(1)[0] if self.ids else ("", 0)
        if count > 1:
            raise ValueError(f"the id {name!r} belongs to {count} sentences: ids must be distinct.")

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class BUCCCorpus:
    """Two comparable corpora that contain translations of each other's sentences.

    Attributes:
        source: The other language.
        target: English.
        gold: Pairs (source id, target id) that are translations; None if they are unknown.

    Example:
        >>> corpus = BUCCCorpus(BUCCSide(["de-1"], ["ja"]), BUCCSide(["en-1"], ["yes"]), {("de-1", "en-1")})
        >>> len(corpus.source), corpus.gold
        (1, {('de-1', 'en-1')})
    """

    source: BUCCSide
    target: BUCCSide
    gold: set[tuple[str, str]] | None = field(default=None)

    def __post_init__(self) -> None:
        known = set(self.source.ids), set(self.target.ids)
        for pair in self.gold or ():
            unknown = [name for name, ids in zip(pair, known, strict=True) if name not in ids]
            if unknown:
                raise ValueError(f"the gold pair {pair} names {unknown[0]!r}, which is no sentence's id.")


def load_bucc_directory(
    path: str | os.PathLike[str], languages: Sequence[str] | None = None, *, split: BUCCSplit = "training"
) -> dict[str, BUCCCorpus]:
    """Read one split of the files of the shared task: `de-en.training.de`, `.en`, `.gold` and so on.

    Each line of a text is an id, a tab and a sentence; each line of the gold file two ids with a tab between
    them. Without a gold file (that of the test split is not published) `gold` is None.

    Args:
        path: The folder of these files, or one above it: `de-en/de-en.training.de` and
            `bucc2018/de-en/...`, as the archives unpack, are found too.
        languages: Such as `["de"]`. Default: all that have both texts of the split.
        split: `"sample"`, `"training"` or `"test"`.

    Returns:
        Language (`"de"`) to its corpus beside English.

    Raises:
        FileNotFoundError: If the folder or a file is missing.
        ValueError: If the split is unknown, or a file is malformed: a line without a tab, an id that stands
            twice, a gold id that no sentence has (the message names file and line).
    """
    if split not in get_args(BUCCSplit):
        raise ValueError(f"split must be one of {list(get_args(BUCCSplit))}, got {split!r}.")
    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no directory: expected one with files such as de-en.{split}.de.")
    if languages is None:
        languages = _languages_of(folder, split)
    languages = [languages] if isinstance(languages, str) else languages
    return {language: _read_corpus(folder, language, split) for language in languages}


def load_bucc_hub(languages: Sequence[str] | None = None) -> dict[str, BUCCCorpus]:
    """Load `mteb/BUCC` from the Hugging Face Hub or, when offline, its cache: the training split, named "test" there.

    Args:
        languages: Such as `["de"]`. Default: de, fr, ru, zh.

    Returns:
        As `load_bucc_directory`; ids are made from row numbers.

    Raises:
        ValueError: If a language is not there, or the data set has only aligned pairs, which cannot be mined.
    """
    from datasets import load_dataset

    languages = [languages] if isinstance(languages, str) else languages or BUCC_LANGUAGES
    unknown = [language for language in languages if language not in BUCC_LANGUAGES]
    if unknown:
        raise ValueError(f"{HUB_DATASET} has no {unknown}; it has {list(BUCC_LANGUAGES)}.")
    corpora = {}
    for language in languages:
        row = load_dataset(HUB_DATASET, f"{language}-en", split="test")[0]
        if not isinstance(row.get("sentence1"), (list, tuple)) or "gold" not in row:
            raise ValueError(
                f"{HUB_DATASET} ({language}-en) holds aligned pairs, not two corpora with gold pairs of row numbers: "
                "there is nothing to mine. Read the shared task's files with from_directory."
            )
        source, target = (_numbered(name, row[f"sentence{side}"]) for name, side in ((language, 1), ("en", 2)))
        gold = set()
        for first, second in row["gold"]:
            if not (1 <= first <= len(source) and 1 <= second <= len(target)):
                raise ValueError(
                    f"{HUB_DATASET} ({language}-en): the gold pair {(first, second)} is out of range; there are "
                    f"{len(source)} and {len(target)} sentences."
                )
            gold.add((source.ids[first - 1], target.ids[second - 1]))
        corpora[language] = BUCCCorpus(source, target, gold)
    return corpora


def _languages_of(folder: Path, split: str) -> list[str]:
    texts = [file for pattern in ("", "*/", "*/*/") for file in folder.glob(f"{pattern}*-en.*.en")]
    found = sorted({file.name.split("-en.")[0] for file in texts if file.name.endswith(f"-en.{split}.en")})
    if not found:
        splits = sorted({file.name.split(".")[-2] for file in texts})
        hint = f" It holds the splits {splits}: choose one of them." if splits else ""
        raise FileNotFoundError(f"{folder} holds no files such as de-en.{split}.de and de-en.{split}.en.{hint}")
    return found


def _numbered(language: str, sentences: Sequence[str]) -> BUCCSide:
    return BUCCSide(
        [f"{language}-{number:09d}" for number in range(1, len(sentences) + 1)], [text.strip() for text in sentences]
    )


def _read_corpus(folder: Path, language: str, split: str) -> BUCCCorpus:
    pair = f"{language}-en"
    places = [folder, folder / pair, folder / "bucc2018" / pair]
    place = next((each for each in places if (each / f"{pair}.{split}.{language}").is_file()), None)
    if place is None:
        inner = f"{pair}/ or bucc2018/{pair}/"
        raise FileNotFoundError(f"{folder} has no {pair}.{split}.{language}, nor is there one in {inner} in it.")
    source, target = (_read_side(place / f"{pair}.{split}.{side}") for side in (language, "en"))
    gold_file = place / f"{pair}.{split}.gold"
    gold = _read_gold(gold_file, source, target) if gold_file.is_file() else None
    return BUCCCorpus(source, target, gold)


def _read_side(file: Path) -> BUCCSide:
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing: the two texts of a pair of languages belong together.")
    line_of: dict[str, int] = {}
    sentences = []
    for number, line in _lines(file):
        name, tab, sentence = line.partition("\t")
        if not tab or not name.strip():
            raise ValueError(f"{file}, line {number}: expected an id, a tab and a sentence, got {line[:60]!r}.")
        if name in line_of:
            raise ValueError(f"{file}, line {number}: the id {name!r} occurs on line {line_of[name]} too.")
        line_of[name] = number
        sentences.append(sentence.strip())
    if not sentences:
        raise ValueError(f"{file} holds no sentences.")
    return BUCCSide(list(line_of), sentences)


def _read_gold(file: Path, source: BUCCSide, target: BUCCSide) -> set[tuple[str, str]]:
    known = set(source.ids), set(target.ids)
    gold = set()
    for number, line in _lines(file):
        ids = line.split("\t")
        if len(ids) != 2:
            raise ValueError(f"{file}, line {number}: expected two ids with a tab between them, got {line[:60]!r}.")
        for name, ids_there, side in zip(ids, known, ("first", "second"), strict=True):
            if name not in ids_there:
                raise ValueError(f"{file}, line {number}: {name!r} is no id in the {side} text.")
        gold.add((ids[0], ids[1]))
    if not gold:
        raise ValueError(f"{file} holds no pairs.")
    return gold


def _lines(file: Path) -> list[tuple[int, str]]:
    # splitlines() would also split at characters that end no line of a text file.
    lines = []
    for number, raw in enumerate(file.read_bytes().split(b"\n"), start=1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise ValueError(f"{file}, line {number}: not UTF-8 text ({error.reason}).") from error
        if line:
            lines.append((number, line))
    return lines
