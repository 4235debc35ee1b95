"""What losses need of a Trainer: made for its model, with the columns that they read."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from datasets import Dataset, DatasetDict, IterableDataset
from sentence_transformers import SentenceTransformer
from torch import nn

from st_xlret.columns import (
    TAGGED_KINDS,
    ColumnError,
    Declared,
    check_complete,
    holds_strings,
    text_columns,
)
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

    What is none, such as a name of one, stays as it is.
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


def columns_by_data_set(*datasets: Any) -> dict[str, set[str]]:
    """The columns of data sets whose texts a collator makes tokens of, by the name of the set."""
    columns: dict[str, set[str]] = {}
    for given in datasets:
        named = given if isinstance(given, Mapping) else {"": given}
        for name, dataset in named.items():
            declared = Declared(getattr(dataset, "column_names", None) or ())
            described = declared.of(*TAGGED_KINDS, "label")
            read = [column for column in declared.names if column not in described]
            if read:
                columns.setdefault(name, set()).update(read)
    return columns


def check_names(columns: Mapping[str, set[str]], **options: Any) -> None:
    """Refuse options that name a data set or a column which there is not.

    Args:
        columns: Columns of texts by the name of their data set, as `columns_by_data_set` gives
            them. Nothing is checked where there are none.
        **options: What is a mapping by the names of data sets or of columns, or of both.
    """
    for option, by_name in options.items():
        if not columns or not isinstance(by_name, Mapping):
            continue
        for name, value in by_name.items():
            known = set(columns)
            if isinstance(value, str):
                known = known.union(*columns.values())
            _refuse_unknown(option, [name], known)
            if isinstance(value, Mapping):
                _refuse_unknown(option, value, columns[name])


def _refuse_unknown(option: str, names: Iterable[str], known: set[str]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ColumnError(f"{option} names {unknown}, and there are {sorted(known)}")
