r"""Write a plain model: Sentence Transformers alone loads it, without st-xlret and without PEFT.

    st-xlret export runs/ccp/checkpoint-500 --output runs/ccp-500
    st-xlret export runs/ccp/model --calibration runs/map --output runs/calibrated
    st-xlret export runs/calibrated --dtype bfloat16 --output runs/small --push_to_hub me/small

Adapters of LoRA are merged into the weights, a saved calibration becomes layers of Sentence Transformers, and what only
training needs (losses, optimizer, memory banks) is left out. A module that would need code from elsewhere is an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from st_xlret.commands import check_options
from st_xlret.files import check_output_directory
from st_xlret.options import name_leading_words, option, parse
from st_xlret.portable import write_model

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
    (options,) = parse(
        [Arguments], name_leading_words(arguments, "model"), description=__doc__, prog=prog
    )
    check_options(options, "output")
    import torch
    from sentence_transformers.base.modules import Normalize

    from st_xlret.calibration import VectorCalibration
    from st_xlret.calibration.model import weak_language_phrases
    from st_xlret.calibration.sampling import sample_texts
    from st_xlret.hub.card import check_license, set_card_data
    from st_xlret.hub.export import Repository, export, load_model, pooled_rows

    check_license(options.license)
    target = check_output_directory(
        options.output, options.overwrite, inputs=[options.model, options.calibration]
    )
    place = {name: getattr(options, name) for name in ("revision", "create_pr", "overwrite")}
    repository = options.push_to_hub and Repository(
        options.push_to_hub, private=options.private or None, **place
    )
    calibration = VectorCalibration.load(options.calibration) if options.calibration else None
    options.model = options.model or (calibration.model if calibration else None)
    check_options(options, "model")
    model, maps = load_model(options.model, "cpu"), {}
    if calibration:
        if calibration.normalize and not isinstance(
            model[-1], Normalize
        ):  # it was fitted on vectors of unit length
            model.append(Normalize())
        maps["calibration"] = calibration.layer("document")
        maps["query_calibration"] = (
            calibration.layer("query") if calibration.query is not None else None
        )
        drawn = {code: [*part, " ".join(part)] for code, part in weak_language_phrases().items()}
        if options.documents:
            sample = sample_texts(options.documents, texts_per_language=100)
            drawn = {code: part.texts for code, part in sample.items()}
        maps["pooled"] = pooled_rows(model, [text for part in drawn.values() for text in part])
    plain = export(model, **maps, default_language=options.default_language)
    if options.dtype != "auto":
        plain.to(getattr(torch, options.dtype))
    set_card_data(plain, license=options.license)
    plain.model_card_data.model_id = repository.repo_id if repository else None
    write_model(plain, target, overwrite=options.overwrite)
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    print(f"{target}: {size / 1e6:,.0f} MB")
    if repository:
        print(repository.upload(target))
