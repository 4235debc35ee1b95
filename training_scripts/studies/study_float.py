r"""CZ-NCE's floating-point argument, measured: what is left of the gradient, and what that costs in accuracy.

    python -m training_scripts.studies.study_float --output runs/float
    python -m training_scripts.studies.study_float --output runs/float --data ../shared/data --encoder static \
        --steps 2000

ML-CTL drops the positive from InfoNCE's denominator because "the loss will soon approach 0, which is at the
same magnitude with the floating-point error". Two effects are mixed in that: the gradient of InfoNCE truly
fades as the positive wins, in any arithmetic, and how it is written decides when it is lost altogether. The
study keeps them apart with three losses, each computed throughout in fp32, bf16 or fp16:

    usual      logsumexp(positive and negatives) - positive     InfoNCE as it is mostly written
    softplus   softplus(logsumexp(negatives) - positive)        the same function; st_xlret.functional's form
    cz_nce     logsumexp(negatives) - positive                  another function: Eq. 5 of ML-CTL

and a fourth for comparison, cross_entropy: InfoNCE by PyTorch's own fused operator.

First, the size of the gradient by the gap between the positive's cosine and those of the negatives
(OUTPUT/gradients.md, .png). Then, with --data, an encoder trained from scratch with each on the same batches of
parallel sentences, and its Tatoeba accuracy (OUTPUT/training.md). Finished trainings are kept: the same command
goes on where it was stopped. All figures are in OUTPUT/float.json.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from tqdm import tqdm
from transformers import HfArgumentParser, set_seed

from st_xlret.data import CrossLingualBatches, CrossLingualDataCollator, load_pairs, normalise_text
from st_xlret.evaluation import TatoebaEvaluator, markdown_table
from st_xlret.files import write_json_atomically, write_text_atomically
from st_xlret.training import LossStateCallback
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.run_arguments import HelpFormat
from training_scripts.studies.common import TATOEBA_LANGUAGES
from training_scripts.studies.float_gradients import FORMS, GAPS, TYPES, LossInType, gradient_curves, plot_gradients

SHOWN_GAPS = [0.2, 0.4, 0.6, 0.8, 1.0, 1.2]
LEARNING_RATES = {"static": 1e-2, "mini": 1e-3}


@dataclass
class Arguments:
    """What to measure."""

    output: str = field(metadata={"help": "Folder for tables, plot and figures."})
    data: str | None = field(
        default=None,
        metadata={"help": "Folder of the real data: parallel sentences and tatoeba/v1. Without it no training."},
    )
    pairs: list[str] = field(
        default_factory=lambda: [
            "gnome_user_docs/pairs",
            "hf_course/pairs",
            "mozilla_www",
            "opensource_guide/pairs",
            "storybooks/pairs",
            "tensorflow_docs/pairs",
            "tico19/pairs",
        ],
        metadata={"help": "Parallel sentences to train on, below --data."},
    )
    languages: list[str] = field(
        default_factory=lambda: list(TATOEBA_LANGUAGES),
        metadata={"help": "Languages to train and measure, beside English."},
    )
    pairs_per_language: int = field(default=5000, metadata={"help": "Pairs per language pair, at most."})
    losses: list[str] = field(
        default_factory=lambda: ["usual", "softplus", "cz_nce"],
        metadata={"help": "Losses to train with.", "choices": list(FORMS)},
    )
    types: list[str] = field(
        default_factory=lambda: list(TYPES), metadata={"help": "Types to compute them in.", "choices": list(TYPES)}
    )
    batch_sizes: list[int] = field(default_factory=lambda: [8, 16, 64], metadata={"help": "Pairs per batch."})
    seeds: list[int] = field(default_factory=lambda: [0], metadata={"help": "Trainings of each kind."})
    temperature: float = field(default=0.07, metadata={"help": "Divisor of the cosines; 0.07 is the paper's."})
    encoder: str = field(default="static", metadata={"help": "Encoder to train.", "choices": list(LEARNING_RATES)})
    vocabulary: int = field(default=30000, metadata={"help": "Tokens of the tokenizer that is trained for it."})
    features: int = field(default=128, metadata={"help": "Vector size of a static encoder."})
    steps: int = field(default=2000, metadata={"help": "Steps of each training."})
    learning_rate: float | None = field(default=None, metadata={"help": "By default 1e-2 (static) or 1e-3 (mini)."})


def gradient_table(curves: list[dict[str, Any]]) -> str:
    """The curves at a few gaps, as Markdown."""
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
    """One training from scratch; the same first weights and batches for every loss and type."""
    encoder = EncoderArguments(
        from_scratch=arguments.encoder, vocabulary=arguments.vocabulary, features=arguments.features
    )
    set_seed(seed)
    texts = [(pairs, side, f"{side}_language") for side in ("source", "target")]
    model = encoder.build(texts, tokenizer_folder=Path(arguments.output) / "tokenizer")
    objective = LossInType(model, loss, TYPES[dtype], arguments.temperature)
    static = arguments.encoder == "static"
    args = SentenceTransformerTrainingArguments(
        output_dir=str(Path(arguments.output) / "unused"),
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


def trainings(arguments: Arguments) -> list[dict[str, Any]]:
    """All trainings asked for; those that were done before are read."""
    assert arguments.data is not None
    data, folder = Path(arguments.data), Path(arguments.output) / "trainings"
    folder.mkdir(parents=True, exist_ok=True)
    refuse_other_settings(arguments, folder / "settings.json")
    evaluator = TatoebaEvaluator.from_directory(data / "tatoeba/v1", languages=arguments.languages)
    tests = [text for _, english in evaluator.sentences.values() for text in english]
    pairs = load_pairs(
        [data / name for name in arguments.pairs],
        languages=["en", *arguments.languages],
        per_language=arguments.pairs_per_language,
        exclude={normalise_text(text) for text in tests},
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
    """Measure as the command line says; returns what float.json holds."""
    parser = HfArgumentParser([Arguments], description=__doc__, formatter_class=HelpFormat)
    (options,) = parser.parse_args_into_dataclasses(arguments)
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
