"""Every loss is public, explained, and has an example."""

import pytest

import st_xlret
from st_xlret import functional, losses
from tests.losses.examples import EXAMPLES
from tests.losses.test_every_loss import built

LOSSES_OF_EXAMPLES = {type(built(name)).__name__ for name in EXAMPLES}


@pytest.mark.parametrize("name", sorted({*losses.__all__} - {"CrossLingualLoss"}))
def test_a_loss_is_public_explained_and_has_an_example(name: str) -> None:
    loss = getattr(losses, name)
    assert getattr(st_xlret, name) is loss
    assert loss.__doc__
    assert loss.data
    assert loss.paper
    assert loss.citation
    assert loss.equation.__name__ in functional.__all__
    assert name in LOSSES_OF_EXAMPLES, "tests/losses/examples.py has no example of it"


def test_an_equation_is_that_of_a_loss() -> None:
    of_losses = {getattr(losses, name).equation.__name__ for name in LOSSES_OF_EXAMPLES}
    assert of_losses == {*functional.__all__}
