"""The model card that the host writes: what it is told about a model, and no text of its data."""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download, metadata_load
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.model_card import format_duration
from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardData
from typing_extensions import Self

from st_xlret.encoding import task_languages
from st_xlret.encoding.maps import ROUTE_PREFIX
from st_xlret.hub.texts import LICENSES, PAPERS, QUESTION, STEPS_IN_WORDS
from st_xlret.hub.usage import example_answers, language_snippet
from st_xlret.modules.calibration_layer import CalibrationLayer
from st_xlret.modules.encoders import routers_of
from st_xlret.secrets import without_secrets

_NAME = re.compile(r"(?!.*(--|\.\.))\w[\w.-]*(/[\w.-]+)?")
# What a card may state of its model, and the form of each value.
_FORMS = {
    "license": re.compile("|".join(map(re.escape, LICENSES))),
    "base_model": _NAME,
    "datasets": _NAME,
    "language": re.compile(r"[a-z]{2,3}|multilingual"),
    "tags": re.compile(r"\w[\w .:/+-]*"),
}
_LISTS = ("language", "datasets")
_SCORES_FALL = (
    "Scores are lower than those of the encoder, for the map takes away what all texts share: "
    "compare the scores of one query with each other, and choose thresholds anew."
)
# Tags that speak of files or figures of a model, and so not of one that is made from it.
_OWN_TAGS = {"generated_from_trainer", "mteb", "onnx", "openvino", "transformers.js"}


@dataclass
class CrossLingualCardData(SentenceTransformerModelCardData):
    """The host's card data with sections of ours.

    Of the Hub, only the card of the model itself is read.
    """

    local_files_only: bool = True
    # The host takes examples from the training data if there is none.
    widget: list[Any] = field(
        default_factory=lambda: [{"source_sentence": QUESTION, "sentences": []}], init=False
    )
    # Heading -> Markdown, after that on usage.
    sections: dict[str, str] = field(default_factory=dict, init=False)
    # The host counts on until the card is written.
    training_seconds: float | None = field(default=None, init=False)

    def fill_in_from_card(self, model: str) -> Self:
        """Fill in what this card lacks, as the card of another model states it; returns itself.

        That is a folder, or a base model on the Hub.
        """
        if not model:
            return self
        is_on_hub = not Path(model).expanduser().exists()
        if is_on_hub and not self.base_model and _NAME.fullmatch(model):
            self.base_model = model
        stated = _read_metadata_of_card(model)
        for name in ("license", "base_model", *_LISTS):
            values = _well_formed_values(name, stated)
            if values and not getattr(self, name):
                setattr(self, name, values if name in _LISTS else values[0])
        self.add_tags([tag for tag in _well_formed_values("tags", stated) if tag not in _OWN_TAGS])
        return self

    def to_dict(self) -> dict[str, Any]:
        """The host's values for the template and the metadata, with ours, which the card keeps."""
        answers = example_answers(self.language or [])
        self.usage_examples = [QUESTION, *answers] if self.ir_model else answers
        self.widget = [{"source_sentence": QUESTION, "sentences": answers}]
        of_training = [about.get("id") for about in (*self.train_datasets, *self.eval_datasets)]
        on_hub = [name for name in of_training if name]
        self.datasets = list(dict.fromkeys([*self.datasets, *on_hub]))
        if not self.citations:
            self.set_losses([])

        values = super().to_dict()
        for kind in ("train_datasets", "eval_datasets"):
            values[kind] = [{**about, "examples_table": ""} for about in values[kind] or []]
        for kind in ("all_hyperparameters", "non_default_hyperparameters"):
            values[kind] = _without_paths(values[kind])
        values["usage_snippet"] = self._usage_section(values["usage_snippet"])
        if self.training_seconds is not None:
            values["training_time"] = format_duration(self.training_seconds)
            values["evaluation_time"] = None
        return values

    def _usage_section(self, snippet_of_host: str) -> str:
        """How the model is used, and the sections after that."""
        snippet = snippet_of_host
        if self.model is not None and task_languages(self.model):
            name = self.model_id or "sentence_transformers_model_id"
            snippet = language_snippet(self.model, name)
        sections = [f"## {heading}\n\n{text}" for heading, text in self.sections.items()]
        return "\n\n".join([snippet, *sections]) + "\n"


def ensure_card_data(model: SentenceTransformer) -> CrossLingualCardData:
    """The model's card data, which is made one of this package's if it is the host's."""
    card = model.model_card_data
    if isinstance(card, CrossLingualCardData):
        return card
    ours = CrossLingualCardData()
    model.model_card_data = ours
    replaced = ("local_files_only", "widget", "similarities")
    for name, value in vars(card).items():
        is_stated = bool(value) or value is False
        if is_stated and name not in replaced:
            setattr(ours, name, value)
    return ours.fill_in_from_card(_checkpoint_name(model))


def set_card_data(
    model: SentenceTransformer,
    *,
    languages: Sequence[str] = (),
    license: str | None = None,
    model_name: str | None = None,
    base_model: str | None = None,
    data: Mapping[str, Sequence[str]] | None = None,
    tags: Sequence[str] = (),
) -> None:
    """Tell the model card what the host does not know. Call it before the Trainer is made.

    Args:
        model: The model that will be trained.
        languages: Language codes. A card has them without region and script.
        license: Identifier on the Hub, such as "apache-2.0"; others are refused. Default: that of
            the base model.
        model_name: Title of the card.
        base_model: Folder or Hub name of the model that this one is made from. Default: that of its
            Transformer.
        data: Use, such as "documents", to files, folders and data sets of the Hub (`me/news:fr`).
            The card lists them by their last name, without the folders of this machine.
        tags: Further tags beside "st-xlret".
    """
    check_license(license)
    card = ensure_card_data(model)
    if languages:
        # The Hub takes no others.
        card.set_language(list(dict.fromkeys(code.partition("-")[0] for code in languages)))
    card.model_name = model_name or card.model_name
    if data:
        _set_sources(card, data)
    card.add_tags(["st-xlret", *tags])
    card.fill_in_from_card(base_model or _checkpoint_name(model))
    card.license = license or card.license


