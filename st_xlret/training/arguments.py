"""Options of the training scripts: the host's own, and groups that several scripts share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainingArguments

from st_xlret.data import PairOptions, by_language, hold_out_pairs, load_documents, load_pairs
from st_xlret.data.reading.jsonl import Limits
from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.hub.model_card import check_license
from st_xlret.options import LIMITS_HELP, check_ranges, option
from st_xlret.precision import PRECISIONS, resolve_precision


@dataclass
class TrainingArguments(SentenceTransformerTrainingArguments):
    """The host's training arguments, with the defaults of this package's scripts.

    Everything of `SentenceTransformerTrainingArguments` works as everywhere. A script overrides the defaults that
    its paper sets.
    """

    _argument_group_name = "training (the host's options; --help_all shows all of them)"

    output_dir: str = field(metadata={"help": "Folder for the model, checkpoints, results and plots."})
    max_steps: int = option(10_000, "Optimizer steps. --num_train_epochs replaces it.")
    per_device_train_batch_size: int = option(
        32, "Windows, sentences or pairs in a batch, per device.", minimum=1, per_device=True
    )
    gradient_accumulation_steps: int = option(1, "Batches whose gradients are added up for a step.", minimum=1)
    learning_rate: float = option(
        3e-5, "Peak learning rate. 3e-5 suits XLM-R, 5e-4 a small Transformer from scratch.", minimum=0
    )
    warmup_steps: float = option(0.1, "Steps of linear warm-up; a number below 1 is a share of all steps.", minimum=0)
    weight_decay: float = option(0.01, "Weight decay.", minimum=0)
    logging_steps: float = option(50, "Steps between two lines of losses.", above=0)
    save_steps: float = option(500, "Steps between two checkpoints. --save_strategy no writes none.", above=0)
    save_total_limit: int | None = option(2, "Checkpoints to keep, besides the best one.", minimum=1)
    seed: int = option(0, "Seed of everything random.", minimum=0, maximum=2**32 - 1)
    precision: str = option(
        "auto",
        "Number format of the forward and backward passes: fp32, bf16 or fp16; auto is bf16 where the processor or the "
        "GPU computes in it, and fp32 elsewhere. The weights stay in fp32.",
        choices=[*PRECISIONS, "fp16"],
    )

    keep_trained: float = option(
        1.0,
        "How far the final weights are from those of --model (0) to the trained ones (1): between the two is often a "
        "model with most of what both can do. 0.5 to 0.7 keeps a trained encoder's search within one language.",
        minimum=0,
        maximum=1,
    )
    dropout: float | None = option(
        None,
        "Share of the values that the encoder's layers drop out in training. By default the encoder's own, mostly 0.1; "
        "0 makes steps faster on a CPU. Networks that a loss has beside the encoder keep theirs.",
        minimum=0,
        below=1,
    )
    resume_anyway: bool = option(
        False, "Continue from the last complete checkpoint although options or data differ from its own."
    )
    license: str | None = option(
        None, "Licence of the model, for its card, such as apache-2.0. By default the base model's, if it is known."
    )
    push_dry_run: bool = option(False, "With --push_to_hub: show the files and the card instead of uploading them.")

    def __post_init__(self) -> None:
        check_license(self.license)
        if not self.output_dir:
            raise ValueError("--output_dir is empty: name the folder for the model, checkpoints and results")
        check_ranges(self)
        if self.max_steps < -1 or not self.max_steps:
            raise ValueError(
                f"--max_steps must be at least 1, or -1 for whole epochs (--num_train_epochs), got {self.max_steps}"
            )
        if self.num_train_epochs != 3.0 and self.max_steps == type(self).max_steps:
            self.max_steps = -1
        self._set_precision()
        super().__post_init__()

    def _set_precision(self) -> None:
        """Set the host's `bf16` and `fp16`, and `use_cpu`, without which the host refuses bf16 on a CPU."""
        given = "bf16" if self.bf16 else "fp16" if self.fp16 else self.precision
        if self.precision not in ("auto", given):
            raise ValueError(f"--precision {self.precision} and --{given} contradict each other: give one of them")
        device = "cpu" if self.use_cpu else default_device()
        self.precision = given if given == "fp16" else resolve_precision(given, device)
        self.bf16, self.fp16 = self.precision == "bf16", self.precision == "fp16"
        self.use_cpu = self.use_cpu or (self.bf16 and device == "cpu")


def default_device() -> str:
    """The kind of device that the host trains on where it may choose.

    Example:
        >>> default_device() in ("cuda", "xpu", "mps", "cpu")
        True
    """
    there = {"cuda": torch.cuda, "xpu": torch.xpu, "mps": torch.backends.mps}
    return next((kind for kind, backend in there.items() if backend.is_available()), "cpu")


