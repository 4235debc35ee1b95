"""The losses of a Trainer: made for its model, given the columns that they read, and watched."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from datasets import Dataset, DatasetDict, IterableDataset
from sentence_transformers import SentenceTransformer
from torch import nn

from st_xlret.columns import check_complete, holds_strings, text_columns
from st_xlret.losses.base import package_loss
from st_xlret.training.loss_state import Losses, LossStateCallback, losses_by_name

LossOrMaker: TypeAlias = nn.Module | Callable[[SentenceTransformer], nn.Module]
"""A loss, or a function that makes it for a model."""
DataSets: TypeAlias = Dataset | IterableDataset | Mapping[str, Dataset | IterableDataset]
"""A data set, or several by name."""


def build_losses(
    losses: LossOrMaker | Mapping[str, LossOrMaker],
    model: SentenceTransformer,
    *,
    anew: bool = False,
) -> nn.Module | dict[str, nn.Module]:
    """Losses, made where they are functions of the model.

    With `anew`, those of this package must be functions.
    """
    if isinstance(losses, Mapping):
        return {name: _build_loss(each, model, anew) for name, each in losses.items()}
    return _build_loss(losses, model, anew)


def _build_loss(loss: LossOrMaker, model: SentenceTransformer, anew: bool) -> nn.Module:
    """A loss as it is, or made by a function of the model.

    With `anew`, a `ValueError` refuses a loss of this package that is no function.
    """
    if not isinstance(loss, nn.Module):
        return loss(model)
    if anew and package_loss(loss):
        raise ValueError(
            f"with model_init, {type(loss).__name__} has to be made with each model: "
            "give it as a function, such as loss=lambda model: CCPLoss(model)"
        )
    return loss


def select_loss_columns(datasets: Any, loss: nn.Module | Mapping[str, nn.Module] | None) -> Any:
    """Reduce a data set, or several by name, to the columns that their losses read.

    What is none, such as a name of one, stays as it is. A `ValueError` refuses texts in a column
    `document`, also for losses of the host.
    """
    if isinstance(datasets, Mapping):
        selected = DatasetDict()
        for name, dataset in datasets.items():
            loss_of_name = loss.get(name) if isinstance(loss, Mapping) else loss
            selected[name] = select_loss_columns(dataset, loss_of_name)
        return selected
    is_data_set = datasets is not None and not isinstance(datasets, str)
    if not is_data_set or loss is None or isinstance(loss, Mapping):
        return datasets
    own = package_loss(loss)
    if own is not None:
        return own.select(datasets)
    if isinstance(datasets, Dataset):
        check_complete(datasets, text_columns(datasets))
    if holds_strings(datasets, "document"):
        raise ValueError(
            f"{type(loss).__name__}: the column 'document' is the id of a document here: "
            "rename it, as by dataset.rename_column('document', 'positive')"
        )
    if isinstance(datasets, Dataset):
        # A copy, for the host changes the format of what it is given.
        return datasets.select_columns(datasets.column_names)
    return datasets


def has_own_loss(losses: Losses | None) -> bool:
    """Whether a loss of this package is among losses."""
    if losses is None:
        return False
    return any(package_loss(loss) is not None for loss in losses_by_name(losses).values())


def take_loss_state(callbacks: list[Any], losses: Losses) -> LossStateCallback:
    """Take the callback for losses out of those of a Trainer; a new one where none is given."""
    for given in callbacks:
        if isinstance(given, LossStateCallback):
            callbacks.remove(given)
            given.watch_losses(losses)
            return given
    return LossStateCallback(losses)
