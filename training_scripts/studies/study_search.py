"""What makes the search of a multilingual encoder better: rows from the same checkpoint, with the same steps.

    python -m training_scripts.studies.study_search --model M --data ../shared/data --output runs/study-search

Every row starts from --model, or from another row where its name says so, and takes --steps optimizer steps of
--batch_size texts; tokens are counted and shown. Rows with translations read the same ones, rows with questions the
same questions, rows with documents the same documents. Word embeddings are frozen in all of them.

The learning rate of each row is tuned: the first seed trains with each of --learning_rates (rows with documents alone:
--documents_learning_rates), and the one that finds held-out translations best is kept. While that is at an end of the
rates, one beyond it is tried too, --further_rates at most. Held out are the sentences of TICO-19 that come with the
demo: mAP@20 in one pool of 11 languages. Some rows take the rate of a related row (`rate_of` in search_rows.py) and
have no trials of their own. Each model is then measured on XQuAD-R, on Tatoeba and, with --mining, by the F1 of mined
translations, see measure_search.py.

With --paragraphs, the pool is made of the sentences of some paragraphs of XQuAD-R, which is easier than the whole. With
a GPU, --jobs trains several models at a time. Finished parts are kept: the same command continues an interrupted study.
The table is in OUTPUT/study.md, with the mean and the spread of the seeds, a plot of the rows in OUTPUT/study.png; the
figures of the measured models are in OUTPUT/study.json.
"""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from st_xlret.files import write_json_atomically, write_text_atomically
from st_xlret.options import option, parse
from training_scripts.studies.common import keep_command, run_logged, run_name
from training_scripts.studies.search_plot import plot_rows
from training_scripts.studies.search_rates import best_of, trials
from training_scripts.studies.search_rows import ML_CTL, ROWS, data_options, tuned_for, with_needed
from training_scripts.studies.search_settings import check_settings
from training_scripts.studies.search_table import figures_of, means_of, table_of
from training_scripts.studies.search_tests import excluded, held_out, test_set, write_test_sets


@dataclass
class Arguments:
    """What to run."""

    model: str = field(metadata={"help": "The checkpoint that all rows start from."})
    data: str = field(metadata={"help": "Folder of the real data: documents, pairs, squad_v1.1, xquad_r, tatoeba."})
    output: str = field(metadata={"help": "Folder for the runs and the table."})
    rows: list[str] = field(
        default_factory=lambda: list(ROWS),
        metadata={
            "help": "Rows to run, each in quotes, with those that they start from.",
            "choices": list(ROWS),
            "metavar": "ROW",
        },
    )
    seeds: list[int] = field(default_factory=lambda: [0, 1], metadata={"help": "Seeds of each row."})
    steps: int = option(200, "Optimizer steps of each row.", minimum=1)
    batch_size: int = option(128, "Texts in a batch.", minimum=2)
    learning_rates: list[float] = option(
        [3e-5, 1e-4, 3e-4], "Peak learning rates to try in rows with translations or questions.", above=0
    )
    documents_learning_rates: list[float] = option(
        [1e-5, 3e-5, 1e-4], "Peak learning rates to try in rows with documents alone.", above=0
    )
    further_rates: int = option(
        2, "Rates to try beyond an end of the range, one after the other, while the best one is there.", minimum=0
    )
    pairs_per_language: int = option(4500, "Translations of each language.", minimum=1)
    paragraphs: int | None = option(
        None, "Paragraphs of XQuAD-R to measure on, of 240; all by default.", minimum=2, maximum=240
    )
    no_tatoeba: bool = option(False, "Leave Tatoeba out.")
    mining: str | None = option(None, "Folder of evaluation/make_mining_test.py: mined translations are measured too.")
    jobs: int = option(1, "Models to train or measure at a time, each with one thread if there are several.", minimum=1)
    table_only: bool = option(False, "Only tabulate finished runs.")
    further: str = option("", "Further options of the training programs.")


def main(given: Sequence[str] | None = None) -> None:
    """Run what is missing, and print the table."""
    given = list(sys.argv[1:] if given is None else given)
    (arguments,) = parse([Arguments], given, description=__doc__)
    output = Path(arguments.output)
    output.mkdir(parents=True, exist_ok=True)
    check_settings(vars(arguments))
    if not arguments.table_only:
        write_test_sets(Path(arguments.data), output, arguments.paragraphs, arguments.mining)
        keep_command(__file__, given, output)
        asyncio.run(run_study(arguments))
    figures = {name: found for name in models(arguments) if (found := figures_of(output / name))}
    write_json_atomically(output / "study.json", figures)
    rows = measured(arguments, figures)
    if unfinished := [row for row in arguments.rows if row not in rows]:
        print(f"not in the table, because they are not finished: {'; '.join(unfinished)}", file=sys.stderr)
    table = table_of(rows, {row: shown_rate(arguments, row) for row in rows if ROWS[row].program})
    write_text_atomically(output / "study.md", table)
    plot_rows(means_of(rows), output / "study.png")
    print(table)