@dataclass
class RunArguments:
    """What to do with a run that is in the output folder already."""

    _argument_group_name = "run"

    resume: bool = option(False, "Continue from the last complete checkpoint in the output folder.")
    overwrite: bool = option(False, "Replace the model, the checkpoints and the tokenizer in the output folder.")
    hub_token: str | None = field(default=None, init=False, repr=False)
    options: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    resume_anyway: bool = field(default=False, init=False, repr=False)
    license: str | None = field(default=None, init=False, repr=False)
    push_dry_run: bool = field(default=False, init=False, repr=False)

    def take_over(self, args: SentenceTransformerTrainingArguments) -> None:
        """Take what the training arguments say of the run and of its model: the host's own have none of it."""
        for name in ("resume_anyway", "license", "push_dry_run"):
            setattr(self, name, getattr(args, name, getattr(self, name)))
        self.resume = self.resume or self.resume_anyway


@dataclass
class LazyAdamArguments:
    """The optimizer of a static encoder."""

    _argument_group_name = "static encoders"

    lazy_adam: bool = option(
        False, "Update only the vectors of the tokens in the batch: faster. Needs one process and --max_grad_norm 0."
    )
    token_dropout: float = option(0.0, "Share of tokens to drop from the inputs. 0.1 to 0.2 helps.", minimum=0, below=1)


@dataclass
class DocumentArguments:
    """Documents to train on."""

    _argument_group_name = "data"

    documents: list[str] = option(
        [],
        "Documents: JSON lines files, folders of them, or Hugging Face data sets as NAME:CONFIG=LANGUAGE, such as "
        "wikimedia/wikipedia:20231101.fr=fr.",
    )
    languages: list[str] = option([], "Languages to keep (ISO 639-1 codes). All by default.")
    skip_bad_lines: bool = option(False, "Skip and count bad lines of the data instead of stopping at the first one.")
    limits: list[str] = option([], LIMITS_HELP)

    def load_documents(self) -> Dataset | None:
        """All documents as one memory-mapped data set of sentences, or None if there are none."""
        if not self.documents:
            return None
        return load_documents(
            self.documents,
            languages=self.languages or None,
            skip_bad_lines=self.skip_bad_lines,
            limits=Limits.parse(self.limits),
        )


@dataclass
class DataArguments(DocumentArguments):
    """Documents and parallel sentences to train on."""

    pairs: list[str] = option(
        [],
        "Parallel sentences, as files or folders: JSON lines, TMX, Moses (X.en-fr.en beside X.en-fr.fr), WikiMatrix, "
        "two columns (X.en-fr.tsv, word lists too), or documents with verse references.",
    )
    pairs_per_language: int | None = option(
        None,
        "Maximum pairs per language pair. Samples are nested: a 500-pair sample is contained in the 5,000-pair one.",
        minimum=1,
    )
    exclude: list[str] = option(
        [], "Text files with sentences that must not be trained on, such as the English side of a test set."
    )
    evaluation_pairs: int = option(
        200, "Pairs per language pair to hold out: they measure the run and choose the best checkpoint.", minimum=0
    )

    def __post_init__(self) -> None:
        check_ranges(self)

    def load_pairs(self) -> Dataset | None:
        """All parallel sentences as one data set, or None if there are none."""
        if not self.pairs:
            return None
        options = PairOptions(
            languages=self.languages or None,
            per_language=self.pairs_per_language,
            exclude=tuple(self.exclude),
            skip_bad_lines=self.skip_bad_lines,
            limits=Limits.parse(self.limits),
        )
        return load_pairs(self.pairs, options)

    def hold_out_pairs(self, pairs: Dataset | None, seed: int) -> tuple[Dataset | None, TatoebaEvaluator | None]:
        """Put `evaluation_pairs` of each language pair aside.

        Returns:
            The pairs to train on, and an evaluator of the others; None where nothing is held out.
        """
        if pairs is None or not self.evaluation_pairs:
            return pairs, None
        rest, held_out = hold_out_pairs(pairs, self.evaluation_pairs, seed=seed)
        if not len(rest):
            raise ValueError(
                f"holding out --evaluation_pairs {self.evaluation_pairs} leaves none of the {len(pairs)} pairs to "
                "train on, because sentences that occur on both sides are removed; lower it, or set it to 0"
            )
        if not len(held_out):
            return rest, None
        return rest, TatoebaEvaluator(by_language(held_out), name="pairs", language_metrics=False)
