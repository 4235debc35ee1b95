"""Write the model card of CCP from finished runs; no figure is typed by hand.

    python training_scripts/write_ccp_card.py --training runs/best \
        --evaluations raw=raw.json shift=shift.json --studies runs/study-static --output model_cards/ccp.md

The evaluations are what evaluation/run.py wrote, the studies what study_ccp.py wrote.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import HfArgumentParser

from st_xlret.evaluation import published_rows
from st_xlret.hub import DataSource, table_from_evaluations, write_model_card
from st_xlret.losses.ccp import CITATION as CCP_CITATION
from st_xlret.losses.semantic_contrastive import CITATION as SEMANTIC_CITATION

DATA = [
    (
        "eBible",
        "public domain by its metadata; id and tr have restricted or doubtful terms",
        "documents, verses as pairs",
    ),
    ("ELTeC novels (fr, de, es)", "texts public domain; markup CC BY 4.0", "documents"),
    ("Russian novels of the 19th century", "public-domain texts", "documents"),
    ("Wikipedia, May 2023 (bn el ja uk vi)", "CC BY-SA 3.0/4.0 and GFDL", "documents"),
    ("thaigov-v2", "public domain", "documents"),
    ("GNOME user documentation", "CC BY 3.0", "documents and pairs"),
    ("TensorFlow documentation", "Apache-2.0; text CC BY 4.0", "documents and pairs"),
    ("Hugging Face course", "Apache-2.0", "documents and pairs"),
    ("Open Source Guides", "CC BY 4.0", "documents and pairs"),
    ("Global African Storybook Project", "CC BY, some stories CC BY-NC", "documents and pairs"),
    ("TICO-19", "CC0 1.0", "documents and pairs"),
    ("Mozilla website strings", "MPL-2.0", "pairs"),
    ("Indian parallel corpora (bn hi te)", "CC BY-SA 3.0", "pairs"),
    ("Wiktionary and WECHSEL word lists", "CC BY-SA 3.0 and GFDL", "words as short pairs"),
]
LIMITS = [
    "Trained for minutes on two CPU cores, from random weights, on 1.1 million sentences and up to 990 000 "
    "short pairs: the published rows stand on XLM-R large and 2.5 TB of text, and only show the distance.",
    "Word order is lost on a static encoder, and words that it never saw translated are found only through context.",
    "Pairs whose English side stands in Tatoeba were left out (compared in lower case, without punctuation).",
    "The weights are not published: some of the training text may not be redistributed (eBible id and tr) or "
    "not be used commercially (some stories).",
]


@dataclass
class Arguments:
    """What the card is made of."""

    training: str = field(metadata={"help": "Folder of the run that the card is about."})
    evaluations: list[str] = field(metadata={"help": "LABEL=FILE, in the order of the rows."})
    output: str = field(metadata={"help": "The card."})
    studies: list[str] = field(default_factory=list, metadata={"help": "Folders of study_ccp.py."})
    commands: list[str] = field(default_factory=list, metadata={"help": "Commands after training, as they were run."})
    data: str = field(default="DATA", metadata={"help": "Folder that the commands shall call DATA."})
    hardware: str = field(default="2 CPU cores, no GPU", metadata={"help": "Where it ran."})


def main() -> None:
    """Write the card."""
    (arguments,) = HfArgumentParser(Arguments, description=__doc__).parse_args_into_dataclasses()
    training = json.loads(Path(arguments.training, "results.json").read_text())
    parts = (text.partition("=") for text in arguments.evaluations)
    evaluations: dict[str, Any] = {label: json.loads(Path(path).read_text()) for label, _, path in parts}
    languages = list(next(iter(evaluations.values()))["scores"])
    published = {
        row.system: {language: row.scores.get(language) for language in languages}
        for row in published_rows("tatoeba", with_languages_only=True)
    }
    table = table_from_evaluations(
        evaluations,
        "accuracy",
        published=published,
        note="1-NN by cosine over the pairs of each language, mean of both directions. The published rows "
        "are those of CCP, Table 1; their average is over other languages and therefore left out.",
    )
    sections = {}
    for folder in arguments.studies:
        study = Path(folder)
        sections[f"Study: {study.name.removeprefix('study-')} encoder"] = (
            "Tatoeba accuracy (%), mean of 18 languages and both directions, raw and after each calibration "
            "step (cumulative). Every row saw the same number of batches of parallel sentences; what it adds "
            f"came on top.\n\n{(study / 'study.md').read_text()}\n\n"
            f"Command: `{(study / 'command.txt').read_text().strip().replace(arguments.data, 'DATA')}`"
        )
    write_model_card(
        arguments.output,
        model_name=f"{arguments.training}/model",
        title="CCP: contrastive context prediction and cross-lingual calibration",
        summary="A sentence encoder for search across languages, trained on documents and parallel sentences "
        "by contrastive context prediction (Wu et al., 2022) as st-xlret implements it, from random weights.",
        languages=training["languages"],
        data=[DataSource(*entry) for entry in DATA],
        training_command=training["command"].replace(arguments.data, "DATA"),
        evaluation_commands=arguments.commands,
        results=[table],
        citations=[CCP_CITATION, SEMANTIC_CITATION],
        limits=LIMITS,
        seconds={"training": training["seconds"]},
        hardware=arguments.hardware,
        sections=sections,
    )


if __name__ == "__main__":
    main()
