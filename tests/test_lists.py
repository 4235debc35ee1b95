"""What is listed by hand, in pages, docstrings and tests, has every loss."""

import re

import st_xlret
from st_xlret import functional, losses
from tests.distributed import test_losses as two_ranks
from tests.functional.test_every_equation import EQUATIONS
from tests.losses import test_every_loss as every_loss

LOSSES = {*losses.__all__} - {"CrossLingualLoss"}


def test_losses_and_their_equations_are_public_explained_and_tried() -> None:
    names = re.findall(r"^\| `(\w+)`.*: `(\w+)` \|$", losses.__doc__ or "", re.MULTILINE)
    assert {loss for loss, _ in names} == LOSSES <= {*st_xlret.__all__}
    assert {equation for _, equation in names} == {*functional.__all__} and len(EQUATIONS) == len(
        functional.__all__
    )
    assert {type(every_loss.built(name)[0]).__name__ for name in every_loss.LOSSES} == LOSSES
    assert {type(two_ranks.build(name)[1]).__name__ for name in two_ranks.LOSSES} == LOSSES
