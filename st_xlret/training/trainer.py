"""The Trainer of Sentence Transformers, which meets the needs that the losses declare."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.base.modules import Router
from sentence_transformers.base.sampler import BatchSamplers, MultiDatasetBatchSamplers
from torch import Tensor, nn
from torch.utils.data import BatchSampler, ConcatDataset

from st_xlret.batches import CrossLingualDataCollator, InterleavedBatchSampler
from st_xlret.batches.collator import text_columns
from st_xlret.encoding import role_prompt
from st_xlret.languages import id_to_language
from st_xlret.modules import freeze_unused
from st_xlret.precision import few_lengths
from st_xlret.training.arguments import CrossLingualTrainingArguments
from st_xlret.training.loss_state import LossStateCallback, own_loss
from st_xlret.training.trainable import (
    add_lora,
    attention_of,
    dropout_of,
    freeze_word_embeddings,
    interpolate,
    merge_adapters,
    not_finite,
    trainable_weights,
)

QUERY_COLUMNS = ("anchor", "query", "question")
DOCUMENT_COLUMNS = ("positive", "negative", "passage", "answer")


class CrossLingualTrainer(SentenceTransformerTrainer):
    """The host's Trainer for the losses of this package.

    A loss declares which columns it reads, how its batches are drawn and how often. This Trainer selects the columns,
    draws the batches, mixes those of several data sets, and keeps what the losses own (heads, banks) in every
    checkpoint and on every rank. Losses of Sentence Transformers work beside them. What is given explicitly, such as
    `data_collator` or `batch_sampler` in the arguments, is used instead.

    Each log line has `loss_<name>`, the mean of each loss, beside the host's `loss` of all of them, and
    `trainer.state.num_input_tokens_seen` counts the tokens of all ranks without padding. A loss or a weight that is not
    finite stops the run before it reaches a checkpoint.

    Args:
        model: The encoder.
        args: [`CrossLingualTrainingArguments`][st_xlret.CrossLingualTrainingArguments].
        train_dataset: A data set, or several by name. With `joint`, put a data set last whose loss uses all of the
            encoder.
        eval_dataset: Likewise. Its batches are drawn as those of training are.
        loss: A loss, or one for each data set; or functions that make a loss of the model.
        callbacks: Further callbacks.
        **kwargs: Further arguments of the host's Trainer.

    Raises:
        ValueError: If a data set lacks a column that its loss reads, or is an `IterableDataset`, whose batches nobody
            can draw; if an argument does not fit the encoder or another one; or if the model has a `Router` and the
            arguments no `router_mapping`, unless its routes are those of `with_two_encoders`.
        FloatingPointError: In training, if a loss or a weight is not finite.

    Example:
        >>> from st_xlret import CCPLoss
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> rows = {"sentence": list("abcd") * 2, "language": ["en"] * 8, "document": [1] * 4 + [2] * 4}
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> args = CrossLingualTrainingArguments("runs/tiny", max_steps=1, report_to="none")
        >>> trainer = CrossLingualTrainer(model, args, Dataset.from_dict(rows), loss=CCPLoss(model))
        >>> sorted(trainer.train_dataset.column_names)
        ['document', 'language', 'sentence']
    """

    training_args_class = CrossLingualTrainingArguments
    args: CrossLingualTrainingArguments

    def __init__(
        self,
        model: SentenceTransformer,
        args: CrossLingualTrainingArguments | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        loss: Any = None,
        callbacks: list[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if args is not None and not isinstance(args, CrossLingualTrainingArguments):
            raise ValueError(f"args must be CrossLingualTrainingArguments, got {type(args).__name__}")
        if "model_init" in kwargs:
            raise ValueError("model_init: CrossLingualTrainer takes a model, whose losses it asks what they read")
        args = copy.copy(args or CrossLingualTrainingArguments("tmp_trainer"))
        given = [name for name in ("train_seq_length", "token_dropout") if getattr(args, name)]
        if kwargs.get("data_collator") is not None and given:
            raise ValueError(
                f"{' and '.join(given)} of the arguments are options of the data collator: give them to yours"
            )
        if isinstance(loss, Mapping):
            loss = {name: _made(one, model) for name, one in loss.items()}
        else:
            loss = None if loss is None else _made(loss, model)
        train_dataset, eval_dataset = _select(train_dataset, loss), _select(eval_dataset, loss)
        self._parts = len(train_dataset) if isinstance(train_dataset, Mapping) else 1
        if args.joint:
            _check_joint(args, loss)
            # A step is one round over the data sets: the host accumulates their gradients.
            args.gradient_accumulation_steps *= self._parts
        if train_dataset is not None and not args.router_mapping and (routes := _routes(model, train_dataset)):
            args.router_mapping, args.ddp_find_unused_parameters = routes, False
            freeze_unused(model)
        if args.prompts is None and any(model.prompts.values()):
            args.prompts = _of_columns(train_dataset or eval_dataset, lambda column: role_prompt(model, _role(column)))
        if args.freeze_embeddings:
            freeze_word_embeddings(model)
        if args.lora_rank:
            add_lora(model, args.lora_rank)
        self._original = trainable_weights(model) if args.keep_trained < 1 else {}
        self._sums: dict[str, tuple[float, int]] = {}
        self._loss_state = LossStateCallback([] if loss is None else loss)
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            loss=loss,
            callbacks=[self._loss_state, *(callbacks or [])],
            **kwargs,
        )

    def get_data_collator(self, model: Any, args: Any, processing_class: Any = None) -> CrossLingualDataCollator:
        """The collator that hands languages and documents to the losses."""
        length, most = args.train_seq_length, getattr(model, "max_seq_length", None)
        if length is not None and most is not None and length > most:
            raise ValueError(f"train_seq_length {length}: the model reads only {most} tokens (max_seq_length)")
        # In bfloat16 on a CPU, oneDNN compiles kernels for each length of texts and keeps them.
        few = few_lengths(model, length) if args.bf16 and args.device.type == "cpu" else {}
        return CrossLingualDataCollator(
            partial(model.preprocess, **few) if few else model.preprocess,
            prompts=args.prompts,
            router_mapping=args.router_mapping,
            max_length=length,
            token_dropout=args.token_dropout,
        )

    def get_batch_sampler(self, dataset: Dataset, batch_size: int, *args: Any, **kwargs: Any) -> BatchSampler | None:
        """The batches that the loss of a data set asks for, unless the arguments name a sampler."""
        own = own_loss(self._loss_of(dataset))
        if own is None or self.args.batch_sampler != BatchSamplers.BATCH_SAMPLER:
            return super().get_batch_sampler(dataset, batch_size, *args, **kwargs)
        return own.batches(dataset, batch_size, *args, **kwargs)

    def get_multi_dataset_batch_sampler(
        self, dataset: ConcatDataset, batch_samplers: list[BatchSampler], generator: Any = None, seed: int | None = 0
    ) -> BatchSampler:
        """Batches of all data sets, as often as the losses ask for, unless the arguments name a sampler."""
        if self.args.joint:
            return InterleavedBatchSampler(dataset, batch_samplers, generator, seed, in_turn=True)
        if self.args.multi_dataset_batch_sampler != MultiDatasetBatchSamplers.PROPORTIONAL:
            return super().get_multi_dataset_batch_sampler(dataset, batch_samplers, generator, seed)
        losses = [self._loss_of(part) for part in dataset.datasets]
        ratios = [1.0 if (own := own_loss(loss)) is None else own.ratio for loss in losses]
        return InterleavedBatchSampler(dataset, batch_samplers, generator, seed, ratios=ratios)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train as the host does, with the dropout and the share of the trained weights that the arguments ask for."""
        if isinstance(resume_from_checkpoint, str):
            self._loss_state.resume_from = resume_from_checkpoint
        # In bf16 on a CPU, the backward pass of PyTorch's fused attention is slow.
        slow = self.args.bf16 and self.args.device.type == "cpu"
        with ExitStack() as stack:
            stack.enter_context(dropout_of(self.model, self.args.dropout))
            stack.enter_context(attention_of(self.model, "eager" if slow else None))
            result = super().train(resume_from_checkpoint, *args, **kwargs)
        interpolate(self.model, self._original, self.args.keep_trained)
        if self.args.lora_rank:
            merge_adapters(self.model)
        return result

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The loss of a batch. In training, its tokens are counted, and a loss that is not finite stops the run."""
        if return_outputs:  # an evaluation
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        name, languages = inputs.get("dataset_name"), _languages(inputs)
        tokens = torch.as_tensor(_tokens(inputs), device=self.args.device)
        self.state.num_input_tokens_seen += int(self.accelerator.reduce(tokens, "sum"))
        loss: Any = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        value = float(loss.detach())
        if not torch.isfinite(torch.tensor(value)):
            raise FloatingPointError(
                f"the loss{f' {name!r}' if name else ''} is {value} at step {self.state.global_step + 1}, in a batch "
                f"of {languages}. No weights were changed by it; lower the learning rate, train in bf16 or fp32 "
                "rather than fp16, or look at these languages' texts, and resume from the last checkpoint"
            )
        if name:
            total, count = self._sums.get(name, (0.0, 0))
            self._sums[name] = (total + value, count + 1)
        # The host divides by the number of accumulated batches, which are the parts of a sum.
        return loss * self._parts if self.args.joint else loss

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log, with the mean of each loss since the last line; gradients have a norm only where they are clipped."""
        if not self.args.max_grad_norm:
            logs.pop("grad_norm", None)
        if "loss" in logs and self._sums:
            names = sorted(self._sums)
            sums = self.accelerator.reduce(torch.tensor([self._sums[name] for name in names], device=self.args.device))
            logs |= {f"loss_{name}": round(total / n, 4) for name, (total, n) in zip(names, sums.tolist(), strict=True)}
            self._sums = {}
        super().log(logs, *args, **kwargs)

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        """Save, unless a weight is not finite: a finite loss can have infinite gradients."""
        if broken := not_finite(self.model):
            raise FloatingPointError(
                f"{broken} holds values that are not finite at step {self.state.global_step}: lower the learning "
                "rate, or train in bf16 or fp32 rather than fp16, and resume from the last checkpoint"
            )
        super().save_model(*args, **kwargs)

    def _loss_of(self, dataset: Dataset) -> nn.Module | None:
        if not isinstance(self.loss, Mapping):
            return self.loss
        for datasets in (self.train_dataset, self.eval_dataset):
            for name, part in datasets.items() if isinstance(datasets, Mapping) else ():
                if part is dataset:
                    return self.loss[name]
        return None  # a data set given to `evaluate`, which the host draws its own batches of


