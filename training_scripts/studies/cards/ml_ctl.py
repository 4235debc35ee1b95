"""The card of ML-CTL with CZ-NCE: from study_ml_ctl.py and, where it was run, the floating-point study."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from st_xlret.hub.results import ResultTable
from st_xlret.losses.cz_nce import CITATION
from training_scripts.studies.cards.commands import shown
from training_scripts.studies.cards.contents import Contents
from training_scripts.studies.cards.options import CardOptions
from training_scripts.studies.cards.study import (
    EMPTY,
    Study,
    chosen,
    cost_table,
    mean_of,
    published,
    read_study,
    rows_above,
    spread,
)

ROWS = ["info-snt", "CZ-snt", "ML-CTL-info", "ML-CTL-CZ"]
AVERAGES = {"accuracy": "average", "accuracy_to_en": "average, to en", "accuracy_from_en": "average, from en"}
XTREME = "XTREME's average, from en"
PROTOCOL = (
    "1-NN by cosine over the pairs of each language; the mean of both directions where no direction is named. The "
    "published rows are from Table 1 of ML-CTL, for mBERT: from English only, averaged over the languages of XTREME. "
    "These are not the languages here: compare the differences between rows, not their values."
)
LIMITS = [
    "The paper continues the training of mBERT. A model that starts from random weights and sees few pairs only shows "
    "which row is better at that size.",
    "Words are found with dictionaries: languages without a word list have none.",
    "The weights are not published: some of the training text may not be used commercially (some stories).",
]
Runs = Mapping[str, Mapping[int, Mapping[str, Any]]]


def contents(options: CardOptions) -> Contents:
    """Read the runs."""
    assert options.study is not None
    study = read_study(options.study)
    runs = _by_row(study)
    row = chosen(options.row or "ML-CTL-CZ", runs, study)
    seed, figures = next(iter(runs[row].items()))
    folder = f"{row}-seed-{seed}"
    command = study.training(folder).get("command")
    missing = [name for name in ROWS if name not in runs]
    sections = {"Cost of the rows": _costs(runs)}
    plots = []
    if options.float_study:
        sections["Study: floating point"] = _float_section(Path(options.float_study))
        plots = [Path(options.float_study, "gradients.png")]
    table = _table(runs, row)
    return Contents(
        title="ML-CTL: multi-level contrastive learning with CZ-NCE",
        summary="A sentence encoder for search across languages, trained on parallel sentences and the words that "
        "dictionaries find in them, with multi-level contrastive learning and CZ-NCE (Chen et al., 2022) as st-xlret "
        f"implements it, {{start}}. This is the model of the row {row}, seed {seed}.",
        citations={"ML-CTL": CITATION},
        limits=[*rows_above(table), *LIMITS],
        folder=study.folder / folder,
        command=shown(command, options.data) if command else None,
        study_command=study.command(options.data),
        languages=["en", *figures["languages"]],
        tables=[table],
        seconds={"training": figures.get("seconds"), "measuring": figures.get("seconds_to_measure")},
        absent=[
            *([f"Rows that were not run, or are not finished: {'; '.join(missing)}."] if missing else []),
            "BUCC and the paper's other tasks (Tables 1-3): not measured in this study.",
            *([] if options.float_study else ["The floating-point study of CZ-NCE: not given to this card."]),
        ],
        sections=sections,
        studies=options.studies,
        test_sets={"tatoeba": "evaluation only"},
        plots=plots,
    )


def _by_row(study: Study) -> dict[str, dict[int, dict[str, Any]]]:
    runs: dict[str, dict[int, dict[str, Any]]] = {}
    for name, figures in study.figures.items():
        found = re.fullmatch(r"(.+) seed (-?\d+)", name)
        if not found:
            raise ValueError(f"{study.folder / 'study.json'}: {name!r} is not the name of a run, 'ROW seed NUMBER'")
        runs.setdefault(found[1], {})[int(found[2])] = figures
    return runs


def _table(runs: Runs, model_row: str) -> ResultTable:
    languages = list(
        dict.fromkeys(code for seeds in runs.values() for run in seeds.values() for code in run["languages"])
    )
    rows = {}
    for row, seeds in runs.items():
        found = list(seeds.values())
        cells = {code: _fraction(run["languages"].get(code) for run in found) for code in languages}
        cells |= {label: _fraction(run["average"].get(name) for run in found) for name, label in AVERAGES.items()}
        rows[row] = cells
    theirs = published("tatoeba", paper="ML-CTL paper", tables=["Table 1"], averages={"average_xtreme": XTREME})
    by_seed = {row: [run["average"]["accuracy"] / 100 for run in seeds.values()] for row, seeds in runs.items()}
    note = " ".join(filter(None, [PROTOCOL, spread(by_seed, "the average"), EMPTY]))
    return ResultTable("tatoeba", "accuracy", rows, theirs, model_row=model_row, note=note)


def _fraction(percentages: Iterable[float | None]) -> float | None:
    value = mean_of(percentages)
    return None if value is None else value / 100


def _costs(runs: Runs) -> str:
    rows = {}
    for row, seeds in runs.items():
        samples = []
        for run in seeds.values():
            words = run.get("word_samples")
            samples.append(sum(entry["samples"] for entry in words.values()) if words else run.get("pairs"))
        steps, seconds = (mean_of(run.get(name) for run in seeds.values()) for name in ("steps", "seconds"))
        rows[row] = [steps, mean_of(samples), seconds]
    return cost_table(["steps", "samples", "seconds of training"], rows)


def _float_section(folder: Path) -> str:
    """The tables that study_float.py wrote."""
    file = folder / "float.json"
    if not file.is_file():
        raise ValueError(f"{file} does not exist: --float-study takes a finished study_float.py")
    figures = json.loads(file.read_text(encoding="utf-8"))
    text = [
        "InfoNCE as it is usually written (`usual`), the same function as a softplus (`softplus`) or by PyTorch's own "
        "operator (`cross_entropy`), and CZ-NCE (`cz_nce`), each computed entirely in the type named, at temperature "
        f"{figures['temperature']:g}. Size of the gradient, by the gap between the cosine of the positive and those of "
        "the negatives:",
        _file_or_absent(folder / "gradients.md"),
    ]
    if trainings := figures.get("trainings"):
        seeds = ", ".join(str(seed) for seed in dict.fromkeys(run["seed"] for run in trainings))
        text += [
            f"Tatoeba accuracy (%) of a {figures['encoder']} encoder that was trained from scratch with each, for "
            f"{figures['steps']:,} steps on the same batches (mean over seeds: {seeds}), and the gap that the training "
            "reached:",
            _file_or_absent(folder / "training.md"),
        ]
    else:
        text.append("Trainings with these losses are absent: the study was run without data or is not finished.")
    return "\n\n".join(text)


def _file_or_absent(file: Path) -> str:
    return file.read_text(encoding="utf-8").strip() if file.is_file() else f"The table is absent (no {file.name})."
