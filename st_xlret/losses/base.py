"""The base of all losses: what a loss needs of the data, and what it owns besides the encoder."""

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, TypeAlias

import pyarrow.compute as pc
import torch
from accelerate.utils import extract_model_from_parallel
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import (
    all_gather,
    all_gather_with_grad,
    get_world_size,
)
from torch import Tensor, nn

from st_xlret.batches import BatchFactory, Rows
from st_xlret.batches.collator import COLUMN_NAMES
from st_xlret.batches.languages import check_languages_of_rows
from st_xlret.columns import (
    TAGS,
    ColumnError,
    Declared,
    Kind,
    Layout,
    Tag,
    check_complete,
    holds_strings,
    rename,
)
from st_xlret.languages import id_to_language
from st_xlret.ranges import check_range

logger = logging.getLogger(__name__)

Columns: TypeAlias = list[dict[str, Any]]
"""The features of each text column of a batch."""
Tags: TypeAlias = dict[Tag, Tensor]
"""Integers of each row of a batch."""
Batches: TypeAlias = BatchFactory | Mapping[str, Any] | None

HOST_LABELS = ("label", "labels", "score", "scores")
"""The columns that the host takes for labels, and not for texts."""

unwrap_model = partial(extract_model_from_parallel, keep_torch_compile=False)
"""The SentenceTransformer inside the wrappers of distributed training and of `torch.compile`."""


