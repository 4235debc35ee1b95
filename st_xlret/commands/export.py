r"""Write a plain model: Sentence Transformers alone loads it, without st-xlret and without PEFT.

    st-xlret export runs/ccp/checkpoint-500 --output runs/ccp-500
    st-xlret export runs/ccp/model --calibration runs/map --output runs/calibrated
    st-xlret export runs/calibrated --dtype bfloat16 --output runs/small --push_to_hub me/small

Adapters of LoRA are merged into the weights, a saved calibration becomes layers of Sentence
Transformers, and what only training needs (losses, optimizer, memory banks) is left out. A module
that would need code from elsewhere is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from st_xlret.files import check_output_directory
from st_xlret.hub.portable import write_model
from st_xlret.options import check_options, name_leading_words, option, parse

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from st_xlret.calibration import VectorCalibration

_OF_THE_HUB = ("private", "revision", "create_pr")
_DTYPES = ["auto", "float32", "bfloat16", "float16"]


@dataclass
class Arguments:
    """What to export, and how."""

    model: str = option(
        None, "The model: a folder, such as a checkpoint of a run, or a name on the Hub."
    )
    output: str = option(None, "Folder of the plain model.")
    overwrite: bool = option(False, "Replace a model that is there, on the Hub, too.")
    calibration: str | None = option(
        None, "Folder of a calibration, which is put at the end of the model."
    )
    documents: list[str] = option(
        [], "Texts on which lengths of pooled vectors are measured. By default phrases."
    )
    default_language: str | None = option(
        None, "With a map per language: that of texts that name none."
    )
    dtype: str = option(
        "auto", "Number format of the weights; 16 bits halve the files. auto: the model's.", _DTYPES
    )
    license: str | None = option(None, "Licence in the model card, such as apache-2.0.")
    push_to_hub: str | None = option(
        None, "Also upload the folder to this repository, such as me/my-model."
    )
    private: bool = option(False, "With --push_to_hub: to a private repository.")
    revision: str | None = option(
        None, "With --push_to_hub: to this branch, which is made if there is none."
    )
    create_pr: bool = option(False, "With --push_to_hub: as a proposal (pull request).")


def main(arguments: Sequence[str], *, prog: str = "st-xlret export") -> None:
    """Run the command `export`."""
    words = name_leading_words(arguments, "model")
    (options,) = parse([Arguments], words, description=__doc__, prog=prog)
    check_options(options, "output")
    from st_xlret.hub.card import check_license, set_card_data
    from st_xlret.hub.repository import Repository

    check_license(options.license)
    target = check_output_directory(
        options.output, options.overwrite, inputs=[options.model, options.calibration]
    )
    repository = None
    if options.push_to_hub:
        repository = Repository(
            options.push_to_hub,
            private=options.private or None,
            revision=options.revision,
            create_pr=options.create_pr,
            overwrite=options.overwrite,
        )
    else:
        unread = [name for name in _OF_THE_HUB if getattr(options, name)]
        check_options(options, unread=unread, where="without --push_to_hub")

    plain = _plain_model(options)
    set_card_data(plain, license=options.license)
    plain.model_card_data.model_id = repository.repo_id if repository else None
    write_model(plain, target, overwrite=options.overwrite)
    print(f"{target}: {_megabytes(target):,.0f} MB")
    if repository:
        print(repository.upload(target))


def _plain_model(options: Arguments) -> SentenceTransformer:
    """The model of built-in modules, with its calibration, in the number format asked for.

    Without `--model`, it is the one that the calibration names; a `ValueError` if it names none.
    """
    import torch

    from st_xlret.calibration import VectorCalibration
    from st_xlret.hub.export import export
    from st_xlret.hub.loading import load_model

    if options.calibration is None:
        check_options(options, "model")
        model = load_model(options.model, "cpu")
        plain = export(model, default_language=options.default_language)
    else:
        calibration = VectorCalibration.load(options.calibration)
        name = options.model or calibration.model
        if not name:
            raise ValueError("--model is missing")
        model = load_model(name, "cpu")
        plain = _calibrated(model, calibration, options)
    if options.dtype != "auto":
        plain.to(getattr(torch, options.dtype))
    return plain


def _calibrated(
    model: SentenceTransformer, calibration: VectorCalibration, options: Arguments
) -> SentenceTransformer:
    """The model with the calibration built in.

    A `Normalize` that it needs is appended to `model` itself, before rows are measured by it.
    """
    from sentence_transformers.base.modules import Normalize

    from st_xlret.calibration.model import build_in
    from st_xlret.hub.lengths import pooled_rows

    # It was fitted on vectors of unit length.
    if calibration.normalize and not isinstance(model[-1], Normalize):
        model.append(Normalize())
    return build_in(
        model,
        calibration,
        default_language=options.default_language,
        pooled=pooled_rows(model, _texts_to_measure(options.documents)),
    )


def _texts_to_measure(documents: list[str]) -> list[str]:
    """Texts of the user, or phrases in many languages, each alone and all of a language as one."""
    from st_xlret.calibration.panels import weak_language_phrases
    from st_xlret.calibration.sampling import sample_texts

    texts: list[str] = []
    if documents:
        for sample in sample_texts(documents, texts_per_language=100).values():
            texts.extend(sample.texts)
    else:
        for phrases in weak_language_phrases().values():
            texts.extend([*phrases, " ".join(phrases)])
    return texts


def _megabytes(folder: Path) -> float:
    """The size of all files below a folder."""
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    return sum(sizes) / 1e6
