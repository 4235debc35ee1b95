"""Average models that were trained from one checkpoint, or add what they learned.

    python -m training_scripts.studies.merge_models --model M \\
        --add runs/a/model:0.7 runs/b/model:0.3 --output runs/merged

The result has the checkpoint's weights plus a share of each model's change of them, by default the
same of each, which is the mean of the models, such as those of several seeds (Wortsman et al., ICML
2022); shares are task arithmetic (Ilharco et al., ICLR 2023).
"""

from dataclasses import dataclass

import torch

from st_xlret.hub.loading import load_model
from st_xlret.hub.portable import write_model
from st_xlret.options import option, parse, required_option


@dataclass
class Arguments:
    """What to add, and where the result goes."""

    model: str = required_option("The checkpoint that all runs started from.")
    output: str = required_option("Folder for the merged model.")
    add: list[str] = option([], "Trained models, each FOLDER for their mean, or each FOLDER:SHARE.")
    overwrite: bool = option(False, "Replace a model that is there.")


def shares_of(entries: list[str]) -> dict[str, float]:
    """Folder -> share of what was learned, of FOLDER:SHARE; without a share, the same of each."""
    shares = {}
    for entry in entries:
        if ":" in entry:
            folder, share = entry.rsplit(":", 1)
            shares[folder] = float(share)
        else:
            shares[entry] = 1 / len(entries)
    return shares


@torch.no_grad()
def main(arguments: list[str] | None = None) -> None:
    """Merge the models as the command line says."""
    (given,) = parse([Arguments], arguments, description=__doc__)
    shares = shares_of(given.add)
    merged = load_model(given.model, "cpu")
    state = merged.state_dict()
    weights = {name: weight for name, weight in state.items() if weight.is_floating_point()}
    original = {name: weight.clone() for name, weight in weights.items()}
    for folder, share in shares.items():
        trained = load_model(folder, "cpu").state_dict()
        for name, weight in weights.items():
            weight += share * (trained[name] - original[name])
    write_model(merged, given.output, overwrite=given.overwrite, inputs=[given.model, *shares])


if __name__ == "__main__":
    main()
