"""What is listed by hand, in pages, docstrings and tables of tests, has every loss, store and benchmark."""

import re

import pytest

import st_xlret
from st_xlret import functional, losses
from st_xlret.evaluation import BENCHMARKS
from st_xlret.stores import open_store
from st_xlret.stores.registry import STORES
from tests.conftest import REPOSITORY
from tests.distributed import test_losses as two_ranks
from tests.evaluation import test_bad_files
from tests.functional.test_every_equation import EQUATIONS
from tests.losses import test_every_loss as every_loss
from tests.stores import stores

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


@pytest.mark.parametrize("kind", [kind.name for kind in STORES])
def test_a_store_is_named_and_tried(kind: str) -> None:
    (name,) = (
        each.class_name.removesuffix("Store").lower() for each in STORES if each.name == kind
    )
    texts = {each: page(each) for each in ("README.md", "docs/guides/vectors.md")}
    texts["open_store"] = letters(open_store.__doc__ or "")
    if kind.isalpha():  # a database, which has an extra and a word for what `into` names
        texts["docs/getting-started.md"] = page("docs/getting-started.md")
    assert not [
        where for where, text in texts.items() if name not in text and letters(kind) not in text
    ]
    assert any(letters(kind) in builder for builder in (*stores.BUILDERS, *stores.POSTGRES))


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
