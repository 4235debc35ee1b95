"""What the page about one's own data says of columns and of errors is what the losses do."""

import re
from typing import Any

import pytest
from datasets import Dataset

from st_xlret import CCPLoss, SemanticContrastiveLoss
from st_xlret.batches import Windows
from st_xlret.columns import KINDS, ROLES, Declared
from st_xlret.languages import check_language
from st_xlret.losses import CrossLingualLoss
from tests import tiny
from tests.conftest import REPOSITORY
from tests.losses.examples import EXAMPLES
from tests.losses.test_every_loss import built

PAGE = (REPOSITORY / "docs" / "guides" / "own-data.md").read_text(encoding="utf-8")


def test_the_table_of_losses_is_that_of_losses_as_they_are_made_by_default() -> None:
    losses = [built(name) for name in EXAMPLES]
    by_default = {type(loss) for loss in losses if loss.layouts == type(loss).layouts}
    assert by_default == {type(loss) for loss in losses}


def test_the_table_of_names_has_each_name_and_no_other() -> None:
    table = PAGE.partition("## Names of columns")[2].partition("\n\nIf")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    names = re.findall(r"`(\w+)`", " ".join(rows))
    assert {*ROLES, *KINDS} <= {*names}
    assert Declared(names).of("unknown") == []


PAIR: dict[str, Any] = {"source": ["It rains."], "target": ["Il pleut."]}
SENTENCE: dict[str, Any] = {"sentence": ["It rains."], "document": [0]}
REFUSED: dict[str, tuple[type[CrossLingualLoss], dict[str, Any]]] = {
    "no declared name says what ['english'] are": (
        SemanticContrastiveLoss,
        {"english": ["It rains."], "target": ["Il pleut."]},
    ),
    "3 text columns do not fit": (SemanticContrastiveLoss, {**PAIR, "other": ["Es regnet."]}),
    "the columns ['language'] are missing": (CCPLoss, SENTENCE),
    "'label' would not be read": (SemanticContrastiveLoss, {**PAIR, "label": [1]}),
    "the column 'target' has no strings": (
        SemanticContrastiveLoss,
        {**PAIR, "target": [["Il pleut."]]},
    ),
}
"""What an error says, the loss that raises it, and the columns that it is of."""


@pytest.mark.parametrize("message", REFUSED)
def test_columns_are_refused_in_the_words_of_the_page(message: str) -> None:
    loss, columns = REFUSED[message]
    assert f"`{message}`" in PAGE
    with pytest.raises(ValueError, match=re.escape(message)):
        loss(tiny.static()).select(Dataset.from_dict(columns))


def test_other_errors_have_the_words_of_the_page() -> None:
    stream: Any = Dataset.from_dict(PAIR).to_iterable_dataset()
    with pytest.raises(ValueError) as of_stream:
        SemanticContrastiveLoss(tiny.static()).select(stream)
    with pytest.raises(ValueError) as of_language:
        check_language("English")
    with pytest.raises(ValueError) as of_batches:
        one_sentence = Dataset.from_dict({**SENTENCE, "language": ["en"]})
        Windows().make(one_sentence, 2, drop_last=False, seed=0)
    errors = f"{of_stream.value} {of_language.value} {of_batches.value}"
    for message in (
        "batches are drawn from a Dataset",
        "unknown language code 'English'",
        "there is nothing to draw",
    ):
        assert f"`{message}`" in PAGE
        assert message in errors
