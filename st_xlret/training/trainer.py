"""The Trainer of Sentence Transformers, which meets the needs that the losses declare."""

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from datasets import Dataset, DatasetDict, IterableDataset
from huggingface_hub import HfApi
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base import sampler
from sentence_transformers.base.modules import Router
from torch.utils.data import BatchSampler, ConcatDataset, RandomSampler

from st_xlret.batches import CrossLingualDataCollator, InterleavedBatchSampler
from st_xlret.columns import column_role, holds_strings, text_columns
from st_xlret.encoding import role_prompt
from st_xlret.hub.card import ensure_card_data
from st_xlret.hub.export import check_finite, ensure_repository
from st_xlret.losses.base import CrossLingualLoss, package_loss
from st_xlret.modules import freeze_unused
from st_xlret.precision import padding_options
from st_xlret.training import trainable
from st_xlret.training.arguments import CrossLingualTrainingArguments
from st_xlret.training.loss_state import LossStateCallback

READ_ONCE = ("joint", "precision", "token_dropout", "train_seq_length")  # when the Trainer is made


class CrossLingualTrainer(SentenceTransformerTrainer):
    """The host's Trainer for the losses of this package.

    It meets what the losses declare: it selects their columns, draws and mixes their batches, and keeps what they own
    (heads, banks) in every checkpoint and on every rank. Losses of Sentence Transformers work beside them. What is
    given explicitly, such as `data_collator`, or `batch_sampler` and `prompts` in the arguments, is used instead.
    Columns of queries and of documents (`query`, `positive`, `negative_1`) get the model's prompts and routes.

    Each log line has `loss_<name>`, the mean of each loss, and `trainer.state.num_input_tokens_seen` counts the tokens
    of all ranks without padding. A loss or a weight that is not finite stops the run, by a `FloatingPointError`, before
    it reaches a checkpoint.

    Args:
        model: The encoder; or `model_init`, a function that makes one for each training, as a search needs.
        args: [`CrossLingualTrainingArguments`][st_xlret.CrossLingualTrainingArguments], or the host's.
        train_dataset: A data set, or several by name, as `eval_dataset`. With `joint`, the last loss uses all weights.
        loss: A loss, or one for each data set; or functions of the model that make them, which `model_init` needs.
        **kwargs: The other arguments of the host's Trainer.

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

    training_args_class: Any = CrossLingualTrainingArguments
    data_collator_class = CrossLingualDataCollator
    args: CrossLingualTrainingArguments
    _before_trial: CrossLingualTrainingArguments | None = None

    def __init__(
        self,
        model: SentenceTransformer | None = None,
        args: SentenceTransformerTrainingArguments | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        loss: Any = None,
        callbacks: list[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        args = cross_lingual_arguments(args or CrossLingualTrainingArguments("tmp_trainer"))
        self.model_init: Any = kwargs.get("model_init")
        encoder: Any = model if self.model_init is None else self.call_model_init()
        self._loss_as_given, loss = (
            loss,
            build_losses(loss, encoder, anew=self.model_init is not None),
        )
        if isinstance(train_dataset, IterableDataset):  # the host draws it, and warns of samplers
            args.batch_sampler = args.batch_sampler or sampler.BatchSamplers.BATCH_SAMPLER
        ensure_card_data(encoder)  # the host's would show texts of the data
        train_dataset, eval_dataset = (
            select_loss_columns(train_dataset, loss),
            select_loss_columns(eval_dataset, loss),
        )
        self._parts = len(train_dataset) if isinstance(train_dataset, Mapping) and args.joint else 1
        self._loss_values: dict[
            str, list[float]
        ] = {}  # by data set, since the last line of the log
        # A joint step is one round over the data sets: the host accumulates their gradients.
        args.gradient_accumulation_steps *= self._parts
        datasets = eval_dataset if train_dataset is None else train_dataset
        if not args.prompts and any(encoder.prompts.values()):
            args.prompts = values_by_column(
                datasets, lambda column: role_prompt(encoder, column_role(column))
            )
        router = next((module for module in encoder.children() if isinstance(module, Router)), None)
        if (
            router is not None
            and set(router.sub_modules) == {"query", "document"}
            and not args.router_mapping
        ):
            args.router_mapping = values_by_column(
                datasets, lambda column: column_role(column) or "document"
            )
            # Two passes on different parameters: DDP would take those of one pass for all that are unused.
            args.ddp_find_unused_parameters = False
            freeze_unused(encoder)
        self.loss_state = LossStateCallback([] if loss is None else loss)
        callbacks = [self.loss_state, *(callbacks or [])]
        optimizer, schedule = kwargs.get("optimizers", (None, None))
        if (args.lora_rank and optimizer) or (args.lr_drops and schedule):
            raise ValueError(
                "lora_rank needs the optimizer, and lr_drops the schedule, that the Trainer makes itself"
            )
        super().__init__(
            model, args, train_dataset, eval_dataset, loss, callbacks=callbacks, **kwargs
        )
        if self.model_init is not None:
            self._replace_losses(self.model)
        if isinstance(self.data_collator, CrossLingualDataCollator):
            self.data_collator = copy.copy(self.data_collator)  # one that is given stays as it is
            self.data_collator.token_dropout = (
                args.token_dropout or self.data_collator.token_dropout
            )
            self.data_collator.max_length = args.train_seq_length or self.data_collator.max_length
            if (
                args.bf16
                and args.device.type == "cpu"
                and self.data_collator.preprocess_fn == encoder.preprocess
            ):
                # oneDNN compiles kernels for each length of texts, and keeps them.
                lengths = padding_options(encoder, args.train_seq_length)
                self.data_collator.preprocess_fn = partial(encoder.preprocess, **lengths)

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """The host's repository, with its branch. What the token may not push to is refused, before the training."""
        super().init_hf_repo(token, private)
        if self.is_world_process_zero():
            hub = HfApi(token=token or self.args.hub_token)
            ensure_repository(hub, str(self.hub_model_id), private)
            if self.args.hub_revision:
                hub.create_branch(
                    str(self.hub_model_id), branch=self.args.hub_revision, exist_ok=True
                )

    def get_batch_sampler(
        self, dataset: Dataset, batch_size: int, *args: Any, **kwargs: Any
    ) -> BatchSampler | None:
        """The batches that the loss of a data set asks for, unless the arguments name a sampler."""
        loss = self._package_loss_of(dataset)
        if (
            loss is not None and loss.columns_to_read(dataset) != dataset.column_names
        ):  # given later, as to predict
            loss.refuse(f"the data set has {dataset.column_names}: give loss.select(dataset)")
        if self.args.batch_sampler is not None:
            return super().get_batch_sampler(dataset, batch_size, *args, **kwargs)
        if loss is not None:
            return loss.batches(dataset, batch_size, *args, **kwargs)
        rows = RandomSampler(dataset, generator=kwargs.get("generator"))
        return sampler.DefaultBatchSampler(rows, batch_size, *args, **kwargs)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The host's batches, the same each time: a loader with persistent workers is kept, and counts its passes."""
        loader: Any = super().get_eval_dataloader(eval_dataset)
        loader.iteration = 0
        return loader

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The host's evaluation; of a data set that is given, losses read as always."""
        return super().evaluate(select_loss_columns(eval_dataset, self.loss), *args, **kwargs)

    def get_multi_dataset_batch_sampler(
        self,
        dataset: ConcatDataset,
        batch_samplers: list[BatchSampler],
        generator: Any = None,
        seed: int | None = 0,
    ) -> BatchSampler:
        """Batches of all data sets, as often as the losses ask for, unless the arguments name a sampler."""
        chosen: Any = self.args.multi_dataset_batch_sampler
        arguments: Any = (dataset, batch_samplers, generator, seed)
        if self.args.joint:
            return InterleavedBatchSampler(*arguments, in_turn=True)
        if chosen not in (None, sampler.MultiDatasetBatchSamplers.PROPORTIONAL):
            return super().get_multi_dataset_batch_sampler(*arguments)
        losses = [self._package_loss_of(part) for part in dataset.datasets]
        ratios = [1.0 if own is None else own.ratio for own in losses]
        by_size = chosen is not None and {*ratios} == {1.0}
        # The host's sampler gives ranks different data sets, and losses that gather would wait forever.
        if any(losses) and (not by_size or self.args.world_size > 1):
            return InterleavedBatchSampler(*arguments, ratios=None if by_size else ratios)
        return sampler.ProportionalBatchSampler(*arguments)

    def _package_loss_of(self, dataset: Any) -> CrossLingualLoss | None:
        # The host puts the name of a data set into its rows.
        return package_loss(
            self.loss[dataset[0]["dataset_name"]] if isinstance(self.loss, Mapping) else self.loss
        )

    def train(
        self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Train as the host does; what the arguments change for that alone is taken back, after an exception too."""
        self.loss_state.resume_from = (
            resume_from_checkpoint if isinstance(resume_from_checkpoint, str) else None
        )
        self._loss_values = {}
        with ExitStack() as self._take_back:
            if self.model_init is None:
                self._prepare_encoder(self.model)
            result = super().train(resume_from_checkpoint, *args, **kwargs)
            if self._original:
                trainable.interpolate_weights(self.model, self._original, self.args.keep_trained)
        self._check_weights()
        card: Any = self.model.model_card_data
        card.training_seconds = result.metrics.get("train_runtime")
        return result

    def _prepare_encoder(self, model: SentenceTransformer) -> None:
        """Set what of an encoder is trained and how its layers compute, until the training ends."""
        args, take_back = self.args, self._take_back
        # In bf16 on a CPU, the backward pass of PyTorch's fused attention is slow.
        attention = "eager" if args.bf16 and args.device.type == "cpu" else None
        take_back.enter_context(
            trainable.changed_layers(model, dropout=args.dropout, attention=attention)
        )
        for weight in model.parameters():
            take_back.callback(weight.requires_grad_, weight.requires_grad)
        if args.freeze_embeddings:
            trainable.freeze_word_embeddings(model)
        if args.lora_rank:
            trainable.add_lora(model, args.lora_rank)
            take_back.callback(trainable.merge_adapters, model)
            self.optimizer = None  # that of an earlier training holds the adapters of then
        if args.save_strategy != "no":
            trainable.check_adapters_match_folder(model)
        self._original = trainable.copy_trainable_weights(model) if args.keep_trained < 1 else {}

    def call_model_init(self, trial: Any = None) -> Any:
        """A new model for a training, and new losses for it."""
        # In a search, the host calls this, then sets the arguments of the trial, then calls `create_optimizer`.
        model: Any = super().call_model_init(trial)
        ensure_card_data(model)
        if getattr(self, "is_in_train", False):
            self._replace_losses(model)
            self._before_trial = None if trial is None else copy.copy(self.args)
            if trial is None:
                self._prepare_encoder(model)
        return model

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """The host's optimizer. Before it, the host has set the arguments of a search's trial."""
        before, self._before_trial = self._before_trial, None
        if before is not None:
            fixed = [*READ_ONCE, *(["gradient_accumulation_steps"] if self._parts > 1 else [])]
            if changed := [
                name for name in fixed if getattr(self.args, name) != getattr(before, name)
            ]:
                raise ValueError(f"a search cannot choose {changed}: make a Trainer for each value")
            self._prepare_encoder(self.model)
        return super().create_optimizer(*args, **kwargs)

    def _replace_losses(self, model: SentenceTransformer) -> None:
        if self._loss_as_given is not None:
            self.loss = build_losses(self._loss_as_given, model)
            self.loss_state.watch_losses(self.loss)
            for loss in self.loss_state.all_losses.values():
                loss.to(self.args.device)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The host's schedule, with the drops that the arguments ask for."""
        is_new = self.lr_scheduler is None
        schedule: Any = super().create_scheduler(num_training_steps, optimizer)
        if is_new and (drops := [num_training_steps * share for share in self.args.lr_drops]):
            # The host has one function of the step for all groups of weights.
            rate, groups = schedule.lr_lambdas[0], len(schedule.lr_lambdas)
            schedule.lr_lambdas = [
                lambda n: rate(n) * 0.1 ** sum(n >= drop for drop in drops)
            ] * groups
        return schedule

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """The loss of a batch. In training, its tokens are counted, and a loss that is not finite stops the run."""
        name = inputs.get("dataset_name", "")
        masks = [value.sum() for key, value in inputs.items() if key.endswith("_attention_mask")]
        # The inputs of a static encoder are flattened and have no padding.
        counts = masks or [
            value.numel() for key, value in inputs.items() if key.endswith("_input_ids")
        ]
        loss: Any = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if return_outputs:  # an evaluation
            return loss
        tokens = self.accelerator.reduce(
            torch.as_tensor(sum(counts), device=self.args.device), "sum"
        )
        self.state.num_input_tokens_seen += int(tokens)
        value = loss.item()
        if not math.isfinite(value):
            step = f"the loss {name} is {value} at step {self.state.global_step + 1}, and no weights were changed by it"
            raise FloatingPointError(
                f"{step}: resume from the last checkpoint with a lower rate, or in bf16 or fp32"
            )
        self._loss_values.setdefault(name, []).append(value)
        # The host divides by the number of accumulated batches, which are the parts of a sum.
        return loss * self._parts

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log, with the mean of each loss since the last line."""
        if "loss" in logs:
            by_name = sorted((name, values) for name, values in self._loss_values.items() if name)
            sums = torch.tensor(
                [[sum(values), len(values)] for _, values in by_name], device=self.args.device
            )
            totals = self.accelerator.reduce(sums).tolist() if by_name else []
            logs |= {
                f"loss_{name}": round(s / n, 4)
                for (name, _), (s, n) in zip(by_name, totals, strict=True)
            }
            self._loss_values = {}
        super().log(logs, *args, **kwargs)

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        """Save, unless a weight is not finite: a finite loss can have infinite gradients."""
        self._check_weights()
        super().save_model(*args, **kwargs)

    def _check_weights(self) -> None:
        for module in (self.model, *self.loss_state.losses.values()):
            check_finite(module)


def cross_lingual_arguments(
    args: SentenceTransformerTrainingArguments,
) -> CrossLingualTrainingArguments:
    """A copy of arguments; those of the host have the defaults of ours besides, and their own number format."""
    if isinstance(args, CrossLingualTrainingArguments):
        copied = copy.copy(args)
        copied.hub_token = args.hub_token  # a copy, as a pickle, has none
        return copied
    values = {
        field.name: getattr(args, field.name) for field in dataclasses.fields(args) if field.init
    }
    if args.batch_sampler == sampler.BatchSamplers.BATCH_SAMPLER:
        values["batch_sampler"] = None  # the host's default
    precision = "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32"
    return CrossLingualTrainingArguments(**values, precision=precision)


def build_losses(loss: Any, model: SentenceTransformer, *, anew: bool = False) -> Any:
    """Losses, made where they are functions of the model; `anew`: those of this package must be functions."""
    if isinstance(loss, Mapping):
        return {name: build_losses(each, model, anew=anew) for name, each in loss.items()}
    if loss is not None and not isinstance(loss, torch.nn.Module):
        return loss(model)
    if anew and package_loss(loss):
        way_out = "give it as a function, such as loss=lambda model: CCPLoss(model)"
        raise ValueError(
            f"with model_init, {type(loss).__name__} has to be made with each model: {way_out}"
        )
    return loss


def select_loss_columns(datasets: Any, loss: Any) -> Any:
    """Reduce data sets to the columns that their losses read."""
    if isinstance(datasets, Mapping):
        by_name = loss if isinstance(loss, Mapping) else dict.fromkeys(datasets, loss)
        return DatasetDict(
            {name: select_loss_columns(rows, by_name.get(name)) for name, rows in datasets.items()}
        )
    if loss is None or isinstance(loss, Mapping) or datasets is None or isinstance(datasets, str):
        return datasets
    if own := package_loss(loss):
        return own.select(datasets)
    if holds_strings(datasets, "document"):
        way_out = "rename it, as by dataset.rename_column('document', 'positive')"
        raise ValueError(
            f"{type(loss).__name__}: the column 'document' is the id of a document here: {way_out}"
        )
    return datasets


def values_by_column(datasets: Any, value_of: Callable[[str], Any]) -> dict[str, Any]:
    """A value for each text column, in the forms that the host takes for one data set and for several."""
    if isinstance(datasets, Mapping):
        return {name: values_by_column(rows, value_of) for name, rows in datasets.items()}
    return (
        {} if datasets is None else {column: value_of(column) for column in text_columns(datasets)}
    )
