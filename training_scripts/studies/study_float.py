r"""The floating-point argument for CZ-NCE, measured: the gradients of the losses, and the accuracy they lead to.

    python -m training_scripts.studies.study_float --output runs/float
    python -m training_scripts.studies.study_float --output runs/float --data ../shared/data --encoder static \
        --steps 2000

ML-CTL removes the positive from the denominator of InfoNCE because "the loss will soon approach 0, which is at the same
magnitude with the floating-point error". Two effects are mixed in this argument: the gradient of InfoNCE fades as the
positive wins, in any arithmetic; and the way it is written decides when it is lost in rounding. The study separates
them with three losses, each computed entirely in fp32, bf16 or fp16:

    usual      logsumexp(positive and negatives) - positive     InfoNCE as it is usually written
    softplus   softplus(logsumexp(negatives) - positive)        the same function, as in st_xlret.functional
    cz_nce     logsumexp(negatives) - positive                  another function: Eq. 5 of ML-CTL

and a fourth for comparison, cross_entropy: InfoNCE by PyTorch's own fused operator.

The first part is the size of the gradient by the gap between the cosines of the positive and the negatives
(OUTPUT/gradients.md and gradients.png). With --data, the second part is the Tatoeba accuracy of an encoder that is
trained from scratch with each loss on the same batches of parallel sentences (OUTPUT/training.md). Finished trainings
are kept: the same command continues where it was stopped. All figures are in OUTPUT/float.json.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from tqdm import tqdm
from transformers import set_seed

from st_xlret.data import CrossLingualBatches, CrossLingualDataCollator, PairOptions, load_pairs
from st_xlret.evaluation import TatoebaEvaluator, markdown_table
from st_xlret.evaluation.tatoeba import tatoeba_language
from st_xlret.files import write_json_atomically, write_text_atomically
from st_xlret.options import option, parse
from st_xlret.training import LossStateCallback
from st_xlret.training.arguments import RunArguments
from st_xlret.training.encoders import EncoderArguments
from training_scripts.studies.common import TATOEBA_LANGUAGES, shared_tokenizer
from training_scripts.studies.float_gradients import FORMS, GAPS, TYPES, LossInType, gradient_curves, plot_gradients

SHOWN_GAPS = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2]
LEARNING_RATES = {"static": 1e-2, "mini": 1e-3}


@dataclass
class Arguments:
    """What to measure."""

    output: str = field(metadata={"help": "Folder for the tables, the plot and the figures."})
    data: str | None = option(
        None, "Folder of the real data: parallel sentences and tatoeba/v1. Without it, nothing is trained."
    )
    pairs: list[str] = option(
        [
            "gnome_user_docs/pairs",
            "hf_course/pairs",
            "mozilla_www",
            "opensource_guide/pairs",
            "storybooks/pairs",
            "tensorflow_docs/pairs",
            "tico19/pairs",
        ],
        "Parallel sentences to train on, in --data.",
    )
    languages: list[str] = option(list(TATOEBA_LANGUAGES), "Languages to train and to measure, beside English.")
    pairs_per_language: int = option(5000, "Maximum pairs per language pair.", minimum=1)
    losses: list[str] = option(["usual", "softplus", "cz_nce"], "Losses to train with.", choices=list(FORMS))
    types: list[str] = option(list(TYPES), "Types to compute them in.", choices=list(TYPES))
    batch_sizes: list[int] = option([8, 16, 64], "Pairs in a batch.", minimum=2)
    seeds: list[int] = option([0], "Seeds to run each training with.", minimum=0, maximum=2**32 - 1)
    temperature: float = option(0.07, "Temperature of the losses. The paper's is 0.07.", above=0)
    encoder: str = option("static", "Encoder to train from scratch.", choices=list(LEARNING_RATES))
    vocabulary: int = option(
        30000, "Size of the vocabulary of its tokenizer, which is trained on the pairs.", minimum=1
    )
    features: int = option(128, "Vector size of a static encoder.", minimum=1)
    steps: int = option(2000, "Steps of each training.", minimum=1)
    learning_rate: float | None = option(
        None, "Peak learning rate. By default 1e-2 (static) or 1e-3 (mini).", minimum=0
    )


def gradient_table(curves: list[dict[str, Any]]) -> str:
    """A Markdown table of the curves at a few gaps."""
    header = ["batch, type, loss", *(f"gap {gap}" for gap in SHOWN_GAPS), "off by 10 % from", "zero from"]
    lines = []
    for curve in curves:
        shown = [f"{curve['gradient'][GAPS.index(gap)]:.1e}" for gap in SHOWN_GAPS]
        ends = [curve["wrong_by_a_tenth_from"], curve["zero_from"]]
        name = f"{curve['batch_size']}, {curve['type']}, {curve['loss']}"
        lines.append([name, *shown, *("never" if end is None else f"{end:.2f}" for end in ends)])
    return markdown_table(header, lines)


def train_and_measure(
    arguments: Arguments, pairs: Dataset, evaluator: TatoebaEvaluator, loss: str, dtype: str, batch_size: int, seed: int
) -> dict[str, Any]:
    """Train from scratch, with the same first weights and batches for every loss and type, and measure."""
    texts = [(pairs, side, f"{side}_language") for side in ("source", "target")]
    static = arguments.encoder == "static"
    tokenizer = shared_tokenizer(Path(arguments.output) / "tokenizer", lambda: texts, arguments.vocabulary)
    encoder = EncoderArguments(from_scratch=arguments.encoder, tokenizer=tokenizer, features=arguments.features)
    args = SentenceTransformerTrainingArguments(
        output_dir=arguments.output,
        max_steps=arguments.steps,
        per_device_train_batch_size=batch_size,
        learning_rate=arguments.learning_rate or LEARNING_RATES[arguments.encoder],
        lr_scheduler_type="linear",
        warmup_steps=arguments.steps // 20,
        max_grad_norm=0.0 if static else 1.0,
        seed=seed,
        batch_sampler=CrossLingualBatches(),
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    set_seed(seed)
    model = encoder.load([], args, RunArguments())
    objective = LossInType(model, loss, TYPES[dtype], arguments.temperature)
    trainer = SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=pairs,
        loss=objective,
        data_collator=CrossLingualDataCollator(model.preprocess, token_dropout=0.15 if static else 0.0),
        callbacks=[LossStateCallback(objective)],
    )
    started = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - started
    last = objective.gaps[-max(1, arguments.steps // 10) :]
    result = evaluator.evaluate(model)
    return {
        "loss": loss,
        "type": dtype,
        "batch_size": batch_size,
        "seed": seed,
        "accuracy": result.average["accuracy"],
        "gap": sum(last) / max(1, len(last)),
        "seconds": round(seconds, 1),
        "languages": {language: score["accuracy"] for language, score in result.scores.items()},
    }


def refuse_other_settings(arguments: Arguments, file: Path) -> None:
    """Keep trainings of other settings out of one table."""
    varied = {"output", "data", "losses", "types", "batch_sizes", "seeds", "encoder"}
    settings = {name: value for name, value in vars(arguments).items() if name not in varied}
    kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else settings
    changed = [name for name, value in settings.items() if kept.get(name) != value]
    if changed:
        raise ValueError(
            f"{file.parent} holds trainings with other settings ({', '.join(changed)}): give another --output"
        )
    write_json_atomically(file, settings)


def english_files(folder: Path, languages: Iterable[str]) -> tuple[Path, ...]:
    """The English sides of Tatoeba's test sets of some languages."""
    wanted = set(languages)
    files = sorted(folder.glob("tatoeba.*-eng.eng"))
    return tuple(f for f in files if tatoeba_language(f.name.split(".")[1].removesuffix("-eng")) in wanted)


