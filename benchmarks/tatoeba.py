"""What TatoebaEvaluator takes beyond encoding.

    OMP_NUM_THREADS=1 python -m benchmarks.tatoeba --output runs/tatoeba_benchmark.json

Random weights and generated sentences of Tatoeba's length, 1 000 in each language; processor seconds of one thread. The
evaluator is timed as a whole and inside ``model.encode``: what is left is its overhead.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from tqdm import tqdm
from transformers.utils import logging as transformers_logging

from benchmarks.ccp_losses import machine
from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.files import write_json_atomically
from st_xlret.modules import train_tokenizer, transformer_encoder

GOAL = 0.05
WORDS = [f"{a}{b}" for a in ("ba", "de", "fi", "ko", "lu", "ma", "ne", "po") for b in ("ra", "se", "ti", "vo", "zu")]


def sentences(count: int, seed: int) -> list[str]:
    """Distinct sentences of 4 to 11 words."""
    dice = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found[" ".join(dice.choices(WORDS, k=dice.randint(4, 11)))] = None
    return list(found)


def measure(size: Any, languages: int, count: int, rounds: int) -> dict[str, Any]:
    """Medians of the seconds in and beyond ``model.encode``, and their ratio."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = transformer_encoder(train_tokenizer(sentences(500, 0), vocabulary=200), size).to("cpu").eval()
    codes = ["fr", "de", "el", "ru", "ar", "th", "zh", "hi"][:languages]
    english = sentences(count, 1)
    evaluator = TatoebaEvaluator({code: (sentences(count, 2 + i), english) for i, code in enumerate(codes)})
    encode, encoding = model.encode, [0.0]

    def timed(*args: Any, **options: Any) -> Any:
        started = time.process_time()
        found = encode(*args, **options)
        encoding[0] += time.process_time() - started
        return found

    model.encode = timed  # type: ignore[method-assign]
    runs = [one_round(evaluator, model, encoding) for _ in tqdm(range(rounds), desc="Evaluating")]
    inside, beyond = (statistics.median(run[part] for run in runs) for part in (0, 1))
    ratio = statistics.median(run[1] / run[0] for run in runs)
    return {"seconds_encoding": inside, "seconds_beyond": beyond, "ratio": ratio, "goal": GOAL, "met": ratio < GOAL}


def one_round(evaluator: TatoebaEvaluator, model: SentenceTransformer, encoding: list[float]) -> tuple[float, float]:
    """Seconds in ``model.encode`` and in the rest of one evaluation."""
    encoding[0] = 0.0
    started = time.process_time()
    evaluator.evaluate(model)
    total = time.process_time() - started
    return encoding[0], total - encoding[0]


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--output", type=Path, help="JSON file for the figures")
    parser.add_argument("--size", default="small", choices=["tiny", "mini", "small", "base"], help="encoder")
    parser.add_argument("--languages", type=int, default=4, help="beside English; 8 at most")
    parser.add_argument("--sentences", type=int, default=1000, help="of each language")
    parser.add_argument("--rounds", type=int, default=3, help="evaluations whose median is taken")
    args = parser.parse_args()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    sizes = {"size": args.size, "languages": args.languages, "sentences": args.sentences, "rounds": args.rounds}
    figures = measure(args.size, args.languages, args.sentences, args.rounds)
    print(
        f"{args.size}, {args.languages} languages of {args.sentences} sentences: {figures['seconds_encoding']:.2f} s "
        f"encoding, {figures['seconds_beyond']:.3f} s beyond it: {figures['ratio']:.3f} "
        f"(goal {GOAL}: {'met' if figures['met'] else 'missed'})"
    )
    if args.output:
        write_json_atomically(args.output, {"machine": machine(), **sizes, **figures})


if __name__ == "__main__":
    main()
