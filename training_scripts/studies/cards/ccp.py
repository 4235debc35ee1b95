"""The card of CCP: from a run and what evaluation/run.py found, or from a run of study_ccp.py."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from st_xlret.evaluation import published_rows
from st_xlret.hub.results import ResultTable
from st_xlret.losses.ccp import CITATION as CCP_CITATION
from st_xlret.losses.semantic_contrastive import CITATION as SEMANTIC_CITATION
from training_scripts.studies.cards.commands import shown
from training_scripts.studies.cards.contents import Contents
from training_scripts.studies.cards.options import CardOptions
from training_scripts.studies.cards.study import EMPTY, chosen, read_study

ROW = "CCP-all"
BENCHMARK = "tatoeba"
PROTOCOL = (
    "1-NN by cosine over the pairs of each language, mean of both directions. The published rows are those of "
    f"CCP, Table 1; their average is left out, because it is over other languages. {EMPTY}"
)
STUDIED = (
    "Tatoeba accuracy (%), mean over the languages and both directions, raw and after each calibration step "
    "(cumulative). A row with CCP takes as many batches of pairs as the row with pairs only, and as many batches of "
    "documents besides, so that it takes twice as many optimizer steps; the row pairs only x 2 takes these steps too."
)
LIMITS = [
    "The weights are not published: some of the training text may not be redistributed (eBible id and tr) or "
    "not be used commercially (some stories).",
]


def contents(options: CardOptions) -> Contents:
    """Read the runs."""
    study = read_study(options.study) if options.study else None
    if options.training:
        folder = Path(options.training)
        training = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        table = _evaluated(options.evaluations, f"{options.training}/model")
        study_command: str | None = ""
    else:
        assert study is not None
        row = chosen(options.row or ROW, study.figures, study)
        folder = study.folder / row
        figures = study.figures[row]
        training = {"languages": ["en", *figures["languages"]["raw"]], **figures, **study.training(row)}
        table = _studied(row, figures)
        study_command = study.command(options.data)
    command = training.get("command")
    return Contents(
        title="CCP: contrastive context prediction and cross-lingual calibration",
        summary="A sentence encoder for search across languages, trained on documents and parallel sentences by "
        "contrastive context prediction (Wu et al., 2022) as st-xlret implements it, {start}.",
        citations={"CCP": CCP_CITATION, "Semantic contrastive loss on pairs": SEMANTIC_CITATION},
        limits=[
            f"Trained for {training['seconds'] / 60:.0f} minutes ({options.hardware}) on "
            f"{_count(training, 'sentences')} sentences and {_count(training, 'pairs')} pairs: the published rows "
            "use XLM-R large and 2.5 TB of text, and only show the distance.",
            *LIMITS,
        ],
        folder=folder,
        command=shown(command, options.data) if command else None,
        study_command=study_command,
        languages=training["languages"],
        tables=[table],
        seconds={"training": training["seconds"]},
        studies=[*filter(None, [options.study]), *options.studies],
        studies_note=STUDIED,
        test_sets={"tatoeba": "evaluation only"},
    )


def _evaluated(evaluations: Sequence[str], model: str) -> ResultTable:
    parts = (text.partition("=") for text in evaluations)
    found: dict[str, Any] = {label: json.loads(Path(path).read_text(encoding="utf-8")) for label, _, path in parts}
    if foreign := [label for label, evaluation in found.items() if evaluation["benchmark"] != BENCHMARK]:
        raise ValueError(f"--evaluations of {', '.join(foreign)} are not of {BENCHMARK}, which the card shows")
    rows = {
        label: {code: scores["accuracy"] for code, scores in evaluation["scores"].items()}
        | {"average": evaluation["average"]["accuracy"]}
        for label, evaluation in found.items()
    }
    published = _published(list(next(iter(found.values()))["scores"]))
    # The metadata are of the card's own model: calibrated ones are other models.
    own = next((label for label, evaluation in found.items() if evaluation.get("model") == model), None)
    return ResultTable(BENCHMARK, "accuracy", rows, published, own, note=PROTOCOL, in_metadata=own is not None)


def _studied(row: str, figures: Mapping[str, Any]) -> ResultTable:
    rows = {
        f"{row}, {stage}": {code: value / 100 for code, value in scores.items()}
        | {"average": figures["average"][stage] / 100}
        for stage, scores in figures["languages"].items()
    }
    published = _published(list(figures["languages"]["raw"]))
    return ResultTable(BENCHMARK, "accuracy", rows, published, model_row=f"{row}, raw", note=PROTOCOL)


def _published(languages: Sequence[str]) -> dict[str, dict[str, float | None]]:
    return {
        row.system: {language: row.scores.get(language) for language in languages}
        for row in published_rows("tatoeba", with_languages_only=True)
    }


def _count(training: Mapping[str, Any], name: str) -> str:
    return f"{training[name]:,}" if name in training else "an absent number of"