def _check_joint(args: CrossLingualTrainingArguments, loss: Any) -> None:
    """Refuse what a step that sums all losses has no use for."""
    losses = [] if not isinstance(loss, Mapping) else [own for one in loss.values() if (own := own_loss(one))]
    if any(own.ratio != 1 for own in losses):
        raise ValueError("joint: a step has one batch of each data set, and no ratios; give the losses weights")
    if args.multi_dataset_batch_sampler != MultiDatasetBatchSamplers.PROPORTIONAL:
        raise ValueError("joint and multi_dataset_batch_sampler exclude each other: leave one of them out")


def _routes(model: SentenceTransformer, datasets: Any) -> dict[str, Any]:
    """The `router_mapping` of a model of two encoders: columns of queries take that of queries; empty for one encoder.

    Raises:
        ValueError: If the model has a `Router` with other routes.
    """
    router = next((module for module in model.children() if isinstance(module, Router)), None)
    if router is None:
        return {}
    if set(router.sub_modules) != {"query", "document"}:
        raise ValueError(
            f"the model has a Router with the routes {sorted(router.sub_modules)}, and the training arguments have no "
            "router_mapping: name the route of each column, such as router_mapping={'query': 'query'}"
        )
    if isinstance(datasets, Mapping):
        return {name: _routes(model, rows) for name, rows in datasets.items()}
    return _of_columns(datasets, lambda column: _role(column) or "document")


