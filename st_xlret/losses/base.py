"""The base of all losses: what a loss needs of the data, what it owns besides the encoder, and its last value.

A Trainer uses a loss by these names. `CrossLingualTrainer` does; with the host's own Trainer, do the same by hand.

| name | what it is |
| --- | --- |
| `loss.select(dataset)` | the columns that the loss reads, or a ValueError that says what is missing |
| `loss.batches` | the batch sampler, with the signature of the host's `batch_sampler` |
| `loss.ratio` | how often its batches are drawn beside those of other losses |
| `loss.owned_parameters()` | heads: their gradients are to be averaged over ranks, and clipped |
| `loss.owned_state()`, `load_owned_state(state)` | heads, statistics and banks, to be kept in checkpoints |
| `loss.state_is_kept` | True where somebody keeps them, as `LossStateCallback` does |
| `loss.last_value` | the value of the last training batch, detached |
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from accelerate.utils import extract_model_from_parallel
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import get_world_size
from torch import Tensor, nn

from st_xlret.batches.collator import text_columns
from st_xlret.batches.sampling import BatchFactory, Rows

logger = logging.getLogger(__name__)

Batches: TypeAlias = "BatchFactory | Mapping[str, Any] | None"


class CrossLingualLoss(nn.Module):
    """Base class of the losses. It keeps the encoder as `self.model`, where the host puts the wrapped encoder.

    A subclass says how many text columns it takes (`least_columns`, `most_columns`) and what they are (`takes`, for
    messages), its `default_batches`, and by `required_columns` what else it needs.

    Args:
        model: The encoder.
        batches: How batches are drawn: a [`BatchFactory`][st_xlret.batches.BatchFactory], or a mapping that changes
            fields of the loss's own one, such as `{"language_smoothing": 0.3}`.
        ratio: How often batches of this loss are drawn beside those of the other losses of a run.

    Attributes:
        last_value: Loss of the last training batch, detached; None before the first batch.

    Raises:
        ValueError: If `ratio` is negative, or `batches` names a field that the loss's factory does not have.
    """

    least_columns: int = 1
    most_columns: int | None = None
    takes = "texts"
    citation = ""

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        batches: Batches = None,
        ratio: float = 1.0,
    ) -> None:
        super().__init__()
        if ratio < 0:
            raise ValueError(f"ratio must not be negative, got {ratio}")
        self.model = model
        self.ratio = ratio
        if batches is None or isinstance(batches, Mapping):
            self.batches: BatchFactory = with_options(self.default_batches(), "batches", batches or {})
        else:
            self.batches = batches
        self.last_value: Tensor | None = None
        self._state_is_kept = self._has_warned = False

    def default_batches(self) -> BatchFactory:
        """The batches that this loss is drawn by default."""
        return Rows()

    def required_columns(self, texts: list[str], columns: list[str]) -> list[str]:
        """What the loss needs besides the text columns `texts` of a data set with these `columns`."""
        return []

    def select(self, dataset: Dataset) -> Dataset:
        """Select the columns of a data set that this loss reads: texts, and of languages, documents and labels its own.

        Raises:
            ValueError: If columns are missing (the message names them), or it is no `Dataset`.
        """
        name = type(self).__name__
        texts = text_columns(dataset)
        required = self.required_columns(texts, dataset.column_names)
        unread = "document" not in required and self.least_columns > 1 and _holds_texts(dataset, "document")
        if unread or not self._takes(len(texts)):
            ids = ", and 'document' is the id of a document" if "document" in dataset.column_names else ""
            raise ValueError(
                f"{name} takes {self.takes}. The data set has the text columns {texts}{ids}: select or rename columns, "
                "as by dataset.rename_column('document', 'positive')"
            )
        if missing := [column for column in required if column not in dataset.column_names]:
            raise ValueError(
                f"{name} takes {self.takes}. The data set has no column {', '.join(map(repr, missing))}, only "
                f"{dataset.column_names}"
            )
        wanted = {*texts, *required, "language", *(f"{text}_language" for text in texts)}
        return dataset.select_columns([column for column in dataset.column_names if column in wanted])

    def read_columns(
        self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None
    ) -> list[dict[str, Any]]:
        """The text columns of a batch, if they are what the loss takes.

        Raises:
            ValueError: If there are more or fewer; or some may be languages or ids: more than the loss needs, without
                the collator of this package and without the labels of `model.fit`; or if several processes train a loss
                with parameters of its own that nobody synchronises.
        """
        columns = list(sentence_features)
        # The host's collator makes texts of all columns. `model.fit` has no others, and gives labels.
        collated = labels is not None or all("text_id" in features for features in columns)
        if not self._takes(len(columns)) or (len(columns) > self.least_columns and not collated):
            raise ValueError(
                f"{type(self).__name__} takes {self.takes}, got {len(columns)} text columns. Sentence Transformers' "
                "own collator makes texts of all columns, of languages and ids too: give the Trainer "
                "data_collator=CrossLingualDataCollator(model.preprocess), which reads languages and documents as "
                "such, or use CrossLingualTrainer; with model.fit, give the examples labels other than 0"
            )
        if self.updates_state and not self.state_is_kept and not self._has_warned:
            self._has_warned = True
            self._say_that_state_is_lost()
        return columns

    @property
    def state_is_kept(self) -> bool:
        """Whether somebody keeps the state of the loss over checkpoints and ranks, as `LossStateCallback` does."""
        return self._state_is_kept

    @state_is_kept.setter
    def state_is_kept(self, kept: bool) -> None:
        for module in self.modules():
            if isinstance(module, CrossLingualLoss):
                module._state_is_kept = kept

    def owned_parameters(self) -> list[nn.Parameter]:
        """Trainable parameters that belong to the loss and not to the encoder."""
        encoder = self._encoder_prefixes()
        return [p for name, p in self.named_parameters() if not name.startswith(encoder) and p.requires_grad]

    def owned_state(self) -> dict[str, Tensor]:
        """Parameters and buffers that belong to the loss and not to the encoder, by name."""
        encoder = self._encoder_prefixes()
        return {name: tensor for name, tensor in self.state_dict().items() if not name.startswith(encoder)}

    def load_owned_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `owned_state` returned."""
        try:
            outcome: Any = self.load_state_dict(state, strict=False)
        except RuntimeError as error:
            raise ValueError(f"the saved state does not fit {type(self).__name__}: {error}") from error
        missing = [name for name in outcome.missing_keys if not name.startswith(self._encoder_prefixes())]
        if missing or outcome.unexpected_keys:
            raise ValueError(
                f"the saved state does not fit {type(self).__name__}: missing {missing}, "
                f"unexpected {outcome.unexpected_keys}; build the loss with the options of the saved run"
            )

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the loss, for the model card: the arguments of its class that are numbers or words."""
        given = {name: getattr(self, name, None) for name in inspect.signature(type(self)).parameters}
        return {name: value for name, value in given.items() if isinstance(value, int | float | str)}

    @property
    def updates_state(self) -> bool:
        """Whether this forward pass may change banks and statistics; the host evaluates losses in training mode."""
        return self.training and torch.is_grad_enabled()

    def _takes(self, columns: int) -> bool:
        return self.least_columns <= columns <= (self.most_columns or columns)

    def _say_that_state_is_lost(self) -> None:
        if not self.owned_parameters():
            return
        way_out = "use CrossLingualTrainer, or give the Trainer callbacks=[LossStateCallback(loss)]"
        if get_world_size() > 1:
            raise ValueError(
                f"{type(self).__name__} has parameters of its own, and nothing averages their gradients over the "
                f"processes: {way_out}"
            )
        logger.warning(
            "%s has parameters of its own (heads, banks) that checkpoints do not hold: a resumed run would start with "
            "new ones. To keep them, %s",
            *(type(self).__name__, way_out),
        )

    def _encoder_prefixes(self) -> tuple[str, ...]:
        # A loss inside this one holds the same encoder.
        inner = [name for name, child in self.named_children() if isinstance(child, CrossLingualLoss)]
        return ("model.", *(f"{name}.model." for name in inner))

    def _record(self, value: Tensor) -> Tensor:
        if self.updates_state:
            self.last_value = value.detach()
        return value


def with_options(default: Any, name: str, options: Mapping[str, Any]) -> Any:
    """A dataclass with some of its fields changed."""
    try:
        return replace(default, **options)
    except TypeError as error:
        raise ValueError(f"{name}={dict(options)!r} does not fit {default}: {error}") from error


def language_columns(texts: list[str], columns: list[str]) -> list[str]:
    """The columns that tell the languages of texts: their own, or one for all, or the label if that is all there is."""
    own = [f"{text}_language" for text in texts]
    if set(own) <= set(columns):
        return own
    return ["label"] if "label" in columns and "language" not in columns else ["language"]


def embedding_size(model: SentenceTransformer) -> int:
    """The size of the encoder's sentence vectors."""
    features = model.get_embedding_dimension()
    if features is None:
        raise ValueError(
            "no module of the encoder tells the size of its embeddings: give its last module get_embedding_dimension()"
        )
    return features


def unwrapped(model: Any) -> Any:
    """The SentenceTransformer inside the wrappers of distributed training and of `torch.compile`."""
    return extract_model_from_parallel(model, keep_torch_compile=False)


def _holds_texts(dataset: Dataset, column: str) -> bool:
    return getattr(dataset.features.get(column), "dtype", None) in ("string", "large_string")
