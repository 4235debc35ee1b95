"""The model card that the host writes: what it is told about a model, and no text of its training data."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download, metadata_load
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.model_card import format_duration
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardData
from typing_extensions import Self

from st_xlret.citations import CITATIONS
from st_xlret.columns import Role
from st_xlret.encoding import PROMPT_NAMES, prompt_name, task_languages
from st_xlret.modules.calibration_layer import CalibrationLayer

_FOLDER = Path(__file__).parent
# The identifiers of https://huggingface.co/docs/hub/repositories-licenses: the Hub refuses a card with another one.
LICENSES = (_FOLDER / "licenses.txt").read_text(encoding="utf-8").split()
_NAME = re.compile(r"(?!.*(--|\.\.))\w[\w.-]*(/[\w.-]+)?")
# What a card may state of its model, and the form of each value.
_FORMS = {
    "license": re.compile("|".join(map(re.escape, LICENSES))),
    "base_model": _NAME,
    "datasets": _NAME,
    "language": re.compile(r"[a-z]{2,3}|multilingual"),
    "tags": re.compile(r"\w[\w .:/+-]*"),
}
# Tags that speak of files or figures of a model, and so not of one that is made from it.
_OWN_TAGS = {"generated_from_trainer", "mteb", "onnx", "openvino", "transformers.js"}
# A question, answers to it, and what each step does, with the paper that it is from.
_TEXTS = json.loads((_FOLDER / "card.json").read_text(encoding="utf-8"))
_QUESTION, _SENTENCES, _STEPS = (_TEXTS[name] for name in ("question", "answers", "steps"))
# By paper; the Hub makes tags of the addresses.
_CITATIONS = {
    "CCP": CITATIONS["wu2022ccp"],
    "MUSE": CITATIONS["conneau2018word"],
    "LIR": CITATIONS["yang2021simple"],
    "LSAR": CITATIONS["xie2022discovering"],
    "CORAL": CITATIONS["sun2016return"],
}


@dataclass
class CrossLingualCardData(SentenceTransformerModelCardData):
    """The host's card data with sections of ours. Of the Hub, only the card of the model itself is read."""

    local_files_only: bool = True
    # The host takes examples from the training data if there is none.
    widget: list[Any] = field(
        default_factory=lambda: [{"source_sentence": _QUESTION, "sentences": []}], init=False
    )
    sections: dict[str, str] = field(
        default_factory=dict, init=False
    )  # heading -> Markdown, after that on usage
    training_seconds: float | None = field(
        default=None, init=False
    )  # the host counts on until the card is written

    def add_facts_of(self, name: str) -> Self:
        """The same card with what it lacks, as the card of a folder, or of a base model on the Hub, states it."""
        path = Path(name).expanduser()
        if not path.exists():
            self.base_model = self.base_model or (
                name if _FORMS["base_model"].fullmatch(name) else None
            )
        stated: dict[str, Any] = {}
        with suppress(Exception):  # a card that is not there, or that nobody can read
            stated = (
                metadata_load(
                    path / "README.md" if path.exists() else hf_hub_download(name, "README.md")
                )
                or {}
            )
        for fact, form in _FORMS.items():
            values = stated.get(fact) or []
            good = [
                str(one)
                for one in (values if isinstance(values, list) else [values])
                if form.fullmatch(str(one))
            ]
            if fact == "tags":
                self.add_tags([tag for tag in good if tag not in _OWN_TAGS])
            elif good and not getattr(self, fact):
                setattr(self, fact, good if fact in ("language", "datasets") else good[0])
        return self

    def to_dict(self) -> dict[str, Any]:
        """The host's values for the template and the metadata, with ours."""
        sentences = [text for code, text in _SENTENCES.items() if code in (self.language or [])]
        sentences = (sentences if len(sentences) >= 3 else list(_SENTENCES.values()))[:3]
        self.usage_examples = [*([_QUESTION] if self.ir_model else []), *sentences]
        self.widget = [{"source_sentence": _QUESTION, "sentences": sentences}]
        on_hub = [
            about["id"] for about in (*self.train_datasets, *self.eval_datasets) if about.get("id")
        ]
        self.datasets = list(dict.fromkeys([*self.datasets, *on_hub]))
        if not self.citations:
            self.set_losses([])
        values = super().to_dict()
        for kind in ("train_datasets", "eval_datasets"):
            values[kind] = [{**about, "examples_table": ""} for about in values[kind] or []]
        for kind in (
            "all_hyperparameters",
            "non_default_hyperparameters",
        ):  # without paths of this machine
            values[kind] = {
                name: each
                for name, each in values[kind].items()
                if Path(str(each)).name == str(each)
            }
        if self.model is not None and task_languages(self.model):
            values["usage_snippet"] = _language_snippet(
                self.model, self.model_id or "sentence_transformers_model_id"
            )
        sections = [f"## {heading}\n\n{text}" for heading, text in self.sections.items()]
        values["usage_snippet"] = "\n\n".join([values["usage_snippet"], *sections]) + "\n"
        if self.training_seconds is not None:
            values |= {
                "training_time": format_duration(self.training_seconds),
                "evaluation_time": None,
            }
        return values