def models(arguments: Arguments) -> list[str]:
    """Names of the measured models, in the order of the rows. A row whose rate is not chosen yet has none."""
    return [folder.name for row in arguments.rows for folder in folders_of(arguments, row).values() if folder]


def folders_of(arguments: Arguments, row: str) -> dict[int, Path | None]:
    """Seed -> folder of a row's model, with the chosen learning rate; None if it is not chosen yet."""
    seeds = arguments.seeds if ROWS[row].program or ROWS[row].merged else [0]
    return {seed: folder_of(arguments, row, seed) for seed in seeds}


def folder_of(arguments: Arguments, row: str, seed: int) -> Path | None:
    """The folder of a row's model, with the chosen learning rate; None if it is not chosen yet."""
    output = Path(arguments.output)
    if not ROWS[row].program:
        return output / run_name(row, seed)
    rate = chosen_rate(arguments, row)
    return None if rate is None else output / run_name(row, f"{rate:g}", seed)


def rates_of(arguments: Arguments, row: str) -> list[float]:
    """The learning rates to try in a row that is trained."""
    return arguments.documents_learning_rates if ROWS[row].has_documents_alone else arguments.learning_rates


def trials_of(arguments: Arguments, row: str) -> dict[float, float | None]:
    """Learning rate -> mAP@20 of held-out translations that a row reaches with it; None if it is to be tried still."""

    def score_of(rate: float) -> float | None:
        file = trial_folder(arguments, row, rate) / "held-out.json"
        if not file.is_file():
            return None
        score = json.loads(file.read_text())["raw held out"]
        return -math.inf if score is None else float(score)

    return trials(rates_of(arguments, row), score_of, further=arguments.further_rates)


def trial_folder(arguments: Arguments, row: str, rate: float) -> Path:
    """The folder of a row's model of the first seed, trained with a learning rate."""
    return Path(arguments.output) / run_name(row, f"{rate:g}", arguments.seeds[0])


def chosen_rate(arguments: Arguments, row: str) -> float | None:
    """The learning rate that finds held-out translations best, or another row's; None if a rate is not measured yet."""
    if (other := ROWS[row].rate_of) is not None:
        return chosen_rate(arguments, other)
    rates = rates_of(arguments, row)
    return rates[0] if len(rates) == 1 else best_of(trials_of(arguments, row))


def shown_rate(arguments: Arguments, row: str) -> str:
    """The learning rate of a row, and whose it is if it was not tuned for this one."""
    other = ROWS[row].rate_of
    return f"{chosen_rate(arguments, row):g}" + (f" of {other}" if other else "")


async def run_study(arguments: Arguments) -> None:
    """Train and measure all rows, each after those that it is made of and the one whose rate it takes."""
    slots = asyncio.Semaphore(arguments.jobs)
    # The default has few threads on a machine of few cores.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(arguments.jobs))
    rows = with_needed(arguments.rows)
    tuned = tuned_for(rows)
    tuning: dict[str, asyncio.Task[None]] = {}
    tasks: dict[str, asyncio.Task[None]] = {}
    for row in ROWS:
        before = [tasks[name] for name in ROWS[row].needs if name in tasks]
        if row in tuned:
            tuning[row] = asyncio.create_task(tune(arguments, row, before, slots))
        if row in rows:
            rate = [tuning[ROWS[row].rate_of or row]] if ROWS[row].program else []
            tasks[row] = asyncio.create_task(run_row(arguments, row, [*before, *rate], slots))
    await asyncio.gather(*tasks.values())


async def tune(arguments: Arguments, row: str, before: Sequence[asyncio.Task[None]], slots: asyncio.Semaphore) -> None:
    """Train a row by its first seed with each learning rate, and keep the model of the one that is chosen.

    A further rate that fails, as large ones may, is no reason to choose none: it counts as the worst.
    """
    await asyncio.gather(*before)
    if missing(arguments, row) or len(rates_of(arguments, row)) == 1:
        return
    tried: set[float] = set()
    while rates := {rate for rate, score in trials_of(arguments, row).items() if score is None} - tried:
        folders = {rate: trial_folder(arguments, row, rate) for rate in rates}
        await asyncio.gather(
            *(run_one(arguments, row, arguments.seeds[0], folders[rate], slots, rate=rate) for rate in rates)
        )
        tried |= rates
        for rate in rates - set(rates_of(arguments, row)):
            if not (file := folders[rate] / "held-out.json").is_file():
                print(f"{row}: {rate:g} counts as the worst; to try it again, remove {file}", file=sys.stderr)
                write_json_atomically(file, {"raw held out": None})
    if (chosen := chosen_rate(arguments, row)) is None:
        return  # a trial failed, which is said
    for rate in set(trials_of(arguments, row)) - {chosen}:
        shutil.rmtree(trial_folder(arguments, row, rate) / "model", ignore_errors=True)