def trainings(arguments: Arguments) -> list[dict[str, Any]]:
    """Run the trainings that are missing, and read the others."""
    assert arguments.data is not None
    data, folder = Path(arguments.data), Path(arguments.output) / "trainings"
    folder.mkdir(parents=True, exist_ok=True)
    refuse_other_settings(arguments, folder / "settings.json")
    evaluator = TatoebaEvaluator.from_directory(data / "tatoeba/v1", languages=arguments.languages)
    pairs = load_pairs(
        [data / name for name in arguments.pairs],
        PairOptions(
            languages=["en", *arguments.languages],
            per_language=arguments.pairs_per_language,
            exclude=english_files(data / "tatoeba/v1", evaluator.sentences),
        ),
    )
    plan = [
        (loss, dtype, batch_size, seed)
        for seed in arguments.seeds
        for batch_size in arguments.batch_sizes
        for dtype in arguments.types
        for loss in arguments.losses
    ]
    results = []
    for loss, dtype, batch_size, seed in tqdm(plan, desc="trainings"):
        file = folder / f"{arguments.encoder}-{loss}-{dtype}-{batch_size}-{seed}.json"
        if not file.is_file():
            write_json_atomically(file, train_and_measure(arguments, pairs, evaluator, loss, dtype, batch_size, seed))
        results.append(json.loads(file.read_text(encoding="utf-8")))
    return results


def training_table(results: list[dict[str, Any]]) -> str:
    """Tatoeba accuracy in percent and the gap reached, by batch size and type; means over seeds."""
    losses = list(dict.fromkeys(result["loss"] for result in results))
    lines = []
    for batch_size, dtype in dict.fromkeys((result["batch_size"], result["type"]) for result in results):
        cells: dict[str, list[str]] = {"accuracy": [], "gap": []}
        for loss in losses:
            chosen = [r for r in results if (r["batch_size"], r["type"], r["loss"]) == (batch_size, dtype, loss)]
            for key, factor in (("accuracy", 100), ("gap", 1)):
                mean = factor * sum(r[key] for r in chosen) / len(chosen)
                cells[key].append(f"{mean:.1f}" if key == "accuracy" else f"{mean:.2f}")
        lines.append([f"{batch_size}, {dtype}", *cells["accuracy"], *cells["gap"]])
    return markdown_table(["batch, type", *losses, *(f"gap, {loss}" for loss in losses)], lines)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Measure as the command line says; returns the content of float.json."""
    (options,) = parse([Arguments], arguments, description=__doc__)
    output = Path(options.output)
    output.mkdir(parents=True, exist_ok=True)
    curves = gradient_curves(options.batch_sizes, FORMS, options.types, options.temperature)
    results: dict[str, Any] = {"temperature": options.temperature, "gradients": curves}
    table = gradient_table(curves)
    write_text_atomically(output / "gradients.md", table)
    plot_gradients(curves, output / "gradients.png")
    print(table)
    if options.data is not None:
        results |= {"encoder": options.encoder, "steps": options.steps, "trainings": trainings(options)}
        table = training_table(results["trainings"])
        write_text_atomically(output / "training.md", table)
        print(table)
    write_json_atomically(output / "float.json", results)
    return results


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
