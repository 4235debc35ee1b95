"""The Trainer of Sentence Transformers, which meets the needs that the losses declare."""

import copy
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, cast

import torch
from datasets import Dataset, IterableDataset
from huggingface_hub import HfApi
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base import sampler
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import BatchSampler, ConcatDataset, RandomSampler

from st_xlret.batches import CrossLingualDataCollator, InterleavedBatchSampler
from st_xlret.columns import Role
from st_xlret.encoding import (
    PROMPT_NAMES,
    role_prompt,
    warn_of_other_prompts,
)
from st_xlret.encoding.batches import padding_options
from st_xlret.hub.card import ensure_card_data
from st_xlret.hub.repository import ensure_repository
from st_xlret.losses.base import CrossLingualLoss, package_loss
from st_xlret.modules import freeze_unused
from st_xlret.modules.adapters import adapter_files, delete_adapters, has_adapters
from st_xlret.modules.encoders import has_route_of_each_role
from st_xlret.training.argument_checks import (
    check_host_arguments,
    check_named_columns,
    check_optimizers,
    columns_by_data_set,
)
from st_xlret.training.arguments import CrossLingualTrainingArguments, cross_lingual_arguments
from st_xlret.training.loss_state import LossStateCallback
from st_xlret.training.preparation import EncoderPreparation, check_weights
from st_xlret.training.text_lengths import check_length, flattened_prompts
from st_xlret.training.trainer_losses import (
    DataSets,
    LossOrMaker,
    build_losses,
    has_own_loss,
    select_loss_columns,
    take_loss_state,
)

_ROLES: tuple[Role | None, ...] = ("query", "document", None)

READ_ONCE = ("joint", "precision", "token_dropout", "train_seq_length")
"""Arguments that count when the Trainer is made, and not when a training begins."""