def signature(text: str) -> str:
    """The end of a card with this text: where they still agree, nobody has changed the card."""
    return f"\n\n<!-- st-xlret {sha256(text.encode()).hexdigest()} -->\n"


def ensure_card_data(model: SentenceTransformer) -> CrossLingualCardData:
    """The model's card data, which is made one of this package's if it is the host's."""
    card: Any = model.model_card_data
    if not isinstance(card, CrossLingualCardData):
        model.model_card_data = ours = CrossLingualCardData()
        replaced = {"local_files_only", "widget", "similarities"}
        stated = {name: value for name, value in vars(card).items() if value or value is False}
        vars(ours).update({name: value for name, value in stated.items() if name not in replaced})
        card = ours.add_facts_of(_checkpoint_name(model))
    return card  # type: ignore[no-any-return]


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
    """Tell the host's model card what the host does not know. Call it before the Trainer is made.

    Args:
        model: The model that will be trained.
        languages: Language codes. A card has them without region and script.
        license: Identifier on the Hub, such as "apache-2.0"; others are refused. Default: that of the base model.
        model_name: Title of the card.
        base_model: Folder or Hub name of the model that this one is made from. Default: that of its Transformer.
        data: Use, such as "documents", to files, folders and data sets of the Hub (`me/news:fr`). The card lists them
            by their last name, without the folders of this machine.
        tags: Further tags beside "st-xlret".
    """
    check_license(license)
    card = ensure_card_data(model)
    if languages:
        card.set_language(
            list(dict.fromkeys(code.partition("-")[0] for code in languages))
        )  # the Hub takes no others
    card.model_name = model_name or card.model_name
    lines, on_hub = list[str](), list[str]()
    for use, sources in (data or {}).items():
        # A name is code, in which neither HTML nor Markdown sees anything.
        names = [f"`{' '.join(Path(each).name.replace('`', chr(39)).split())}`" for each in sources]
        lines += [f"- {use.replace('_', ' ')}: {', '.join(names)}"] if names else []
        elsewhere = [str(each) for each in sources if not Path(each).exists()]
        on_hub += [re.split("[:=]", name)[0] for name in elsewhere if re.search("[:=]", name)]
    if lines:
        card.sections["Data"] = "\n".join(lines)
    card.datasets = list(dict.fromkeys([*card.datasets, *filter(_NAME.fullmatch, on_hub)]))
    card.add_tags(["st-xlret", *tags])
    card.add_facts_of(base_model or _checkpoint_name(model))
    card.license = license or card.license


def check_license(license: str | None) -> None:
    """Check a licence's identifier, before the work whose result it is for; else raise a `ValueError`."""
    if license is not None and license not in LICENSES:
        raise ValueError(
            f"--license {license!r}: give an identifier of the Hub, such as apache-2.0, or other"
        )


