"""Run a study: train the rows of a YAML file, measure them, and write their table.

    python -m training_scripts.studies.run --study training_scripts/studies/search.yaml --model M --data DATA \\
        --output runs/search --seeds 0 1

A row is a command line. search.yaml explains the fields of such a file, line by line.

What is finished is not done again: the same command continues an interrupted study. The table is in OUTPUT/study.md and
OUTPUT/study.csv, each row's model, log and figures in a folder of its own.
"""

import json
import math
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from glob import glob
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas
import yaml

from st_xlret.evaluation.results import half_interval
from st_xlret.files import write_json, write_text
from st_xlret.options import option, parse
from st_xlret.tables import markdown_table

REPOSITORY = Path(__file__).parents[2]
MERGE = "training_scripts.studies.merge_models"


@dataclass
class Arguments:
    """What to run."""

    study: str = field(metadata={"help": "YAML file of the study."})
    output: str = field(metadata={"help": "Folder for the runs and the table."})
    data: str | None = option(None, "Folder of the data, {data} in the file.")
    model: str | None = option(
        None, "The checkpoint that the rows start from, {model} in the file."
    )
    rows: list[str] = option(
        [], "Rows to run, each in quotes, with those that they need. All by default."
    )
    seeds: list[int] = option([0], "Seeds of each row.")
    rates: list[float] = option([], "Learning rates to choose from, in place of those of the file.")
    options: str = option(
        "", "Options that are added to each training command, such as '--max_steps 1000'."
    )
    table_only: bool = option(False, "Only tabulate what is finished.")


@dataclass(frozen=True)
class Row:
    """How a row's model is made, as search.yaml explains: by `MERGE` if `merged`; without a script, the checkpoint."""

    script: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    rate_of: str | None = None
    start: str | None = None
    merged: dict[str, float] = field(default_factory=dict)

    @property
    def needs(self) -> list[str]:
        """The rows whose models it is made of."""
        return [*self.merged, *filter(None, [self.start])]


def read_rows(content: Mapping[str, Mapping[str, Any]]) -> dict[str, Row]:
    """Name -> row. Its fields in the file are those of `Row`, and `like`: an earlier row that it starts from."""
    rows: dict[str, Row] = {}
    for name, fields in content.items():
        mentioned = [
            fields.get("like"),
            fields.get("rate_of"),
            fields.get("start"),
            *fields.get("merged", {}),
        ]
        if missing := [other for other in mentioned if other is not None and other not in rows]:
            raise ValueError(f"row {name!r} names {missing[0]!r}: there is no such row before it")
        base = rows[fields["like"]] if "like" in fields else Row()
        options = {**base.options, **fields.get("options", {})}
        rates = [float(rate) for rate in fields.get("rates", base.rates)]
        others = {
            key: value for key, value in fields.items() if key not in ("like", "options", "rates")
        }
        rows[name] = replace(
            Row(MERGE if "merged" in fields else base.script, options, rates), **others
        )
    return rows


def run_name(*parts: Any) -> str:
    """Name of a run that can be the name of a folder: `CCP-no-BN-500` of "+ CCP, no BN" and 500."""
    words = " ".join(map(str, parts))
    return "-".join("".join(c if c.isalnum() else " " for c in words).split())


def words_of(options: Mapping[str, Any], values: Mapping[str, object]) -> list[str]:
    """The words of a command line; a name in braces stands for its value, a path with `*` for all that match.

    Example:
        >>> words_of({"pairs": ["{data}/a", ["b"]], "bf16": True, "rates": {"head": 0.1}, "no": None}, {"data": "d"})
        ['--pairs', 'd/a', 'b', '--bf16', 'true', '--rates', '{"head": 0.1}']
    """

    def words(value: Any) -> list[str]:
        if isinstance(value, list):
            return [word for each in value for word in words(each)]
        if not isinstance(value, str):
            return [json.dumps(value)]
        for name, known in values.items():
            value = value.replace(f"{{{name}}}", str(known))
        files = sorted(glob(value)) if "*" in value else [value]
        if "{" in value or not files:
            raise ValueError(f"there is no {value}: is --data or --model missing?")
        return files

    return [
        word
        for name, value in options.items()
        if value is not None
        for word in (f"--{name}", *words(value))
    ]


