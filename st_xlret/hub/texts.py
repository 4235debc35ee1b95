"""Texts of the cards: a question, answers to it, and what each step of a calibration does."""

import json
from pathlib import Path
from typing import NamedTuple

from st_xlret.citations import CITATIONS


class StepInWords(NamedTuple):
    """What a step does, and the paper that it is from; of our own, none."""

    does: str
    paper: str


_FOLDER = Path(__file__).parent
_TEXTS = json.loads((_FOLDER / "card.json").read_text(encoding="utf-8"))

QUESTION: str = _TEXTS["question"]
ANSWERS: dict[str, str] = _TEXTS["answers"]
"""By language."""

STEPS_IN_WORDS = {name: StepInWords(*about) for name, about in _TEXTS["steps"].items()}

LICENSES = (_FOLDER / "licenses.txt").read_text(encoding="utf-8").split()
"""The identifiers of https://huggingface.co/docs/hub/repositories-licenses.

The Hub refuses a card with another one.
"""

PAPERS = {
    "CCP": CITATIONS["wu2022ccp"],
    "MUSE": CITATIONS["conneau2018word"],
    "LIR": CITATIONS["yang2021simple"],
    "LSAR": CITATIONS["xie2022discovering"],
    "CORAL": CITATIONS["sun2016return"],
}
"""The citation of each paper; the Hub makes tags of the addresses."""
