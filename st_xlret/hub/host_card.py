"""The card that the host writes beside every saved model: what to tell it, carry over and add."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from st_xlret.files import write_text_atomically

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_BEGIN, _END = "<!-- st-xlret: begin -->", "<!-- st-xlret: end -->"


def set_card_data(
    model: SentenceTransformer,
    *,
    languages: Sequence[str] = (),
    license: str | None = None,
    model_name: str | None = None,
    tags: Sequence[str] = (),
    local_files_only: bool = True,
) -> None:
    """Tell the card that the host writes beside a saved model what only the training program knows.

    The rest comes by itself: the host's Trainer reads each loss's ``citation``, and evaluators store their
    metrics through ``store_metrics_in_model_card_data``. Call this before the Trainer is made.

    Args:
        model: The model that will be trained.
        languages: Language codes.
        license: The model's own licence.
        model_name: The card's title.
        tags: More tags.
        local_files_only: Look nothing up on the Hub, so that saving needs no network.
    """
    card = model.model_card_data
    card.local_files_only = local_files_only
    if languages:
        card.set_language(list(languages))
    if license:
        card.set_license(license)
    if model_name:
        card.model_name = model_name
    card.add_tags(["st-xlret", *tags])


def carry_card_data(source: SentenceTransformer, target: SentenceTransformer) -> None:
    """Give an exported or calibrated model the card of the model that it was made from.

    Citations, datasets, training logs and evaluation results are copied; later changes to one model's card
    do not reach the other's.

    Args:
        source: The model that was trained.
        target: The model made from it.
    """
    card = copy.copy(source.model_card_data)
    for entry in fields(card):
        value = getattr(card, entry.name)
        if isinstance(value, list | dict):
            setattr(card, entry.name, copy.copy(value))
    card.ir_model = None  # a Router makes it one with queries and documents: register_model looks
    target.model_card_data = card
    card.register_model(target)


def merge_into_host_card(folder: str | os.PathLike[str], sections: Mapping[str, str]) -> str:
    """Add sections to the ``README.md`` that the host wrote into a saved model's folder.

    They go before its citations (or to the end). Called again, it replaces what it added before.

    Args:
        folder: The model's folder.
        sections: Heading -> Markdown.

    Returns:
        The card's new text.

    Raises:
        FileNotFoundError: When the folder has no ``README.md``.
        OSError: When it cannot be written; the old card stays.
    """
    readme = Path(folder) / "README.md"
    if not readme.is_file():
        raise FileNotFoundError(f"{readme} does not exist; save the model there first")
    text = readme.read_text(encoding="utf-8")
    text = re.sub(rf"{re.escape(_BEGIN)}.*?{re.escape(_END)}\n*", "", text, flags=re.DOTALL)
    body = "\n\n".join(f"## {heading}\n\n{section.strip()}" for heading, section in sections.items())
    block = f"{_BEGIN}\n{body}\n{_END}\n\n"
    before, found, after = text.partition("\n## Citation\n")
    text = f"{before.rstrip()}\n\n{block.rstrip()}\n"
    if found:
        text += f"\n## Citation\n{after}"
    write_text_atomically(readme, text)
    return text
