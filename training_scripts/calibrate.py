"""Calibrate a multilingual encoder on documents: shift, scale and rotate each language onto a pivot language.

    python training_scripts/calibrate.py --model runs/ccp --documents data/documents --output runs/calibrated

The result is a plain Sentence Transformers model, which loads without st-xlret:

    SentenceTransformer("runs/calibrated").encode(["Bonjour"], task="fr")
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field
from typing import Literal

from sentence_transformers import SentenceTransformer
from transformers import HfArgumentParser

from st_xlret.calibration import (
    CalibrationOptions,
    RotationOptions,
    alignment_table,
    embed_documents,
    embed_pairs,
    fit_calibration_stages,
)
from st_xlret.data import load_documents, load_pairs
from st_xlret.data.pairs.selection import lines_to_exclude
from st_xlret.files import check_output_directory, save_model_atomically
from st_xlret.hub.export import export
from st_xlret.hub.push import check_push, push_to_hub
from st_xlret.training.run_arguments import HelpFormat


@dataclass
class Input:
    """What to calibrate, and on what."""

    model: str = field(metadata={"help": "The encoder: a folder or a name on the Hub. It is not trained any further."})
    documents: list[str] = field(
        metadata={
            "help": "Text to take each language's mean and spread from: .jsonl or .jsonl.gz files, or "
            "folders of them. It need not be parallel, and a thousand sentences a language do."
        }
    )
    languages: list[str] | None = field(
        default=None,
        metadata={
            "help": "Which languages to calibrate; default: all in the documents. Text in any other language "
            "is an error when the model is used."
        },
    )
    pivot: str = field(
        default="en",
        metadata={"help": "The language that the others are rotated into. Text without a task is in it."},
    )
    pairs: list[str] | None = field(
        default=None,
        metadata={
            "help": "Parallel sentences with the pivot, if there are any: languages that have them are "
            "rotated by the closed-form solution, the others without supervision. "
            "Have more pairs than dimensions."
        },
    )
    exclude: list[str] = field(
        default_factory=list,
        metadata={"help": "Text files whose lines must not be in the pairs, such as a test set's English side."},
    )
    sentences_per_language: int = field(
        default=20_000, metadata={"help": "How many sentences of each language to embed, drawn at random."}
    )
    skip_bad_lines: bool = field(
        default=False, metadata={"help": "Count lines that cannot be read and go on, instead of stopping."}
    )
    batch_size: int = field(default=64, metadata={"help": "Sentences per forward pass."})


@dataclass
class Method:
    """How to calibrate."""

    steps: list[str] = field(
        default_factory=lambda: ["shift", "scale", "rotate"],
        metadata={
            "help": "In this order: shift (minus the language's mean), scale (divided by its standard "
            "deviation), rotate (orthogonal map into the pivot), lir (minus its top principal component), "
            "lsar (minus the subspace in which the languages' means differ; alone, it makes a model that "
            "needs no language)."
        },
    )
    strength: float = field(
        default=1.0,
        metadata={"help": "From 0, which leaves the model as it is, to 1, the full calibration."},
    )
    scale_by: Literal["std", "variance"] = field(
        default="std", metadata={"help": "Divide by the standard deviation (std) or by the variance."}
    )
    rotation_start: Literal["identity", "adversarial", "both"] = field(
        default="both",
        metadata={
            "help": "Where the rotation without pairs starts: identity (fast, good where the "
            "languages are nearly aligned), adversarial, or both, of which the better by an "
            "unsupervised criterion is taken."
        },
    )
    rotation_prior: float = field(
        default=0.0,
        metadata={
            "help": "How much a rotation stays with the model's own alignment: 0 fits the pairs alone, 1 is "
            "safer where they are few or the model is good."
        },
    )
    normalize_inputs: bool = field(
        default=False, metadata={"help": "Bring embeddings to unit length before the first step."}
    )
    min_sentences: int = field(default=50, metadata={"help": "A language with fewer is an error."})
    seed: int = field(default=0, metadata={"help": "Same seed, same result."})


@dataclass
class Output:
    """Where the result goes."""

    output: str = field(metadata={"help": "Folder for the calibrated model, written whole or not at all."})
    overwrite: bool = field(default=False, metadata={"help": "Replace a model that is already there."})
    push_to_hub: str | None = field(
        default=None, metadata={"help": "Also upload it to this repository, such as me/my-model."}
    )


def main(arguments: list[str] | None = None) -> None:
    """Run with command-line arguments."""
    parser = HfArgumentParser((Input, Method, Output), description=__doc__, formatter_class=HelpFormat)
    given, method, target = parser.parse_args_into_dataclasses(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("st_xlret.calibration").setLevel(logging.INFO)
    check_output_directory(target.output, overwrite=target.overwrite)
    if target.push_to_hub:
        check_push(target.push_to_hub)
    languages = given.languages
    if languages and given.pivot not in languages:
        languages = [given.pivot, *languages]

    documents = load_documents(given.documents, languages=languages, skip_bad_lines=given.skip_bad_lines)
    pairs = None
    if given.pairs:
        pairs = load_pairs(
            given.pairs,
            languages=languages,
            skip_bad_lines=given.skip_bad_lines,
            exclude=lines_to_exclude(given.exclude),
        )
    model = SentenceTransformer(given.model)
    embeddings = embed_documents(
        model,
        documents,
        languages=languages,
        sentences_per_language=given.sentences_per_language,
        batch_size=given.batch_size,
        seed=method.seed,
        show_progress=True,
    )
    parallel = None
    if pairs is not None:
        others = [language for language in embeddings if language != given.pivot]
        parallel = embed_pairs(
            model,
            pairs,
            pivot=given.pivot,
            languages=others,
            batch_size=given.batch_size,
            show_progress=True,
        )
    stages = fit_calibration_stages(
        embeddings,
        steps=method.steps,
        pivot=given.pivot,
        pairs=parallel,
        strength=method.strength,
        seed=method.seed,
        options=CalibrationOptions(
            scale_by=method.scale_by,
            rotation=RotationOptions(initial=method.rotation_start, prior=method.rotation_prior),
            normalize_inputs=method.normalize_inputs,
            min_sentences=method.min_sentences,
        ),
        show_progress=True,
    )
    print(alignment_table(embeddings, stages, given.pivot))

    calibrated = export(model, stages[method.steps[-1]])
    saved = save_model_atomically(calibrated, target.output, overwrite=target.overwrite)
    print(f"saved to {saved}")
    if target.push_to_hub:
        print(f"uploaded to {push_to_hub(saved, target.push_to_hub)}")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
