r"""Make a mining test from documents: hide parallel sentences among others, in the file layout of BUCC.

    python evaluation/make_mining_test.py --parallel-documents ../shared/data/ebible/documents \
        --documents ../shared/data/{ebible,storybooks,tico19}/documents ../shared/data/{hf_course,opensource_guide} \
        ../shared/data/{eltec_novels,tensorflow_docs,wikipedia_2023} --languages de es ja zh --output runs/mining
    python evaluation/run.py --model MODEL --benchmark bucc --data runs/mining --languages de es ja zh \
        --output runs/mining.json

For each language and English, --gold translations are hidden in each of two splits. The other verses are used on one
side only, some in English and the others in the other language, so that no further translation is hidden. Sentences of
--documents fill up both sides. Documents that have the same id in English and in the other language are taken to be
translations of each other; only the side with fewer sentences uses them. Documents that are translations of each other
must therefore have the same id.

The training split is for the choice of the threshold, and the test split for the scores; they share no sentence. The
scores are comparable with each other, but not with those of the shared task.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from st_xlret.data import PairOptions, load_pairs, normalise_text
from st_xlret.data.documents import read_documents
from st_xlret.files import write_text
from st_xlret.options import parse

PIVOT, SPLITS = "en", ("training", "test")
# Language to document id to sentences.
Filler = dict[str, dict[str, list[str]]]


@dataclass
class Arguments:
    """Options of the program."""

    parallel_documents: list[str] = field(
        metadata={"help": "Documents with verse references: sentences with equal ones are translations."}
    )
    output: str = field(metadata={"help": "Folder for the files: de-en/de-en.training.de and so on."})
    languages: list[str] = field(metadata={"help": "Languages to make a test of, each with English: de es."})
    documents: list[str] = field(
        default_factory=list,
        metadata={"help": "Documents to fill the sides up with, of these languages and English; see above."},
    )
    sentences: int = field(default=20_000, metadata={"help": "Sentences on each side of each split."})
    gold: int = field(default=1_000, metadata={"help": "How many of them are the hidden translations."})
    seed: int = field(default=0, metadata={"help": "Seed of every choice."})


class Distinct:
    """Takes sentences off iterators, each text once, whatever its case and punctuation."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def accepts(self, *sentences: str) -> bool:
        """Whether none of them was taken before; if so, they are taken now."""
        keys = {normalise_text(sentence) for sentence in sentences}
        if keys & self.seen or "" in keys:
            return False
        self.seen |= keys
        return True

    def take(self, count: int, sentences: Iterable[str]) -> Iterator[str]:
        """The next `count` new sentences, or as many as there are."""
        return islice(filter(self.accepts, sentences), max(0, count))


def read_filler(paths: Sequence[str], languages: Sequence[str]) -> Filler:
    """Sentences of documents, whose ids tell which are translations of each other."""
    filler: Filler = defaultdict(lambda: defaultdict(list))
    for document in read_documents(list(paths), languages=languages, unit="sentence"):
        name = str(document.record.get("id") or f"{document.file}:{document.line}")
        filler[document.language][name] += document.sentences
    return filler


def fill_of_sides(filler: Filler, language: str) -> dict[str, list[str]]:
    """English sentences and the language's to fill the sides with; no document stands on both sides."""
    documents = {side: dict(filler.get(side, {})) for side in (PIVOT, language)}
    scarce, plentiful = sorted(documents, key=lambda side: sum(map(len, documents[side].values())))
    for name in documents[scarce]:
        documents[plentiful].pop(name, None)
    return {side: [text for texts in documents[side].values() for text in texts] for side in documents}


def one_language(given: Arguments, language: str, filler: Filler) -> dict[str, str]:
    """The files of a language, by name; too few translations or sentences are a ValueError."""
    rng = random.Random(f"{given.seed} {language}")
    options = PairOptions(languages=(PIVOT, language))
    table = load_pairs(given.parallel_documents, options, show_progress_bar=False)
    pairs = list(zip(table["target"][:], table["source"][:], strict=True))
    # The same English sentences come first in every language, so that few of them must be kept out of training.
    pairs.sort(key=lambda pair: random.Random(f"{given.seed} {pair[1]}").random())
    distinct = Distinct()
    translations = [pair for pair in pairs if distinct.accepts(*pair)]
    needed = given.gold * len(SPLITS)
    if len(translations) < needed:
        raise ValueError(f"{language}: {needed} translations are to be hidden, there are {len(translations)}")
    supply = one_sided_supply(given, language, translations[needed:], filler, pairs, rng)
    files: dict[str, str] = {}
    for number, split in enumerate(SPLITS):
        hidden = translations[number * given.gold : (number + 1) * given.gold]
        ids: dict[str, dict[str, str]] = {}
        for place, side in enumerate((language, PIVOT)):
            fill = supply[side][number :: len(SPLITS)][: given.sentences - given.gold]
            sentences = [pair[place] for pair in hidden] + fill
            if len(sentences) < given.sentences:
                raise ValueError(
                    f"{language}-{PIVOT}, {split}: {len(sentences)} sentences in {side}, --sentences asks for "
                    f"{given.sentences}; give further --documents or ask for fewer"
                )
            rng.shuffle(sentences)
            ids[side] = {sentence: f"{side}-{row:06d}" for row, sentence in enumerate(sentences, start=1)}
            files[f"{language}-{PIVOT}.{split}.{side}"] = "".join(
                f"{name}\t{' '.join(sentence.split())}\n" for sentence, name in ids[side].items()
            )
        gold = sorted(f"{ids[language][own]}\t{ids[PIVOT][other]}\n" for own, other in hidden)
        files[f"{language}-{PIVOT}.{split}.gold"] = "".join(gold)
    return files


def one_sided_supply(
    given: Arguments,
    language: str,
    rest: list[tuple[str, str]],
    filler: Filler,
    verses: list[tuple[str, str]],
    rng: random.Random,
) -> dict[str, list[str]]:
    """Sentences of each side that have no translation on the other: verses of `rest`, then the filler's."""
    # A verse that is not hidden, because another has its text on one side, is a translation all the same.
    distinct = Distinct()
    distinct.seen = {normalise_text(sentence) for pair in verses for sentence in pair}
    places, supply = len(SPLITS) * (given.sentences - given.gold), {}
    for side, others in fill_of_sides(filler, language).items():
        supply[side] = list(distinct.take(places, rng.sample(others, len(others))))
    # English gets more than half of the verses where it would be short of sentences, and less where the other would.
    english = len(rest) // 2
    english = max(english, min(len(rest), places - len(supply[PIVOT])))
    english = min(english, max(0, len(rest) - (places - len(supply[language]))))
    supply[PIVOT] = [other for _, other in rest[:english]] + supply[PIVOT]
    supply[language] = [own for own, _ in rest[english:]] + supply[language]
    return supply


def main(arguments: list[str] | None = None) -> None:
    """Write the files of every language."""
    (given,) = parse([Arguments], arguments, description=__doc__)
    filler = read_filler(given.documents, [PIVOT, *given.languages]) if given.documents else {}
    files_of = {language: one_language(given, language, filler) for language in given.languages}
    for language, files in files_of.items():
        folder = Path(given.output) / f"{language}-{PIVOT}"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_text(folder / name, text)
        print(f"{folder}: {given.gold} translations among {given.sentences} sentences a side, in each of {SPLITS}")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
