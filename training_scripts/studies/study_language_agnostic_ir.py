"""Ablation study of the semantic and language contrastive losses, where half of the languages have no parallel text.

    python -m training_scripts.studies.study_language_agnostic_ir --data ../shared/data --output runs/study-ir

Every row is trained from scratch on the English questions of SQuAD's training part, with the semantic loss, the
language loss, both or neither beside it. The languages in --without have no parallel sentences, only text of their
own, as in the paper's Table 5. The language loss takes text of all languages here; in the paper (section 5.4) it takes
text of the languages without parallel sentences alone, which is --further=--others_without_parallel.

Three further studies of the paper are rows of their own: --study connections (Table 4: which pairs of four languages
have parallel sentences), --study pairs (Figure 3: how many parallel sentences each language has) and --study others
(Figure 4: how many other sentences each language without parallel ones has, beside both losses).

Each model is then measured zero-shot on XQuAD-R: MRR@100, Recall@100 and mAP@20 over one pool of the sentences of all
languages, languages with and without parallel sentences apart. Finished runs are kept: the same command continues an
interrupted study. The table is in OUTPUT/study.md, all figures in OUTPUT/study.json.
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
from st_xlret.data.pairs.connections import SETTINGS
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
SEMANTIC, BOTH = "+ semantic", "+ semantic + language"
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
    study: str = option(
        "losses",
        "losses: the rows of --rows (Tables 2 and 5). connections: Table 4. pairs: Figure 3. others: Figure 4.",
        choices=["losses", "connections", "pairs", "others"],
    )
    connected: list[str] = option(
        ["en", "tr", "vi", "zh"], "The languages of Table 4; the last one is the bridge (En, Fi, Ja, Ko in the paper)."
    )
    sizes: list[int] = option(
        [0, 500, 5000, 50000],
        "Sentences of each language in Figures 3 and 4. With 0, the loss that needs them is off.",
        minimum=0,
    )
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
    plan = plan_of(arguments)
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
    each_language = arguments.study == "connections"
    figures = {
        run: summarise(result, arguments.without, each_language=each_language) for run, result in results.items()
    }
    write_json_atomically(output / "study.json", figures)
    table = table_of(plan, figures)
    write_text_atomically(output / "study.md", table)
    print(table)


def plan_of(arguments: Arguments) -> list[tuple[str, str]]:
    """The runs of a study: the losses of each (a row of `ROWS`), and the text that it sees."""
    if arguments.study == "connections":
        return [("IR" if name == "none" else SEMANTIC, f"connections {name}") for name in SETTINGS]
    if arguments.study == "pairs":
        return [(SEMANTIC if size else "IR", f"pairs {size}") for size in arguments.sizes]
    if arguments.study == "others":
        return [(BOTH if size else SEMANTIC, f"others {size}") for size in arguments.sizes]
    return [(row, parallel) for parallel in arguments.parallel for row in arguments.rows]


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
    command = [sys.executable, "-m", PROGRAM, *encoder.split(), "--precision", "fp32"]
    if arguments.tokenizer:
        command += ["--tokenizer", arguments.tokenizer]
    # Never the dev part: it holds the English text of XQuAD-R.
    command += ["--retrieval", str(data / "squad_v1.1/train"), "--positives", "sentence"]
    # "half", "all", or what a study varies and its value.
    kind, _, value = parallel.partition(" ")
    languages = arguments.connected if kind == "connections" else LANGUAGES
    command += ["--test", str(data / "xquad_r"), "--languages", *languages]
    if semantic or language:
        verses = data / "ebible/documents"
        command += ["--pairs", *folders_in(data, PAIRS), *([str(verses)] if verses.is_dir() else [])]
        if kind in ("half", "others"):
            command += ["--no_parallel", *arguments.without]
        if kind == "connections":
            command += ["--connections", value, "--bridge", languages[-1]]
        if kind == "pairs":
            command += ["--pairs_per_language", value]
    if language:
        command += ["--documents", *folders_in(data, DOCUMENTS)]
        if kind == "others":
            command += ["--others_without_parallel", "--others_per_language", value]
    command += ["--semantic_weight", str(arguments.semantic_weight if semantic else 0)]
    command += ["--language_weight", str(arguments.language_weight if language else 0)]
    command += ["--language_reduction", arguments.language_reduction, "--language_smoothing", "0.5"]
    command += ["--max_steps", str(arguments.steps), "--warmup_steps", str(int(0.1 * arguments.steps))]
    command += ["--per_device_train_batch_size", str(arguments.batch_size), "--save_strategy", "no"]
    command += ["--evaluation_pairs", "0", "--overwrite", *arguments.further.split()]
    return [*command, "--output_dir", str(folder(Path(arguments.output), row, parallel))]


def summarise(result: dict[str, Any], without: list[str], *, each_language: bool = False) -> dict[str, Any]:
    """Means over languages with, without and with or without parallel sentences, and each language's scores.

    With `each_language`, every language is a group of its own instead, beside all of them, as in Table 4.
    """
    scores = result["xquad_r"]["scores"]
    groups = (
        {code: [code] for code in scores} | {"all": list(scores)}
        if each_language
        else {
            "with": [code for code in scores if code not in without],
            "without": [code for code in scores if code in without],
            "all": list(scores),
        }
    )
    means = {
        group: {metric: sum(scores[code][metric] for code in codes) / max(1, len(codes)) for metric in METRICS}
        for group, codes in groups.items()
    }
    kept = {key: result[key] for key in ("seconds", "steps", "questions", "pairs", "others", "command")}
    return {"average": means, "languages": scores, **kept}


def table_of(plan: list[tuple[str, str]], figures: dict[str, Any]) -> str:
    """The study as a Markdown table, in percent."""
    groups = next((list(found["average"]) for found in figures.values()), GROUPS)
    header = ["parallel sentences", "training"]
    header += [f"{label} {group}" for label in METRICS.values() for group in groups]
    lines = []
    for row, parallel in plan:
        if found := figures.get(run_name(row, parallel)):
            cells = [f"{100 * found['average'][group][metric]:.1f}" for metric in METRICS for group in groups]
            lines.append([parallel, row, *cells, f"{found['seconds']:.0f}"])
    return markdown_table([*header, "seconds"], lines)


if __name__ == "__main__":
    main()
