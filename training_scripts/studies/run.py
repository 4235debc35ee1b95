"""Run a study: train the rows of a YAML file, measure them, and write their table.

    python -m training_scripts.studies.run --study training_scripts/studies/search.yaml \\
        --model M --data DATA --output runs/search --seeds 0 1

A row is a command line. search.yaml explains the fields of such a file, line by line.

What is finished is not done again: the same command continues an interrupted study. The table is in
OUTPUT/study.md and OUTPUT/study.csv, each row's model, log and figures in a folder of its own.
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
from st_xlret.options import option, parse, required_option
from st_xlret.tables import markdown_table

REPOSITORY = Path(__file__).parents[2]
MERGE = "training_scripts.studies.merge_models"


@dataclass
class Arguments:
    """What to run."""

    study: str = required_option("YAML file of the study.")
    output: str = required_option("Folder for the runs and the table.")
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
    """How a row's model is made, as search.yaml explains.

    It is made by `MERGE` if it is `merged`; without a script, it is the checkpoint.
    """

    script: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    rate_of: str | None = None
    start: str | None = None
    merged: dict[str, float] = field(default_factory=dict)

    @property
    def needs(self) -> list[str]:
        """The rows whose models it is made of."""
        if self.start is None:
            return list(self.merged)
        return [*self.merged, self.start]

    @property
    def is_trained(self) -> bool:
        """Whether a script trains it, and leaves its results.json."""
        return self.script not in ("", MERGE)


def rows_of(content: Mapping[str, Mapping[str, Any]]) -> dict[str, Row]:
    """Name -> row. Its fields in the file are those of `Row`, and `like`: a row to start from."""
    rows: dict[str, Row] = {}
    for name, fields in content.items():
        check_mentioned(name, fields, rows)
        own = dict(fields)
        base = Row()
        like = own.pop("like", None)
        if like is not None:
            base = rows[like]
        script = base.script
        if "merged" in fields:
            script = MERGE
        options = dict(base.options)
        options.update(own.pop("options", {}))
        rates = own.pop("rates", base.rates)
        row = Row(script, options, list(map(float, rates)))
        rows[name] = replace(row, **own)
    return rows


def check_mentioned(name: str, fields: Mapping[str, Any], before: Mapping[str, Row]) -> None:
    """Refuse a row that names another one which does not stand before it."""
    mentioned = list(fields.get("merged", {}))
    for field_name in ("like", "rate_of", "start"):
        if field_name in fields:
            mentioned.append(fields[field_name])
    for other in mentioned:
        if other is not None and other not in before:
            raise ValueError(f"row {name!r} names {other!r}: there is no such row before it")


def run_name(*parts: Any) -> str:
    """Name of a run that can be the name of a folder: `CCP-no-BN-500` of "+ CCP, no BN" and 500."""
    words = " ".join(map(str, parts))
    letters = [letter if letter.isalnum() else " " for letter in words]
    return "-".join("".join(letters).split())


def words_of(options: Mapping[str, Any], values: Mapping[str, object]) -> list[str]:
    """The words of a command line.

    A name in braces stands for its value, a path with `*` for all files that match.

    Example:
        >>> words_of({"pairs": ["{data}/a", ["b"]], "bf16": True}, {"data": "d"})
        ['--pairs', 'd/a', 'b', '--bf16', 'true']
        >>> words_of({"rates": {"head": 0.1}, "no": None}, {})
        ['--rates', '{"head": 0.1}']
    """
    words = []
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", *words_of_value(value, values)]
    return words


def words_of_value(value: Any, values: Mapping[str, object]) -> list[str]:
    """The words of the value of an option; a `ValueError` for a path, or a name, of nothing."""
    if isinstance(value, list):
        words = []
        for each in value:
            words += words_of_value(each, values)
        return words
    if not isinstance(value, str):
        return [json.dumps(value)]
    for name, known in values.items():
        value = value.replace(f"{{{name}}}", str(known))
    files = sorted(glob(value)) if "*" in value else [value]
    if "{" in value or not files:
        raise ValueError(f"there is no {value}: is --data or --model missing?")
    return files


def best_of(scores: Mapping[float, float | None]) -> float | None:
    """The rate of the highest score, the first of equal ones.

    None if one is to be tried still, or all have failed.
    """
    best = None
    highest = -math.inf
    for rate, score in scores.items():
        if score is None:
            return None
        if score > highest:
            best = rate
            highest = score
    return best


def rate_beyond(rates: Iterable[float], best: float) -> float | None:
    """A rate beyond the end of those that were tried, if the best one is there.

    It is as far from the best as that is from the next one, rounded to one digit.
    """
    ascending = sorted(rates)
    if best == ascending[0]:
        inner = ascending[1]
    elif best == ascending[-1]:
        inner = ascending[-2]
    else:
        return None
    beyond = float(f"{best * best / inner:.0e}")
    # Close rates may have no round one beyond them.
    is_beyond = (beyond - best) * (best - inner) > 0
    return beyond if is_beyond else None


class Study:
    """The rows of a study in a folder: what is there of them, and what is to be done."""

    def __init__(self, arguments: Arguments) -> None:
        text = Path(arguments.study).read_text(encoding="utf-8")
        self.content: dict[str, Any] = yaml.safe_load(text)
        self.rows = rows_of(self.content["rows"])
        for name, row in self.rows.items():
            if row.rates and arguments.rates:
                self.rows[name] = replace(row, rates=arguments.rates)
        self.arguments = arguments
        self.output = Path(arguments.output)
        self.seeds = arguments.seeds
        self.tune: dict[str, Any] = self.content.get("tune", {})
        self.values: dict[str, object] = {"output": arguments.output}
        if arguments.data:
            self.values["data"] = arguments.data
        if arguments.model:
            self.values["model"] = arguments.model
        self.made: dict[str, bool] = {}

    def folder(self, name: str, seed: int, rate: float | None = None) -> Path:
        """The folder of a model: with a rate, or with the one that was chosen."""
        if rate is None:
            rate = self.rate(name)
        if rate is None:
            return self.output / run_name(name, seed)
        return self.output / run_name(name, f"{rate:g}", seed)

    def model(self, name: str, seed: int) -> Path:
        """The folder of a row's finished model; that of the checkpoint if it is not trained."""
        if self.rows[name].script:
            return self.folder(name, seed) / "model"
        return Path(str(self.values["model"]))

    def seeds_of(self, row: Row) -> list[int]:
        """The seeds of a row: a checkpoint has one."""
        return self.seeds if row.script else [0]

    # Learning rates

    def rate(self, name: str) -> float | None:
        """The learning rate that was chosen for a row.

        None if it is not chosen yet, or is among the options.
        """
        row = self.rows[name]
        if row.rate_of is not None:
            return self.rate(row.rate_of)
        if len(row.rates) == 1:
            return row.rates[0]
        return best_of(self.trials(name))

    def trials(self, name: str) -> dict[float, float | None]:
        """Learning rate -> held-out score of the first seed, None if it is to be tried still.

        While the best is at an end of those that were tried, one beyond it is added, `further` at
        most.
        """
        scores = {rate: self.read_score(name, rate) for rate in self.rows[name].rates}
        if len(scores) < 2:
            return scores
        for _ in range(self.tune.get("further", 0)):
            best = best_of(scores)
            if best is None:
                break
            beyond = rate_beyond(scores, best)
            if beyond is None:
                break
            scores[beyond] = self.read_score(name, beyond)
        return scores

    def read_score(self, name: str, rate: float) -> float | None:
        """The held-out score of a row with a rate: -inf if that failed, None if it is not there."""
        folder = self.folder(name, self.seeds[0], rate)
        path = self.tune["by"]
        file, _, _ = path.partition("/")
        if not (folder / file).is_file():
            return None
        scores = read_figures([folder], path)
        return scores[0] if scores else -math.inf

    def choose_rate(self, name: str) -> None:
        """Train a row by its first seed with each rate; the models of all but the best go."""
        row = self.rows[name]
        if len(row.rates) == 1 or not self.is_ready(row):
            return
        tried: list[float] = []
        rate = self.next_rate(name, tried)
        while rate is not None:
            tried.append(rate)
            self.try_rate(name, rate)
            rate = self.next_rate(name, tried)
        chosen = self.rate(name)
        if chosen is None:
            return
        for other in set(self.trials(name)) - {chosen}:
            folder = self.folder(name, self.seeds[0], other)
            shutil.rmtree(folder / "model", ignore_errors=True)

    def next_rate(self, name: str, tried: Sequence[float]) -> float | None:
        """The first rate without a score that was not tried."""
        for rate, score in self.trials(name).items():
            if score is None and rate not in tried:
                return rate
        return None

    def try_rate(self, name: str, rate: float) -> None:
        """Train and measure the first seed of a row with a rate.

        A large one that is not in the file may fail, which is no reason to choose none.
        """
        seed = self.seeds[0]
        folder = self.folder(name, seed, rate)
        model = folder / "model"
        is_made = self.make_model(name, seed, rate)
        if is_made and self.measure_model(folder, model, seed, self.tune["measure"]):
            return
        if rate in self.rows[name].rates:
            return
        file, _, key = self.tune["by"].partition("/")
        scores = folder / file
        advice = f"remove {scores} to try it again"
        print(f"{name}: {rate:g} counts as the worst; {advice}", flush=True)
        write_json(scores, {key: None})

    # What is done

    def run(self, names: Iterable[str]) -> None:
        """Train and measure rows and those that they are made of, row by row."""
        wanted = set(names)
        for name in reversed(self.rows):
            if name in wanted:
                wanted |= set(self.rows[name].needs)
        tuned = set()
        for name in wanted:
            if self.rows[name].rates:
                tuned.add(self.rows[name].rate_of or name)
        self.prepare_files([self.rows[name] for name in wanted])
        for name in self.rows:
            if name in tuned:
                self.choose_rate(name)
            if name in wanted:
                self.made[name] = self.run_row(name)

    def prepare_files(self, rows: Iterable[Row]) -> None:
        """Run the commands that make what these rows, or what is measured of them, mention."""
        options = [row.options for row in rows]
        mentioned = json.dumps([options, self.content["measure"], self.tune])
        commands_of = self.content.get("prepare", {})
        needed = []
        # A file may be made of those before it.
        for name in reversed(commands_of):
            if f"{{output}}/{name}" in mentioned:
                needed.append(name)
                mentioned += json.dumps(commands_of[name])
        for name in reversed(needed):
            commands = commands_of[name]
            if not isinstance(commands, list):
                commands = [commands]
            self.prepare_file(name, commands)

    def prepare_file(self, name: str, commands: Iterable[Mapping[str, Any]]) -> None:
        """Run the commands that make a file, unless they are done.

        A `ValueError` names the log of one that fails.
        """
        folder = self.output / f"prepare-{run_name(name)}"
        mark = folder / "done"
        if mark.exists():
            return
        for command in commands:
            words = self.words(command)
            if not self.execute(folder, words):
                file = self.output / name
                raise ValueError(f"{file} could not be made, see {folder / 'log.txt'}")
        write_text(mark, "")

    def is_ready(self, row: Row) -> bool:
        """Whether the models are there that a row is made of, which were run before it."""
        return all(self.made[other] for other in row.needs)

    def run_row(self, name: str) -> bool:
        """Train and measure each seed of a row, whose rate is chosen; whether all models are there.

        The rows that it needs have been run.
        """
        row = self.rows[name]
        lacks_rate = row.rates and self.rate(name) is None
        if lacks_rate or not self.is_ready(row):
            reason = "a row or a learning rate that it needs failed"
            print(f"{name} is left out: {reason}", file=sys.stderr, flush=True)
            return False
        rate = self.rate(name)
        made = {}
        for seed in self.seeds_of(row):
            made[seed] = self.make_model(name, seed, rate)
        for seed, is_made in made.items():
            if is_made:
                folder = self.folder(name, seed)
                model = self.model(name, seed)
                self.measure_model(folder, model, seed, self.content["measure"])
        return all(made.values())

    def make_model(self, name: str, seed: int, rate: float | None) -> bool:
        """Train or merge a model that is not there yet; whether it is there.

        One of another command is refused.
        """
        row = self.rows[name]
        if not row.script:
            return True
        folder = self.folder(name, seed, rate)
        words = self.words_of_row(row, folder, seed, rate)
        file = folder / "command.txt"
        line = shlex.join(words[1:]) + "\n"
        is_finished = row.merged or (folder / "results.json").is_file()
        if is_finished and (folder / "model").is_dir():
            if file.read_text(encoding="utf-8") != line:
                raise ValueError(
                    f"{folder} was made by another command, see {file}; "
                    "remove it or use another --output"
                )
            return True
        write_text(file, line)
        return self.execute(folder, words)

    def words_of_row(self, row: Row, folder: Path, seed: int, rate: float | None) -> list[str]:
        """The words of the command that makes a model."""
        values: dict[str, object] = {"folder": folder, "seed": seed}
        if row.start is not None:
            values["model"] = self.model(row.start, seed)
        options: dict[str, Any]
        if row.merged:
            parts = []
            for other, share in row.merged.items():
                model = self.model(other, seed)
                parts.append(f"{model}:{share}")
            options = {
                "model": "{model}",
                "add": parts,
                "output": "{folder}/model",
                "overwrite": True,
            }
            return self.words({"script": row.script, "options": options}, values)
        options = dict(row.options)
        if rate is not None:
            options["learning_rate"] = rate
        options["output_dir"] = "{folder}"
        words = self.words({"script": row.script, "options": options}, values)
        return words + shlex.split(self.arguments.options)

    def measure_model(
        self, folder: Path, model: Path, seed: int, commands: Mapping[str, Any]
    ) -> bool:
        """Run the commands whose files are not there yet; whether all are there at the end."""
        values: dict[str, object] = {"trained": model, "folder": folder, "seed": seed}
        for file, command in commands.items():
            if (folder / file).exists():
                continue
            words = self.words(command, values)
            if not self.execute(folder, words):
                return False
        return True

    def words(
        self, command: Mapping[str, Any], values: Mapping[str, object] | None = None
    ) -> list[str]:
        """The words of a command line, with its program; `values` are further values of names."""
        known = {**self.values, **(values or {})}
        options = words_of(command["options"], known)
        return [sys.executable, "-m", *command["script"].split(), *options]

    def execute(self, folder: Path, words: list[str]) -> bool:
        """Run a command with its output in `folder/log.txt`; whether it succeeded."""
        paths = [str(REPOSITORY)]
        if os.environ.get("PYTHONPATH"):
            paths.append(os.environ["PYTHONPATH"])
        environment = {
            **os.environ,
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONPATH": os.pathsep.join(paths),
        }
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "log.txt"
        with open(log, "a", encoding="utf-8") as file:
            print(f"$ {shlex.join(words)}", file=file, flush=True)
            done = subprocess.run(words, env=environment, stdout=file, stderr=subprocess.STDOUT)
        outcome = f"failed, see {log}" if done.returncode else "is done"
        print(f"{folder.name}: {words[2]} {outcome}", flush=True)
        return not done.returncode

    # The table

    def write_table(self, names: Iterable[str]) -> str:
        """Write `study.md` and `study.csv`, and return the first.

        `study.md` has ± half of the 95 % interval by Student's t, `study.csv` columns of it.
        """
        lines = []
        cells = []
        for name in names:
            line = self.line_of(name)
            if line is None:
                print(f"not in the table, because it is not finished: {name}", file=sys.stderr)
                continue
            lines.append([*line.facts, *line.shown()])
            cells.append([*line.facts, *line.means, *line.halves])
        columns = list(self.content["columns"])
        header = ["row", "seeds", "learning rate", *self.content.get("counts", {}), *columns]
        table = markdown_table(header, lines)
        write_text(self.output / "study.md", table + "\n")
        header += [f"{column} ± (95 %)" for column in columns]
        text = pandas.DataFrame(cells, columns=header).to_csv(index=False)
        write_text(self.output / "study.csv", text)
        return table

    def line_of(self, name: str) -> "Line | None":
        """The figures of a row, those of `columns` in per cent; None if none are there."""
        row = self.rows[name]
        rate = self.rate(name) if row.rates else row.options.get("learning_rate")
        if row.rates and rate is None:
            return None
        folders = self.finished_folders(name)
        if not folders:
            return None
        facts = [name, str(len(folders)), shown_rate(rate, row.rate_of)]
        for path in self.content.get("counts", {}).values():
            counts = read_figures(folders, path)
            facts.append(f"{fmean(counts):.0f}" if counts else "")
        means = []
        halves = []
        for path in self.content["columns"].values():
            values = [100 * value for value in read_figures(folders, path)]
            means.append(f"{fmean(values):.1f}" if values else "")
            half = half_interval(values)
            halves.append("" if half is None else f"{half:.1f}")
        return Line(facts, means, halves)

    def finished_folders(self, name: str) -> list[Path]:
        """The folders of a row's models that have all files, one for each seed."""
        row = self.rows[name]
        files = list(self.content["measure"])
        if row.is_trained:
            files.append("results.json")
        finished = []
        for seed in self.seeds_of(row):
            folder = self.folder(name, seed)
            if all((folder / file).exists() for file in files):
                finished.append(folder)
        return finished


