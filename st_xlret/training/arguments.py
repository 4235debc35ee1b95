"""Training arguments: the host's, what cross-lingual training adds, and those of scripts."""

import copy
import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import BatchSamplers

from st_xlret.hub.card import check_license
from st_xlret.options import option, required_option
from st_xlret.precision import PRECISIONS, resolve_precision
from st_xlret.ranges import check_positive, check_range


@dataclass
class CrossLingualTrainingArguments(SentenceTransformerTrainingArguments):
    """Arguments of [`CrossLingualTrainer`][st_xlret.CrossLingualTrainer]: the host's, and these.

    Args:
        batch_sampler: As for the host. Default: the `batches` of each loss.
        multi_dataset_batch_sampler: As for the host. Default: batches as often as the `ratio` of
            each loss says.
        precision: Number format of both passes, `"fp32"`, `"bf16"`, `"fp16"` or `"auto"`. The
            weights stay in fp32.
        train_seq_length: Tokens to read of a text in training. Default: as many as the saved model
            reads.
        freeze_embeddings: Leave the word embeddings as they are.
        lora_rank: Train low-rank adapters (LoRA) of this rank, and merge them after training; needs
            the extra `peft`.
        dropout: Dropout of the encoder's layers. Default: that of the checkpoint.
        token_dropout: Share of tokens that are dropped from the inputs of a static encoder.
        lr_drops: Shares of the steps, such as `[0.5, 0.75]`: after each, the schedule's learning
            rate is divided by 10.
        keep_trained: Weights after training: `original + keep_trained * (trained - original)`.
            Between the two are often models that keep most of what both can do (Wortsman et al.,
            CVPR 2022).
        joint: Each step sums the losses of one batch of every data set. Default: each batch is of
            one, drawn at random.
    """

    batch_sampler: str | None = option(  # type: ignore[assignment]
        None,
        "Sampler of a data set. By default each loss's.",
    )
    multi_dataset_batch_sampler: str | None = option(  # type: ignore[assignment]
        None,
        "Batches of several data sets: proportional, round_robin. "
        "By default as often as each loss asks for.",
    )
    precision: str = option(
        "auto",
        "Number format; auto is bf16 where the device computes in it, else fp32.",
        [*PRECISIONS, "fp16"],
    )
    train_seq_length: int | None = option(
        None,
        "Tokens to read of a text in training. By default the saved model's.",
    )
    freeze_embeddings: bool = option(
        False,
        "Leave the word embeddings as they are: less memory, and faster steps.",
    )
    lora_rank: int | None = option(
        None,
        'Rank of LoRA adapters to train, such as 16, at 2e-4. Needs the extra "peft".',
    )
    dropout: float | None = option(
        None,
        "Dropout of the encoder's layers. By default the checkpoint's, mostly 0.1.",
    )
    token_dropout: float = option(
        0.0,
        "Share of tokens to drop from the inputs of a static encoder.",
    )
    lr_drops: list[float] = option(
        [],
        "Shares of the steps after which the learning rate is a tenth of what it was.",
    )
    keep_trained: float = option(
        1.0,
        "Final weights: original (0), trained (1) or between; 0.5 to 0.7 suits search.",
    )
    joint: bool = option(False, "Sum the losses of all kinds of batches in every step.")

    def __post_init__(self) -> None:
        self._check_numbers()
        self._set_number_format()
        super().__post_init__()

    def _check_numbers(self) -> None:
        """Refuse numbers out of their range."""
        for name in ("keep_trained", "dropout", "token_dropout"):
            check_range(0, 1, **{name: getattr(self, name)})
        for share in self.lr_drops:
            check_range(0, 1, lr_drops=share)
        for name in ("train_seq_length", "lora_rank"):
            check_range(1, **{name: getattr(self, name)})
        check_positive(num_train_epochs=self.num_train_epochs)
        if self.keep_trained < 1 and self.lora_rank:
            raise ValueError(f"keep_trained {self.keep_trained}: it is 1 with lora_rank")

    def _set_number_format(self) -> None:
        """Set `precision`, `bf16` and `fp16` to say the same, and `use_cpu` for bf16 there."""
        device = self._device_type()
        precision = self._precision_as_given()
        if precision != "fp16":
            precision = resolve_precision(precision, device)
        self.precision = precision
        self.bf16 = precision == "bf16"
        self.fp16 = precision == "fp16"
        if self.bf16 and device == "cpu":
            # The host refuses bf16 on a CPU unless it is told to use the CPU.
            self.use_cpu = True

    def _precision_as_given(self) -> str:
        """The one format that the three arguments name; "auto" if they name none.

        A `ValueError` refuses two.
        """
        formats = {self.precision}
        if self.bf16:
            formats.add("bf16")
        if self.fp16:
            formats.add("fp16")
        formats.discard("auto")
        if len(formats) > 1:
            raise ValueError(f"precision, bf16, fp16: one number format, not {sorted(formats)}")
        return formats.pop() if formats else "auto"

    def _device_type(self) -> str:
        """Where the host will train, whose `device` is set up once, when `use_cpu` is final."""
        if self.use_cpu or not torch.accelerator.is_available():
            return "cpu"
        accelerator = torch.accelerator.current_accelerator()
        return "cpu" if accelerator is None else accelerator.type

    def __getstate__(self) -> dict[str, Any]:
        """The state without the token.

        The host's Trainer pickles the arguments into every folder that it pushes.
        """
        return {**vars(self), "hub_token": None}


