"""The base of all losses: what a loss needs of the data, and what it owns besides the encoder."""

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import pyarrow.compute as pc
import torch
from accelerate.utils import extract_model_from_parallel
from datasets import ClassLabel, Dataset, Value
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import fullname
from sentence_transformers.util.distributed import all_gather, all_gather_with_grad, get_world_size
from torch import Tensor, nn

from st_xlret.batches import BatchFactory, Rows, collator
from st_xlret.languages import id_to_language, language_fields

logger = logging.getLogger(__name__)

Columns: TypeAlias = "list[dict[str, Any]]"  # the features of each text column of a batch
Batches: TypeAlias = "BatchFactory | Mapping[str, Any] | None"
LABELS = ("label", "labels", "score", "scores")
TAGS = ("language_id", "document_id", "text_id", "block_id", "sentence_position", "word_start", "word_end")
_ENTRIES = (Path(__file__).parent / "citations.bib").read_text(encoding="utf-8").split("\n\n")
CITATIONS = {entry.partition("{")[2].partition(",")[0]: f"{entry.strip()}\n" for entry in _ENTRIES}

unwrap_model = partial(extract_model_from_parallel, keep_torch_compile=False)
"""The SentenceTransformer inside the wrappers of distributed training and of `torch.compile`."""


class CrossLingualLoss(nn.Module):
    """Base class of the losses. It keeps the encoder as `self.model`, where the host puts the wrapped encoder.

    `CrossLingualTrainer` draws `loss.batches` from `loss.select(dataset)`, as often as `loss.ratio` says; with
    the host's own Trainer, do the same by hand. `LossStateCallback` keeps what a loss owns in checkpoints and on ranks.

    Args:
        model: The encoder.
        batches: How batches are drawn: a [`BatchFactory`][st_xlret.batches.BatchFactory], or a mapping that changes
            fields of `default_batches()`, such as `{"language_smoothing": 0.3}`.
        ratio: How often batches of this loss are drawn beside those of the other losses of a run.
    """

    least_columns: int = 1  # of texts, in a batch
    most_columns: int | None = None  # None: any number
    further: str | None = None  # how columns beside a pair are named
    labels_are: str | None = None  # which tag integer labels are where it is missing
    gather_across_devices = True
    default_batches: Callable[[], BatchFactory] = Rows  # how batches are drawn, unless `batches` says it
    takes = "texts"  # this and the example for model.fit stand in messages
    fit_example = ""
    citation = ""  # BibTeX, from `CITATIONS`, for the model card

    def __init__(self, model: SentenceTransformer, *, batches: Batches = None, ratio: float = 1.0) -> None:
        super().__init__()
        self.model, self.ratio, self.state_is_kept, self.may_warn_of_zero = model, ratio, False, True
        self.register_forward_hook(warn_of_zero_loss)
        self.batches: Any = batches
        if batches is None or isinstance(batches, Mapping):
            self.batches = replace(self.default_batches(), **(batches or {}))  # type: ignore[type-var]

    def required_columns(self, texts: list[str], columns: list[str]) -> list[str]:
        """What the loss needs besides the text columns `texts` of a data set with these `columns`."""
        return []

    def takes_texts(self, texts: list[str], columns: list[str]) -> bool:
        """Whether the text columns `texts` of a data set with these `columns` are those that the loss takes."""
        pair = [text for text in texts if not self._is_further_column(text)]
        fits = len(pair) == self.least_columns or (self.least_columns == 1 and "document" not in columns)
        return fits and 1 <= len(texts) <= (self.most_columns or len(texts))

    def select(self, dataset: Dataset) -> Dataset:
        """Leave out the columns that this loss does not read, and log the others; a ValueError if that is not clear.

        Of documents it reads one text column: `sentence`, else `text`, else the only one. Queries stand before
        documents, and negatives and others last.
        """
        read = self.columns_to_read(dataset)
        texts, left_out = collator.possible_texts(read), [name for name in dataset.column_names if name not in read]
        dataset = dataset.select_columns(read)
        count, languages = f"{len(dataset)} rows", collator.languages_in_rows(dataset)
        if "document" in read:
            documents = dataset.with_format("arrow", columns=["document"])[:]["document"]
            count = f"{pc.count_distinct(documents)} documents"
        in_languages = f" in {len(languages)} languages" if languages else ""
        also = f"; not read: {', '.join(left_out)}" if left_out else ""
        name = type(self).__name__.removesuffix("Loss")
        logger.info("%s reads %s of %s%s%s", name, " and ".join(map(repr, texts)), count, in_languages, also)
        return dataset

    def columns_to_read(self, dataset: Dataset) -> list[str]:
        """The columns that `select` leaves, texts first; a ValueError if they are not clear."""
        if not isinstance(dataset, Dataset):
            self.refuse(f"batches are drawn from a Dataset, and this is an {type(dataset).__name__}")
        columns, texts = dataset.column_names, collator.sentence_columns(dataset)
        if self.least_columns > 1:
            texts = collator.text_columns(dataset, nested=True)
            texts.sort(key=lambda text: (self._is_further_column(text), column_role(text) != "query"))
        required = self.required_columns(texts, columns)
        missing, misread = [c for c in required if c not in columns], self._misread_columns(dataset, texts, required)
        if missing or misread or not self.takes_texts(texts, columns):
            faults = f"Missing: {missing}; not read as they are: {misread}"
            way_out = "Use select_columns, remove_columns or rename_column"
            self.refuse(f"the data set has the text columns {texts} among {columns}. {faults}. {way_out}")
        tags = {*required, "language", *(f"{text}_language" for text in texts)}
        tags |= {"position"} if "document" in required else set()
        return [*texts, *(column for column in columns if column in tags)]

    def _misread_columns(self, dataset: Dataset, texts: list[str], required: list[str]) -> list[str]:
        """Lists of texts, languages under another name, labels, and documents and positions that rows lack."""
        columns, misread = dataset.column_names, [text for text in texts if not collator.holds_texts(dataset, text)]
        some = dataset.select_columns(texts).take(min(100, len(dataset))).to_list() if texts else []
        for text in language_fields(some):  # a few words of three letters may be codes, too
            if len(some) > 10 or {len(row[text]) for row in some if row[text]} != {3}:
                misread.append(text)
        if self.least_columns > 1 or len(texts) > 1:
            has_any = any(map(self._is_further_column, texts))  # else ids stand in the place of negatives
            ids = [c for c in columns if collator.is_id(c) and (has_any or not re.match("(?i)(.*_)?neg(ative)?s?_", c))]
            known = {*required, *texts, *collator.metadata_columns(columns), *ids}
            others = [column for column in columns if column not in known]
            flat = [column for column in others if isinstance(dataset.features[column], ClassLabel | Value)]
            table = dataset.with_format("arrow", columns=flat)[:]
            misread += [column for column in others if column not in flat or len(table[column].unique()) > 1]
        if self.least_columns > 1 and collator.holds_texts(dataset, "document"):
            misread.append("document")  # the id of a document
        of_documents = {"document", "position"} & {*columns} if "document" in required else set()
        misread += [c for c in sorted(of_documents) if dataset.with_format("arrow", columns=[c])[:][c].null_count]
        return misread

    def read_columns(self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None) -> Columns:
        """The text columns of a batch; a ValueError if some may be languages or ids, or `labels` would not be read."""
        columns = list(sentence_features)
        count, is_tagged = len(columns), all("text_id" in features for features in columns)
        card: Any = unwrap_model(self.model).model_card_data  # a batch has no names of its columns
        shown = card.train_datasets if torch.is_grad_enabled() else card.eval_datasets
        read = [(data.get("loss", {}).get("fullname", ""), data["columns"]) for data in shown if data.get("columns")]
        of_own = {self._are_texts(names, count, is_tagged) for loss, names in read if loss == fullname(self)}
        of_host = {self._are_texts(names, count, is_tagged) for loss, names in read if not loss.startswith("st_xlret.")}
        is_unclear = count > 1 and (False in of_own or of_host - {None} == {False})
        if not self.least_columns <= count <= (self.most_columns or count) or is_unclear:
            reason = "a collator makes texts of titles, of languages and ids too, any of what loss.select leaves out"
            self.refuse(f"these are {count} text columns: {reason}")
        columns = columns if labels is None else self._labels_as_tags(columns, labels)
        self._warn_of_unkept_state()
        return columns

    def _are_texts(self, columns: list[str], count: int, is_tagged: bool) -> bool | None:
        """Whether columns that a card shows are the texts to read; None if they are not `count` for a collator."""
        names = [re.sub("</?code>", "", column) for column in columns]
        left_out = {*LABELS, *(collator.metadata_columns(names) if is_tagged else ())}
        texts = [name for name in names if name not in left_out]
        known = [name for name in ("sentence", "text") if name in texts and self.least_columns == 1][:1]
        is_fit = all(re.fullmatch(r"sentence_\d+", name) for name in texts)
        is_read = collator.possible_texts(texts) == texts == (known or texts) and self.takes_texts(texts, names)
        return is_fit or is_read if len(texts) == count else None

    def _labels_as_tags(self, columns: Columns, labels: Tensor) -> Columns:
        """The columns with integer labels as the tag `labels_are`, if it is missing; other labels must not differ."""
        tag = None if labels.is_floating_point() else self.labels_are
        if tag and not any(tag in features for features in columns):
            if tag == "language_id":  # refuses labels of another kind
                _ = [id_to_language(label) for label in labels.unique().tolist()]
            return [{**features, tag: labels} for features in columns]
        if len(columns) > 1 and len(labels.unique()) > 1:
            self.refuse(f"the labels {labels.unique()[:3].tolist()} differ, and the loss would not read them")
        return columns

    def _warn_of_unkept_state(self) -> None:
        """Log once that no checkpoint will hold what the loss owns; several processes would not average it: refuse."""
        if self.updates_state and not self.state_is_kept and self.owned_parameters():
            self.state_is_kept = True
            way_out = "use CrossLingualTrainer, or give the Trainer callbacks=[LossStateCallback(loss)]"
            if get_world_size() > 1:
                self.refuse(f"nothing averages the gradients of its own parameters: {way_out}")
            logger.warning("no checkpoint will hold the parameters of %s: %s", type(self).__name__, way_out)

    def concatenate_tags(self, columns: Columns, *required: str) -> dict[str, Tensor]:
        """The tags, integers that the collator attached to each row, of all columns one after the other."""
        tags = {tag: torch.cat([f[tag] for f in columns]) for tag in TAGS if all(tag in f for f in columns)}
        if missing := [tag for tag in required if tag not in tags]:
            self.refuse(f"the {len(columns)} text columns of the batch come without {missing}")
        return tags

    def gather_rows(self, vectors: list[Tensor], tags: dict[str, Tensor]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Vectors of equally long columns, and tags of all columns, from all ranks, or as they are if not wanted."""
        if get_world_size() == 1 or not self.gather_across_devices:
            return vectors, tags
        count = len(vectors)
        tags = {n: torch.cat([all_gather(part.contiguous()) for part in tag.chunk(count)]) for n, tag in tags.items()}
        return [all_gather_with_grad(column) for column in vectors], tags

    def owned_parameters(self) -> list[nn.Parameter]:
        """Trainable parameters that belong to the loss and not to the encoder."""
        return [p for name, p in self.named_parameters() if _is_owned(name) and p.requires_grad]

    def owned_state(self) -> dict[str, Tensor]:
        """Parameters and buffers that belong to the loss and not to the encoder, by name."""
        return {name: tensor for name, tensor in self.state_dict().items() if _is_owned(name)}

    def load_owned_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `owned_state` returned; PyTorch's `RuntimeError` names parts that are missing or unexpected."""
        of_encoder = {name: tensor for name, tensor in self.state_dict().items() if not _is_owned(name)}
        self.load_state_dict(of_encoder | state)

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the loss, for the model card: the arguments of its classes that are numbers or words."""
        kinds: tuple[Any, ...] = type(self).__mro__
        names = [name for kind in kinds for name in inspect.signature(kind.__init__).parameters]
        options = {name: getattr(self, name, None) for name in names}
        return {name: value for name, value in options.items() if isinstance(value, int | float | str)}

    def refuse(self, problem: str) -> NoReturn:
        """Raise a ValueError that says what is wrong with the data, what the loss takes, and how to give it that."""
        way_out = "use CrossLingualTrainer, or give a Trainer data_collator=CrossLingualDataCollator(model.preprocess)"
        if self.fit_example:
            way_out += f" and batch_sampler={self.default_batches.__name__}(); with model.fit, {self.fit_example}"
        raise ValueError(f"{type(self).__name__}: {problem}. It takes {self.takes}: {way_out}")

    @property
    def updates_state(self) -> bool:
        """Whether this forward pass may change banks and statistics; the host evaluates losses in training mode."""
        return self.training and torch.is_grad_enabled()

    def _is_further_column(self, column: str) -> bool:
        return self.further is not None and bool(re.search(f"(^|_){self.further}s?$", column.rstrip("_0123456789")))


def _is_owned(name: str) -> bool:
    """Whether a parameter is not of the encoder, which is `model`, in a loss inside of this one too (`mlm.model`)."""
    return "model" not in name.split(".")[:2]


def warn_of_zero_loss(loss: CrossLingualLoss, inputs: Any, value: Tensor | dict[str, Tensor]) -> None:
    """Log once that a batch teaches nothing, as a loss without negatives does not."""
    parts = value.values() if isinstance(value, dict) else [value]
    if loss.may_warn_of_zero and loss.updates_state and any(float(part.detach()) == 0 for part in parts):
        loss.may_warn_of_zero = False
        reason = "no row has a negative where a language has one document, or a batch one row"
        logger.warning("a batch of %s teaches nothing, its loss is 0: %s", type(loss).__name__, reason)


def package_loss(loss: nn.Module | None) -> CrossLingualLoss | None:
    """The loss of this package that a module is, or wraps; None for losses of other libraries."""
    modules = () if loss is None else loss.modules()
    return next((module for module in modules if isinstance(module, CrossLingualLoss)), None)


def column_role(column: str) -> Any:
    """Whether a column has queries or documents, by its name, numbered as in `negative_1` or not; else None."""
    queries, documents = ("anchor", "query", "question"), ("positive", "negative", "passage", "answer")
    name = column.rstrip("_0123456789")
    return "query" if name in queries else "document" if name in documents else None
