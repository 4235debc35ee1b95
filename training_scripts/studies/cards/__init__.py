"""The cards of the four published systems in `model_cards/`: one module per system, from the files of its study."""

from __future__ import annotations

from collections.abc import Callable

from training_scripts.studies.cards import ccp, language_agnostic_ir, ml_ctl, msm
from training_scripts.studies.cards.contents import Contents, write_contents
from training_scripts.studies.cards.options import CardOptions

SYSTEMS: dict[str, Callable[[CardOptions], Contents]] = {
    "ccp": ccp.contents,
    "msm": msm.contents,
    "ml-ctl": ml_ctl.contents,
    "language-agnostic-ir": language_agnostic_ir.contents,
}


def write_card(options: CardOptions) -> str:
    """Write the card of a system from its finished runs; no figure is typed by hand.

    Args:
        options: Which system and which runs.

    Returns:
        The text of the card.

    Raises:
        ValueError: When the runs lack what the card is about.
        OSError: When a file of theirs cannot be read, or the card not be written.
    """
    return write_contents(options, SYSTEMS[options.system](options))


__all__ = ["SYSTEMS", "CardOptions", "write_card"]
