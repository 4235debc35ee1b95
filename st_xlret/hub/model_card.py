"""The model card that the host writes beside every saved model: what it is told, and how it is carried over."""

from __future__ import annotations

import copy
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from datasets import Dataset, DatasetDict
from huggingface_hub import EvalResult
from huggingface_hub.repocard_data import eval_results_to_model_index
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardData

from st_xlret.calibration.encoding import language_routes
from st_xlret.data.batches.collator import metadata_columns
from st_xlret.hub.card_sections import (
    CITATIONS,
    QUESTION,
    base_of,
    calibration_section,
    data_section,
    data_sources,
    example_sentences,
    language_snippet,
)

if TYPE_CHECKING:
    from st_xlret.modules.calibration_layer import CalibrationLayer

_LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]*")
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


class CardData(SentenceTransformerModelCardData):
    """The host's card data with more sections and citations, and with what is from the training data escaped.

    Attributes:
        sections: Heading -> Markdown, after the section on usage.
        more_citations: Name -> BibTeX entry, beside those of the losses.
        results: The model's scores for the metadata, beside those of the host's evaluators.
    """

    sections: dict[str, str]
    more_citations: dict[str, str]
    results: list[EvalResult]

    @classmethod
    def of(cls, card: SentenceTransformerModelCardData) -> CardData:
        """The same card data as this class."""
        extended = cls.__new__(cls)
        vars(extended).update({"sections": {}, "more_citations": {}, "results": [], **vars(card)})
        return extended

    def run_usage_snippet(self) -> None:
        """Embed the examples of usage, which are in several languages where the training data gives none."""
        sentences = example_sentences(self.language if isinstance(self.language, list) else [])
        if self.usage_examples is None and sentences:
            self.usage_examples = [*([QUESTION] if self.ir_model else []), *sentences]
        if not (self.model is not None and language_routes(self.model)):
            super().run_usage_snippet()

    def generate_usage_snippet(self) -> str:
        """The example of usage, with the language of each text where the model has a map per language."""
        if self.model is not None and language_routes(self.model):
            return language_snippet(self.model, self.model_id or "sentence_transformers_model_id")
        return super().generate_usage_snippet()

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
        sentences = example_sentences(values["language"] if isinstance(values["language"], list) else [])
        examples = [{"source_sentence": QUESTION, "sentences": sentences}] if sentences else []
        values["widget"] = _plain(values.get("widget") or examples)
        values["citations"] = {**(values.get("citations") or {}), **self.more_citations}
        if self.results:
            (index,) = eval_results_to_model_index(values["model_name"], self.results)
            (known,) = values.get("model-index") or [{"results": []}]
            values["model-index"] = [{**index, "results": [*known["results"], *index["results"]]}]
        sections = [f"## {heading}\n\n{text}" for heading, text in self.sections.items()]
        values["usage_snippet"] = "\n\n".join([values["usage_snippet"], *sections]) + "\n"
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


def check_license(license: str | None) -> None:
    """Check the form of a licence's identifier, before the work whose result it is for.

    Raises:
        ValueError: If it is none that the Hub could know.

    Example:
        >>> check_license("Apache License")
        Traceback (most recent call last):
        ValueError: --license 'Apache License': give an identifier of the Hub, such as apache-2.0, mit or cc-by-sa-4.0
    """
    if license is not None and not _LICENCE.fullmatch(license):
        raise ValueError(
            f"--license {license!r}: give an identifier of the Hub, such as apache-2.0, mit or cc-by-sa-4.0"
        )


def card_data(model: SentenceTransformer) -> CardData:
    """The model's card data, which is made one of this package's if it is the host's."""
    if not isinstance(model.model_card_data, CardData):
        model.model_card_data = CardData.of(model.model_card_data)
    return model.model_card_data


def set_card_data(
    model: SentenceTransformer,
    *,
    languages: Sequence[str] = (),
    license: str | None = None,
    model_name: str | None = None,
    base_model: str | None = None,
    data: Mapping[str, Sequence[str]] | None = None,
    tags: Sequence[str] = (),
    local_files_only: bool = True,
) -> None:
    """Tell the host's model card what only the program knows that makes the model. Call it before the Trainer is made.

    The host fills in the rest: its Trainer reads each loss's `citation` and options, and evaluators store their metrics
    through `store_metrics_in_model_card_data`. Examples and names from the training data are escaped.

    Args:
        model: The model that will be trained.
        languages: Language codes. The metadata of a card has them without region and script.
        license: Licence of the model, as a Hub identifier such as "apache-2.0". Default: that of the base model, if its
            card states one.
        model_name: Title of the card.
        base_model: The model that this one is made from, a folder or a name on the Hub. Default: the checkpoint of its
            Transformer.
        data: What the model is made from: use, such as "documents", to files, folders and names of data sets. The card
            lists them by name, with their licences where these are known.
        tags: Further tags; "st-xlret" is always added.
        local_files_only: Look nothing up on the Hub, so that saving needs no network.

    Raises:
        ValueError: If the licence is no identifier.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> set_card_data(model, languages=["en", "pt-br"], tags=["ccp"])
        >>> model.model_card_data.language
        ['en', 'pt']
    """
    check_license(license)
    card = card_data(model)
    card.local_files_only = local_files_only
    if languages:
        # The Hub takes no other codes.
        card.set_language(list(dict.fromkeys(code.partition("-")[0] for code in languages)))
    if model_name:
        card.model_name = model_name
    if data and (sources := data_sources({use: given for use, given in data.items() if given})):
        card.sections["Data"] = data_section(sources, escape)
    card.add_tags(["st-xlret", *tags])
    # Without a look-up on the Hub the host names no base model. A folder's name would tell nothing.
    config = getattr(model.transformers_model, "config", None)
    known = base_of(base_model or getattr(config, "_name_or_path", "") or "")
    card.base_model = card.base_model or known.get("base_model")
    if license or (known.get("license") and not card.license):
        card.set_license(license or known["license"])


def set_calibration_data(
    model: SentenceTransformer, calibration: CalibrationLayer, queries: CalibrationLayer | None = None
) -> None:
    """Tell the card of a calibrated model which calibration it has, and cite its steps.

    Args:
        model: The calibrated model.
        calibration: Its calibration.
        queries: That of queries, if they have one of their own.
    """
    card = card_data(model)
    card.sections["Calibration"] = calibration_section(calibration, queries, model)
    for step in calibration.steps:
        card.more_citations.update(CITATIONS.get(step, {}))


def carry_card_data(source: SentenceTransformer, target: SentenceTransformer) -> None:
    """Give an exported or calibrated model the card of the model that it was made from.

    Citations, data sets, training logs and evaluation results are copied. Later changes to one model's card do not
    affect the other's.

    Args:
        source: The model that was trained.
        target: The model made from it.
    """
    card = copy.copy(card_data(source))
    for name in [*(entry.name for entry in fields(card)), "sections", "more_citations", "results"]:
        value = getattr(card, name)
        if isinstance(value, list | dict):
            setattr(card, name, copy.copy(value))
    card.ir_model = None  # a Router makes it one with queries and documents: register_model looks
    target.model_card_data = card
    card.register_model(target)
