"""The model card that the host writes: what it is told about a model, and the history that it keeps."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from huggingface_hub import ModelCard
from sentence_transformers.base.model_card import generate_model_card
from sentence_transformers.sentence_transformer.model_card import SentenceTransformerModelCardData

from st_xlret.encoding import default_language, language_routes, language_task
from st_xlret.evaluation.tables import markdown_table
from st_xlret.losses.ccp import CITATION as CCP
from st_xlret.prompts import Role, prompt_name

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from st_xlret.modules.calibration_layer import CalibrationLayer

FEWEST = 50
"""Scores of fewer held-out pairs or questions stay out of the metadata."""

_LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]*")
_HUB_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
_MARKDOWN = re.compile(r"[\\`*_{}\[\]#!~|$]|(?<=[:w])(?=//|ww\.)")
_FOREIGN_HTML = re.compile(r"<(?!/?(?:details|summary|code|ul|li|br)\b[^>=]*>)")
_CITATION = re.compile(r"^#### ([^\n]+)\n```bibtex\n(.*?)\n```", re.MULTILINE | re.DOTALL)
_LICENCE_FILES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "LICENCE.txt", "NOTICE.txt", "NOTICE")
_PAST = ("Results", "Calibration", "Language bias", "Data", "Evaluation", "Training Details")

_QUESTION = "Where do storks spend the winter?"
_SENTENCES = {
    "en": "Storks spend the winter in Africa.",
    "de": "Störche überwintern in Afrika.",
    "es": "Las cigüeñas pasan el invierno en África.",
    "fr": "Les cigognes passent l'hiver en Afrique.",
    "ru": "Аисты зимуют в Африке.",
    "zh": "鹳在非洲过冬。",
    "pt": "As cegonhas passam o inverno na África.",
    "ar": "تقضي طيور اللقلق فصل الشتاء في أفريقيا.",
}

_STEPS = {
    "shift": "subtracts the mean of the language",
    "scale": "divides each dimension by its spread in the language",
    "rotate": "applies an orthogonal matrix into the space of the pivot language",
    "lir": "removes the strongest principal components of the language",
    "lsar": "removes the subspace in which the means of the languages differ",
    "coral": "gives every language the covariance of all of them",
    "to_pivot": "moves the language's mean to that of the pivot language",
}
_CONNEAU = """@inproceedings{conneau2018word,
    title = {Word Translation Without Parallel Data},
    author = {Conneau, Alexis and Lample, Guillaume and Ranzato, Marc'Aurelio and Denoyer, Ludovic and
        J{\\'e}gou, Herv{\\'e}},
    booktitle = {International Conference on Learning Representations},
    year = {2018},
}"""
_LSAR = """@inproceedings{xie2022discovering,
    title = {Discovering Low-rank Subspaces for Language-agnostic Multilingual Representations},
    author = {Xie, Zhihui and Zhao, Handong and Yu, Tong and Li, Shuai},
    booktitle = {Proceedings of the 2022 Conference on Empirical Methods in Natural Language Processing},
    year = {2022},
}"""
_LIR = """@inproceedings{yang2021simple,
    title = {A Simple and Effective Method To Eliminate the Self Language Bias in Multilingual Representations},
    author = {Yang, Ziyi and Yang, Yinfei and Cer, Daniel and Darve, Eric},
    booktitle = {Proceedings of the 2021 Conference on Empirical Methods in Natural Language Processing},
    year = {2021},
}"""
_CORAL = """@inproceedings{sun2016return,
    title = {Return of Frustratingly Easy Domain Adaptation},
    author = {Sun, Baochen and Feng, Jiashi and Saenko, Kate},
    booktitle = {Proceedings of the Thirtieth AAAI Conference on Artificial Intelligence},
    year = {2016},
}"""
_CITATIONS = {
    "shift": {"CCP": CCP},
    "scale": {"CCP": CCP},
    "rotate": {"CCP": CCP, "Rotation without parallel data": _CONNEAU},
    "lir": {"LIR": _LIR},
    "lsar": {"LSAR": _LSAR},
    "coral": {"CORAL": _CORAL},
}


@dataclass
class CrossLingualCardData(SentenceTransformerModelCardData):
    """The host's card data with sections and scores of ours; it shows no texts of the training data.

    Attributes:
        made_from: Folder of the model that was loaded, until its card has become the history.
        sections: Heading -> Markdown, after the section on usage.
        more_citations: Name -> BibTeX entry, beside those of the losses.
    """

    local_files_only: bool = True
    generate_widget_examples: bool = False
    # The host takes examples from the training data if there is none.
    widget: list[Any] = field(default_factory=lambda: _widget(_examples([])), init=False)
    made_from: str = ""
    sections: dict[str, str] = field(default_factory=dict, init=False)
    more_citations: dict[str, str] = field(default_factory=dict, init=False)

    def to_dict(self) -> dict[str, Any]:
        """The host's values for the template and the metadata, with ours."""
        sentences = _examples(self.language or [])
        self.usage_examples = [*([_QUESTION] if self.ir_model else []), *sentences]
        self.widget = _widget(sentences)
        if not self.citations:
            self.set_losses([])
        values = super().to_dict()
        for kind in ("train_datasets", "eval_datasets"):
            values[kind] = [{**about, "examples_table": ""} for about in values[kind] or []]
        values["citations"] = {**self.more_citations, **values["citations"]}
        if self.model is not None and language_routes(self.model):
            values["usage_snippet"] = _language_snippet(self.model, self.model_id or "sentence_transformers_model_id")
        for evaluator in self.eval_results_dict or {}:
            _name_held_out(evaluator, values)
        sections = [f"## {heading}\n\n{text}" for heading, text in self.sections.items()]
        values["usage_snippet"] = "\n\n".join([values["usage_snippet"], *sections]) + "\n"
        return values


