"""The card of language-agnostic retrieval with contrastive learning: from study_language_agnostic_ir.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from st_xlret.hub.results import ResultTable
from st_xlret.losses.semantic_contrastive import CITATION
from training_scripts.studies.cards.commands import shown, values
from training_scripts.studies.cards.contents import Contents
from training_scripts.studies.cards.options import CardOptions
from training_scripts.studies.cards.study import EMPTY, chosen, cost_table, published, read_study, rows_above

ROW = "semantic-language-half"
OBJECTIVES = {
    "IR": "IR",
    "semantic": "IR + semantic",
    "language": "IR + language",
    "semantic-language": "IR + semantic + language",
}
# The name of a run in the study -> its row on the card.
ROWS = {
    f"{run}-{parallel}": f"{label}{suffix}"
    for parallel, suffix in (("half", ""), ("all", ", pairs in all languages"))
    for run, label in OBJECTIVES.items()
}
METRICS = {"mrr_at_100": "MRR@100", "recall_at_100": "Recall@100", "map_at_20": "mAP@20"}
GROUPS = {"with": "average with pairs", "without": "average without", "all": "average"}
PROTOCOL = "Zero-shot, over one pool of the sentences of all languages."
MSM_ROWS = (
    "The published rows are those of MSM, Table 12, the only ones of the four papers on XQuAD-R: base-sized "
    "Transformers that read each candidate sentence with its paragraph. Here each sentence is read alone."
)
PAPERS_OWN = (
    "Not measured here: these are the paper's own rows alone, XLM-R trained on Natural Questions, with parallel text "
    "for all languages (Table 2) and none for ru sw te th (Table 5). The benchmark and the languages "
    f"differ from those above: the rows show what each loss gains in the paper, and are not a baseline. {EMPTY}"
)
LIMITS = [
    "The published rows use pre-trained Transformers, and only show the distance.",
    "Questions are short and factual, and their answers are in Wikipedia, as in SQuAD. Other kinds of search were "
    "not measured.",
    "The weights are not published: some of the training text may not be redistributed (eBible id and tr) or "
    "not be used commercially (some stories).",
]


def contents(options: CardOptions) -> Contents:
    """Read the runs."""
    assert options.study is not None
    study = read_study(options.study)
    run = chosen(options.row or ROW, study.figures, study)
    figures = study.figures[run]
    command = shown(figures["command"], options.data)
    missing = [label for name, label in ROWS.items() if name not in study.figures]
    # A row without pairs does not say which languages lack them: another one does.
    lacking = (values(given["command"], "--no-parallel") for given in study.figures.values())
    without = next(filter(None, lacking), [])
    groups = f"Languages without parallel sentences: {', '.join(without)}." if without else ""
    theirs: dict[str, dict[str, float]] = {}
    for table in ("Table 2", "Table 5"):
        theirs |= published(
            "mrtydi",
            paper="lang-contrastive paper",
            tables=[table],
            metric="mrr_at_100",
            languages=["ar", "bn", "en", "fi", "id", "ja", "ko", "ru", "sw", "te", "th"],
            averages={"average_11": "average"},
        )
    tables = [_table(study.figures, run, metric, groups) for metric in METRICS]
    return Contents(
        title="Language-agnostic retrieval with semantic and language contrastive losses",
        summary="A retriever for questions in many languages, trained on English questions with a semantic contrastive "
        "loss on parallel sentences and a language contrastive loss on text without translations, in addition to the "
        "retrieval loss (Hu et al., 2023), as implemented in st-xlret, {start}. "
        f"The model is that of the row {ROWS.get(run, run)}. {groups}",
        citations={"Language-agnostic retrieval": CITATION},
        limits=[*rows_above(tables[0]), *LIMITS],
        folder=study.folder / run,
        command=command,
        study_command=study.command(options.data),
        languages=list(figures["languages"]),
        tables=[
            *tables,
            ResultTable("Mr.TyDi, the paper's own", METRICS["mrr_at_100"], {}, theirs, note=PAPERS_OWN),
        ],
        seconds={"training": figures["seconds"]},
        absent=[
            *([f"Rows that were not run, or are not finished: {'; '.join(missing)}."] if missing else []),
            "Mr.TyDi and BUCC (the paper's Tables 2-10): not measured in this study.",
        ],
        studies=options.studies,
        sections={"Cost of the rows": _costs(study.figures)},
        test_sets={"xquad_r": "evaluation only"},
    )


def _table(runs: Mapping[str, Any], model_run: str, metric: str, groups: str) -> ResultTable:
    languages = list(dict.fromkeys(code for run in runs.values() for code in run["languages"]))
    rows = {}
    for name, run in runs.items():
        cells = {code: run["languages"].get(code, {}).get(metric) for code in languages}
        averages = {label: run["average"].get(group, {}).get(metric) for group, label in GROUPS.items()}
        rows[ROWS.get(name, name)] = cells | averages
    theirs: dict[str, dict[str, float]] = {}
    if metric == "map_at_20":
        theirs = published(
            "lareqa",
            paper="MSM paper",
            tables=["Table 12"],
            metric=metric,
            languages=languages,
            averages={"average_11": "average"},
        )
    note = " ".join(filter(None, [PROTOCOL, groups, MSM_ROWS if theirs else "", EMPTY]))
    row = ROWS.get(model_run, model_run)
    return ResultTable("XQuAD-R", METRICS[metric], rows, theirs, model_row=row, note=note)


def _costs(runs: Mapping[str, Any]) -> str:
    names = {
        "steps": "steps",
        "questions": "questions",
        "pairs": "pairs",
        "others": "texts without translation",
        "seconds": "seconds of training",
    }
    rows = {ROWS.get(name, name): [run.get(key) for key in names] for name, run in runs.items()}
    return cost_table(list(names.values()), rows)