def best_of(scores: Mapping[float, float | None]) -> float | None:
    """The rate of the highest score, the first of equal ones; None if one is to be tried still, or all have failed."""
    known = {rate: score for rate, score in scores.items() if score is not None}
    best = max(known, key=lambda rate: known[rate], default=None)
    return None if best is None or len(known) < len(scores) or known[best] == -math.inf else best


class Study:
    """The rows of a study in a folder: what is there of them, and what is to be done."""

    def __init__(self, arguments: Arguments) -> None:
        self.content: dict[str, Any] = yaml.safe_load(
            Path(arguments.study).read_text(encoding="utf-8")
        )
        self.rows = read_rows(self.content["rows"])
        if rates := arguments.rates:
            self.rows = {
                name: replace(row, rates=rates if row.rates else [])
                for name, row in self.rows.items()
            }
        self.arguments, self.output, self.seeds = arguments, Path(arguments.output), arguments.seeds
        self.tune: dict[str, Any] = self.content.get("tune", {})
        self.values = {
            name: value
            for name in ("output", "data", "model")
            if (value := getattr(arguments, name))
        }
        self.made: dict[str, bool] = {}

    def folder(self, name: str, seed: int, rate: float | None = None) -> Path:
        """The folder of a model: with a rate, or with the one that was chosen."""
        rate = self.rate(name) if rate is None else rate
        return self.output / run_name(name, *([] if rate is None else [f"{rate:g}"]), seed)

    def model(self, name: str, seed: int) -> Path:
        """The folder of a row's finished model; that of the checkpoint if it is not trained."""
        return (
            self.folder(name, seed) / "model"
            if self.rows[name].script
            else Path(self.values["model"])
        )

    def rate(self, name: str) -> float | None:
        """The learning rate that was chosen for a row; None if it is not chosen yet, or is among the options."""
        row = self.rows[name]
        if row.rate_of is not None:
            return self.rate(row.rate_of)
        return row.rates[0] if len(row.rates) == 1 else best_of(self.trials(name))

    def trials(self, name: str) -> dict[float, float | None]:
        """Learning rate -> held-out score of the first seed (-inf if that failed), None if it is to be tried still.

        While the best is at an end of those that were tried, one beyond it is added, `further` at most: as far from the
        best as that is from the next one, rounded to one digit.
        """

        def score_of(rate: float) -> float | None:
            folder = self.folder(name, self.seeds[0], rate)
            is_measured = (folder / self.tune["by"].partition("/")[0]).is_file()
            return (
                next(iter(figures([folder], self.tune["by"])), -math.inf) if is_measured else None
            )

        scores = {rate: score_of(rate) for rate in self.rows[name].rates}
        for _ in range(self.tune.get("further", 0) if len(scores) > 1 else 0):
            best, ascending = best_of(scores), sorted(scores)
            if best is None or best not in (ascending[0], ascending[-1]):
                break
            inner = ascending[1] if best == ascending[0] else ascending[-2]
            beyond = float(f"{best * best / inner:.0e}")
            if (beyond - best) * (
                best - inner
            ) <= 0:  # close rates may have no round one beyond them
                break
            scores[beyond] = score_of(beyond)
        return scores

    def run(self, names: Iterable[str]) -> None:
        """Train and measure rows and those that they are made of, and choose the rates that they take, row by row."""
        wanted = set(names)
        for name in reversed(self.rows):
            wanted |= set(self.rows[name].needs) if name in wanted else set()
        tuned = {self.rows[name].rate_of or name for name in wanted if self.rows[name].rates}
        self.prepare([self.rows[name] for name in wanted])
        for name in self.rows:
            if name in tuned:
                self.choose_rate(name)
            if name in wanted:
                self.made[name] = self.run_row(name)

    def prepare(self, rows: Iterable[Row]) -> None:
        """Run the commands that make what these rows, or what is measured of them, mention."""
        mentioned = json.dumps([[row.options for row in rows], self.content["measure"], self.tune])
        needed: dict[str, list[dict[str, Any]]] = {}
        for name, commands in reversed(self.content.get("prepare", {}).items()):
            if f"{{output}}/{name}" in mentioned:
                needed[name] = commands if isinstance(commands, list) else [commands]
                mentioned += json.dumps(commands)
        for name, commands in reversed(needed.items()):
            folder = self.output / f"prepare-{run_name(name)}"
            is_done = (folder / "done").exists()
            if not is_done and not all(
                self.execute(folder, self.words(command)) for command in commands
            ):
                raise ValueError(
                    f"{self.output / name} could not be made, see {folder / 'log.txt'}"
                )
            write_text(folder / "done", "")

    def choose_rate(self, name: str) -> None:
        """Train a row by its first seed with each learning rate, and keep the model of the one that is chosen."""
        row, seed, tried = self.rows[name], self.seeds[0], list[float]()
        if len(row.rates) == 1 or not all(self.made[other] for other in row.needs):
            return
        file, _, key = self.tune["by"].partition("/")
        while untried := [
            rate for rate, score in self.trials(name).items() if score is None and rate not in tried
        ]:
            tried.append(rate := untried[0])
            folder = self.folder(name, seed, rate)
            done = self.make(name, seed, rate) and self.measure(
                folder, folder / "model", seed, self.tune["measure"]
            )
            if (
                not done and rate not in row.rates
            ):  # large ones may fail, which is no reason to choose none
                print(
                    f"{name}: {rate:g} counts as the worst; remove {folder / file} to try it again",
                    flush=True,
                )
                write_json(folder / file, {key: None})
        if (chosen := self.rate(name)) is not None:
            for rate in set(self.trials(name)) - {chosen}:
                shutil.rmtree(self.folder(name, seed, rate) / "model", ignore_errors=True)

    def run_row(self, name: str) -> bool:
        """Train and measure each seed of a row; whether all models are there."""
        row = self.rows[name]
        if not all(self.made[other] for other in row.needs) or (
            row.rates and self.rate(name) is None
        ):
            print(
                f"{name} is left out: a row or a learning rate that it needs failed",
                file=sys.stderr,
                flush=True,
            )
            return False
        made = {
            seed: self.make(name, seed, self.rate(name))
            for seed in (self.seeds if row.script else [0])
        }
        for seed in (seed for seed in made if made[seed]):
            self.measure(
                self.folder(name, seed), self.model(name, seed), seed, self.content["measure"]
            )
        return all(made.values())

    def make(self, name: str, seed: int, rate: float | None) -> bool:
        """Train or merge a model that is not there yet; whether it is there. One of another command is refused."""
        row, folder = self.rows[name], self.folder(name, seed, rate)
        if not row.script:
            return True
        if row.merged:
            parts = [f"{self.model(other, seed)}:{share}" for other, share in row.merged.items()]
            options = {
                "model": "{model}",
                "add": parts,
                "output": "{folder}/model",
                "overwrite": True,
            }
        else:
            options = {
                **row.options,
                **({} if rate is None else {"learning_rate": rate}),
                "output_dir": "{folder}",
            }
        start = {"model": self.model(row.start, seed)} if row.start else {}
        words = self.words(
            {"script": row.script, "options": options}, folder=folder, seed=seed, **start
        )
        words += [] if row.merged else shlex.split(self.arguments.options)
        file, line = folder / "command.txt", shlex.join(words[1:]) + "\n"
        if (folder / "model").is_dir() and (row.merged or (folder / "results.json").is_file()):
            if file.read_text(encoding="utf-8") != line:
                raise ValueError(
                    f"{folder} was made by another command, see {file}; remove it or use another --output"
                )
            return True
        write_text(file, line)
        return self.execute(folder, words)

    def measure(self, folder: Path, model: Path, seed: int, commands: Mapping[str, Any]) -> bool:
        """Run the commands whose files are not there yet; whether all are there at the end."""
        missing = [command for file, command in commands.items() if not (folder / file).exists()]
        return all(
            self.execute(folder, self.words(each, trained=model, folder=folder, seed=seed))
            for each in missing
        )

    def words(self, command: Mapping[str, Any], **values: object) -> list[str]:
        """The words of a command line, with its program."""
        options = words_of(command["options"], {**self.values, **values})
        return [sys.executable, "-m", *command["script"].split(), *options]

    def write_table(self, names: Iterable[str]) -> str:
        """Write `study.md`, with ± half of the 95 % interval by Student's t, and `study.csv` with a column of it."""
        counts, columns = (
            self.content.get("counts", {}),
            self.content["columns"],
        )  # whole numbers, and fractions
        lines, cells = [], []
        for name in names:
            row = self.rows[name]
            rate = self.rate(name) if row.rates else row.options.get("learning_rate")
            files = [
                *self.content["measure"],
                *([] if row.script in ("", MERGE) else ["results.json"]),
            ]
            seeds = (self.seeds if row.script else [0]) if rate is not None or not row.rates else []
            folders = [self.folder(name, seed) for seed in seeds]
            folders = [
                folder for folder in folders if all((folder / file).exists() for file in files)
            ]
            if not folders:
                print(f"not in the table, because it is not finished: {name}", file=sys.stderr)
                continue
            percent = [
                [100 * value for value in figures(folders, path)] for path in columns.values()
            ]
            learning_rate = (
                "" if rate is None else f"{rate:g}" + (f" of {row.rate_of}" if row.rate_of else "")
            )
            first = [name, str(len(folders)), learning_rate]
            first += [
                f"{fmean(values):.0f}" if (values := figures(folders, path)) else ""
                for path in counts.values()
            ]
            means = [f"{fmean(values):.1f}" if values else "" for values in percent]
            halves = [
                "" if (half := half_interval(values)) is None else f"{half:.1f}"
                for values in percent
            ]
            lines.append(
                [
                    *first,
                    *(" ± ".join(filter(None, both)) for both in zip(means, halves, strict=True)),
                ]
            )
            cells.append([*first, *means, *halves])
        header = ["row", "seeds", "learning rate", *counts, *columns]
        write_text(self.output / "study.md", (table := markdown_table(header, lines)) + "\n")
        header += [f"{column} ± (95 %)" for column in columns]
        write_text(
            self.output / "study.csv", pandas.DataFrame(cells, columns=header).to_csv(index=False)
        )
        return table

    def execute(self, folder: Path, words: list[str]) -> bool:
        """Run a command with its output in `folder/log.txt`; whether it succeeded."""
        paths = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": paths}
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "log.txt"
        with open(log, "a", encoding="utf-8") as file:
            print(f"$ {shlex.join(words)}", file=file, flush=True)
            failed = subprocess.run(
                words, env=environment, stdout=file, stderr=subprocess.STDOUT
            ).returncode
        print(
            f"{folder.name}: {words[2]} " + (f"failed, see {log}" if failed else "is done"),
            flush=True,
        )
        return not failed


def figures(folders: Iterable[Path], path: str) -> list[float]:
    """A figure of some runs, of those that have it.

    `path` is a file and its keys, such as `results.json/scores/de,fr/accuracy`; several keys stand for their mean.
    """
    name, *keys = path.split("/")
    means = []
    for file in (folder / name for folder in folders if (folder / name).is_file()):
        values = [json.loads(file.read_text(encoding="utf-8"))]
        for key in keys:
            values = [(value or {}).get(each) for value in values for each in key.split(",")]
        means += [] if None in values else [fmean(values)]
    return means


def main(arguments: Sequence[str] | None = None) -> str:
    """Run what is missing, and print the table."""
    (given,) = parse([Arguments], arguments, description=__doc__)
    study = Study(given)
    rows = given.rows or list(study.rows)
    if not given.table_only:
        study.run(rows)
    print(table := study.write_table(rows))
    return table


if __name__ == "__main__":
    main()
