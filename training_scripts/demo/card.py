"""The model card of the demo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from st_xlret.losses.ccp import CITATION as CCP_CITATION
from training_scripts.demo.corpus import TOY_LANGUAGES
from training_scripts.studies.cards.rendering import DataSource, ResultTable, write_model_card

NOTE = (
    "Each figure is the mean over pairs of languages and both directions; a language's own column, over its pairs "
    "with the others. 'With parallel' are pairs of languages that both have sentences with an English translation, "
    "'without' those with zh. Both trainings start from the same weights and see about as many batches of pairs; with "
    "CCP the batches of documents come on top, so that it takes almost six times as many optimizer steps."
)


def write_card(
    model: Path, results: Mapping[str, Any], rows: Mapping[str, Any], data: Mapping[str, str], command: str, *, row: str
) -> None:
    """Write the card of the demo's model.

    Args:
        model: Folder of the model.
        results: Content of results.json.
        rows: Name of a stage -> column -> accuracy in [0, 1].
        data: Kind of text -> its amount, such as "documents" -> "24000 sentences".
        command: Command of the demo.
        row: The stage whose model this is.
    """
    write_model_card(
        model,
        model_name=str(model),
        title="A toy cross-lingual retriever (CCP)",
        summary="A small Transformer that was trained from random weights, in minutes, on a generated corpus of six "
        "languages, with masked language modelling, contrastive context prediction and few parallel sentences, and "
        "then calibrated.",
        languages=TOY_LANGUAGES,
        data=[DataSource("toy corpus", "Apache-2.0", f"{kind}: {amount}") for kind, amount in data.items()],
        training_command=command,
        results=[ResultTable("Toy corpus, bilingual retrieval", "accuracy", rows, model_row=row, note=NOTE)],
        citations=[CCP_CITATION],
        limits=["It knows the words and the sentence patterns of the generated corpus, and nothing else."],
        seconds=results["seconds_by_part"],
        hardware=f"CPU, {torch.get_num_threads()} threads",
        task_language="fr",
        license="apache-2.0",
        tags=["ccp"],
    )
