"""How many pairs a second become word-positioned samples, and whether that depends on the size of the dictionary.

    python -m benchmarks.word_samples --pairs 1000000 --output runs/word_samples.json
    python -m benchmarks.word_samples --pairs 100000 --real pairs/ --dictionaries words/en-fr.tsv.gz

Without --real, pairs are generated: sentences of 8 to 24 made-up words, of which the dictionary translates one in four.
They are read through dictionaries of two sizes with the same useful entries: a scan of the dictionary for each pair
would take as many times longer as it is larger. Measured is the way from the pairs in an Arrow file to the samples in
another. The tokenizer uses all cores unless TOKENIZERS_PARALLELISM=false, everything else one; seconds of CPU are those
of all cores together, and tell more than the clock where other programs run.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

from datasets import Dataset, disable_progress_bars

from benchmarks.ccp_losses import machine
from st_xlret.data import WordSampleReport, load_pairs
from st_xlret.data.words.dictionaries import Dictionary, load_dictionaries
from st_xlret.data.words.samples import build_word_samples
from st_xlret.files import write_json_atomically
from st_xlret.modules import train_tokenizer

SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
TRANSLATED = 4  # one word in four is in the dictionary


def made_up_words(count: int, ending: str) -> list[str]:
    """Distinct words, the same ones each time."""
    return ["".join(parts) + ending for parts in islice(product(SYLLABLES, repeat=3), count)]


def made_up_pairs(count: int, words: int, seed: int = 0) -> Iterator[dict[str, str]]:
    """Sentences and their word-by-word translations."""
    dice = random.Random(seed)
    source_words, target_words = made_up_words(words, "n"), made_up_words(words, "sh")
    for _ in range(count):
        chosen = dice.choices(range(words), k=dice.randint(8, 24))
        source = " ".join(source_words[i] for i in chosen)
        target = " ".join(target_words[i] for i in reversed(chosen))
        yield {"source": f"{source}.", "target": f"{target}.", "source_language": "en", "target_language": "fr"}


def made_up_dictionary(words: int, entries: int) -> Dictionary:
    """Every fourth word, and further entries that no sentence has, phrases among them."""
    sources, targets = made_up_words(words, "n"), made_up_words(words, "sh")
    useful = list(zip(sources, targets, strict=True))[::TRANSLATED]
    further = [(f"{sources[i % words]} x{i}", f"y{i}") for i in range(entries - len(useful))]
    return Dictionary("en", "fr", useful + further, f"{entries} entries")


def measure(pairs: Dataset, dictionaries: list[Dictionary], tokenizer: Any, folder: Path) -> dict[str, Any]:
    """Seconds, pairs a second and what came of the pairs."""
    cpu, clock = time.process_time(), time.perf_counter()
    report = WordSampleReport()
    samples = build_word_samples(pairs, dictionaries, tokenizer, max_seq_length=64, report=report, cache_dir=folder)
    seconds, cpu_seconds = time.perf_counter() - clock, time.process_time() - cpu
    return {
        "pairs": len(pairs),
        "entries": sum(map(len, dictionaries)),
        "samples": len(samples),
        "used": sum(counts.used for counts in report.languages.values()),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "pairs_per_second": len(pairs) / seconds,
        "pairs_per_cpu_second": len(pairs) / cpu_seconds,
    }


def cases(args: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Dataset, list[Dictionary]]]:
    """What is measured: a name, pairs and dictionaries."""
    if args.real:
        pairs = load_pairs(args.real, cache_dir=folder)
        pairs = pairs.select(range(min(args.pairs, len(pairs))))
        yield "real", pairs, load_dictionaries(args.dictionaries, skip_bad_lines=True)
        return
    made_up = {"count": args.pairs, "words": args.words}
    pairs = Dataset.from_generator(made_up_pairs, gen_kwargs=made_up, cache_dir=str(folder))
    for entries in args.entries:
        yield f"{entries} entries", pairs, [made_up_dictionary(args.words, entries)]


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--pairs", type=int, default=100_000, help="number of pairs, at most")
    parser.add_argument("--words", type=int, default=20_000, help="words of a made-up language")
    parser.add_argument("--entries", type=int, nargs="+", default=[5_000, 200_000], help="dictionary sizes")
    parser.add_argument("--vocabulary", type=int, default=8_000, help="tokens of the tokenizer")
    parser.add_argument("--real", nargs="+", help="files or folders of parallel sentences instead of made-up ones")
    parser.add_argument("--dictionaries", nargs="+", default=[], help="dictionaries for them, named like en-fr.tsv")
    parser.add_argument("--output", type=Path, help="JSON file for the figures")
    args = parser.parse_args()
    disable_progress_bars()
    results: dict[str, Any] = {"machine": machine(), "cases": {}}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = None
        for name, pairs, dictionaries in cases(args, Path(folder)):
            if tokenizer is None:
                some = pairs.select(range(min(5_000, len(pairs))))
                tokenizer = train_tokenizer([*some["source"], *some["target"]], args.vocabulary)
            results["cases"][name] = figures = measure(pairs, dictionaries, tokenizer, Path(folder))
            print(
                f"{name}: {figures['pairs']:,} pairs, {figures['samples']:,} samples, {figures['seconds']:.1f} s: "
                f"{figures['pairs_per_second']:,.0f} pairs a second, {figures['pairs_per_cpu_second']:,.0f} a second "
                f"of CPU; a million takes {1e6 / figures['pairs_per_second'] / 60:.1f} minutes"
            )
    if args.output:
        write_json_atomically(args.output, results)


if __name__ == "__main__":
    main()