async def run_row(
    arguments: Arguments, row: str, before: Sequence[asyncio.Task[None]], slots: asyncio.Semaphore
) -> None:
    """Train and measure each seed of a row."""
    await asyncio.gather(*before)
    if failed := missing(arguments, row):
        print(f"{row} is left out: it needs {' and '.join(failed)}, which failed", file=sys.stderr, flush=True)
        return
    if ROWS[row].program and chosen_rate(arguments, row) is None:
        whose = f"it takes the rate of {ROWS[row].rate_of}, which failed" if ROWS[row].rate_of else "a trial failed"
        print(f"{row} is left out: {whose}", file=sys.stderr, flush=True)
        return
    runs = [(seed, folder) for seed, folder in folders_of(arguments, row).items() if folder is not None]
    await asyncio.gather(*(run_one(arguments, row, seed, folder, slots) for seed, folder in runs))


def missing(arguments: Arguments, row: str) -> list[str]:
    """The rows that a row is made of and that have no model."""
    seeds = arguments.seeds
    return [name for name in sorted(ROWS[row].needs) if not all(model_of(arguments, name, s).is_dir() for s in seeds)]


async def run_one(
    arguments: Arguments, row: str, seed: int, folder: Path, slots: asyncio.Semaphore, *, rate: float | None = None
) -> None:
    """Train a model and measure it, in processes of their own; with `rate`, for the choice of the learning rate."""
    measured = folder / ("measured.json" if rate is None else "held-out.json")
    if measured.is_file():
        return
    model, commands = Path(arguments.model), []
    if row != "checkpoint":
        model = folder / "model"
        if not model.is_dir():
            commands.append(training_command(arguments, row, seed, folder, rate or chosen_rate(arguments, row)))
    commands.append(measuring_command(arguments, model, measured, tuning=rate is not None))
    async with slots:
        await asyncio.to_thread(run_logged, commands, folder, arguments.jobs, append=True)
    found = json.loads(measured.read_text()) if measured.is_file() else {}
    print(f"{folder.name}: { {name: score for name, score in found.items() if 'tatoeba' not in name} }", flush=True)


def training_command(arguments: Arguments, row: str, seed: int, folder: Path, rate: float | None) -> list[str]:
    """The command that trains a row, or merges those that it is made of."""
    known = ROWS[row]
    start = arguments.model if known.start is None else str(model_of(arguments, known.start, seed))
    command = [sys.executable, "-m"]
    if known.merged:
        parts = [f"{model_of(arguments, name, seed)}:{share}" for name, share in known.merged.items()]
        command += ["training_scripts.studies.merge_models", "--model", arguments.model, "--add", *parts]
        return [*command, "--output", str(folder / "model"), "--overwrite"]
    command += [f"training_scripts.{'' if known.program == ML_CTL else 'studies.'}{known.program}", "--model", start]
    command += known.options.split()
    command += data_options(
        known,
        Path(arguments.data),
        texts=arguments.batch_size,
        pairs_per_language=arguments.pairs_per_language,
        excluded=excluded(Path(arguments.output)),
        teacher=Path(arguments.output) / "teacher",
    )
    command += ["--learning_rate", f"{rate:g}", "--freeze_embeddings", "--adam_beta2", "0.98"]
    command += ["--max_steps", str(arguments.steps), "--seed", str(seed), "--save_strategy", "no", "--overwrite"]
    return [*command, *arguments.further.split(), "--output_dir", str(folder)]


def model_of(arguments: Arguments, row: str, seed: int) -> Path:
    """The model of a row that another one starts from or is made of."""
    folder = folder_of(arguments, row, seed)
    return Path(arguments.output) / run_name(row, "no rate chosen") if folder is None else folder / "model"


def measuring_command(arguments: Arguments, model: Path, measured: Path, *, tuning: bool) -> list[str]:
    """The command that measures a model, for the table or for the choice of the learning rate."""
    command = [sys.executable, "-m", "training_scripts.studies.measure_search", "--model", str(model)]
    command += ["--output", str(measured)]
    if tuning:
        return [*command, "--held_out", str(held_out(Path(arguments.output)))]
    command += ["--pool", str(test_set(Path(arguments.data), Path(arguments.output), arguments.paragraphs))]
    if arguments.mining:
        command += ["--mining", arguments.mining]
    return command if arguments.no_tatoeba else [*command, "--tatoeba", str(Path(arguments.data) / "tatoeba/v1")]


def measured(arguments: Arguments, figures: dict[str, dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Row -> the figures of its seeds, of rows that are measured."""
    found = {}
    for row in arguments.rows:
        folders = [folder.name for folder in folders_of(arguments, row).values() if folder]
        found[row] = [figures[name] for name in folders if "raw pool" in figures.get(name, {})]
    return {row: seeds for row, seeds in found.items() if seeds}


if __name__ == "__main__":
    main()
