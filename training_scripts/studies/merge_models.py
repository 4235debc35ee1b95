"""Average models that were trained from one checkpoint, such as those of several seeds, or add what they learned.

    python -m training_scripts.studies.merge_models --model M --add runs/0/model runs/1/model runs/2/model \\
        --output runs/mean
    python -m training_scripts.studies.merge_models --model M --add runs/a/model:0.7 runs/b/model:0.3 \\
        --output runs/merged

The result has the checkpoint's weights plus a share of each model's change of them, by default the same of each, which
is the mean of the models (Wortsman et al., ICML 2022). One model with a share below 1 is a point between the checkpoint
and itself (Wortsman et al., CVPR 2022); several with shares are task arithmetic (Ilharco et al., ICLR 2023).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import torch

from st_xlret.files import save_model
from st_xlret.hub.export import load_model
from st_xlret.options import option, parse


@dataclass
class Arguments:
    """What to add, and where the result goes."""

    model: str = field(metadata={"help": "The checkpoint that all runs started from."})
    output: str = field(metadata={"help": "Folder for the merged model."})
    add: list[str] = option([], "Trained models, FOLDER or FOLDER:SHARE.")
    overwrite: bool = option(False, "Replace a model that is there.")


@torch.no_grad()
def main(arguments: list[str] | None = None) -> None:
    """Merge the models as the command line says."""
    (given,) = parse([Arguments], sys.argv[1:] if arguments is None else arguments, description=__doc__)
    if not given.add:
        raise ValueError("there is nothing to merge: give --add FOLDER ...")
    if len({":" in entry for entry in given.add}) > 1:
        raise ValueError("--add: give a share to each folder, or to none, which is their mean")
    merged = load_model(given.model, "cpu")
    weights = merged.state_dict()
    original = {name: weight.clone() for name, weight in weights.items()}
    for entry in given.add:
        folder, colon, share = entry.rpartition(":")
        try:
            folder, factor = (folder, float(share)) if colon else (entry, 1 / len(given.add))
        except ValueError:
            raise ValueError(f"--add {entry}: write a folder and a share, such as runs/a/model:0.7") from None
        trained = load_model(folder, "cpu").state_dict()
        if {name: weight.shape for name, weight in trained.items()} != {n: w.shape for n, w in original.items()}:
            raise ValueError(f"--add {entry}: this model has other weights than {given.model}")
        for name, weight in weights.items():
            if weight.is_floating_point():
                weight += factor * (trained[name] - original[name])
    save_model(merged, given.output, overwrite=given.overwrite)


if __name__ == "__main__":
    main()
