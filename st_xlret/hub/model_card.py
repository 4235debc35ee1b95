"""The model card that the host writes beside every saved model: what to tell it, and how to carry it over."""

from __future__ import annotations

import copy
import html
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardData

from st_xlret.data.batches.collator import metadata_columns

_HUB_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
_MARKDOWN = re.compile(r"[\\`*_{}\[\]#!~|$]|(?<=[:w])(?=//|ww\.)")


def escape(text: str) -> str:
    """Write a text so that neither HTML nor Markdown sees anything but text in it, on a single line.

    Characters with a meaning become character references, which both languages show as the character itself.

    Example:
        >>> escape("<b> *a* [x](http://y)")
        '&lt;b&gt; &#42;a&#42; &#91;x&#93;(http:&#8203;//y)'
    """
    plain = html.escape(" ".join(text.split()), quote=False)
    return _MARKDOWN.sub(lambda found: f"&#{ord(found[0])};" if found[0] else "&#8203;", plain)


class EscapedCardData(SentenceTransformerModelCardData):
    """The host's card data, with everything that is from the training data escaped: nobody reads all of it."""

    @classmethod
    def of(cls, card: SentenceTransformerModelCardData) -> EscapedCardData:
        """The same card data as this class."""
        escaped = cls.__new__(cls)
        vars(escaped).update(vars(card))
        return escaped

    def set_widget_examples(self, dataset: Dataset | DatasetDict) -> None:
        """Choose examples, of texts but not of language codes."""
        parts = dataset if isinstance(dataset, DatasetDict) else DatasetDict(dataset=dataset)
        texts = {name: without_metadata(part) for name, part in parts.items()}
        super().set_widget_examples(DatasetDict({name: part for name, part in texts.items() if part.column_names}))

    def compute_dataset_metrics(self, dataset: Any, *args: Any, **kwargs: Any) -> dict[str, str]:
        """The host's statistics and samples of a data set, without the columns that are no text."""
        return super().compute_dataset_metrics(without_metadata(dataset), *args, **kwargs)

    @staticmethod
    def _format_example_value(value: Any) -> str:
        shown = SentenceTransformerModelCardData._format_example_value(value)
        return escape(value[:1000] + "..." * (len(value) > 1000)) if isinstance(value, str) else shown

    def to_dict(self) -> dict[str, Any]:
        """The host's values for the card, escaped."""
        values = super().to_dict()
        for kind in ("train_datasets", "eval_datasets"):
            values[kind] = [
                {**about, "name": escape(about["name"])} if about.get("name") else about for about in values[kind] or []
            ]
        for kind in ("non_default_hyperparameters", "all_hyperparameters"):
            found = values.get(kind) or {}
            values[kind] = {name: escape(v) if isinstance(v, str) else v for name, v in found.items()}
        values["widget"] = _plain(values.get("widget") or [])
        return values


def without_metadata(dataset: Any) -> Any:
    """A data set without the columns that the collator takes for languages, documents and positions."""
    columns = metadata_columns(dataset.column_names or []) if dataset is not None else []
    return dataset.remove_columns(columns) if columns else dataset


def _plain(value: Any) -> Any:
    """Widget examples without HTML and line breaks."""
    if isinstance(value, str):
        return html.escape(" ".join(value.split()), quote=False)
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


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
    through `store_metrics_in_model_card_data`. Examples and names from the training data are escaped.

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
    card = model.model_card_data = EscapedCardData.of(model.model_card_data)
    card.local_files_only = local_files_only
    if languages:
        card.set_language(list(languages))
    if license:
        card.set_license(license)
    if model_name:
        card.model_name = model_name
    card.add_tags(["st-xlret", *tags])
    # Without a look-up on the Hub the host names no base model. A folder's name would tell nothing.
    config = getattr(model.transformers_model, "config", None)
    checkpoint = getattr(config, "_name_or_path", "") or ""
    if card.base_model is None and _HUB_NAME.fullmatch(checkpoint) and not Path(checkpoint).exists():
        card.base_model = checkpoint


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
