"""MSM beside its rivals: the same documents, encoder, steps and text per step, then English questions alone.

    python -m training_scripts.studies.study_msm --data ../shared/data --output runs/study_msm --jobs 2

Every row starts from the same random weights and is trained on documents of 19 languages, without a parallel
sentence. In the runs of a Transformer every other batch, on average, is masked language modelling, and the others are
the row's objective; the row MLM has masked language modelling alone. CROP is the paper's, which is CCP, and mContriever
takes random spans (see train_rival.py).

Each model is measured on Tatoeba, fine-tuned on English SQuAD (question, answer sentence), and then measured on XQuAD-R
in 11 languages (all answers in one pool, and those in the question's language alone) and on Tatoeba again. Ablations
run last, so that an interrupted study has the main rows. Finished runs are kept: the same command continues an
interrupted study. The tables are in OUTPUT/study.md, all figures, per language, in OUTPUT/study.json, and a plot in
OUTPUT/study.png.

Documents and test sets come from the same sources: a few hundred sentences of children's stories and manuals are also
in Tatoeba. No row sees them paired with their translations.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.training_args import BatchSamplers
from transformers import set_seed

from st_xlret.data import load_documents
from st_xlret.data.retrieval.loading import load_retrieval
from st_xlret.evaluation import TatoebaEvaluator, markdown_table
from st_xlret.evaluation.lareqa import LAReQAEvaluator
from st_xlret.evaluation.reporting.plots import plot_stages
from st_xlret.files import write_json_atomically, write_text_atomically
from st_xlret.options import option, parse
from st_xlret.training.arguments import TrainingArguments
from training_scripts.studies.common import (
    DOCUMENTS,
    TATOEBA_LANGUAGES,
    folders_in,
    keep_command,
    run_all,
    run_logged,
    run_name,
    shared_tokenizer,
)

LANGUAGES = ["en", *TATOEBA_LANGUAGES]

MSM, ABLATION, RIVAL = "train_msm", "studies.train_msm_ablation", "studies.train_rival"

# Program, and its options. Rows without document encoder and heads have no learning rate for them.
ROWS = {
    "no pre-training": (MSM, "--max_steps 1 --learning_rate 0 --learning_rate_mapping {}"),
    "MLM": (RIVAL, "--objective mlm --learning_rate_mapping {}"),
    "mContriever": (RIVAL, "--objective contriever --span_sentences 8 --learning_rate_mapping {}"),
    "ICT": (RIVAL, "--objective ict --span_sentences 5 --learning_rate_mapping {}"),
    "CROP": (RIVAL, "--objective crop --bank_size 4096"),
    "MSM": (MSM, ""),
}
ABLATIONS = {
    "MSM, no bias": (ABLATION, "--mu 0"),
    "MSM, mu 0.3": (ABLATION, "--mu 0.3"),
    "MSM, mu 0.7": (ABLATION, "--mu 0.7"),
    "MSM, cross-document negatives only": (ABLATION, "--cross_document_only"),
    "MSM, shared projection": (ABLATION, "--projection shared"),
    "MSM, no projection": (ABLATION, "--projection none"),
    "MSM, 1 layer": (ABLATION, "--document_layers 1"),
    "MSM, 4 layers": (ABLATION, "--document_layers 4"),
    "MSM, document encoder apart for en": (ABLATION, "--document_encoder separate"),
    "MSM, document encoder and heads apart for en": (ABLATION, "--document_encoder separate-with-heads"),
    "MSM, MLM summed": (MSM, "--sum_mlm"),
    "MSM, no MLM": (MSM, "--mlm_ratio 0"),
}
METRICS = {
    "Tatoeba": ("tatoeba", "accuracy"),
    "tuned: Tatoeba": ("tuned tatoeba", "accuracy"),
    "mAP@20": ("xquad_r", "map_at_20"),
    "MRR@100": ("xquad_r", "mrr_at_100"),
    "Recall@100": ("xquad_r", "recall_at_100"),
    "MRR@100, own language": ("xquad_r own language", "mrr_at_100"),
}

PROGRAM = "training_scripts.studies.study_msm"


@dataclass
class Arguments:
    """What to run."""

    data: str = field(metadata={"help": "Folder of the real data: documents, squad_v1.1, xquad_r and tatoeba/v1."})
    output: str = field(metadata={"help": "Folder for the runs, the tables and the plot."})
    rows: list[str] = field(
        default_factory=lambda: [*ROWS, *ABLATIONS],
        metadata={"help": "Rows to run, each in quotes.", "choices": [*ROWS, *ABLATIONS], "metavar": "ROW"},
    )
    seeds: list[int] = option(
        [0], "Seeds to run each row with. The tables show the means.", minimum=0, maximum=2**32 - 1
    )
    steps: int = option(600, "Batches of documents, about half of them of masked language modelling.", minimum=1)
    tune_steps: int = option(300, "Batches of English questions afterwards.", minimum=1)
    batch_size: int = option(8, "Documents of --block_sentences sentences in a batch.", minimum=1)
    questions: int = option(128, "Questions in a batch of fine-tuning.", minimum=2)
    block_sentences: int = option(32, "Sentences of a document that MSM reads together.", minimum=2)
    learning_rate: float = option(1e-3, "Peak learning rate of the encoder on documents. 5e-3 suits static.", minimum=0)
    network_learning_rate: float = option(
        4e-4,
        "Peak learning rate of the document encoder and the heads. At the encoder's rate they predict the same vector "
        "for all sentences.",
        minimum=0,
    )
    tune_learning_rate: float = option(5e-4, "Peak learning rate of fine-tuning.", minimum=0)
    size: str = option(
        "mini",
        "Encoder. With static there are no rows with masked language modelling.",
        choices=["static", "tiny", "mini", "small"],
    )
    pooling: str = option("mean", "Its sentence vector.", choices=["cls", "mean"])
    vocabulary: int = option(20000, "Vocabulary of the tokenizer that all runs share.", minimum=1)
    max_seq_length: int = option(128, "Tokens to read of a text. The texts of mContriever and ICT are long.", minimum=1)
    documents: list[str] = option(list(DOCUMENTS), "Folders of the data to take documents from.")
    jobs: int = option(1, "Runs at a time, each with one thread if there are several.", minimum=1)
    table_only: bool = option(False, "Only tabulate finished runs.")
    measure: str | None = option(None, "Only measure the model in the folder of this run.")
    seed: int = option(0, "Seed of --measure.", minimum=0, maximum=2**32 - 1)


def main(given: Sequence[str] | None = None) -> str:
    """Run what is missing, measure it, write and print the tables."""
    given = list(sys.argv[1:] if given is None else given)
    (arguments,) = parse([Arguments], given, description=__doc__)
    if arguments.measure:
        measure(arguments, Path(arguments.measure))
        return ""
    output = Path(arguments.output)
    output.mkdir(parents=True, exist_ok=True)
    plan = [(row, seed) for row in rows_of(arguments) for seed in arguments.seeds]
    if not arguments.table_only:
        tokenizer = tokenizer_of(arguments, output / "tokenizer")
        run_all(plan, partial(run_one, arguments, given, tokenizer), arguments.jobs)
        keep_command(__file__, given, output)
    results: dict[str, list[dict[str, Any]]] = {}
    for row, seed in plan:
        file = folder_of(output, row, seed) / "figures.json"
        if file.is_file():
            results.setdefault(row, []).append(json.loads(file.read_text()))
    write_json_atomically(output / "study.json", results)
    tables = tables_of(results)
    write_text_atomically(output / "study.md", tables)
    main_rows = {row: {name: average(runs, *METRICS[name]) for name in METRICS} for row, runs in results.items()}
    if main_rows := {row: figures for row, figures in main_rows.items() if row in ROWS}:
        plot_stages(
            main_rows, output / "study.png", title="pre-training on documents, then English SQuAD", metric="score"
        )
    print(tables)
    return tables


def rows_of(arguments: Arguments) -> list[str]:
    """Rows to run. Ablations are last, so that an interrupted study has the main rows."""
    rows = sorted(arguments.rows, key=lambda row: row in ABLATIONS)
    return rows if arguments.size != "static" else [row for row in rows if "MLM" not in row]


def tokenizer_of(arguments: Arguments, folder: Path) -> str:
    """The tokenizer that all runs share, trained on the documents."""

    def sources() -> list[tuple[Any, str, str]]:
        documents = load_documents(folders_in(arguments.data, arguments.documents), languages=LANGUAGES)
        return [(documents, "sentence", "language")]

    return shared_tokenizer(folder, sources, arguments.vocabulary)


def folder_of(output: Path, row: str, seed: int) -> Path:
    """The folder of a run."""
    return output / run_name(row, seed)


def run_one(arguments: Arguments, given: list[str], tokenizer: str, row: str, seed: int) -> None:
    """Train one row and measure it, in processes of their own."""
    folder = folder_of(Path(arguments.output), row, seed)
    figures = folder / "figures.json"
    if figures.is_file():
        return
    commands = [training_command(arguments, tokenizer, row, seed, folder)] if not is_trained(folder) else []
    measuring = ["--measure", str(folder), "--seed", str(seed)]
    commands.append([sys.executable, "-m", PROGRAM, *given, *measuring])
    if not run_logged(commands, folder, arguments.jobs, append=True):
        return
    print(f"{row}, seed {seed}: {json.loads(figures.read_text())['averages']}", flush=True)


def is_trained(folder: Path) -> bool:
    """Whether the run was trained to its end: its results are written last."""
    return (folder / "results.json").is_file()


def training_command(arguments: Arguments, tokenizer: str, row: str, seed: int, folder: Path) -> list[str]:
    """The command that trains a row."""
    program, options = (ROWS | ABLATIONS)[row]
    command = [sys.executable, "-m", f"training_scripts.{program}", "--from_scratch", arguments.size]
    command += ["--precision", "fp32", "--tokenizer", tokenizer, "--max_seq_length", str(arguments.max_seq_length)]
    command += ["--documents", *folders_in(arguments.data, arguments.documents), "--languages", *LANGUAGES]
    command += ["--pooling", arguments.pooling, "--block_sentences", str(arguments.block_sentences)]
    command += ["--per_device_train_batch_size", str(arguments.batch_size), "--seed", str(seed)]
    command += ["--max_steps", str(arguments.steps), "--warmup_steps", str(int(0.05 * arguments.steps))]
    command += ["--learning_rate", str(arguments.learning_rate), "--save_strategy", "no"]
    command += ["--learning_rate_mapping", json.dumps({"networks|head": arguments.network_learning_rate})]
    # The options of the row override these.
    return [*command, *options.split(), "--overwrite", "--output_dir", str(folder)]


def measure(arguments: Arguments, folder: Path) -> None:
    """Tatoeba, then fine-tuning on English SQuAD, then XQuAD-R and Tatoeba again; writes figures.json."""
    started = time.perf_counter()
    data = Path(arguments.data)
    model = SentenceTransformer(str(folder / "model"))
    tatoeba = TatoebaEvaluator.from_directory(data / "tatoeba" / "v1", languages=TATOEBA_LANGUAGES)
    found = {"tatoeba": tatoeba.evaluate(model)}
    fine_tune(model, arguments, folder)
    found["tuned tatoeba"] = tatoeba.evaluate(model)
    for name, split in (("xquad_r", "test"), ("xquad_r own language", "test-same-language")):
        found[name] = LAReQAEvaluator.from_directory(data / "xquad_r", split=split).evaluate(model)  # type: ignore[arg-type]
    training = json.loads((folder / "results.json").read_text())
    figures = {
        "averages": {name: round(found[part].average[metric], 4) for name, (part, metric) in METRICS.items()},
        "average": {name: result.average for name, result in found.items()},
        "languages": {name: result.scores for name, result in found.items()},
        "training": {key: training[key] for key in ("command", "seconds", "steps", "tokens", "sentences", "blocks")},
        "seconds_to_tune_and_measure": round(time.perf_counter() - started, 1),
    }
    write_json_atomically(folder / "figures.json", figures)


def fine_tune(model: SentenceTransformer, arguments: Arguments, folder: Path) -> None:
    """Train on English questions and the sentences that answer them, with the host's ranking loss."""
    set_seed(arguments.seed)
    questions = load_retrieval(Path(arguments.data) / "squad_v1.1" / "train", positives="sentence")
    args = TrainingArguments(
        output_dir=str(folder),
        max_steps=arguments.tune_steps,
        per_device_train_batch_size=arguments.questions,
        learning_rate=arguments.tune_learning_rate,
        warmup_steps=int(0.1 * arguments.tune_steps),
        precision="fp32",
        save_strategy="no",
        seed=arguments.seed,
        # Several questions have the same answer sentence, which is a negative of none of them.
        batch_sampler=BatchSamplers.NO_DUPLICATES,
    )
    SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=questions.select_columns(["query", "positive"]),
        loss=MultipleNegativesRankingLoss(model),
    ).train()


