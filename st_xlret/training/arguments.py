"""Options of the training scripts: the host's own, and groups that several scripts share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainingArguments

from st_xlret.data import PairOptions, by_language, hold_out_pairs, load_documents, load_pairs
from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.options import option


@dataclass
class TrainingArguments(SentenceTransformerTrainingArguments):
    """The host's training arguments, with the defaults of this package's scripts.

    Everything of `SentenceTransformerTrainingArguments` works as everywhere. A script overrides the defaults that
    its paper sets.
    """

    _argument_group_name = "training (the host's options; --help_all shows all of them)"

    output_dir: str = field(metadata={"help": "Folder for the model, checkpoints, results and plots."})
    max_steps: int = option(10_000, "Optimizer steps. --num_train_epochs replaces it.")
    per_device_train_batch_size: int = option(32, "Windows, sentences or pairs in a batch, per device.")
    learning_rate: float = option(3e-5, "Peak learning rate. 3e-5 suits XLM-R, 5e-4 a small Transformer from scratch.")
    warmup_steps: float = option(0.1, "Steps of linear warm-up; a number below 1 is a share of all steps.")
    weight_decay: float = option(0.01, "Weight decay.")
    logging_steps: float = option(50, "Steps between two lines of losses.")
    save_steps: float = option(500, "Steps between two checkpoints. --save_strategy no writes none.")
    save_total_limit: int | None = option(2, "Checkpoints to keep, besides the best one.")
    seed: int = option(0, "Seed of everything random.")

    def __post_init__(self) -> None:
        if not self.output_dir:
            raise ValueError("--output_dir is empty: name the folder for the model, checkpoints and results")
        for name in ("per_device_train_batch_size", "gradient_accumulation_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1, got {getattr(self, name)}")
        if self.num_train_epochs != 3.0 and self.max_steps == type(self).max_steps:
            self.max_steps = -1
        super().__post_init__()


@dataclass
class RunArguments:
    """What to do with a run that is in the output folder already."""

    _argument_group_name = "run"

    resume: bool = option(False, "Continue from the last complete checkpoint in the output folder.")
    overwrite: bool = option(False, "Replace the model, the checkpoints and the tokenizer in the output folder.")
    resume_anyway: bool = option(
        False, "With --resume: continue although options or data differ from the checkpoint's."
    )
    hub_token: str | None = field(default=None, init=False, repr=False)
    options: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.resume = self.resume or self.resume_anyway


@dataclass
class LazyAdamArguments:
    """The optimizer of a static encoder."""

    _argument_group_name = "static encoders"

    lazy_adam: bool = option(
        False, "Update only the vectors of the tokens in the batch: faster. Needs one process and --max_grad_norm 0."
    )
    token_dropout: float = option(0.0, "Share of tokens to drop from the inputs. 0.1 to 0.2 helps.")


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

    def load_documents(self) -> Dataset | None:
        """All documents as one memory-mapped data set of sentences, or None if there are none."""
        if not self.documents:
            return None
        return load_documents(self.documents, languages=self.languages or None, skip_bad_lines=self.skip_bad_lines)


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
    )
    exclude: list[str] = option(
        [], "Text files with sentences that must not be trained on, such as the English side of a test set."
    )
    evaluation_pairs: int = option(
        200, "Pairs per language pair to hold out: they measure the run and choose the best checkpoint."
    )

    def __post_init__(self) -> None:
        if self.evaluation_pairs < 0:
            raise ValueError(f"--evaluation_pairs must not be negative, got {self.evaluation_pairs}")

    def load_pairs(self) -> Dataset | None:
        """All parallel sentences as one data set, or None if there are none."""
        if not self.pairs:
            return None
        options = PairOptions(
            languages=self.languages or None,
            per_language=self.pairs_per_language,
            exclude=tuple(self.exclude),
            skip_bad_lines=self.skip_bad_lines,
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