@dataclass(frozen=True)
class Line:
    """What the table says of a row: facts, and the mean of each figure and half of its interval."""

    facts: list[str]
    means: list[str]
    halves: list[str]

    def shown(self) -> list[str]:
        """The figures as one cell each."""
        cells = []
        for mean, half in zip(self.means, self.halves, strict=True):
            cells.append(f"{mean} ± {half}" if half else mean)
        return cells


def shown_rate(rate: float | None, rate_of: str | None) -> str:
    """A learning rate, and the row that it was chosen for."""
    if rate is None:
        return ""
    if rate_of is None:
        return f"{rate:g}"
    return f"{rate:g} of {rate_of}"


def read_figures(folders: Iterable[Path], path: str) -> list[float]:
    """A figure of some runs, of those that have it.

    `path` is a file and its keys, such as `results.json/scores/de,fr/accuracy`; several keys stand
    for their mean.
    """
    name, *keys = path.split("/")
    means = []
    for folder in folders:
        file = folder / name
        if not file.is_file():
            continue
        values = values_at(json.loads(file.read_text(encoding="utf-8")), keys)
        if None not in values:
            means.append(fmean(values))
    return means


def values_at(content: Any, keys: Sequence[str]) -> list[Any]:
    """What stands under keys, one below the other; None where there is no such key."""
    values = [content]
    for key in keys:
        below = []
        for value in values:
            for each in key.split(","):
                below.append((value or {}).get(each))
        values = below
    return values


def main(arguments: Sequence[str] | None = None) -> str:
    """Run what is missing, and print the table."""
    (given,) = parse([Arguments], arguments, description=__doc__)
    study = Study(given)
    rows = given.rows or list(study.rows)
    if not given.table_only:
        study.run(rows)
    table = study.write_table(rows)
    print(table)
    return table


if __name__ == "__main__":
    main()