def average(runs: Sequence[Mapping[str, Any]], part: str, metric: str) -> float:
    """Mean over seeds of a benchmark's average."""
    return mean(run["average"][part][metric] for run in runs)


def tables_of(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Markdown tables in per cent: all averages, then the scores of each language."""
    if not results:
        return "no run is finished\n"
    rows = []
    for row, runs in results.items():
        cells = []
        for part, metric in METRICS.values():
            values = [100 * run["average"][part][metric] for run in runs]
            spread = f" ±{(max(values) - min(values)) / 2:.1f}" if len(values) > 1 else ""
            cells.append(f"{mean(values):.1f}{spread}")
        tokens = mean(run["training"]["tokens"] for run in runs) / 1e6
        rows.append([row, *cells, f"{tokens:.2f}", f"{mean(run['training']['seconds'] for run in runs):.0f}"])
    text = [markdown_table(["pre-training", *METRICS, "M tokens", "seconds"], rows)]
    for name in ("mAP@20", "MRR@100", "Recall@100", "Tatoeba", "tuned: Tatoeba"):
        part, metric = METRICS[name]
        languages = list(next(iter(results.values()))[0]["languages"][part])
        lines = [
            [row, *(f"{100 * mean(run['languages'][part][code][metric] for run in runs):.1f}" for code in languages)]
            for row, runs in results.items()
        ]
        text.append(f"{name}, by language\n\n{markdown_table([name, *languages], lines)}")
    return "\n\n".join(text) + "\n"


if __name__ == "__main__":
    main()