class CrossLingualTrainer(SentenceTransformerTrainer):
    """The host's Trainer for the losses of this package.

    It meets what the losses declare: it selects their columns, draws and mixes their batches, and
    keeps what they own (heads, banks) in every checkpoint and on every rank. Losses of Sentence
    Transformers work beside them. What is given explicitly, such as `data_collator`, or
    `batch_sampler` and `prompts` in the arguments, is used instead. Columns of queries and of
    documents (`query`, `positive`, `negative_1`) get the model's prompts and routes.

    Each log line has `loss_<name>`, the mean of each loss, and
    `trainer.state.num_input_tokens_seen` counts the tokens of all ranks without padding. A loss or
    a weight that is not finite stops the run, by a `FloatingPointError`, before it reaches a
    checkpoint.

    Args:
        model: The encoder; or `model_init`, a function that makes one for each training, as a
            search needs.
        args: [`CrossLingualTrainingArguments`][st_xlret.CrossLingualTrainingArguments], or the
            host's.
        train_dataset: A data set, or several by name, as `eval_dataset`. With `joint`, the last
            loss uses all weights.
        loss: A loss, or one for each data set; or functions of the model that make them, which
            `model_init` needs.
        **kwargs: The other arguments of the host's Trainer.

    Example:
        >>> from st_xlret import CCPLoss
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> sentences = {"sentence": list("abcd") * 2, "language": ["en"] * 8}
        >>> rows = Dataset.from_dict({**sentences, "document": [1] * 4 + [2] * 4})
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> args = CrossLingualTrainingArguments("runs/tiny", max_steps=1, report_to="none")
        >>> trainer = CrossLingualTrainer(model, args, rows, loss=CCPLoss(model))
        >>> sorted(trainer.train_dataset.column_names)
        ['document', 'language', 'sentence']
    """

    training_args_class: Any = CrossLingualTrainingArguments
    data_collator_class = CrossLingualDataCollator
    args: CrossLingualTrainingArguments

    # What it keeps beside the host's attributes, from `__init__` on.
    loss_state: LossStateCallback
    """The one callback for the losses; with `model_init` it watches those of each training."""
    _loss_as_given: LossOrMaker | Mapping[str, LossOrMaker] | None
    """Of which `model_init` gets new losses for each training."""
    _preparation: EncoderPreparation
    """What a training changes of the encoder: open in `train`, which takes it back."""
    _parts: int
    """Data sets of which each step has a batch: several with `joint`."""
    _loss_values: dict[str, list[float]]
    """By data set: `compute_loss` adds to them, and `log` takes their means and begins anew."""
    _read_once: dict[str, Any]
    """Arguments that no trial of a search may change any more."""

    def __init__(
        self,
        model: SentenceTransformer | None = None,
        args: SentenceTransformerTrainingArguments | None = None,
        train_dataset: DataSets | None = None,
        eval_dataset: DataSets | str | None = None,
        loss: LossOrMaker | Mapping[str, LossOrMaker] | None = None,
        callbacks: list[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        args = cross_lingual_arguments(args or CrossLingualTrainingArguments("tmp_trainer"))
        check_optimizers(args, kwargs.get("optimizers"))
        self._preparation = EncoderPreparation()
        self._loss_as_given = loss
        self._loss_values = {}
        self.model_init: Any = kwargs.get("model_init")
        # One that is made here serves the losses and arguments; the host makes its own.
        encoder: Any = model if self.model_init is None else self.call_model_init()
        losses = None
        if loss is not None:
            losses = build_losses(loss, encoder, anew=self.model_init is not None)
        ensure_card_data(encoder)  # the host's would show texts of the data

        # Before the host reads them.
        train_dataset = select_loss_columns(train_dataset, losses)
        eval_dataset = select_loss_columns(eval_dataset, losses)
        is_stream = isinstance(train_dataset, IterableDataset)
        check_host_arguments(args, has_own_loss=has_own_loss(losses), is_stream=is_stream)
        self._parts = 1
        if args.joint and isinstance(train_dataset, Mapping):
            self._parts = len(train_dataset)
        _adapt_arguments(args, encoder, parts=self._parts, is_stream=is_stream)
        others = list(callbacks or [])
        self.loss_state = take_loss_state(others, [] if losses is None else losses)
        super().__init__(
            model,
            args,
            train_dataset,
            eval_dataset,
            losses,
            callbacks=[self.loss_state, *others],
            **kwargs,
        )

        # Of what the host has made of them.
        if self.model_init is not None:
            self._replace_losses(self.model)
        columns = columns_by_data_set(train_dataset, eval_dataset)
        self._check_names_of_options(columns, losses)
        self._prepare_collator(encoder)
        self._read_once = self._values_read_once()

    def _check_names_of_options(self, columns: dict[str, set[str]], losses: Any) -> None:
        """Refuse losses, prompts and routes of data sets or columns that there are not."""
        check_named_columns(
            columns,
            prompts=getattr(self.data_collator, "prompts", None),
            router_mapping=getattr(self.data_collator, "router_mapping", None),
            loss=losses,
        )

    def _values_read_once(self) -> dict[str, Any]:
        """The arguments that the Trainer has read, which no trial of a search may change."""
        values = {name: getattr(self.args, name) for name in READ_ONCE}
        if self._parts > 1:
            values["gradient_accumulation_steps"] = self.args.gradient_accumulation_steps
        return values

    def get_data_collator(self, model: Any, args: Any, processing_class: Any = None) -> Any:
        """The collator, which finds prompt and route of each column of a batch by its role."""
        if has_route_of_each_role(model) and not args.router_mapping:
            collator = self.data_collator_class(model.preprocess, prompts=args.prompts)
            collator.role_routes = {role: role or "document" for role in _ROLES}
        else:
            host_collator = super().get_data_collator(model, args, processing_class)
            collator = cast(CrossLingualDataCollator, host_collator)
        if any(model.prompts.values()):
            collator.role_prompts = {role: role_prompt(model, role) for role in _ROLES}
            warn_of_other_prompts(model, PROMPT_NAMES)
        return collator

    def _prepare_collator(self, encoder: SentenceTransformer) -> None:
        """Give a collator of ours what the arguments say of it; a given one stays as it is."""
        if not isinstance(self.data_collator, CrossLingualDataCollator):
            return
        args = self.args
        if args.train_seq_length is not None:
            prompts = [*flattened_prompts(args.prompts), *self.data_collator.role_prompts.values()]
            most = encoder.max_seq_length
            check_length(encoder, most, prompts, train_seq_length=args.train_seq_length)
        collator = copy.copy(self.data_collator)
        collator.token_dropout = args.token_dropout or collator.token_dropout
        collator.max_length = args.train_seq_length or collator.max_length
        is_bf16_on_cpu = args.bf16 and args.device.type == "cpu"
        if is_bf16_on_cpu and collator.preprocess_fn == encoder.preprocess:
            # oneDNN compiles kernels for each length of texts, and keeps them.
            lengths = padding_options(encoder, args.train_seq_length)
            collator.preprocess_fn = partial(encoder.preprocess, **lengths)
        self.data_collator = collator

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """The host's repository, with its branch.

        What the token may not push to is refused, before the training.
        """
        super().init_hf_repo(token, private)
        if not self.is_world_process_zero():
            return
        hub = HfApi(token=token or self.args.hub_token)
        name = str(self.hub_model_id)
        ensure_repository(hub, name, private)
        if self.args.hub_revision:
            hub.create_branch(name, branch=self.args.hub_revision, exist_ok=True)

    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:
        """Push as the host does; of a merged model, no files of adapters stay in the repository."""
        result = super().push_to_hub(*args, **kwargs)
        if self.is_world_process_zero() and not has_adapters(self.model):
            hub = HfApi(token=kwargs.get("token") or self.args.hub_token)
            folder = Path(str(self.args.output_dir))
            delete_adapters_on_hub(hub, str(self.hub_model_id), kwargs.get("revision"), folder)
        return result

    # Batches

    def should_dataset_name_column_be_added(self, dataset: Any, *args: Any) -> bool:
        """Whether rows get the name of their data set: of several, always, for the log."""
        return isinstance(dataset, Mapping)

    def get_batch_sampler(
        self,
        dataset: Dataset,
        batch_size: int,
        *args: Any,
        **kwargs: Any,
    ) -> BatchSampler | None:
        """The batches that the loss of a data set asks for, unless the arguments name a sampler.

        A `ValueError` refuses a data set with columns that the loss does not read.
        """
        loss = self._package_loss_of(dataset)
        if loss is not None and loss.columns_to_read(dataset) != dataset.column_names:
            # It was given later, as to predict.
            loss.refuse(f"the data set has {dataset.column_names}: give loss.select(dataset)")
        kwargs["seed"] = self._seed_of_batches()
        if self.args.batch_sampler is not None:
            return super().get_batch_sampler(dataset, batch_size, *args, **kwargs)
        if loss is not None:
            return loss.batches(dataset, batch_size, *args, **kwargs)
        rows = RandomSampler(dataset, generator=kwargs.get("generator"))
        return sampler.DefaultBatchSampler(rows, batch_size, *args, **kwargs)

    def get_multi_dataset_batch_sampler(
        self,
        dataset: ConcatDataset,
        batch_samplers: list[BatchSampler],
        generator: Any = None,
        seed: int | None = 0,
    ) -> BatchSampler:
        """Batches of all data sets, as often as the losses ask for.

        Unless the arguments name a sampler.
        """
        chosen = self.args.multi_dataset_batch_sampler
        proportional = sampler.MultiDatasetBatchSamplers.PROPORTIONAL
        of_all: Any = (dataset, batch_samplers, generator, self._seed_of_batches())
        if self.args.joint:
            return InterleavedBatchSampler(*of_all, in_turn=True)
        if chosen not in (None, proportional):
            return super().get_multi_dataset_batch_sampler(*of_all)
        losses = [self._package_loss_of(part) for part in dataset.datasets]
        ratios = [1.0 if loss is None else loss.ratio for loss in losses]
        by_size = chosen == proportional and set(ratios) == {1.0}
        draws_own = any(loss is not None for loss in losses)
        # The host's sampler gives ranks different data sets, and losses that gather would wait
        # forever.
        if draws_own and (not by_size or self.args.world_size > 1):
            return InterleavedBatchSampler(*of_all, ratios=None if by_size else ratios)
        return sampler.ProportionalBatchSampler(*of_all)

    def _seed_of_batches(self) -> int:
        """The seed of all batches: `data_seed`, or else `seed`."""
        if self.args.data_seed is not None:
            return int(self.args.data_seed)
        return self.args.seed

    def _package_loss_of(self, dataset: Any) -> CrossLingualLoss | None:
        """The loss of this package that a data set is for; None where it is of others."""
        if not isinstance(self.loss, Mapping):
            return package_loss(self.loss)
        # The host puts the name of a data set into its rows.
        name = dataset[0]["dataset_name"]
        return package_loss(self.loss[name])

    # Training

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Train as the host does; then the weights go back as far as `keep_trained` says.

        What the arguments change for that alone is taken back, after an exception too. A
        `ValueError` says that no step was trained, for there were too few rows, or that a weight is
        not finite.
        """
        self._loss_values = {}
        checkpoint = None
        if isinstance(resume_from_checkpoint, str):
            checkpoint = resume_from_checkpoint
        with self.loss_state.resuming(checkpoint), self._preparation.open():
            if self.model_init is None:
                self._prepare_encoder()
            result = super().train(resume_from_checkpoint, *args, **kwargs)
            if self.state.global_step == 0:
                raise ValueError(
                    "no step was trained: there are fewer rows than a batch has "
                    f"({self.args.train_batch_size}), and smaller batches are dropped"
                )
            self._preparation.finish(self.model, self.args, self.loss_state)
        card = ensure_card_data(self.model)
        card.training_seconds = result.metrics.get("train_runtime")
        return result

    def _prepare_encoder(self) -> None:
        """Set what of the encoder is trained, once in a training, before the optimizer is made."""
        if self.args.lora_rank:
            self.optimizer = None  # that of an earlier training holds the adapters of then
        self._preparation.prepare(self.model, self.args, self.loss_state)

    # Trainings with `model_init`: the encoder is prepared when it is made. In a search, the host
    # calls `call_model_init`, then sets the arguments of the trial, then calls `create_optimizer`.

    def call_model_init(self, trial: Any = None) -> Any:
        """A new model and, in a training, new losses for it."""
        model: Any = super().call_model_init(trial)
        ensure_card_data(model)
        if self._preparation.stage == "closed":
            return model
        self.model = model
        self._replace_losses(model)
        if trial is None:
            self._prepare_encoder()
        return model

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """The host's optimizer. Before it, the host has set the arguments of a search's trial."""
        if self._preparation.stage == "waiting":
            self._check_trial()
            check_host_arguments(self.args, has_own_loss=has_own_loss(self.loss), is_stream=False)
            self._prepare_encoder()
        return super().create_optimizer(*args, **kwargs)

    def _check_trial(self) -> None:
        """Refuse a trial that would change what the Trainer has read."""
        now = self._values_read_once()
        changed = [name for name, value in self._read_once.items() if now[name] != value]
        if changed:
            raise ValueError(f"a search cannot choose {changed}: make a Trainer for each value")

    def _replace_losses(self, model: SentenceTransformer) -> None:
        """Build the losses on a new model, and let the callback watch them."""
        if self._loss_as_given is None:
            return
        losses = build_losses(self._loss_as_given, model)
        self.loss = losses  # type: ignore[assignment]  # of the host, which takes one alone, too
        self.loss_state.watch_losses(losses)
        for loss in self.loss_state.all_losses.values():
            loss.to(self.args.device)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The host's schedule, with the drops that the arguments ask for.

        A `ValueError` refuses drops in a schedule that is no function of the step.
        """
        is_new = self.lr_scheduler is None
        schedule: Any = super().create_scheduler(num_training_steps, optimizer)
        if is_new and self.args.lr_drops:
            if not isinstance(schedule, LambdaLR):
                raise ValueError(
                    f"lr_drops: the schedule of lr_scheduler_type {self.args.lr_scheduler_type} is "
                    "no function of the step; take another, such as 'linear', or no lr_drops"
                )
            drops = [num_training_steps * share for share in self.args.lr_drops]
            # The host has one function of the step for all groups of weights.
            rate = schedule.lr_lambdas[0]

            def rate_with_drops(step: int) -> float:
                past = [drop for drop in drops if step >= drop]
                factor: float = rate(step) * 0.1 ** len(past)
                return factor

            schedule.lr_lambdas = [rate_with_drops] * len(schedule.lr_lambdas)
        return schedule

    # Losses

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """The loss of a batch.

        In training, its tokens are counted, and a loss that is not finite stops the run. All ranks
        call it together.
        """
        name = inputs.get("dataset_name", "")
        count = _count_tokens(inputs)
        loss: Any = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if return_outputs:  # an evaluation
            return loss
        count_of_rank = torch.as_tensor(count, device=self.args.device)
        self.state.num_input_tokens_seen += int(self.accelerator.reduce(count_of_rank, "sum"))
        value = loss.item()
        if not math.isfinite(value):
            raise FloatingPointError(
                f"the loss {name} is {value} at step {self.state.global_step + 1}, and no weights "
                "were changed by it: resume from the last checkpoint with a lower rate, or in bf16 "
                "or fp32"
            )
        self._loss_values.setdefault(name, []).append(value)
        # The host divides by the number of accumulated batches, which are the parts of a sum.
        return loss * self._parts

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log, with the mean of each loss since the last line. All ranks call it."""
        if "loss" in logs:
            logs.update(self._mean_losses())
            self._loss_values = {}
        super().log(logs, *args, **kwargs)

    def _mean_losses(self) -> dict[str, float]:
        """The mean of each loss over all ranks, which call it together.

        All of them add up all data sets: the host's sampler gives ranks batches of different ones.
        """
        if not isinstance(self.train_dataset, Mapping):
            return {}
        names = sorted(self.train_dataset)
        sums = []
        for name in names:
            values = self._loss_values.get(name, [])
            sums.append([sum(values), float(len(values))])
        sums_of_rank = torch.tensor(sums, device=self.args.device)
        means = {}
        for name, (total, count) in zip(names, self.accelerator.reduce(sums_of_rank), strict=True):
            if count:
                means[f"loss_{name}"] = round(float(total) / float(count), 4)
        return means

    # Evaluation

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """The host's batches, the same each time.

        A loader with persistent workers is kept, and counts its passes.
        """
        loader: Any = super().get_eval_dataloader(eval_dataset)
        loader.iteration = 0
        return loader

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The host's evaluation; of a data set that is given, losses read as always."""
        selected = select_loss_columns(eval_dataset, self.loss)
        return super().evaluate(selected, *args, **kwargs)

    # Saving

    def save_model(self, output_dir: str | None = None, *args: Any, **kwargs: Any) -> None:
        """Save, unless a weight is not finite: a finite loss can have infinite gradients.

        Beside a merged model, no files of adapters stay, which would be read in place of it.
        """
        check_weights(self.model, self.loss_state)
        super().save_model(output_dir, *args, **kwargs)
        if self.args.should_save and not has_adapters(self.model):
            delete_adapters(Path(output_dir or str(self.args.output_dir)))


def _adapt_arguments(
    args: CrossLingualTrainingArguments,
    encoder: SentenceTransformer,
    *,
    parts: int,
    is_stream: bool,
) -> None:
    """Set, in place, what the host needs for joint steps, streams and two encoders.

    Of two encoders, the weights that no pass reads are frozen.
    """
    # A joint step is one round over the data sets: the host accumulates their gradients.
    args.gradient_accumulation_steps *= parts
    if is_stream and args.batch_sampler is None:
        # The host draws it, and warns of samplers.
        args.batch_sampler = sampler.BatchSamplers.BATCH_SAMPLER
    if has_route_of_each_role(encoder) and not args.router_mapping:
        # Two passes on different parameters: DDP would take those of one pass for all that are
        # unused.
        args.ddp_find_unused_parameters = False
        freeze_unused(encoder)


def delete_adapters_on_hub(hub: HfApi, name: str, revision: str | None, pushed: Path) -> None:
    """Delete the adapters in a repository that are of the modules of the folder pushed there."""
    paths = map(PurePosixPath, hub.list_repo_files(name, revision=revision))
    files = list(map(str, adapter_files(paths, pushed)))
    if files:
        message = "The adapters are merged into the weights"
        hub.delete_files(name, delete_patterns=files, revision=revision, commit_message=message)


def _count_tokens(inputs: dict[str, Any]) -> Any:
    """The tokens of a batch without padding."""
    masks = [value.sum() for name, value in inputs.items() if name.endswith("_attention_mask")]
    if masks:
        return sum(masks)
    # The inputs of a static encoder are flattened and have no padding.
    return sum(value.numel() for name, value in inputs.items() if name.endswith("_input_ids"))
