"""The effect of CZ-NCE and of the words: info-snt, CZ-snt and ML-CTL-CZ with the same encoder, pairs and steps.

    python -m training_scripts.studies.study_ml_ctl --data ../shared/data --output runs/study-ml-ctl --jobs 2

The rows are those of the paper's ablation (Table 1), and ML-CTL-info: words with InfoNCE. Every row is trained from
scratch (or from --model) on the parallel sentences of 19 languages, and the two rows with words on the words that
dictionaries find in them. Each model is measured on Tatoeba. Finished runs are kept: the same command continues where
it was stopped. The table is in OUTPUT/study.md, all figures are in OUTPUT/study.json, and each run has a log beside its
model.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from sentence_transformers import SentenceTransformer

from st_xlret.data import PairOptions, load_pairs
from st_xlret.evaluation import TatoebaEvaluator, markdown_table
from st_xlret.files import write_json_atomically, write_text_atomically
from st_xlret.options import option, parse
from training_scripts.studies.common import (
    PAIRS,
    TATOEBA_LANGUAGES,
    folders_in,
    keep_command,
    run_all,
    run_logged,
    shared_tokenizer,
)

LANGUAGES = ["en", *TATOEBA_LANGUAGES]
ROWS = ["info-snt", "CZ-snt", "ML-CTL-info", "ML-CTL-CZ"]
METRICS = {"accuracy": "mean", "accuracy_to_en": "to English", "accuracy_from_en": "from English"}

PROGRAM = "training_scripts.studies.study_ml_ctl"


@dataclass
class Arguments:
    """What to run."""

    data: str = field(metadata={"help": "Folder of the real data: pairs, dictionaries and tatoeba/v1."})
    output: str = field(metadata={"help": "Folder for the runs and the table."})
    encoder: str = option("mini", "Encoder to train from scratch.", choices=["mini", "small", "base"])
    model: str | None = option(None, "Checkpoint to start from instead, such as a model of train_ccp.py.")
    tokenizer: str | None = option(None, "Tokenizer that all runs share. By default one is trained on the pairs.")
    vocabulary: int = option(30000, "Size of the vocabulary of that tokenizer.", minimum=1)
    rows: list[str] = field(
        default_factory=lambda: list(ROWS), metadata={"help": "Rows to run.", "choices": list(ROWS), "metavar": "ROW"}
    )
    seeds: list[int] = option(
        [0], "Seeds to run each row with. The table shows the means.", minimum=0, maximum=2**32 - 1
    )
    steps: int = option(1500, "Steps of every run.", minimum=1)
    batch_size: int = option(64, "Samples in a batch. The paper's is 64.", minimum=2)
    learning_rate: float = option(1e-3, "Peak learning rate. The paper's is 2e-6, for mBERT.", minimum=0)
    mlm_weight: float = option(
        0.0,
        "Factor on masked language modelling. The paper's is 0.1; a run then takes several times as long.",
        minimum=0,
    )
    pairs_per_language: int | None = option(None, "Maximum pairs per language pair. By default all of them.", minimum=1)
    table_only: bool = option(False, "Only tabulate finished runs.")
    jobs: int = option(1, "Runs at a time, each with one thread if there are several.", minimum=1)


def main(given: list[str] | None = None) -> None:
    """Run what is missing, measure it and print the table."""
    (arguments,) = parse([Arguments], given, description=__doc__)
    output = Path(arguments.output)
    output.mkdir(parents=True, exist_ok=True)
    if arguments.model is None and arguments.tokenizer is None and not arguments.table_only:
        arguments.tokenizer = tokenizer_of(Path(arguments.data), output / "tokenizer", arguments.vocabulary)
    plan = [(row, seed) for seed in arguments.seeds for row in arguments.rows]
    if not arguments.table_only:
        run_all(plan, partial(run_one, arguments), arguments.jobs)
        keep_command(__file__, sys.argv[1:] if given is None else given, output)
    results = {run: json.loads(p.read_text()) for run in plan if (p := file(output, *run)).is_file()}
    write_json_atomically(
        output / "study.json", {f"{row} seed {seed}": found for (row, seed), found in results.items()}
    )
    table = table_of(arguments.rows, results)
    write_text_atomically(output / "study.md", table)
    print(table)


def tokenizer_of(data: Path, folder: Path, vocabulary: int) -> str:
    """The tokenizer that all runs share, trained on the pairs."""

    def sources() -> list[tuple[Any, str, str]]:
        pairs = load_pairs(folders_in(data, PAIRS), PairOptions(languages=LANGUAGES))
        return [(pairs, side, f"{side}_language") for side in ("source", "target")]

    return shared_tokenizer(folder, sources, vocabulary)


def file(output: Path, row: str, seed: int) -> Path:
    """The file with the figures of a run."""
    return output / f"{row}-seed-{seed}" / "figures.json"


def run_one(arguments: Arguments, row: str, seed: int) -> None:
    """Train one row and measure it, in processes of their own."""
    target = file(Path(arguments.output), row, seed)
    if target.is_file():
        return
    commands = [
        training_command(arguments, row, seed),
        [sys.executable, "-m", PROGRAM, "--measure", str(target.parent), arguments.data],
    ]
    if not run_logged(commands, target.parent, arguments.jobs):
        return
    print(f"{row}, seed {seed}: {json.loads(target.read_text())['average']}", flush=True)


def training_command(arguments: Arguments, row: str, seed: int) -> list[str]:
    """The train_ml_ctl.py command of a row."""
    data = Path(arguments.data)
    command = [sys.executable, str(Path(__file__).parents[1] / "train_ml_ctl.py"), "--mode", row, "--precision", "fp32"]
    if arguments.model:
        command += ["--model", arguments.model]
    else:
        command += ["--from_scratch", arguments.encoder, "--tokenizer", str(arguments.tokenizer)]
    command += ["--pairs", *folders_in(data, PAIRS), "--languages", *LANGUAGES]
    command += ["--exclude", *map(str, sorted((data / "tatoeba/v1").glob("tatoeba.*.eng")))]
    command += ["--dictionaries", *map(str, sorted((data / "dictionaries").glob("*.tsv.gz")))]
    if arguments.pairs_per_language:
        command += ["--pairs_per_language", str(arguments.pairs_per_language)]
    command += ["--skip_bad_lines", "--evaluation_pairs", "0", "--max_seq_length", "64"]
    command += ["--per_device_train_batch_size", str(arguments.batch_size), "--seed", str(seed)]
    command += ["--max_steps", str(arguments.steps), "--warmup_steps", str(int(0.1 * arguments.steps))]
    command += ["--learning_rate", str(arguments.learning_rate), "--mlm_weight", str(arguments.mlm_weight)]
    command += ["--save_strategy", "no", "--overwrite"]
    return [*command, "--output_dir", str(file(Path(arguments.output), row, seed).parent)]


def measure(folder: Path, data: Path) -> None:
    """Tatoeba accuracy of a trained model."""
    started = time.perf_counter()
    model = SentenceTransformer(str(folder / "model"))
    result = TatoebaEvaluator.from_directory(data / "tatoeba/v1", languages=TATOEBA_LANGUAGES).evaluate(model)
    training = json.loads((folder / "results.json").read_text())
    figures: dict[str, Any] = {
        "average": {name: round(100 * result.average[name], 1) for name in METRICS},
        "languages": {code: round(100 * scores["accuracy"], 1) for code, scores in result.scores.items()},
        **{key: training[key] for key in ("seconds", "steps", "pairs", "word_samples")},
        "seconds_to_measure": time.perf_counter() - started,
    }
    write_json_atomically(folder / "figures.json", figures)


def table_of(rows: list[str], results: dict[tuple[str, int], Any]) -> str:
    """The study as a Markdown table: means and, with several seeds, standard deviations."""
    lines = []
    for row in rows:
        found = [figures for (name, _), figures in results.items() if name == row]
        if not found:
            continue
        cells = []
        for name in METRICS:
            values = [figures["average"][name] for figures in found]
            spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{mean(values):.1f}{spread}")
        samples = found[0]["word_samples"]
        count = sum(c["samples"] for c in samples.values()) if samples else found[0]["pairs"]
        lines.append([row, *cells, f"{count:,}", f"{mean(figures['seconds'] for figures in found):.0f}"])
    return markdown_table(["training", *METRICS.values(), "samples", "seconds"], lines)


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--measure":
        measure(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
