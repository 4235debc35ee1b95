r"""Write a plain model: Sentence Transformers alone loads it, without st-xlret and without PEFT.

    st-xlret export runs/ccp/checkpoint-500 --output runs/ccp-500
    st-xlret export runs/ccp/model --calibration runs/calibration --output runs/calibrated
    st-xlret export runs/calibrated --dtype bfloat16 --output runs/small --push_to_hub me/small --push_dry_run

Adapters of LoRA are merged into the weights, a saved `CalibrationLayer` becomes layers of Sentence Transformers, and
what only training needs (losses, optimizer, memory banks) is left out. A module that would need code from elsewhere is
an error.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from st_xlret.files import check_output_directory, save_model
from st_xlret.options import name_leading_words, option, parse


@dataclass
class Arguments:
    """What to export, and how."""

    model: str = option(None, "The model: a folder, such as a checkpoint of a run, or a name on the Hub.")
    output: str = option(None, "Folder of the plain model.")
    overwrite: bool = option(False, "Replace a model that is there.")
    calibration: str | None = option(None, "Folder of a CalibrationLayer, which is put at the end of the model.")
    default_language: str | None = option(
        None,
        "With a calibration per language: the language of texts that name none. By default its pivot.",
    )
    dtype: str = option(
        "auto",
        "Number format of the weights; bfloat16 and float16 halve the files. By default that of the model.",
        choices=["auto", "float32", "bfloat16", "float16"],
    )
    license: str | None = option(None, "Licence in the model card, such as apache-2.0.")
    push_to_hub: str | None = option(None, "Also upload the model to this repository, such as me/my-model.")
    push_dry_run: bool = option(False, "With --push_to_hub: show the files and the card instead of uploading them.")

    def __post_init__(self) -> None:
        for name in ("model", "output"):
            if not getattr(self, name):
                raise ValueError(f"--{name} is missing: st-xlret export MODEL --output FOLDER")
        if self.push_dry_run and not self.push_to_hub:
            raise ValueError("--push_dry_run shows what --push_to_hub would upload: give that too")


def main(arguments: Sequence[str], *, prog: str = "st-xlret export") -> None:
    """Run the command `export`."""
    (options,) = parse([Arguments], name_leading_words(arguments, "model"), description=__doc__, prog=prog)
    import torch

    from st_xlret.hub.card import set_card_data
    from st_xlret.hub.export import check_finite, export
    from st_xlret.hub.loading import load_calibration, load_model
    from st_xlret.hub.push import check_push, push
    from st_xlret.training.trainable import merge_adapters

    target = check_output_directory(options.output, overwrite=options.overwrite)
    if options.push_to_hub:
        check_push(options.push_to_hub, dry_run=options.push_dry_run)
    model = load_model(options.model, "cpu")
    before = sum(1 for _ in model.parameters())
    calibration = load_calibration(options.calibration)
    plain = export(merge_adapters(model), calibration, default_language=options.default_language)
    done = ["the adapters are merged"] if sum(1 for _ in model.parameters()) < before else []
    done += ["the calibration is a part of it"] if calibration else []
    if options.dtype != "auto":
        plain.to(getattr(torch, options.dtype))
        check_finite(plain)
    set_card_data(plain, license=options.license)
    save_model(plain, target, overwrite=options.overwrite)
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    print(f"{os.fspath(target)}: {size / 1e6:,.0f} MB" + (f"; {', '.join(done)}" if done else ""))
    if options.push_to_hub:
        print(push(plain, options.push_to_hub, target, dry_run=options.push_dry_run))
