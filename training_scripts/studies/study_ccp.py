"""Ablation study of CCP: what each part contributes, as a list of train_ccp.py commands.

    python -m training_scripts.studies.study_ccp --data ../shared/data --output runs/study --encoder static --jobs 2

Every row is trained from scratch on the documents and parallel sentences of 19 languages. A row that adds context
prediction or masked words takes as many batches of parallel sentences as "pairs only", and as many batches of each
addition besides. It is therefore compared twice: with "pairs only" at equal batches of pairs, and with "pairs only x 2"
(or x 3) at equal optimizer steps. The table shows both numbers. Each model is then measured on Tatoeba as it is and
after each calibration step. Finished runs are kept: the same command continues an interrupted study. The table is in
OUTPUT/study.md, all figures are in OUTPUT/study.json.

By default the memory bank is as large as the paper's by what it does: 32 768 keys of 108 languages are about 300 of the
anchor's language, five times the 62 negatives in a batch of 2 x 32 rows (section 4). Here it has five times as many
keys of each language as a batch has rows.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from st_xlret.calibration import (
    CalibrationOptions,
    RotationOptions,
    embed_documents,
    embed_pairs,
    fit_calibration_stages,
)
from st_xlret.data import PairOptions, load_documents, load_pairs
from st_xlret.evaluation import TatoebaEvaluator, markdown_table
from st_xlret.files import write_json_atomically, write_text_atomically
from st_xlret.options import option, parse
from training_scripts.studies.common import (
    DOCUMENTS,
    PAIRS,
    TATOEBA_LANGUAGES,
    folders_in,
    keep_command,
    run_all,
    run_logged,
    run_name,
    shared_tokenizer,
)

LANGUAGES = ["en", *TATOEBA_LANGUAGES]
KEYS_PER_ROW = 5
STAGES = ["raw", "shift", "scale", "rotate"]

# For each row: its batches of each kind, as multiples of --pair_steps, and further options.
ROWS: dict[str, tuple[dict[str, int], str]] = {
    "pairs only": ({"pairs": 1}, ""),
    "pairs only x 2": ({"pairs": 2}, ""),
    "+ CCP": ({"pairs": 1, "ccp": 1}, ""),
    "pairs only x 3": ({"pairs": 3}, ""),
    "+ CCP + MLM": ({"pairs": 1, "ccp": 1, "mlm": 1}, ""),
    "+ CCP, vanilla BN": ({"pairs": 1, "ccp": 1}, "--normalization batch"),
    "+ CCP, no BN": ({"pairs": 1, "ccp": 1}, "--normalization none"),
    "+ CCP, no L2 norm": ({"pairs": 1, "ccp": 1}, "--no_l2_normalization"),
    "+ CCP, no bank": ({"pairs": 1, "ccp": 1}, "--bank_size 0"),
}
# What a row of masked words is compared with goes with it.
ONLY_WITH_MASKED_WORDS = ("+ CCP + MLM", "pairs only x 3")
ENCODERS = {
    "static": "--from_scratch static --features 512 --learning_rate 5e-3 --lazy_adam --max_grad_norm 0 "
    "--weight_decay 0 --token_dropout 0.15",
    "mini": "--from_scratch mini --learning_rate 4e-3",
    "small": "--from_scratch small --learning_rate 1e-3",
}

PROGRAM = "training_scripts.studies.study_ccp"


@dataclass
class Arguments:
    """What to run."""

    data: str = field(metadata={"help": "Folder of the real data: documents, pairs, dictionaries and tatoeba/v1."})
    output: str = field(metadata={"help": "Folder for the runs and the table."})
    encoder: str = option(
        "static", "Encoder to train (see train_ccp.py). With static there is no row with MLM.", choices=list(ENCODERS)
    )
    tokenizer: str | None = option(None, "Tokenizer that all runs share. By default one is trained.")
    rows: list[str] = field(
        default_factory=lambda: list(ROWS),
        metadata={"help": "Rows to run, each in quotes.", "choices": list(ROWS), "metavar": "ROW"},
    )
    pairs: list[str] = option(["500", "5000", "all"], "Maximum pairs per language. Every row is run with each.")
    pair_steps: int = option(
        600,
        "Batches of pairs in every row but pairs only x 2 and x 3. A row has as many of CCP, and of MLM, besides.",
        minimum=1,
    )
    batch_size: int = option(512, "Pairs, windows or sentences in a batch.", minimum=1)
    bank_size: int | None = option(
        None,
        "Keys of the memory bank. By default 10 x batch size x languages: five keys of the anchor's language for each "
        "row of a batch, as in the paper.",
        minimum=0,
        maximum=2**24,
    )
    table_only: bool = option(False, "Only tabulate finished runs.")
    jobs: int = option(1, "Runs at a time, each with one thread if there are several.", minimum=1)

    def __post_init__(self) -> None:
        if self.bank_size is None:
            self.bank_size = KEYS_PER_ROW * 2 * self.batch_size * len(LANGUAGES)


def main(given: Sequence[str] | None = None) -> None:
    """Run what is missing, measure it and print the table."""
    given = list(sys.argv[1:] if given is None else given)
    (arguments,) = parse([Arguments], given, description=__doc__)
    output = Path(arguments.output)
    output.mkdir(parents=True, exist_ok=True)
    plan = plan_of(arguments)
    if not arguments.table_only:
        arguments.tokenizer = arguments.tokenizer or tokenizer_of(Path(arguments.data), output / "tokenizer")
        run_all(plan, partial(run_one, arguments), arguments.jobs)
        keep_command(__file__, given, output)
    results = {
        run_name(row, size): json.loads(p.read_text()) for row, size in plan if (p := file(output, row, size)).is_file()
    }
    write_json_atomically(output / "study.json", results)
    table = table_of(arguments, results)
    write_text_atomically(output / "study.md", table)
    print(table)


def plan_of(arguments: Arguments) -> list[tuple[str, str]]:
    """Rows and numbers of pairs to run. Ablations are last, so that an interrupted study has the main rows."""
    plan = [(row, size) for size in arguments.pairs for row in arguments.rows]
    plan = [(row, size) for row, size in plan if not (row in ONLY_WITH_MASKED_WORDS and arguments.encoder == "static")]
    return sorted(plan, key=lambda run: "," in run[0])


def tokenizer_of(data: Path, folder: Path) -> str:
    """The tokenizer that all runs share, trained on documents and pairs."""

    def sources() -> list[tuple[Any, str, str]]:
        documents = load_documents(folders_in(data, DOCUMENTS), languages=LANGUAGES)
        pairs = load_pairs(folders_in(data, PAIRS), PairOptions(languages=LANGUAGES))
        sides = [(pairs, side, f"{side}_language") for side in ("source", "target")]
        return [(documents, "sentence", "language"), *sides]

    return shared_tokenizer(folder, sources, 60_000)


def file(output: Path, row: str, size: str) -> Path:
    """The file with the figures of a run."""
    return output / run_name(row, size) / "figures.json"


def run_one(arguments: Arguments, row: str, size: str) -> None:
    """Train one row and measure it, in processes of their own."""
    output = Path(arguments.output)
    target = file(output, row, size)
    if target.is_file():
        return
    measurement = [
        sys.executable,
        "-m",
        "training_scripts.studies.study_ccp",
        "--measure",
        str(target.parent),
        arguments.data,
        size,
    ]
    if not run_logged([training_command(arguments, row, size), measurement], target.parent, arguments.jobs):
        return
    print(f"{target.parent.name}: {json.loads(target.read_text())['average']}", flush=True)


def training_command(arguments: Arguments, row: str, size: str) -> list[str]:
    """The train_ccp.py command of a row."""
    data, (kinds, options) = Path(arguments.data), ROWS[row]
    command = [sys.executable, "-m", "training_scripts.studies.train_ccp_ablation"]
    command += [*ENCODERS[arguments.encoder].split(), "--precision", "fp32"]
    pairs = folders_in(data, PAIRS)
    if size == "all":
        pairs.append(str(data / "ebible/documents"))
        pairs += [str(path) for path in sorted((data / "dictionaries").glob("*.tsv.gz"))]
    else:
        command += ["--pairs_per_language", size]
    command += ["--pairs", *pairs, "--documents", *folders_in(data, DOCUMENTS), "--languages", *LANGUAGES]
    command += ["--exclude", *(str(path) for path in sorted((data / "tatoeba/v1").glob("tatoeba.*.eng")))]
    command += ["--max_steps", str(sum(batches_of(arguments, row).values())), "--exact_ratios"]
    for kind in ("ccp", "mlm", "pairs"):
        command += [f"--{kind}_ratio", str(kinds.get(kind, 0))]
    if arguments.encoder == "static" and "ccp" in kinds:
        # At the learning rate of the vectors the loss of the head hardly falls.
        command += ["--learning_rate_mapping", '{"head": 0.001}']
    command += f"--per_device_train_batch_size {arguments.batch_size} --bank_size {arguments.bank_size}".split()
    command += ["--language_smoothing", "0.6", "--save_strategy", "no", "--evaluation_pairs", "0", "--overwrite"]
    if arguments.tokenizer:
        command += ["--tokenizer", arguments.tokenizer]
    return [*command, *options.split(), "--output_dir", str(file(Path(arguments.output), row, size).parent)]


def batches_of(arguments: Arguments, row: str) -> dict[str, int]:
    """Batches of each kind in a row. Their sum is the number of its optimizer steps."""
    return {kind: share * arguments.pair_steps for kind, share in ROWS[row][0].items()}


def measure(folder: Path, data: Path, size: str) -> None:
    """Tatoeba accuracy of a trained model, as it is and after each calibration step."""
    started = time.perf_counter()
    model = SentenceTransformer(str(folder / "model"), device=None)
    documents = load_documents(folders_in(data, DOCUMENTS), languages=LANGUAGES, show_progress=False)
    embeddings = embed_documents(model, documents, sentences_per_language=5000)
    pairs = load_pairs(
        folders_in(data, PAIRS),
        PairOptions(
            languages=LANGUAGES,
            per_language=5000 if size == "all" else int(size),
            exclude=tuple(map(str, (data / "tatoeba/v1").glob("tatoeba.*.eng"))),
        ),
        show_progress=False,
    )
    # A rotation from few pairs is noisy; the prior keeps it near the identity.
    options = CalibrationOptions(rotation=RotationOptions(prior=1.0))
    stages: dict[str, Any] = {"raw": None}
    stages |= fit_calibration_stages(embeddings, pairs=embed_pairs(model, pairs), options=options)
    figures: dict[str, Any] = {"average": {}, "languages": {}}
    for stage, calibration in stages.items():
        evaluator = TatoebaEvaluator.from_directory(
            data / "tatoeba/v1", languages=TATOEBA_LANGUAGES, calibration=calibration
        )
        result = evaluator.evaluate(model)
        figures["average"][stage] = round(100 * result.average["accuracy"], 1)
        figures["languages"][stage] = {k: round(100 * v["accuracy"], 1) for k, v in result.scores.items()}
    training = json.loads((folder / "results.json").read_text())
    figures |= {key: training[key] for key in ("seconds", "steps", "pairs", "sentences")}
    write_json_atomically(folder / "figures.json", figures | {"seconds_to_measure": time.perf_counter() - started})


def table_of(arguments: Arguments, results: dict[str, Any]) -> str:
    """The study as a Markdown table."""
    lines = []
    for size in arguments.pairs:
        for row in arguments.rows:
            if figures := results.get(run_name(row, size)):
                scores = [f"{figures['average'][stage]:.1f}" for stage in STAGES]
                batches = batches_of(arguments, row)
                counts = [str(sum(batches.values())), str(batches["pairs"])]
                lines.append([size, row, *counts, *scores, f"{figures['seconds']:.0f}"])
    return markdown_table(["pairs per language", "training", "steps", "of pairs", *STAGES, "seconds"], lines)


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "--measure":
        measure(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
    else:
        main()
