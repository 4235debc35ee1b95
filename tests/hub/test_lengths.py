"""Where a map may stand before the `Normalize` at a model's end: if the lengths vary little."""

import pytest
import torch

from st_xlret import CalibrationLayer
from st_xlret.hub.lengths import measure_mean_lengths


def rows_of_lengths(*lengths: float) -> torch.Tensor:
    """Rows along the second axis."""
    return torch.tensor([[0.0, length] for length in lengths])


def moved_by(offset: float) -> CalibrationLayer:
    """A map that adds to the first axis."""
    layer = CalibrationLayer(2)
    layer.offset[0, 0] = offset
    return layer


@pytest.mark.parametrize(
    ("lengths", "changes_little"),
    [
        ((1.0, 2.0), True),  # a change of 0.011
        ((1.0, 6.0), True),  # below 0.1
        ((1.0, 8.0), False),  # 0.123
        ((1.0, 30.0), False),  # 0.232
    ],
)
def test_queries_alone_may_turn_by_a_tenth(lengths: tuple, changes_little: bool) -> None:
    pooled = {"document": rows_of_lengths(1.0, 1.0), "query": rows_of_lengths(*lengths)}
    layers = {"document": CalibrationLayer(2), "query": moved_by(0.5)}
    found = measure_mean_lengths(pooled, layers)  # type: ignore[arg-type]
    assert (found is not None) == changes_little


@pytest.mark.parametrize(("lengths", "changes_little"), [((1.0, 1.3), True), ((1.0, 2.0), False)])
def test_one_map_for_both_sides_may_turn_by_less(lengths: tuple, changes_little: bool) -> None:
    layer = moved_by(0.5)
    rows = rows_of_lengths(*lengths)
    pooled = {"document": rows, "query": rows}
    found = measure_mean_lengths(pooled, {"document": layer, "query": layer})  # type: ignore[arg-type]
    assert (found is not None) == changes_little