def check_license(license: str | None) -> None:
    """Check a licence's identifier, before the work whose result it is for.

    Another one is a `ValueError`.
    """
    if license is not None and license not in LICENSES:
        raise ValueError(
            f"--license {license!r}: give an identifier of the Hub, such as apache-2.0, or other"
        )


def copy_card_data(source: SentenceTransformer, target: SentenceTransformer) -> None:
    """Tell the card of an exported model what is known of the one that it was made from.

    Scores are left out, which whoever measures a model puts under the heading "Results".
    """
    before = ensure_card_data(source)
    after = ensure_card_data(target)
    for name in ("language", "license", "base_model", "datasets"):
        setattr(after, name, getattr(before, name) or getattr(after, name))
    for heading, text in before.sections.items():
        if heading != "Results":
            after.sections[heading] = text
    after.citations = dict(before.citations)
    after.add_tags([tag for tag in before.tags if tag not in _OWN_TAGS])
    after.ir_model = None  # a Router makes it one with queries and documents: register_model looks
    after.register_model(target)


def set_card_calibration(
    model: SentenceTransformer,
    calibration: CalibrationLayer,
    queries: CalibrationLayer | None = None,
) -> None:
    """Tell the card of a calibrated model its calibration, and whether queries have their own.

    The notes of the calibration are complete by then: each is a line of the card.
    """
    card = ensure_card_data(model)
    if not card.citations:
        card.set_losses([])
    steps = []
    for name in calibration.steps:
        if name in STEPS_IN_WORDS:
            does, paper = STEPS_IN_WORDS[name]
            steps.append(f"- `{name}` {does} ({paper or 'ours'})")
            if paper:
                card.citations[paper] = PAPERS[paper]

    has_queries = "no" if queries is None else "yes"
    notes = []
    for name, note in calibration.notes.items():
        in_a_line = " ".join(f"{name}: {note}".split())
        notes.append(f"- {html.escape(in_a_line)}")
    parts = [
        "A map after the encoder brings the embeddings of all languages into one space.",
        "\n".join(steps),
        f"Strength: {calibration.strength:g}. Queries have a map of their own: {has_queries}.",
        _SCORES_FALL,
        _how_languages_are_chosen(model, calibration),
        "\n".join(notes),
    ]
    card.sections["Calibration"] = "\n\n".join(part for part in parts if part)


def _how_languages_are_chosen(model: SentenceTransformer, calibration: CalibrationLayer) -> str:
    """How a reader tells the model the language of a text; empty where it needs none.

    The model is one that `export` has made: the last of its routers is that of the languages.
    """
    routers = routers_of(model)
    if calibration.language_agnostic or not routers:
        return ""
    default = (routers[-1].default_route or "").removeprefix(ROUTE_PREFIX)
    return (
        f"There is a map for each of {', '.join(calibration.languages)}: `encode` takes the "
        "language as its `task`. Texts without one, and those of `encode_query` and "
        f"`encode_document`, are taken to be in `{default}`. With st-xlret, "
        '`st_xlret.encode(model, texts, languages, role="query")` takes texts in several languages.'
    )


def _read_metadata_of_card(name: str) -> Mapping[str, Any]:
    """The metadata of a model's card; nothing of one that is not there, or that nobody can read."""
    path = Path(name).expanduser()
    with suppress(Exception):
        if path.exists():
            return metadata_load(path / "README.md") or {}
        return metadata_load(hf_hub_download(name, "README.md")) or {}
    return {}


def _well_formed_values(name: str, stated: Mapping[str, Any]) -> list[str]:
    """The values that a card states under a name, those of the right form."""
    values = stated.get(name) or []
    if not isinstance(values, list):
        values = [values]
    return [str(value) for value in values if _FORMS[name].fullmatch(str(value))]


def _without_paths(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings but for paths of this machine."""
    return {name: value for name, value in settings.items() if Path(str(value)).name == str(value)}


def _set_sources(card: CrossLingualCardData, data: Mapping[str, Sequence[str]]) -> None:
    """Set the card's list of sources by use and last name; those on the Hub join its data sets."""
    lines = []
    on_hub = []
    for use, sources in data.items():
        if sources:
            lines.append(f"- {use.replace('_', ' ')}: {_sources_as_code(sources)}")
        for source in sources:
            name = re.split("[:=]", str(source))[0]
            is_on_hub = name != str(source) and not Path(source).exists()
            if is_on_hub and _NAME.fullmatch(name):
                on_hub.append(name)
    if lines:
        card.sections["Data"] = "\n".join(lines)
    card.datasets = list(dict.fromkeys([*card.datasets, *on_hub]))


def _sources_as_code(sources: Iterable[str]) -> str:
    """The last names of sources as code, in which neither HTML nor Markdown sees anything."""
    names = []
    for source in sources:
        plain = Path(without_secrets(str(source))).name.replace("`", "'")
        names.append(f"`{' '.join(plain.split())}`")
    return ", ".join(names)


def _checkpoint_name(model: SentenceTransformer) -> str:
    """The checkpoint of the model's Transformer, or an empty text."""
    config = getattr(model.transformers_model, "config", None)
    return getattr(config, "name_or_path", "") or ""