class CrossLingualLoss(nn.Module):
    """Base class of the losses.

    It keeps the encoder as `self.model`, where the host puts the wrapped encoder.
    `CrossLingualTrainer` draws `loss.batches` from `loss.select(dataset)`, as often as
    `loss.ratio` says; with the host's own Trainer, do the same by hand. `LossStateCallback` keeps
    what a loss owns in checkpoints and on ranks.

    All ranks compute the same loss at the same time, on columns with the same names and tags: they
    wait for each other where rows are gathered.

    Args:
        model: The encoder.
        weight: Factor on the loss.
        batches: How batches are drawn: a [`BatchFactory`][st_xlret.batches.BatchFactory], or a
            mapping that changes fields of `default_batches()`, such as
            `{"language_smoothing": 0.3}`.
        ratio: How often batches of this loss are drawn beside those of the other losses of a run.
    """

    data = ""
    """What it is trained on, for the table of losses."""
    equation: Callable[..., Tensor]
    """The equation of `st_xlret.functional` that it computes."""
    paper = ""
    """Where the equation is printed."""
    citation = ""
    """BibTeX of the paper, for the model card."""
    layouts: Sequence[Layout] = (Layout(1),)
    """The ways in which the loss takes texts, and what it needs beside them."""
    gather_across_devices = True
    default_batches: Callable[[], BatchFactory] = Rows
    """How batches are drawn, unless `batches` says it."""
    takes = "texts"
    """What the loss takes, for messages."""
    fit_example = ""
    """An example for `model.fit`, for messages."""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        weight: float = 1.0,
        batches: Batches = None,
        ratio: float = 1.0,
    ) -> None:
        super().__init__()
        check_range(0, weight=weight, ratio=ratio)
        self.model = model
        self.weight = weight
        self.ratio = ratio
        self.batches = self._batch_factory(batches)
        # Set by LossStateCallback, when a training begins.
        self.state_is_kept = False
        # Until a batch with a loss of 0 was warned of.
        self.may_warn_of_zero = True
        self.register_forward_hook(_warn_of_zero_loss)

    def _batch_factory(self, batches: Batches) -> BatchFactory:
        """`batches` of the arguments: as it is, with changed fields, or the default."""
        if batches is None:
            return self.default_batches()
        if isinstance(batches, Mapping):
            return replace(self.default_batches(), **batches)  # type: ignore[type-var]
        return batches

    # Data sets

    def select(self, dataset: Dataset, columns: Mapping[str, str] | None = None) -> Dataset:
        """The columns that this loss reads, texts first, and a line in the log that names them.

        Args:
            dataset: Its columns have the names that [`st_xlret.columns`][st_xlret.columns] lists.
            columns: The declared name of each column to read, where the data set has others, such
                as `{"english": "source", "french": "target"}`. All other columns are left out.

        Raises:
            ValueError: A column has no declared name, is missing, or would not be read.
        """
        if not isinstance(dataset, Dataset):
            kind = type(dataset).__name__
            self.refuse(f"batches are drawn from a Dataset, and this is an {kind}")
        if columns is not None:
            dataset = rename(dataset, columns)
        selected = dataset.select_columns(self.columns_to_read(dataset))
        check_complete(selected, selected.column_names)
        languages = check_languages_of_rows(selected)
        left_out = [name for name in dataset.column_names if name not in selected.column_names]
        self._log_selection(selected, languages, left_out)
        return selected

    def columns_to_read(self, dataset: Dataset) -> list[str]:
        """The columns that `select` leaves, texts first; a ValueError if one is not clear."""
        try:
            columns = Declared(dataset.column_names).columns_to_read(self.layouts)
        except ColumnError as error:
            self.refuse(str(error))
        for text in Declared(columns).of("text"):
            if not holds_strings(dataset, text):
                kind = dataset.features[text]
                self.refuse(f"the column {text!r} has no strings, its type is {kind}")
        return columns

    def _log_selection(
        self, selected: Dataset, languages: set[str], left_out: Sequence[str]
    ) -> None:
        """Log which columns of how many rows a loss reads, and what it leaves out."""
        read = selected.column_names
        size = f"{len(selected)} rows"
        if "document" in read:
            documents = selected.with_format("arrow", columns=["document"])[:]
            count = pc.count_distinct(documents["document"])
            size = f"{count} documents"
        if languages:
            size += f" in {len(languages)} languages"
        if left_out:
            size += f"; not read: {', '.join(left_out)}"
        logger.info("%s reads %s of %s", type(self).__name__, read, size)

    # Batches

    def read_columns(
        self,
        sentence_features: Iterable[dict[str, Any]],
        labels: Tensor | None = None,
    ) -> Columns:
        """The text columns of a batch; a ValueError if they are not those that the loss takes.

        Integer labels become a tag that the columns lack. It warns once of a state that no
        checkpoint keeps.
        """
        columns = list(sentence_features)
        for names in self._names_of_columns(columns):
            try:
                Declared(names).check_texts(self.layouts)
            except ColumnError as error:
                self.refuse(f"{error}. Columns that are no texts are taken out by our collator")
        self._warn_unless_state_is_kept()
        if labels is None:
            return columns
        return self._labels_as_tags(columns, labels)

    def _names_of_columns(self, columns: Columns) -> list[list[str]]:
        """What the columns may be named; without our collator, all that the model card shows."""
        count = len(columns)
        names = columns[0].get(COLUMN_NAMES, []) if columns else []
        if names and len(names) == count:
            return [names]
        # Columns that a program puts together itself are read in their order.
        by_order = [f"sentence_{number}" for number in range(count)]
        return [*self._names_on_card(), by_order]

    def _names_on_card(self) -> list[list[str]]:
        """The columns of the data sets that a Trainer of the host has for this loss.

        With gradients they are those to train on, else those to evaluate on.
        """
        # The host's own collator does not hand names on.
        card = unwrap_model(self.model).model_card_data
        shown = card.eval_datasets
        if torch.is_grad_enabled():
            shown = card.train_datasets
        names = []
        for data_set in shown:
            of_loss = str(data_set.get("loss"))
            columns = data_set.get("columns")
            if columns and type(self).__name__ in of_loss:
                names.append(_names_of_texts(columns))
        return names

    def _labels_as_tags(self, columns: Columns, labels: Tensor) -> Columns:
        """The columns with integer labels as the tag that they lack; others must not differ.

        A `ValueError` refuses labels that differ and would not be read.
        """
        tag = self._tag_of_label(len(columns))
        is_integer = not labels.is_floating_point()
        if tag and is_integer and not any(tag in features for features in columns):
            if tag == "language_id":
                _check_language_ids(labels)
            return [{**features, tag: labels} for features in columns]
        values = labels.unique().tolist()
        if len(columns) > 1 and len(values) > 1:
            self.refuse(f"the labels {values[:3]} differ, and the loss would not read them")
        return columns

    def _tag_of_label(self, texts: int) -> Tag | None:
        """The tag that labels stand for beside so many text columns, as in `model.fit`.

        None where labels are no tag.
        """
        tags: dict[Kind | None, Tag] = {"language": "language_id", "document": "document_id"}
        for layout in self.layouts:
            if layout.texts in (0, texts):
                return tags.get(layout.label_is)
        return None

    def _warn_unless_state_is_kept(self) -> None:
        """Say once that no checkpoint will hold what the loss owns; refuse on several ranks."""
        if self.state_is_kept or not self.updates_state or not self.owned_parameters():
            return
        self.state_is_kept = True
        way_out = "use CrossLingualTrainer, or give the Trainer callbacks=[LossStateCallback(loss)]"
        if get_world_size() > 1:
            self.refuse(f"nothing averages the gradients of its own parameters: {way_out}")
        name = type(self).__name__
        logger.warning("no checkpoint will hold the parameters of %s: %s", name, way_out)

    def concatenate_tags(self, columns: Columns, *required: Tag) -> Tags:
        """The tags of all columns, each as one tensor: column after column.

        A tag that a column lacks is left out. A ValueError names those `required` that are missing.
        """
        tags: Tags = {}
        for tag in TAGS:
            values = [features[tag] for features in columns if tag in features]
            if len(values) == len(columns):
                tags[tag] = torch.cat(values)
        missing = [tag for tag in required if tag not in tags]
        if missing:
            self.refuse(f"the {len(columns)} text columns of the batch come without {missing}")
        return tags

    def gather_rows(
        self,
        vectors: list[Tensor],
        tags: Tags,
    ) -> tuple[list[Tensor], Tags]:
        """Vectors of equally long columns, and tags of all columns, from all ranks.

        All ranks call it together, with as many rows, columns and the same tags; a column has the
        rows of one rank after the other. They stay as they are where the loss does not gather
        across devices.
        """
        if get_world_size() == 1 or not self.gather_across_devices:
            return vectors, tags
        gathered_vectors = []
        for column in vectors:
            gathered_vectors.append(all_gather_with_grad(column))
        gathered_tags: Tags = {}
        for name in TAGS:  # in one order on all ranks, whatever that of `tags`
            if name not in tags:
                continue
            columns = tags[name].chunk(len(vectors))
            columns_of_ranks = [all_gather(column.contiguous()) for column in columns]
            gathered_tags[name] = torch.cat(columns_of_ranks)
        return gathered_vectors, gathered_tags

    # What the loss owns

    def owned_parameters(self) -> list[nn.Parameter]:
        """Trainable parameters that belong to the loss and not to the encoder."""
        owned = []
        for name, parameter in self.named_parameters():
            if _is_owned(name) and parameter.requires_grad:
                owned.append(parameter)
        return owned

    def owned_state(self) -> dict[str, Tensor]:
        """Parameters and buffers that belong to the loss and not to the encoder, not copied."""
        state = self.state_dict()
        for name in list(state):
            if not _is_owned(name):
                del state[name]
        return state

    def load_owned_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `owned_state` returned; a RuntimeError names missing or further parts."""
        whole = dict(state)
        for name, tensor in self.state_dict().items():
            if not _is_owned(name):
                whole[name] = tensor
        self.load_state_dict(whole)

    @property
    def updates_state(self) -> bool:
        """Whether this forward pass may change banks, statistics and counts of steps.

        It is one of a training then, and random choices differ from step to step; in evaluation
        they are always the same. The host leaves losses in training mode while it evaluates.
        """
        return self.training and torch.is_grad_enabled()

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the loss for the model card: its arguments that are numbers or words."""
        options = {}
        for kind in type(self).__mro__:
            for name in inspect.signature(kind).parameters:
                value = getattr(self, name, None)
                if isinstance(value, int | float | str):
                    options[name] = value
        return options

    def refuse(self, problem: str) -> NoReturn:
        """Raise a ValueError that says what is wrong, what the loss takes, and the way out."""
        way_out = (
            "Give columns their names with dataset.rename_column, or with "
            "loss.select(dataset, columns={...}); leave others out with remove_columns. "
            "Use CrossLingualTrainer, or give a Trainer "
            "data_collator=CrossLingualDataCollator(model.preprocess)"
        )
        if self.fit_example:
            way_out += f" and batch_sampler={self.default_batches.__name__}()"
            way_out += f"; with model.fit, {self.fit_example}"
        raise ValueError(f"{type(self).__name__}: {problem}. It takes {self.takes}. {way_out}")


