"""Ablation study of the semantic and language contrastive losses, where half of the languages have no parallel text.

    python -m training_scripts.studies.study_language_agnostic_ir --data ../shared/data --output runs/study-ir

Every row is trained from scratch on the English questions of SQuAD's training part, with the semantic loss, the
language loss, both or neither beside it. The languages in --without have no parallel sentences, only text of their
own, as in the paper's Table 5. The language loss takes text of all languages here; in the paper (section 5.4) it takes
text of the languages without parallel sentences alone, which is --further=--others_without_parallel. Each model is then measured zero-shot on XQuAD-R: MRR@100, Recall@100 and mAP@20 over
one pool of the sentences of all languages, languages with and without parallel sentences apart. Finished runs are kept:
the same command continues an interrupted study. The table is in OUTPUT/study.md, all figures in OUTPUT/study.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from st_xlret.data import PairOptions, load_documents, load_pairs, load_retrieval
from st_xlret.evaluation import markdown_table
from st_xlret.files import write_json_atomically, write_text_atomically
from st_xlret.options import option, parse
from training_scripts.studies.common import (
    DOCUMENTS,
    PAIRS,
    folders_in,
    keep_command,
    run_all,
    run_logged,
    run_name,
    shared_tokenizer,
)

LANGUAGES = ["en", "ar", "de", "el", "es", "hi", "ru", "th", "tr", "vi", "zh"]
WITHOUT = ["el", "hi", "th", "tr", "vi"]
METRICS = {"mrr_at_100": "MRR@100", "recall_at_100": "R@100", "map_at_20": "mAP@20"}
GROUPS = ["with", "without", "all"]
PROGRAM = "training_scripts.studies.train_ir_ablation"
# Whether the semantic and the language loss are on.
ROWS = {
    "IR": (False, False),
    "+ semantic": (True, False),
    "+ language": (False, True),
    "+ semantic + language": (True, True),
}
ENCODERS = {
    "static": "--from_scratch static --learning_rate 1e-2 --max_grad_norm 0 --weight_decay 0 --lazy_adam "
    "--token_dropout 0.15",
    "mini": "--from_scratch mini --learning_rate 1e-3",
    "small": "--from_scratch small --learning_rate 1e-3",
}


@dataclass
class Arguments:
    """What to run."""

    data: str = field(metadata={"help": "Folder of the real data: documents, pairs, squad_v1.1 and xquad_r."})
    output: str = field(metadata={"help": "Folder for the runs and the table."})
    encoder: str = option("static", "Encoder to train.", choices=list(ENCODERS))
    model: str | None = option(None, "Checkpoint to start from instead, such as the model of train_ccp.py.")
    tokenizer: str | None = option(None, "Tokenizer that all runs share. By default one is trained.")
    rows: list[str] = field(
        default_factory=lambda: list(ROWS),
        metadata={"help": "Rows to run, each in quotes.", "choices": list(ROWS), "metavar": "ROW"},
    )
    parallel: list[str] = option(
        ["half"],
        "half: the languages in --without have no parallel sentences (Table 5). all: every language has some (Table "
        "2).",
        choices=["half", "all"],
    )
    without: list[str] = option(WITHOUT, "Languages left without parallel sentences.")
    semantic_weight: float = option(1.0, "Factor on the semantic loss where it is on.", minimum=0)
    language_weight: float = option(1.0, "Factor on the language loss where it is on.", minimum=0)
    language_reduction: str = option("mean", "Reduction of the language loss.", choices=["paper", "mean", "sum"])
    steps: int = option(1500, "Batches of questions that every run sees.", minimum=1)
    batch_size: int = option(256, "Questions, pairs or sentences in a batch.", minimum=1)
    further: str = option("", "Further options of train_ir_ablation.py.")
    table_only: bool = option(False, "Only tabulate finished runs.")
    jobs: int = option(1, "Runs at a time, each with one thread if there are several.", minimum=1)


def main(given: Sequence[str] | None = None) -> None:
    """Run what is missing, and print the table."""
    given = list(sys.argv[1:] if given is None else given)
    (arguments,) = parse([Arguments], given, description=__doc__)
    output = Path(arguments.output)
    output.mkdir(parents=True, exist_ok=True)
    plan = [(row, parallel) for parallel in arguments.parallel for row in arguments.rows]
    if not arguments.table_only:
        if not arguments.model:
            arguments.tokenizer = arguments.tokenizer or tokenizer_of(Path(arguments.data), output / "tokenizer")
        run_all(plan, partial(run_one, arguments), arguments.jobs)
        keep_command(__file__, given, output)
    results = {
        run_name(*run): json.loads(path.read_text())
        for run in plan
        if (path := folder(output, *run) / "results.json").is_file()
    }
    figures = {run: summarise(result, arguments.without) for run, result in results.items()}
    write_json_atomically(output / "study.json", figures)
    table = table_of(plan, figures)
    write_text_atomically(output / "study.md", table)
    print(table)


def tokenizer_of(data: Path, folder: Path) -> str:
    """The tokenizer that all runs share, trained on documents, pairs and questions."""

    def sources() -> list[tuple[Any, str, str]]:
        documents = load_documents(folders_in(data, DOCUMENTS), languages=LANGUAGES)
        pairs = load_pairs(folders_in(data, PAIRS), PairOptions(languages=LANGUAGES))
        questions = load_retrieval(data / "squad_v1.1/train", positives="sentence", titles=False)
        sides = [(pairs, side, f"{side}_language") for side in ("source", "target")]
        sides += [(questions, side, "language") for side in ("query", "positive")]
        return [(documents, "sentence", "language"), *sides]

    return shared_tokenizer(folder, sources, 60_000)


def folder(output: Path, row: str, parallel: str) -> Path:
    """The folder of a run."""
    return output / run_name(row, parallel)


def run_one(arguments: Arguments, row: str, parallel: str) -> None:
    """Train and measure one row, in a process of its own."""
    target = folder(Path(arguments.output), row, parallel)
    if (target / "results.json").is_file():
        return
    if run_logged([training_command(arguments, row, parallel)], target, arguments.jobs):
        average = json.loads((target / "results.json").read_text())["xquad_r"]["average"]
        print(f"{target.name}: {average}", flush=True)


def training_command(arguments: Arguments, row: str, parallel: str) -> list[str]:
    """The command that trains a row."""
    data, (semantic, language) = Path(arguments.data), ROWS[row]
    encoder = ENCODERS[arguments.encoder]
    if arguments.model:
        encoder = encoder.replace(f"--from_scratch {arguments.encoder}", f"--model {arguments.model}")
    command = [sys.executable, "-m", PROGRAM, *encoder.split()]
    if arguments.tokenizer:
        command += ["--tokenizer", arguments.tokenizer]
    # Never the dev part: it holds the English text of XQuAD-R.
    command += ["--retrieval", str(data / "squad_v1.1/train"), "--positives", "sentence"]
    command += ["--test", str(data / "xquad_r"), "--languages", *LANGUAGES]
    if semantic or language:
        verses = data / "ebible/documents"
        command += ["--pairs", *folders_in(data, PAIRS), *([str(verses)] if verses.is_dir() else [])]
        if parallel == "half":
            command += ["--no_parallel", *arguments.without]
    if language:
        command += ["--documents", *folders_in(data, DOCUMENTS)]
    command += ["--semantic_weight", str(arguments.semantic_weight if semantic else 0)]
    command += ["--language_weight", str(arguments.language_weight if language else 0)]
    command += ["--language_reduction", arguments.language_reduction, "--language_smoothing", "0.5"]
    command += ["--max_steps", str(arguments.steps), "--warmup_steps", str(int(0.1 * arguments.steps))]
    command += ["--per_device_train_batch_size", str(arguments.batch_size), "--save_strategy", "no"]
    command += ["--evaluation_pairs", "0", "--overwrite", *arguments.further.split()]
    return [*command, "--output_dir", str(folder(Path(arguments.output), row, parallel))]


def summarise(result: dict[str, Any], without: list[str]) -> dict[str, Any]:
    """Means over languages with, without and with or without parallel sentences, and each language's scores."""
    scores = result["xquad_r"]["scores"]
    groups = {
        "with": [code for code in scores if code not in without],
        "without": [code for code in scores if code in without],
        "all": list(scores),
    }
    means = {
        group: {metric: sum(scores[code][metric] for code in codes) / max(1, len(codes)) for metric in METRICS}
        for group, codes in groups.items()
    }
    kept = {key: result[key] for key in ("seconds", "steps", "questions", "pairs", "others", "command")}
    return {"average": means, "languages": scores, **kept}


def table_of(plan: list[tuple[str, str]], figures: dict[str, Any]) -> str:
    """The study as a Markdown table, in percent."""
    header = ["parallel sentences", "training"]
    header += [f"{label} {group}" for label in METRICS.values() for group in GROUPS]
    lines = []
    for row, parallel in plan:
        if found := figures.get(run_name(row, parallel)):
            cells = [f"{100 * found['average'][group][metric]:.1f}" for metric in METRICS for group in GROUPS]
            lines.append([parallel, row, *cells, f"{found['seconds']:.0f}"])
    return markdown_table([*header, "seconds"], lines)


if __name__ == "__main__":
    main()