def cross_lingual_arguments(
    args: SentenceTransformerTrainingArguments,
) -> CrossLingualTrainingArguments:
    """A copy of arguments.

    Those of the host, or of a subclass, have the defaults of ours besides, and their own number
    format.
    """
    if isinstance(args, CrossLingualTrainingArguments):
        copied = copy.copy(args)
        copied.hub_token = args.hub_token  # a copy, as a pickle, has none
        return copied
    known = {each.name for each in dataclasses.fields(CrossLingualTrainingArguments) if each.init}
    values = {}
    others = {}
    for name, value in vars(args).items():
        if name in known:
            values[name] = value
        else:
            others[name] = value
    values["precision"] = _precision_of_host(args)
    if args.batch_sampler == BatchSamplers.BATCH_SAMPLER:
        values["batch_sampler"] = None  # the host's default
    converted = CrossLingualTrainingArguments(**values)
    for name, value in others.items():
        if not hasattr(converted, name):
            setattr(converted, name, value)  # of a subclass
    return converted


def _precision_of_host(args: SentenceTransformerTrainingArguments) -> str:
    """The number format that arguments of the host name."""
    if args.bf16:
        return "bf16"
    return "fp16" if args.fp16 else "fp32"


@dataclass
class ScriptArguments(CrossLingualTrainingArguments):
    """The training arguments with the defaults of this package's scripts.

    A script overrides those of its paper.
    """

    rate_of_trained: ClassVar[float | None] = None
    """The rate that suits an encoder which is trained already, where the default does not."""

    _argument_group_name = "training (the host's options, and a few more)"

    output_dir: str = required_option(
        "Folder for the model, checkpoints, results.json and training.png."
    )
    max_steps: int = option(10_000, "Optimizer steps. --num_train_epochs replaces it.")
    num_train_epochs: float | None = option(  # type: ignore[assignment]
        None,
        "Passes over the data, in place of --max_steps.",
    )
    per_device_train_batch_size: int = option(
        32,
        "Windows, sentences or pairs in a batch, per device.",
    )
    learning_rate: float = option(
        3e-5,
        "Peak learning rate. 3e-5 suits XLM-R, 3e-6 E5 and its like, 5e-4 small ones.",
    )
    warmup_steps: float = option(
        0.1,
        "Steps of linear warm-up; a number below 1 is a share of all steps.",
    )
    weight_decay: float = option(0.01, "Weight decay.")
    logging_steps: float = option(
        50,
        "Steps between two lines of losses; a short run has about twenty lines.",
    )
    save_steps: float = option(
        500,
        "Steps between two checkpoints. --save_strategy no writes none.",
    )
    save_total_limit: int | None = option(2, "Checkpoints to keep, besides the best one.")
    seed: int = option(0, "Seed of everything random.")
    resume: bool = option(
        False,
        "Go on from the last complete checkpoint, as if the run had not been stopped.",
    )
    overwrite: bool = option(False, "Replace the model and the checkpoints in the output folder.")
    license: str | None = option(
        None,
        "Licence of the model, for its card. By default the base model's.",
    )

    def __post_init__(self) -> None:
        check_license(self.license)
        self.resume = self.resume or bool(self.resume_from_checkpoint)
        if self.max_steps == 0:
            raise ValueError("max_steps 0: it has to be above 0, or -1 for whole epochs")
        if self.num_train_epochs is None:
            self.num_train_epochs = 3.0  # the host's, which counts with --max_steps -1 alone
        elif self.max_steps == type(self).max_steps:
            self.max_steps = -1
        super().__post_init__()

    def keep_best_checkpoint(self, metric: str | None) -> None:
        """Evaluate at every checkpoint, or as the arguments say, and load the best one at the end.

        It is called before the Trainer is made. `metric` is a score, of which more is better, as
        the host names it; None measures nothing. Where not all checkpoints have a score, none is
        loaded.
        """
        saves = self.save_strategy != "no"
        if metric is None:
            self.eval_strategy = "no"  # type: ignore[assignment]
        elif self.eval_strategy == "no":
            self.eval_strategy = self.save_strategy if saves else "steps"  # type: ignore[assignment]
            self.eval_steps = self.eval_steps or self.save_steps
        in_step = True
        if self.eval_strategy == "steps":
            in_step = (self.save_steps / (self.eval_steps or 1)).is_integer()
        all_have_scores = saves and self.eval_strategy == self.save_strategy and in_step
        self.load_best_model_at_end = metric is not None and all_have_scores
        self.metric_for_best_model = metric
        self.greater_is_better = True