def _names_of_texts(shown: Iterable[str]) -> list[str]:
    """The names of columns that a model card shows as code, without the labels."""
    names = []
    for column in shown:
        name = re.sub("</?code>", "", column)
        if name not in HOST_LABELS:
            names.append(name)
    return names


def _check_language_ids(labels: Tensor) -> None:
    """Refuse labels that are no languages, such as those of another task."""
    for label in labels.unique().tolist():
        id_to_language(label)


def _is_owned(name: str) -> bool:
    """Whether a parameter of a loss is not of the encoder, which is `model`.

    A loss may have another one inside, whose encoder is `mlm.model`.
    """
    return "model" not in name.split(".")[:2]


def _warn_of_zero_loss(loss: CrossLingualLoss, inputs: Any, value: Tensor | Tags) -> None:
    """A hook of a loss, which logs once that a batch teaches nothing, as without negatives."""
    if not loss.may_warn_of_zero or not loss.updates_state:
        return
    parts = value.values() if isinstance(value, dict) else [value]
    if any(float(part.detach()) == 0 for part in parts):
        loss.may_warn_of_zero = False
        name = type(loss).__name__
        reason = "no row has a negative where a language has one document, or a batch one row"
        logger.warning("a batch of %s teaches nothing, its loss is 0: %s", name, reason)


def package_loss(loss: nn.Module | None) -> CrossLingualLoss | None:
    """The loss of this package that a module is, or wraps; None for losses of other libraries."""
    if loss is None:
        return None
    for module in loss.modules():
        if isinstance(module, CrossLingualLoss):
            return module
    return None
