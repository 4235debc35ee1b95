"""The model card of the demo."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation import markdown_table
from st_xlret.hub import set_card_data
from st_xlret.hub.card_sections import DataSource, data_section
from st_xlret.hub.model_card import card_data, escape
from st_xlret.hub.results import ResultTable, set_results
from st_xlret.losses.ccp import CITATION
from training_scripts.demo.corpus import TOY_LANGUAGES

NOTE = (
    "Each figure is the mean over pairs of languages and both directions; a language's own column, over its pairs "
    "with the others. 'With parallel' are pairs of languages that both have sentences with an English translation, "
    "'without' those with zh. Both trainings start from the same weights and see about as many batches of pairs; with "
    "CCP the batches of documents come on top, so that it takes almost six times as many optimizer steps."
)


SUMMARY = (
    "A small Transformer that was trained from random weights, in minutes, on a generated corpus of six languages, "
    "with masked language modelling, contrastive context prediction and few parallel sentences, and then calibrated. "
    "It knows the words and the sentence patterns of the generated corpus, and nothing else."
)


def describe(
    model: SentenceTransformer,
    rows: Mapping[str, Mapping[str, float]],
    data: Mapping[str, str],
    seconds: Mapping[str, float],
    command: str,
    *,
    row: str,
) -> None:
    """Tell the card of the demo's model what the demo knows. The card is written where the model is saved.

    Args:
        model: The model.
        rows: Name of a stage -> column -> accuracy in [0, 1].
        data: Kind of text -> its amount, such as "documents" -> "24000 sentences".
        seconds: Part of the demo -> seconds that it took.
        command: Command of the demo.
        row: The stage whose model this is.
    """
    set_card_data(
        model,
        languages=TOY_LANGUAGES,
        license="apache-2.0",
        model_name="A toy cross-lingual retriever (CCP)",
        tags=["ccp"],
    )
    card = card_data(model)
    sources = [DataSource("toy corpus", "Apache-2.0", f"{kind}: {amount}") for kind, amount in data.items()]
    times = markdown_table(["part", "seconds"], [[part, f"{value:,.0f}"] for part, value in seconds.items()])
    hardware = f"Hardware: CPU, {torch.get_num_threads()} threads."
    card.sections |= {
        "Summary": SUMMARY,
        "Data": data_section(sources, escape),
        "Training": "\n\n".join([f"```bash\n{command}\n```", hardware, times]),
    }
    set_results(model, [ResultTable("Toy corpus, bilingual retrieval", "accuracy", rows, model_row=row, note=NOTE)])
    card.more_citations["CCP"] = CITATION