def card_data(model: SentenceTransformer) -> CrossLingualCardData:
    """The model's card data, which is made one of this package's if it is the host's.

    The card of the folder that the model was loaded from becomes its history.
    """
    card: Any = model.model_card_data
    if not isinstance(card, CrossLingualCardData):
        config = getattr(model.transformers_model, "config", None)
        ours = CrossLingualCardData(made_from=getattr(config, "name_or_path", "") or "")
        kept = {"local_files_only", "generate_widget_examples", "widget"}
        vars(ours).update({name: value for name, value in vars(card).items() if name not in kept})
        model.model_card_data = card = ours
    folder, card.made_from = card.made_from, ""
    if folder and Path(folder, "README.md").is_file():
        _take_over(card, _read_card(Path(folder, "README.md")))
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
    """Tell the host's model card what only the program knows that makes the model. Call it before the Trainer is made.

    The host fills in the rest: its Trainer reads each loss's `citation` and options, and evaluators store their metrics
    through `store_metrics_in_model_card_data`. Nothing is looked up on the Hub.

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
    if languages:
        # The Hub takes no other codes.
        card.set_language(list(dict.fromkeys(code.partition("-")[0] for code in languages)))
    if model_name:
        card.model_name = model_name
    sources = [(use.replace("_", " "), source) for use, given in (data or {}).items() for source in given]
    if rows := [[*map(escape, _named(source)), use] for use, source in sources]:
        card.sections["Data"] = markdown_table(["source", "licence", "used for"], rows, left=3)
    card.add_tags(["st-xlret", *tags])
    config = getattr(model.transformers_model, "config", None)
    name = base_model or getattr(config, "name_or_path", "") or ""
    path = Path(name).expanduser()
    if not path.exists():
        card.base_model = card.base_model or (name if _HUB_NAME.fullmatch(name) else None)
    elif (path / "README.md").is_file():
        _take_facts(card, _read_card(path / "README.md"))
    if license:
        card.set_license(license)


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


def carry_card_data(source: SentenceTransformer, target: SentenceTransformer) -> None:
    """Tell the card of an exported or calibrated model the history of the model that it was made from.

    Languages, licence, base model, tags and citations are the same; data, losses, scores and training of the source
    become the history. Scores of the source are not in the metadata of the target.

    Args:
        source: The model that was trained, or loaded.
        target: The model made from it.
    """
    before, after = card_data(source), card_data(target)
    made_here = before.training_logs or before.eval_results_dict or {*before.sections} - {"History"}
    if made_here or "generated_from_trainer" in before.tags:
        _take_over(after, ModelCard(generate_model_card(source), ignore_metadata_errors=True))
    else:
        after.sections.update(before.sections)
        after.more_citations.update(before.more_citations)
    for name in ("language", "license", "base_model"):
        setattr(after, name, getattr(before, name) or getattr(after, name))
    after.add_tags([tag for tag in before.tags if tag != "generated_from_trainer"])
    after.ir_model = None  # a Router makes it one with queries and documents: register_model looks
    after.register_model(target)


def set_calibration(
    model: SentenceTransformer, calibration: CalibrationLayer, queries: CalibrationLayer | None = None
) -> None:
    """Tell the card of a calibrated model which calibration it has, and cite its steps.

    Args:
        model: The calibrated model.
        calibration: Its calibration.
        queries: That of queries, if they have one of their own.
    """
    card = card_data(model)
    rows = [[escape(step), _STEPS.get(step, ""), f"{calibration.strength:g}"] for step in calibration.steps]
    parts = ["A map after the encoder brings the embeddings of all languages into one space."]
    if rows:
        parts += ["Its steps, in their order:", markdown_table(["step", "what it does", "strength"], rows, left=2)]
    if queries is not None:
        parts.append("Queries and documents have maps of their own.")
    if calibration.language_agnostic:
        parts.append("The maps are the same for all languages: the language of a text need not be known.")
    else:
        codes = ", ".join(f"`{code}`" for code in language_routes(model))
        parts.append(
            f"There is a map for each of {codes}. `encode` takes the language of the texts as its `task`. Texts "
            "without a language, and those of `encode_query` and `encode_document`, are taken to be in "
            f"`{default_language(model)}`. "
            'With st-xlret, `st_xlret.encode(model, texts, languages, role="query")` takes texts in several languages.'
        )
    parts.append("\n".join(f"- {escape(name)}: {escape(note)}" for name, note in calibration.notes.items()))
    card.sections["Calibration"] = "\n\n".join(filter(None, parts))
    for step in calibration.steps:
        card.more_citations.update(_CITATIONS.get(step, {}))


def escape(text: str) -> str:
    """Write a text so that neither HTML nor Markdown sees anything but text in it, on a single line.

    Example:
        >>> escape("<b> *a* [x](http://y)")
        '&lt;b&gt; &#42;a&#42; &#91;x&#93;(http:&#8203;//y)'
    """
    plain = html.escape(" ".join(str(text).split()), quote=False)
    return _MARKDOWN.sub(lambda found: f"&#{ord(found[0])};" if found[0] else "&#8203;", plain)


def _examples(languages: str | list[str]) -> list[str]:
    found = [sentence for code, sentence in _SENTENCES.items() if code in languages]
    return (found if len(found) >= 3 else list(_SENTENCES.values()))[:3]


def _widget(sentences: list[str]) -> list[Any]:
    return [{"source_sentence": _QUESTION, "sentences": sentences}]


def _named(source: str) -> tuple[str, str]:
    """Name and licence of a file, a folder or a data set on the Hub, as far as they are known."""
    path, hub_name = Path(source), source.partition(":")[0]
    if not path.exists() and _HUB_NAME.fullmatch(hub_name) and "/" in hub_name:
        return hub_name, "stated on the Hub"
    resolved = path.resolve()
    for folder in [resolved, *list(resolved.parents)[:2]]:
        card = folder / "README.md"
        licence = _read_card(card).data.to_dict().get("license") if card.is_file() else None
        files = [name for name in _LICENCE_FILES if (folder / name).is_file()]
        if licence or files:
            known = licence or f"stated in its {files[0]}"
            name = resolved.relative_to(folder.parent).as_posix()
            return name, ", ".join(known) if isinstance(known, list) else str(known)
    return resolved.name, "not stated"


def _read_card(file: Path) -> ModelCard:
    """A card; one without metadata if nobody can read that."""
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        return ModelCard(text, ignore_metadata_errors=True)
    except (ValueError, TypeError, KeyError, yaml.YAMLError):
        return ModelCard("---\n{}\n---\n" + text.rpartition("\n---\n")[2])


def _take_facts(card: CrossLingualCardData, before: ModelCard) -> None:
    """Base model and licence of the model that another is made from, where they have the form of such."""
    known = before.data.to_dict()
    for name, form in (("base_model", _HUB_NAME), ("license", _LICENCE)):
        value = known.get(name)
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, str) and form.fullmatch(value) and not getattr(card, name):
            setattr(card, name, value)


def _take_over(card: CrossLingualCardData, before: ModelCard) -> None:
    """What a card says of a model becomes the history of the model made from it."""
    _take_facts(card, before)
    shown = re.sub(r"<!--.*?-->", "", before.text, flags=re.DOTALL)
    title, *parts = re.split(r"^## ", shown, flags=re.MULTILINE)
    sections = (part.partition("### Framework Versions")[0].partition("\n") for part in parts)
    found = {heading: text.strip() for heading, _, text in sections}
    card.more_citations.update({escape(name): entry for name, entry in _CITATION.findall(found.get("Citation", ""))})
    text = "\n\n".join(f"### {name}\n\n{found[name]}" for name in _PAST if found.get(name))
    if "History" in found or text.count("\n") > 2:
        heading = title.strip().partition("\n")[0].lstrip("# ")
        step = f"<details><summary>{escape(heading)}</summary>\n\n{_FOREIGN_HTML.sub('&lt;', text)}\n\n</details>"
        card.sections["History"] = "\n\n".join(filter(None, [found.get("History", ""), step if text else ""]))


def _name_held_out(evaluator: Any, values: dict[str, Any]) -> None:
    """Call held-out data what they are, with their number, and leave scores of few out of the metadata."""
    kind = getattr(evaluator, "name", None)
    if kind not in ("pairs", "questions"):
        return
    texts = (
        evaluator.queries
        if kind == "questions"
        else [text for side, _ in evaluator.sentences.values() for text in side]
    )
    task = "Retrieval" if kind == "questions" else "Translation retrieval"
    for about in values.get("eval_metrics") or []:
        if about["dataset_name"] == kind:
            about.update(description=f"{task} on {len(texts)} held-out {kind}", dataset_name=f"held-out {kind}")
    named = {
        "task": {"type": task.lower().replace(" ", "-"), "name": task},
        "dataset": {"type": f"held-out-{kind}", "name": f"{len(texts)} held-out {kind} of the training data"},
    }
    indices = values.get("model-index") or []
    for index in indices:
        others = [entry for entry in index["results"] if entry["dataset"]["type"] != kind]
        held_out = [entry | named for entry in index["results"] if entry["dataset"]["type"] == kind]
        index["results"] = others + (held_out if len(texts) >= FEWEST else [])
    values["model-index"] = [index for index in indices if index["results"]] or None


def _language_snippet(model: SentenceTransformer, name: str) -> str:
    """How a model with a map per language is used: a query in one language, a document in another."""
    codes = language_routes(model)
    asked = "en" if "en" in codes else codes[0]
    other = next((code for code in [*(c for c in _SENTENCES if c in codes), *codes] if code != asked), asked)
    lines = ["from sentence_transformers import SentenceTransformer", "", f'model = SentenceTransformer("{name}")']
    lines.append("# The task is the language of the texts.")
    texts: dict[Role, str] = {"query": _QUESTION, "document": _SENTENCES.get(other, _SENTENCES["en"])}
    for role, code in zip(texts, (asked, other), strict=True):
        prompt = prompt_name(model, role)
        how = f', task="{language_task(model, code, role)}"' + (f', prompt_name="{prompt}"' if prompt else "")
        lines.append(f"{role}_embeddings = model.encode([{texts[role]!r}]{how})")
    lines += ["print(model.similarity(query_embeddings, document_embeddings))"]
    return "```python\n" + "\n".join(lines) + "\n```"