def _of_columns(datasets: Any, value_of: Callable[[str], str]) -> dict[str, Any]:
    """A value for each text column, in the forms that the host takes for one data set and for several."""
    if isinstance(datasets, Mapping):
        return {name: _of_columns(rows, value_of) for name, rows in datasets.items()}
    return {column: value_of(column) for column in text_columns(datasets)} if isinstance(datasets, Dataset) else {}


def _role(column: str) -> Any:
    """Whether a column has queries or documents, by its name, which may end in a number; None if neither."""
    kind = column.rstrip("_0123456789")
    return "query" if kind in QUERY_COLUMNS else "document" if kind in DOCUMENT_COLUMNS else None


def _made(loss: nn.Module | Callable[[Any], nn.Module], model: SentenceTransformer) -> nn.Module:
    return loss if isinstance(loss, nn.Module) else loss(model)


def _select(datasets: Any, loss: Any) -> Any:
    """The columns that the losses read."""
    if isinstance(datasets, Mapping):
        unknown = [name for name in datasets if isinstance(loss, Mapping) and name not in loss]
        if unknown:
            raise ValueError(f"there is no loss for the data sets {unknown}: the losses are {sorted(loss)}")
        return {
            name: _select(rows, loss[name] if isinstance(loss, Mapping) else loss) for name, rows in datasets.items()
        }
    own = own_loss(loss) if isinstance(loss, nn.Module) else None
    if datasets is None:
        return None
    if own is not None:
        return own.select(datasets)
    kinds = datasets.features if isinstance(datasets, Dataset | IterableDataset) else None
    if kinds and getattr(kinds.get("document"), "dtype", None) in ("string", "large_string"):
        raise ValueError(
            f"{type(loss).__name__} does not read the column 'document', which is the id of a document here: rename a "
            "column of texts, as by dataset.rename_column('document', 'positive'), and remove one of ids"
        )
    return datasets


def _tokens(inputs: Mapping[str, Any]) -> Tensor | int:
    """Tokens of a batch without padding. The inputs of a static encoder are flattened and have none."""
    masks = [value.sum() for name, value in inputs.items() if name.endswith("_attention_mask")]
    if masks:
        return torch.stack(masks).sum()
    return sum(len(value) for name, value in inputs.items() if name.endswith("_input_ids"))


def _languages(inputs: Mapping[str, Any]) -> str:
    """How many rows of a batch are of which languages, the most frequent first."""
    ids = [value for name, value in inputs.items() if name.endswith("_language_id")]
    if not ids:
        return "unknown languages"
    values, counts = torch.unique(torch.cat(ids), return_counts=True)
    order = torch.argsort(counts, descending=True, stable=True)
    return ", ".join(f"{id_to_language(int(values[i]))} ({int(counts[i])} rows)" for i in order)
