"""What is listed by hand, in pages, docstrings and tests, has every loss and benchmark."""

import re

import pytest

import st_xlret
from st_xlret import functional, losses
from st_xlret.evaluation import BENCHMARKS
from tests.conftest import REPOSITORY
from tests.distributed import test_losses as two_ranks
from tests.evaluation import test_bad_files
from tests.functional.test_every_equation import EQUATIONS
from tests.losses import test_every_loss as every_loss

LOSSES = {*losses.__all__} - {"CrossLingualLoss"}
TATOEBA = {"tatoeba", "tatoeba-pairs"}


def letters(text: str) -> str:
    return re.sub("[^a-z]", "", text.lower())


def page(name: str) -> str:
    return letters((REPOSITORY / name).read_text(encoding="utf-8"))


def test_losses_and_their_equations_are_public_explained_and_tried() -> None:
    names = re.findall(r"^\| `(\w+)`.*: `(\w+)` \|$", losses.__doc__ or "", re.MULTILINE)
    assert {loss for loss, _ in names} == LOSSES <= {*st_xlret.__all__}
    assert {equation for _, equation in names} == {*functional.__all__} and len(EQUATIONS) == len(
        functional.__all__
    )
    assert {type(every_loss.built(name)[0]).__name__ for name in every_loss.LOSSES} == LOSSES
    assert {type(two_ranks.build(name)[1]).__name__ for name in two_ranks.LOSSES} == LOSSES


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_a_benchmark_is_public_described_and_tried(benchmark: str) -> None:
    assert BENCHMARKS[benchmark].__name__ in st_xlret.__all__
    pages = ["README.md", "docs/index.md", "docs/guides/evaluation.md"][
        2 * (benchmark == "retrieval") :
    ]  # your own
    assert not [
        each for each in pages if letters(benchmark.removesuffix("-pairs")) not in page(each)
    ]
    assert benchmark in TATOEBA | test_bad_files.WRITERS.keys()
