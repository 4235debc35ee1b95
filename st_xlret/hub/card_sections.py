"""What a card says beyond the host's template: data and licences, the calibration, calls with a language."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from huggingface_hub import ModelCard

from st_xlret.calibration.encoding import PROMPT_NAMES, default_language, language_routes, language_task
from st_xlret.evaluation.reporting.tables import markdown_table
from st_xlret.losses.ccp import CITATION as CCP

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from st_xlret.modules.calibration_layer import CalibrationLayer

_HUB_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
_LICENCE_FILES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "LICENCE.txt", "NOTICE.txt", "NOTICE")

QUESTION = "Where do storks spend the winter?"

SENTENCES = {
    "en": "Storks spend the winter in Africa.",
    "de": "Störche überwintern in Afrika.",
    "es": "Las cigüeñas pasan el invierno en África.",
    "fr": "Les cigognes passent l'hiver en Afrique.",
    "ru": "Аисты зимуют в Африке.",
    "zh": "鹳在非洲过冬。",
    "pt": "As cegonhas passam o inverno na África.",
    "ar": "تقضي طيور اللقلق فصل الشتاء في أفريقيا.",
}
"""A sentence in several languages, for the examples of a card whose model was not trained on texts."""

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
CITATIONS = {
    "shift": {"CCP": CCP},
    "scale": {"CCP": CCP},
    "rotate": {"CCP": CCP, "Rotation without parallel data": _CONNEAU},
    "lir": {"LIR": _LIR},
    "lsar": {"LSAR": _LSAR},
    "coral": {"CORAL": _CORAL},
}
"""Step of a calibration -> name and BibTeX entry of what it comes from."""


class DataSource(NamedTuple):
    """Something that a model was trained or calibrated on.

    Attributes:
        name: What it is called.
        license: Its licence, as far as it is known.
        use: What it was used for, such as "documents".
    """

    name: str
    license: str
    use: str


def data_sources(given: Mapping[str, Sequence[str]]) -> list[DataSource]:
    """The data that a program was given, by name and not by path, with its licence where that is known.

    The licence of a folder is the one in the metadata of its data card (`README.md`), or the file beside the data that
    states it.

    Args:
        given: Use, such as "documents", to files, folders and names of Hugging Face data sets.

    Example:
        >>> data_sources({"documents": ["wikimedia/wikipedia:20231101.fr=fr"]})[0].name
        'wikimedia/wikipedia'
    """
    return [DataSource(*_named(source), use.replace("_", " ")) for use, sources in given.items() for source in sources]


def _named(source: str) -> tuple[str, str]:
    path, hub_name = Path(source), source.partition(":")[0]
    if not path.exists() and _HUB_NAME.fullmatch(hub_name) and "/" in hub_name:
        return hub_name, f"see [its card](https://huggingface.co/datasets/{hub_name})"
    resolved = path.resolve()
    for folder in [resolved, *list(resolved.parents)[:2]]:
        card = folder / "README.md"
        licence = metadata_of(card).get("license") if card.is_file() else None
        files = [name for name in _LICENCE_FILES if (folder / name).is_file()]
        if licence or files:
            known = licence or f"stated in its {files[0]}"
            name = resolved.relative_to(folder.parent).as_posix()
            return name, ", ".join(known) if isinstance(known, list) else str(known)
    return resolved.name, "not stated"


def metadata_of(card: Path) -> dict[str, Any]:
    """The metadata of a card in a file; empty if it has none that can be read."""
    try:
        return ModelCard.load(card).data.to_dict()
    except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
        return {}


def data_section(sources: Sequence[DataSource], escape: Any) -> str:
    """The table of the data, in Markdown."""
    rows = [[escape(name), licence, use] for name, licence, use in dict.fromkeys(sources)]
    return markdown_table(["source", "licence", "used for"], rows, left=3)


def calibration_section(layer: CalibrationLayer, queries: CalibrationLayer | None, model: SentenceTransformer) -> str:
    """What a calibration does and how it is used, in Markdown."""
    strengths = layer.strength if isinstance(layer.strength, dict) else dict.fromkeys(layer.steps, layer.strength)
    rows = [[step, _STEPS.get(step, ""), f"{strengths.get(step, 1.0):g}"] for step in layer.steps]
    parts = ["The embeddings of the encoder are mapped so that languages share a space. The encoder is unchanged."]
    if rows:
        parts += ["The steps, in their order:", markdown_table(["step", "what it does", "strength"], rows, left=2)]
    if queries is not None:
        parts.append("Queries and documents have maps of their own.")
    if layer.language_agnostic:
        parts.append("The maps are the same for all languages: the language of a text need not be known.")
    else:
        parts.append(language_note(model))
    if layer.notes:
        parts.append("\n".join(f"- {name}: {note}" for name, note in layer.notes.items()))
    if any("criterion" in note for note in layer.notes.values()):
        parts.append(
            "The criterion is the mean cosine of a sentence to the sentence of the pivot language that CSLS matches it "
            "with, on sentences that were held out. Between rotations, higher is better."
        )
    return "\n\n".join(parts)


def language_note(model: SentenceTransformer) -> str:
    """How a model with a map per language is told the language of a text."""
    codes = ", ".join(f"`{code}`" for code in language_routes(model))
    return (
        f"There is a map for each of {codes}. `encode` takes the language of the texts as its `task`. Texts without "
        f"one, and those of `encode_query` and `encode_document`, are taken to be in `{default_language(model)}`. "
        'With st-xlret, `st_xlret.encode(model, texts, languages, role="query")` takes texts in several languages at a '
        "time, with codes of any form."
    )


def language_snippet(model: SentenceTransformer, name: str) -> str:
    """How a model with a map per language is used: a query in one language, documents in others."""
    codes = language_routes(model)
    known = [code for code in SENTENCES if code in codes]
    asked = "en" if "en" in codes else codes[0]
    other = next((code for code in [*known, *codes] if code != asked), asked)
    lines = ["from sentence_transformers import SentenceTransformer", "", f'model = SentenceTransformer("{name}")']
    lines.append("# The task is the language of the texts.")
    texts = {"query": QUESTION, "document": SENTENCES.get(other, SENTENCES["en"])}
    for role, code in (("query", asked), ("document", other)):
        prompt = next((prompt for prompt in PROMPT_NAMES[role] if model.prompts.get(prompt)), None)
        how = f', task="{language_task(model, code, role)}"' + (f', prompt_name="{prompt}"' if prompt else "")
        lines.append(f"{role}_embeddings = model.encode([{texts[role]!r}]{how})")
    lines += ["print(model.similarity(query_embeddings, document_embeddings))"]
    return "```python\n" + "\n".join(lines) + "\n```"


def example_sentences(languages: Sequence[str]) -> list[str]:
    """Three sentences in languages of a model; none if there are not that many."""
    found = [SENTENCES[code] for code in SENTENCES if code in languages]
    return found[:3] if len(found) >= 3 else []


def base_of(name: str) -> dict[str, str]:
    """What is known of the model that another is made from: its name on the Hub, its licence.

    Args:
        name: A folder or a name on the Hub.

    Returns:
        Any of `base_model` and `license`, as a card's metadata names them.
    """
    path = Path(os.path.expanduser(name))
    if not name or not path.exists():
        return {"base_model": name} if _HUB_NAME.fullmatch(name) else {}
    known = metadata_of(path / "README.md") if (path / "README.md").is_file() else {}
    found = {key: known[key] for key in ("base_model", "license") if known.get(key)}
    return {key: value[0] if isinstance(value, list) else value for key, value in found.items()}
