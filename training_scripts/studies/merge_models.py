"""Add what several runs learned from one checkpoint: its weights plus a share of each run's change of them.

    python -m training_scripts.studies.merge_models --model M --add runs/a/model:0.7 runs/b/model:0.3 \\
        --output runs/merged

One run with a share below 1 is a point between the checkpoint and the trained model (Wortsman et al., CVPR 2022);
several are task arithmetic (Ilharco et al., ICLR 2023).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import torch

from st_xlret.files import save_model
from st_xlret.hub.loading import load_model
from st_xlret.options import option, parse


@dataclass
class Arguments:
    """What to add, and where the result goes."""

    model: str = field(metadata={"help": "The checkpoint that all runs started from."})
    output: str = field(metadata={"help": "Folder for the merged model."})
    add: list[str] = option([], "Trained models with their shares: FOLDER:SHARE.")
    overwrite: bool = option(False, "Replace a model that is there.")


@torch.no_grad()
def main(arguments: list[str] | None = None) -> None:
    """Merge the models as the command line says."""
    (given,) = parse([Arguments], sys.argv[1:] if arguments is None else arguments, description=__doc__)
    if not given.add:
        raise ValueError("there is nothing to merge: give --add FOLDER:SHARE")
    merged = load_model(given.model, "cpu")
    weights = merged.state_dict()
    original = {name: weight.clone() for name, weight in weights.items()}
    for entry in given.add:
        folder, _, share = entry.rpartition(":")
        try:
            factor = float(share)
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
