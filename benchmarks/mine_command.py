"""Time and peak memory of `st-xlret mine` as a whole: reading, encoding, searching both ways, choosing, writing.

    OMP_NUM_THREADS=1 python -m benchmarks.mine_command --texts 50000 200000 --output runs/mine_command.json

Both sides are generated sentences of 4 to 14 words; half of those on one side have their translation on the other. The
encoder is static (a vector for each word, the same for translations, and a noise that is not), so that the time is that
of mining; a real encoder's time for the texts comes on top. The peak is the resident memory of the whole process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from benchmarks.measuring import machine
from st_xlret.files import write_json

WORDS = 20_000


def write_encoder(folder: Path, dimension: int, noise: float, generator: np.random.Generator) -> None:
    """An encoder in which `a7` and `b7` are translations."""
    vectors = generator.standard_normal((WORDS, dimension))
    sides = [vectors + noise * generator.standard_normal(vectors.shape) for _ in "ab"]
    vocabulary = {f"{side}{word}": word + WORDS * (side == "b") for side in "ab" for word in range(WORDS)}
    tokenizer = Tokenizer(WordLevel({**vocabulary, "[UNK]": 2 * WORDS}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    weights = np.concatenate([*sides, np.zeros((1, dimension))]).astype(np.float32)
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights)]).save(str(folder))


def write_sides(folder: Path, texts: int, generator: np.random.Generator) -> set[tuple[str, str]]:
    """Two files of sentences; returns the translations among them."""
    lengths = generator.integers(4, 15, size=3 * texts // 2)
    sentences = [generator.integers(0, WORDS, size=length) for length in lengths]
    half = texts // 2
    source, target = sentences[:texts], sentences[:half] + sentences[texts:]
    lines = []
    for side, of_side in (("a", source), ("b", target)):
        lines.append([" ".join(f"{side}{word}" for word in words) for words in of_side])
        order = generator.permutation(len(of_side))
        (folder / f"{side}.txt").write_text("".join(f"{lines[-1][i]}\n" for i in order), encoding="utf-8")
    return set(zip(lines[0][:half], lines[1][:half], strict=True))


def measure(texts: int, dimension: int, noise: float, options: list[str]) -> dict[str, Any]:
    """One run of the command."""
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_encoder(folder / "encoder", dimension, noise, generator)
        gold = write_sides(folder, texts, generator)
        sides = [str(folder / "a.txt"), str(folder / "b.txt")]
        command = [sys.executable, "-m", "st_xlret", "mine", *sides, "--model", str(folder / "encoder")]
        begun = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--output", str(folder / "pairs.tsv"), "--threshold", "1.05", "--device", "cpu", *options]
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        if status:
            raise RuntimeError(f"the command failed with status {status}")
        lines = (folder / "pairs.tsv").read_text(encoding="utf-8").splitlines()
    found = {tuple(line.split("\t")[1:]) for line in lines}
    right = len(found & gold)
    return {
        "texts": texts,
        "seconds": round(seconds, 1),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_MiB": round(usage.ru_maxrss / 1024),
        "precision": right / max(1, len(found)),
        "recall": right / len(gold),
    }


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--output", type=Path, help="JSON file for the figures")
    parser.add_argument("--texts", type=int, nargs="+", default=[50_000, 200_000], help="sentences on either side")
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--noise", type=float, default=0.7, help="how far translations are from each other")
    parser.add_argument("--approximate", action="store_true", help="search by a faiss index")
    args = parser.parse_args()
    options = ["--approximate"] if args.approximate else []
    runs = []
    for texts in args.texts:
        runs.append(measure(texts, args.dimension, args.noise, options))
        print(runs[-1], flush=True)
    if len(runs) > 1:
        first, last = runs[0], runs[-1]
        growth = 2**20 * (last["peak_MiB"] - first["peak_MiB"]) / (2 * (last["texts"] - first["texts"]))
        print(f"{growth:.0f} bytes of memory for each further text")
    if args.output:
        write_json(args.output, {"machine": machine(), "approximate": args.approximate, "runs": runs})


if __name__ == "__main__":
    main()
