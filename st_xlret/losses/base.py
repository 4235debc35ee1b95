"""The base of all losses: what a loss needs of the data, and what it owns besides the encoder."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias

import torch
from accelerate.utils import extract_model_from_parallel
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import get_world_size
from torch import Tensor, nn

from st_xlret.batches import BatchFactory, Rows
from st_xlret.batches.collator import text_columns

logger = logging.getLogger(__name__)

Batches: TypeAlias = "BatchFactory | Mapping[str, Any] | None"
TAGS = ("language_id", "document_id", "text_id", "block_id", "sentence_position", "word_start", "word_end")


class CrossLingualLoss(nn.Module):
    """Base class of the losses. It keeps the encoder as `self.model`, where the host puts the wrapped encoder.

    `CrossLingualTrainer` draws `loss.batches` from `loss.select(dataset)`, as often as `loss.ratio` says; with the
    host's own Trainer, do the same by hand. `LossStateCallback` keeps what a loss owns in checkpoints and on all ranks.

    A subclass says how many text columns it takes (`least_columns`, `most_columns`), what they are (`takes`) and how to
    give them (`way_out`, both for messages), its `default_batches`, and by `required_columns` what else it needs.

    Args:
        model: The encoder.
        batches: How batches are drawn: a [`BatchFactory`][st_xlret.batches.BatchFactory], or a mapping that changes
            fields of the loss's own one, such as `{"language_smoothing": 0.3}`.
        ratio: How often batches of this loss are drawn beside those of the other losses of a run.
    """

    least_columns: int = 1
    most_columns: int | None = None
    takes = "texts"
    way_out = "use CrossLingualTrainer, or give the Trainer data_collator=CrossLingualDataCollator(model.preprocess)"
    citation = ""

    def __init__(self, model: SentenceTransformer, *, batches: Batches = None, ratio: float = 1.0) -> None:
        super().__init__()
        self.model, self.ratio, self.state_is_kept = model, ratio, False
        self.batches: Any = self.default_batches() if batches is None else batches
        if isinstance(batches, Mapping):
            self.batches = replace(self.default_batches(), **batches)  # type: ignore[type-var]

    def default_batches(self) -> BatchFactory:
        """The batches that this loss is drawn by default."""
        return Rows()

    def required_columns(self, texts: list[str], columns: list[str]) -> list[str]:
        """What the loss needs besides the text columns `texts` of a data set with these `columns`."""
        return []

    def select(self, dataset: Dataset) -> Dataset:
        """Select the columns of a data set that this loss reads; a ValueError names those that are missing."""
        if not isinstance(dataset, Dataset):
            self.refuse(f"batches are drawn from a Dataset, and this is an {type(dataset).__name__}")
        texts, columns = text_columns(dataset), dataset.column_names
        required = self.required_columns(texts, columns)
        missing = [column for column in required if column not in columns]
        unread = self.least_columns > 1 and "document" not in required and holds_texts(dataset, "document")
        if missing or unread or not self._takes(len(texts)):
            self.refuse(
                f"the data set has the text columns {texts} among {columns} ('document' is the id of a document), and "
                f"lacks {missing}: select or rename columns"
            )
        read = {*texts, *required, "language", *(f"{text}_language" for text in texts)}
        return dataset.select_columns([column for column in columns if column in read])

    def read_columns(
        self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None
    ) -> list[dict[str, Any]]:
        """The text columns of a batch; a ValueError if some may be languages or ids."""
        columns = list(sentence_features)
        # The host's collator makes texts of all columns. `model.fit` has no others, and gives labels.
        collated = labels is not None or all("text_id" in features for features in columns)
        if not self._takes(len(columns)) or (len(columns) > self.least_columns and not collated):
            self.refuse(
                f"these are {len(columns)} text columns. The collator of Sentence Transformers makes texts of all "
                "columns, of languages and ids too; with model.fit, give the examples labels other than 0"
            )
        if self.updates_state and not self.state_is_kept and self.owned_parameters():
            self.state_is_kept = True
            way_out = "use CrossLingualTrainer, or give the Trainer callbacks=[LossStateCallback(loss)]"
            if get_world_size() > 1:
                raise ValueError(f"nothing averages the gradients of {type(self).__name__}'s own parameters: {way_out}")
            logger.warning("no checkpoint will hold the parameters of %s: %s", type(self).__name__, way_out)
        return columns

    def read_tags(self, columns: list[dict[str, Any]], *required: str) -> dict[str, Tensor]:
        """The metadata that the collator attached to every column, one column after the other."""
        tags = {tag: torch.cat([f[tag] for f in columns]) for tag in TAGS if all(tag in f for f in columns)}
        if missing := [tag for tag in required if tag not in tags]:
            self.refuse(f"the {len(columns)} text columns of the batch come without {missing}")
        return tags

    def owned_parameters(self) -> list[nn.Parameter]:
        """Trainable parameters that belong to the loss and not to the encoder."""
        return [p for name, p in self.named_parameters() if _is_owned(name) and p.requires_grad]

    def owned_state(self) -> dict[str, Tensor]:
        """Parameters and buffers that belong to the loss and not to the encoder, by name."""
        return {name: tensor for name, tensor in self.state_dict().items() if _is_owned(name)}

    def load_owned_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `owned_state` returned; a ValueError if parts are missing or unexpected."""
        keys = self.load_state_dict(state, strict=False)
        missing = [name for name in keys.missing_keys if _is_owned(name)]
        if missing or keys.unexpected_keys:
            raise ValueError(
                f"the saved state does not fit {type(self).__name__}: missing {missing}, unexpected "
                f"{keys.unexpected_keys}; build the loss with the options of the saved run"
            )

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the loss, for the model card: the arguments of its class that are numbers or words."""
        options = {name: getattr(self, name, None) for name in inspect.signature(type(self)).parameters}
        return {name: value for name, value in options.items() if isinstance(value, int | float | str)}

    def refuse(self, problem: str) -> NoReturn:
        """Raise a ValueError that says what is wrong with the data, what the loss takes, and how to give it that."""
        raise ValueError(f"{type(self).__name__}: {problem}. It takes {self.takes}: {self.way_out}")

    @property
    def updates_state(self) -> bool:
        """Whether this forward pass may change banks and statistics; the host evaluates losses in training mode."""
        return self.training and torch.is_grad_enabled()

    def _takes(self, columns: int) -> bool:
        return self.least_columns <= columns <= (self.most_columns or columns)


def _is_owned(name: str) -> bool:
    """Whether a parameter is the loss's: the encoder is `model`, also in a loss inside of this one (`mlm.model`)."""
    return "model" not in name.split(".")[:2]


def own_loss(loss: nn.Module | None) -> CrossLingualLoss | None:
    """The loss of this package that a module is, or wraps; None for losses of other libraries."""
    modules = () if loss is None else loss.modules()
    return next((module for module in modules if isinstance(module, CrossLingualLoss)), None)


def holds_texts(dataset: Any, column: str) -> bool:
    """Whether a column of a data set holds strings."""
    return getattr((dataset.features or {}).get(column), "dtype", None) in ("string", "large_string")


def unwrapped(model: Any) -> Any:
    """The SentenceTransformer inside the wrappers of distributed training and of `torch.compile`."""
    return extract_model_from_parallel(model, keep_torch_compile=False)
