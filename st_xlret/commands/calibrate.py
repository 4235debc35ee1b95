r"""Calibrate a multilingual encoder, so that its search no longer prefers the language of the query.

On the corpus that is to be searched, or on other documents in its languages; no labels and no training are needed:

    st-xlret calibrate --model intfloat/multilingual-e5-small --corpus my-beir-folder --output runs/calibrated
    st-xlret calibrate --model intfloat/multilingual-e5-small --documents documents/ --output runs/calibrated

The result is a plain Sentence Transformers model that needs no language: `SentenceTransformer("runs/calibrated")` with
`encode_query` and `encode_document`. By default the subspace in which the languages' means differ is projected out
(`--steps lsar`). The other steps need the language of each text, given as its task: `encode(texts, task="fr")`; among
them are the CCP paper's (`--steps shift scale rotate`). A table compares the choices without labels.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sentence_transformers import SentenceTransformer

from st_xlret.calibration import (
    CalibrationOptions,
    RotationOptions,
    alignment_table,
    embed_pairs,
    fit_calibration,
    fit_calibration_stages,
)
from st_xlret.calibration.inputs import STEPS
from st_xlret.commands.comparison import compare
from st_xlret.commands.samples import embed_texts, sample_texts
from st_xlret.data import PairOptions, load_pairs
from st_xlret.data.reading.jsonl import DataError
from st_xlret.evaluation.language_bias import LanguageBias
from st_xlret.evaluation.reporting.plots import plot_language_bias
from st_xlret.files import atomic_directory, check_output_directory, write_json_atomically
from st_xlret.hub import set_card_data
from st_xlret.hub.export import export
from st_xlret.hub.loading import load_model
from st_xlret.hub.push import check_push, push_to_hub
from st_xlret.modules.calibration_layer import CalibrationLayer
from st_xlret.options import option, parse

SEARCH_STEPS: dict[str, tuple[str, ...]] = {
    "lsar": ("lsar",),
    "shift": ("shift",),
    "shift coral": ("shift", "coral"),
}
"""The calibrations that are compared for search; the first one needs no language."""

KEEP_MEAN = 0.25


@dataclass
class Input:
    """What to calibrate, and on what."""

    _argument_group_name = "input"

    model: str = option(None, "The encoder: a folder or a name on the Hub. It is not trained any further.")
    corpus: str | None = option(
        None, "The corpus to be searched: a folder in BEIR's layout whose texts name their language, or documents."
    )
    documents: list[str] = option(
        [], "Instead of it, other documents in its languages: JSON lines, or folders of them."
    )
    languages: list[str] = option([], "Languages to calibrate. All by default.")
    pairs: list[str] = option(
        [], "Parallel sentences with the pivot, for rotate: languages that have them get the closed-form solution."
    )
    exclude: list[str] = option(
        [], "Text files whose lines must not be in the pairs, such as a test set's English side."
    )
    texts_per_language: int = option(1500, "Texts of each language to embed, drawn at random.")
    skip_bad_lines: bool = option(False, "Skip and count bad lines instead of stopping at the first one.")
    prompt_name: str | None = option(None, "Prompt of the model to embed them with. By default that for documents.")
    batch_size: int = option(64, "Texts in a forward pass.")
    bf16: bool = option(False, "Embed in bfloat16: faster on processors that compute in it.")
    device: str | None = option(None, "cpu, cuda, cuda:1, mps. By default the best there is.")


@dataclass
class Method:
    """How to calibrate."""

    _argument_group_name = "method"

    steps: list[str] = option(
        ["lsar"],
        "In this order: lsar (minus the subspace in which the languages' means differ; needs no language), "
        "shift (minus the language's mean), coral (the same covariance for all), scale (divided by the standard "
        "deviation), rotate (orthogonal map into the pivot), lir (minus the language's top principal component).",
        choices=STEPS,
    )
    strength: float = option(1.0, "From 0, which leaves the model as it is, to 1, the full calibration.")
    keep_mean: float | None = option(
        None,
        f"Share of the mean of all languages that shift and lsar keep. By default {KEEP_MEAN}, which suits search; "
        "with scale, rotate or lir as in their papers.",
    )
    lsar_rank: int | None = option(None, "Dimensions that lsar removes. By default languages - 1.")
    coral_ridge: float = option(
        1.0, "Variance that coral adds to each direction, relative to the average. Less text needs more."
    )
    scale_by: str = option(
        "std", "scale: divide by the standard deviation or the variance.", choices=["std", "variance"]
    )
    pivot: str = option("en", "rotate: the language into which the others are rotated.")
    rotation_start: str = option(
        "both",
        "rotate without pairs: start from the identity (fast), by adversarial training, or take the better of both by "
        "an unsupervised criterion.",
        choices=["identity", "adversarial", "both"],
    )
    rotation_prior: float = option(
        0.0, "rotate: 0 fits the pairs alone; 1 stays nearer to the model's own alignment, safer where pairs are few."
    )
    min_texts: int = option(50, "Fewer texts of a language are an error.")
    seed: int = option(0, "Seed of the draw and of the rotation.")


@dataclass
class Output:
    """Where the result goes."""

    _argument_group_name = "output"

    output: str = option(None, "Folder for the calibrated model, with the report on its language bias.")
    overwrite: bool = option(False, "Replace a model that is there.")
    push_to_hub: str | None = option(None, "Also upload the model to this repository, such as me/my-model.")


def main(arguments: Sequence[str], *, prog: str = "st-xlret calibrate") -> None:
    """Run the command `calibrate`."""
    given, method, target = parse([Input, Method, Output], arguments, description=__doc__, prog=prog)
    for name, value in (("model", given.model), ("output", target.output)):
        if not value:
            raise ValueError(f"--{name} is missing")
    if (given.corpus is None) == (not given.documents):
        raise ValueError("give either --corpus (what is to be searched) or --documents")
    for name in ("texts_per_language", "batch_size"):
        if getattr(given, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(given, name)}")
    check_output_directory(target.output, overwrite=target.overwrite)
    if target.push_to_hub:
        check_push(target.push_to_hub)
    calibrate(given, method, target)


def calibrate(given: Input, method: Method, target: Output) -> SentenceTransformer:
    """Embed a sample, fit, compare, save.

    Returns:
        The calibrated model.
    """
    sources = [given.corpus] if given.corpus else given.documents
    texts = sample_texts(
        sources,
        languages=given.languages,
        texts_per_language=given.texts_per_language,
        skip_bad_lines=given.skip_bad_lines,
        seed=method.seed,
    )
    if len(texts) < 2:
        raise DataError(f"all texts are in one language ({', '.join(texts)}): there is nothing to calibrate")
    model = load_model(given.model, given.device)
    embeddings = embed_texts(
        model,
        {code: found.texts for code, found in texts.items()},
        prompt_name=given.prompt_name,
        batch_size=given.batch_size,
        bf16=given.bf16,
    )
    ids = {code: found.documents for code, found in texts.items()}
    options = options_of(method)
    pairs = None
    if given.pairs:
        if "rotate" not in method.steps:
            raise ValueError("--pairs are for the step rotate: add it to --steps, or leave them out")
        how = PairOptions(languages=list(texts), exclude=tuple(given.exclude), skip_bad_lines=given.skip_bad_lines)
        found = load_pairs(given.pairs, how)
        others = [code for code in texts if code != method.pivot]
        pairs = embed_pairs(
            model, found, pivot=method.pivot, languages=others, batch_size=given.batch_size, show_progress=True
        )
    pivot = method.pivot if method.pivot in embeddings else next(iter(embeddings))
    if "rotate" in method.steps and pivot != method.pivot:
        raise DataError(f"no text is in --pivot {method.pivot}, only in {', '.join(embeddings)}")
    stages = fit_calibration_stages(
        embeddings,
        steps=method.steps,
        pivot=pivot,
        pairs=pairs,
        strength=method.strength,
        seed=method.seed,
        options=options,
        show_progress=True,
    )
    layer = stages[method.steps[-1]]
    if not set(method.steps) <= {"lsar", "shift", "coral"}:
        print(alignment_table(embeddings, stages, pivot))
    layers: dict[str, CalibrationLayer | None] = {"as it is": None}
    for name, steps in SEARCH_STEPS.items():
        layers[name] = fit_calibration(embeddings, steps=steps, pivot=pivot, options=search_options(method))
    chosen = " ".join(method.steps)
    layers[chosen] = layer
    biases = compare(embeddings, ids, layers, chosen)
    calibrated = export(model, layer)
    set_card_data(calibrated, languages=sorted(embeddings), tags=["calibration", *method.steps])
    save(calibrated, target, {"before": biases["as it is"], "after": biases[chosen]})
    print(f"\nThe calibrated model is in {target.output}. Use it with Sentence Transformers alone:\n")
    language = None if layer.language_agnostic else max(embeddings, key=lambda code: code != pivot)
    lines = [f'model = SentenceTransformer("{target.output}")', *calls(calibrated, language)]
    print("".join(f"    {line}\n" for line in lines))
    if target.push_to_hub:
        print(f"uploaded to {push_to_hub(Path(target.output), target.push_to_hub)}")
    return calibrated


def calls(model: SentenceTransformer, language: str | None) -> list[str]:
    """How queries and documents are embedded, with the model's prompts; `language` is the one of the example.

    The host's `encode_query` and `encode_document` take no language, so the calls with one name the prompt themselves.
    """
    if language is None:
        return ["queries = model.encode_query(texts)", "documents = model.encode_document(texts)"]
    lines = []
    for name, prompts in {"queries": ("query",), "documents": ("document", "passage", "corpus")}.items():
        prompt = next((prompt for prompt in prompts if model.prompts.get(prompt)), None)
        given = f', prompt_name="{prompt}"' if prompt else ""
        lines.append(f'{name} = model.encode(texts, task="{language}"{given})')
    return lines


def options_of(method: Method) -> CalibrationOptions:
    """The options of the fit that the user asked for."""
    for_search = set(method.steps) <= {"lsar", "shift", "coral"}
    return CalibrationOptions(
        scale_by=method.scale_by,  # type: ignore[arg-type]
        rotation=RotationOptions(initial=method.rotation_start, prior=method.rotation_prior),  # type: ignore[arg-type]
        lsar_rank=method.lsar_rank,
        coral_ridge=method.coral_ridge,
        keep_mean=method.keep_mean if method.keep_mean is not None else KEEP_MEAN if for_search else None,
        min_sentences=method.min_texts,
    )


def search_options(method: Method) -> CalibrationOptions:
    """The options of the calibrations that are compared with it."""
    return CalibrationOptions(keep_mean=KEEP_MEAN, min_sentences=method.min_texts)


def save(model: SentenceTransformer, target: Output, biases: Mapping[str, LanguageBias]) -> None:
    """Save the model with its report, whole or not at all."""
    with atomic_directory(target.output, overwrite=target.overwrite) as folder:
        model.save_pretrained(os.fspath(folder))
        write_json_atomically(folder / "language_bias.json", {name: bias.as_json() for name, bias in biases.items()})
        for name, bias in biases.items():
            plot_language_bias(bias.languages, bias.shares, folder / f"language_bias_{name}.png")
