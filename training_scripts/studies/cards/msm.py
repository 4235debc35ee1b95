"""The card of MSM: from study_msm.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from st_xlret.hub.results import ResultTable
from st_xlret.losses.msm import CITATION
from training_scripts.studies.cards.commands import shown, values
from training_scripts.studies.cards.contents import Contents
from training_scripts.studies.cards.options import CardOptions
from training_scripts.studies.cards.study import (
    EMPTY,
    chosen,
    cost_table,
    mean_of,
    published,
    read_study,
    rows_above,
    spread,
)

ROWS = [
    *("no pre-training", "MLM", "mContriever", "ICT", "CROP", "MSM"),
    *("MSM, no bias", "MSM, mu 0.3", "MSM, mu 0.7", "MSM, cross-document negatives only"),
    *("MSM, shared projection", "MSM, no projection", "MSM, 1 layer", "MSM, 4 layers"),
    *("MSM, document encoder apart for en", "MSM, document encoder and heads apart for en"),
    *("MSM, MLM summed", "MSM, no MLM"),
]
TUNED = "After fine-tuning on English SQuAD (question, answer sentence), which is not part of the model of this card."
POOL = "XQuAD-R, one pool of all languages"
# Heading, metric in words, the part of the study's figures and the metric in it.
TABLES = [
    ("Tatoeba", "accuracy", "tatoeba", "accuracy"),
    ("Tatoeba after fine-tuning", "accuracy", "tuned tatoeba", "accuracy"),
    (POOL, "mAP@20", "xquad_r", "map_at_20"),
    (POOL, "MRR@100", "xquad_r", "mrr_at_100"),
    (POOL, "Recall@100", "xquad_r", "recall_at_100"),
    ("XQuAD-R, answers in the question's language", "MRR@100", "xquad_r own language", "mrr_at_100"),
]
DIRECTIONS = "1-NN by cosine over the pairs of each language, mean of both directions. The paper does not use Tatoeba."
BORROWED = (
    "The published rows are MSM's, Tables 12 and 1: base-sized Transformers trained for days and fine-tuned on SQuAD "
    "too. They read each candidate sentence with its paragraph. Here each sentence is read alone."
)
LIMITS = [
    "The published rows use checkpoints of Transformers that were pre-trained on terabytes of text, and only "
    "show the distance.",
    "The model is the pre-trained encoder: fine-tune it on questions before searching with it.",
    "A few hundred sentences of stories and manuals are also in Tatoeba. None was seen paired with its translation.",
    "The weights are not published: some of the training text may not be redistributed (eBible id and tr) or "
    "not be used commercially (some stories).",
]
Runs = Mapping[str, Sequence[Mapping[str, Any]]]


def contents(options: CardOptions) -> Contents:
    """Read the runs."""
    assert options.study is not None
    study = read_study(options.study)
    runs: Runs = study.figures
    row = chosen(options.row or "MSM", runs, study)
    own = runs[row][0]
    command = shown(own["training"]["command"], options.data)
    missing = [name for name in ROWS if name not in runs]
    tables = [_table(runs, row, *table) for table in TABLES]
    return Contents(
        title="MSM: masked sentence model",
        summary="A sentence encoder to fine-tune for search across languages, pre-trained on documents alone by the "
        "masked sentence model (Zhang et al., 2023) as st-xlret implements it, {start}. The other rows "
        "are its rivals and ablations, with the same documents, encoder, steps and amount of text per step. "
        f"The model is that of the row {row}, seed {' '.join(values(command, '--seed')) or 'absent'}.",
        citations={"MSM": CITATION},
        limits=[*rows_above(tables[2]), *LIMITS],
        folder=Path(values(own["training"]["command"], "--output-dir")[0]),
        command=command,
        study_command=study.command(options.data),
        languages=["en", *own["languages"]["tatoeba"]],
        tables=tables,
        seconds={
            "training": own["training"]["seconds"],
            "fine-tuning and measuring": own.get("seconds_to_tune_and_measure"),
        },
        absent=[
            *([f"Rows that were not run, or are not finished: {'; '.join(missing)}."] if missing else []),
            "Mr.TyDi, XOR-Retrieve and Mewsli-X (the paper's Tables 1, 2, 9-11 and 14): not measured in this study.",
        ],
        studies=options.studies,
        sections={"Cost of the rows": _costs(runs)},
        test_sets={
            "squad_v1.1": "English questions and answers, fine-tuning before the measures named so",
            "xquad_r": "evaluation only",
            "tatoeba": "evaluation only",
        },
        plots=[study.folder / "study.png"],
    )


def _table(runs: Runs, model_row: str, heading: str, metric_name: str, part: str, metric: str) -> ResultTable:
    all_runs = [run for found in runs.values() for run in found]
    languages = list(dict.fromkeys(code for run in all_runs for code in run["languages"].get(part, {})))
    rows = {}
    for row, found in runs.items():
        cells = {
            code: mean_of(run["languages"].get(part, {}).get(code, {}).get(metric) for run in found)
            for code in languages
        }
        rows[row] = cells | {"average": mean_of(run["average"].get(part, {}).get(metric) for run in found)}
    several = {row: [run["average"].get(part, {}).get(metric) for run in found] for row, found in runs.items()}
    notes = [DIRECTIONS if part == "tatoeba" else "" if part == "tuned tatoeba" else "Zero-shot."]
    notes += ["" if part == "tatoeba" else TUNED]
    theirs: dict[str, dict[str, float]] = {}
    if (part, metric) == ("xquad_r", "map_at_20"):
        theirs = published(
            "lareqa",
            paper="MSM paper",
            tables=["Table 12", "Table 1"],
            metric=metric,
            languages=languages,
            averages={"average_11": "average"},
        )
        notes.append(BORROWED)
    notes += [spread({row: v for row, v in several.items() if None not in v}, "the average"), EMPTY]
    return ResultTable(
        heading,
        metric_name,
        rows,
        theirs,
        model_row=model_row,
        note=" ".join(filter(None, notes)),
        in_metadata=part == "tatoeba",
    )


def _costs(runs: Runs) -> str:
    names = {"steps": "steps", "tokens": "tokens", "sentences": "sentences at hand", "seconds": "seconds of training"}
    rows = {
        row: [
            *(mean_of(run["training"].get(name) for run in found) for name in names),
            mean_of(run.get("seconds_to_tune_and_measure") for run in found),
        ]
        for row, found in runs.items()
    }
    return cost_table([*names.values(), "seconds of fine-tuning and measuring"], rows)