def copy_card_data(source: SentenceTransformer, target: SentenceTransformer) -> None:
    """Tell the card of an exported model what is known of the model that it was made from, but for its scores."""
    before, after = ensure_card_data(source), ensure_card_data(target)
    for name in ("language", "license", "base_model", "datasets"):
        setattr(after, name, getattr(before, name) or getattr(after, name))
    after.sections |= {
        heading: text for heading, text in before.sections.items() if heading != "Results"
    }
    after.citations = dict(before.citations)
    after.add_tags([tag for tag in before.tags if tag not in _OWN_TAGS])
    after.ir_model = None  # a Router makes it one with queries and documents: register_model looks
    after.register_model(target)


def set_card_calibration(
    model: SentenceTransformer,
    calibration: CalibrationLayer,
    queries: CalibrationLayer | None = None,
) -> None:
    """Tell the card of a calibrated model which calibration it has, and whether queries have one of their own."""
    card, known = ensure_card_data(model), [step for step in calibration.steps if step in _STEPS]
    parts = ["A map after the encoder brings the embeddings of all languages into one space."]
    parts.append(
        "\n".join(f"- `{step}` {_STEPS[step][0]} ({_STEPS[step][1] or 'ours'})" for step in known)
    )
    has_queries = "no" if queries is None else "yes"
    parts.append(
        f"Strength: {calibration.strength:g}. Queries have a map of their own: {has_queries}."
    )
    routers = [module for module in model.children() if isinstance(module, Router)]
    if not calibration.language_agnostic and routers:
        parts.append(
            f"There is a map for each of {', '.join(calibration.languages)}: `encode` takes the language as its "
            "`task`. Texts without one, and those of `encode_query` and `encode_document`, are taken to be in "
            f"`{(routers[-1].default_route or '').removeprefix('language_')}`. With st-xlret, "
            '`st_xlret.encode(model, texts, languages, role="query")` takes texts in several languages.'
        )
    notes = (
        html.escape(" ".join(f"{name}: {note}".split())) for name, note in calibration.notes.items()
    )
    parts.append("\n".join(f"- {note}" for note in notes))
    if not card.citations:
        card.set_losses([])
    card.citations |= {paper: _CITATIONS[paper] for step in known if (paper := _STEPS[step][1])}
    card.sections["Calibration"] = "\n\n".join(filter(None, parts))


def encoding_calls(model: SentenceTransformer) -> dict[Role, tuple[str, str]]:
    """By role, a language of the model and the call that embeds texts in it with Sentence Transformers alone.

    The host's `encode_query` and `encode_document` take no language: calls with one name the model's prompt themselves.
    """
    tasks = task_languages(model)
    if not tasks:
        return {role: ("", f"model.encode_{role}(texts)") for role in PROMPT_NAMES}
    calls: dict[Role, tuple[str, str]] = {}
    codes = sorted(set(tasks.values()), key=lambda code: (code != "en", code))
    for role, code in zip(PROMPT_NAMES, (codes[0], codes[-1]), strict=True):
        task = f"query_{code}" if role == "query" and f"query_{code}" in tasks else code
        prompt = f', prompt_name="{name}"' if (name := prompt_name(model, role)) else ""
        calls[role] = code, f'model.encode(texts, task="{task}"{prompt})'
    return calls


def _language_snippet(model: SentenceTransformer, name: str) -> str:
    """How a model with a map per language is used: a query in one language, a document in another."""
    lines = [
        "from sentence_transformers import SentenceTransformer",
        "",
        f'model = SentenceTransformer("{name}")',
    ]
    lines.append("# The task is the language of the texts.")
    for role, (code, call) in encoding_calls(model).items():
        text = _QUESTION if role == "query" else _SENTENCES.get(code, _SENTENCES["en"])
        lines += [f"texts = [{text!r}]", f"{role}_embeddings = {call}"]
    lines.append("print(model.similarity(query_embeddings, document_embeddings))")
    return "```python\n" + "\n".join(lines) + "\n```"


def _checkpoint_name(model: SentenceTransformer) -> str:
    """The checkpoint of the model's Transformer, or an empty text."""
    return getattr(getattr(model.transformers_model, "config", None), "name_or_path", "") or ""
