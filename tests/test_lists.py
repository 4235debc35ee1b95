"""Every loss is in the lists, and type checkers read the lists that Python reads."""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import st_xlret
from st_xlret import calibration, evaluators, functional, losses
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


@pytest.mark.parametrize("module", [st_xlret, calibration, evaluators, losses])
def test_type_checkers_and_python_find_the_same_names(module: Any) -> None:
    typed = {}
    for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("st_xlret"):
            continue
        imported = import_module(node.module)
        for alias in node.names:
            if alias.name == "*":
                typed |= imported._MODULES
            elif alias.asname == alias.name:
                typed[alias.name] = node.module
    typed.pop("functional", None)  # a module
    assert typed == module._MODULES
