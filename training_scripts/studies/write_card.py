r"""Write a card of model_cards/ from finished runs; no figure is typed by hand.

    python -m training_scripts.studies.write_card --system msm --study runs/study-msm --data ../shared/data \
        --output model_cards/msm.md
    python -m training_scripts.studies.write_card --system ml-ctl --study runs/study-ml-ctl --float-study runs/float \
        --data ../shared/data --output model_cards/ml-ctl.md
    python -m training_scripts.studies.write_card --system language-agnostic-ir --study runs/study-ir \
        --data ../shared/data --output model_cards/language-agnostic-ir.md
    python -m training_scripts.studies.write_card --system ccp --training runs/best \
        --evaluations raw=raw.json shift=shift.json --studies runs/study-static --data ../shared/data \
        --output model_cards/ccp.md

A study is a folder that a study_*.py wrote. The figures come from its study.json, and the card says which ones are
absent. Rows copied from the papers are marked as published. Plots of the study are copied beside the card.
"""

from __future__ import annotations

import sys

from st_xlret.options import parse
from training_scripts.studies.cards import CardOptions, write_card


def main(arguments: list[str] | None = None) -> None:
    """Write the card."""
    (options,) = parse([CardOptions], arguments, description=__doc__)
    write_card(options)
    print(f"The card of {options.system} is in {options.output}.")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
