"""The model card that the host writes beside every saved model: what to tell it, and how to carry it over."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def set_card_data(
    model: SentenceTransformer,
    *,
    languages: Sequence[str] = (),
    license: str | None = None,
    model_name: str | None = None,
    tags: Sequence[str] = (),
    local_files_only: bool = True,
) -> None:
    """Tell the host's model card what only the training program knows. Call it before the Trainer is made.

    The host fills in the rest: its Trainer reads each loss's `citation` and options, and evaluators store their metrics
    through `store_metrics_in_model_card_data`.

    Args:
        model: The model that will be trained.
        languages: Language codes.
        license: Licence of the model, as a Hub identifier such as "apache-2.0".
        model_name: Title of the card.
        tags: Further tags; "st-xlret" is always added.
        local_files_only: Look nothing up on the Hub, so that saving needs no network.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> set_card_data(model, languages=["en", "fr"], tags=["ccp"])
        >>> model.model_card_data.language
        ['en', 'fr']
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

    Citations, data sets, training logs and evaluation results are copied. Later changes to one model's card do not
    affect the other's.

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
