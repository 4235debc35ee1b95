"""Training arguments: the host's, and what cross-lingual training adds to them."""

from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import SentenceTransformerTrainingArguments

from st_xlret.options import option
from st_xlret.precision import PRECISIONS, resolve_precision


@dataclass
class CrossLingualTrainingArguments(SentenceTransformerTrainingArguments):
    """Arguments of [`CrossLingualTrainer`][st_xlret.CrossLingualTrainer]: the host's, and these.

    Args:
        batch_sampler: As for the host. Default: the `batches` of each loss.
        multi_dataset_batch_sampler: As for the host. Default: batches as often as the `ratio` of each loss says.
        precision: Number format of both passes, `"fp32"`, `"bf16"`, `"fp16"` or `"auto"`. The weights stay in fp32.
        train_seq_length: Tokens to read of a text in training. Default: as many as the saved model reads.
        freeze_embeddings: Leave the word embeddings as they are.
        lora_rank: Train low-rank adapters (LoRA) of this rank, and merge them after training; needs the extra `peft`.
        dropout: Dropout of the encoder's layers. Default: that of the checkpoint.
        token_dropout: Share of tokens that are dropped from the inputs of a static encoder.
        lr_drops: Shares of the steps, such as `[0.5, 0.75]`: after each, the schedule's learning rate is divided by 10.
        keep_trained: Weights after training: `original + keep_trained * (trained - original)`. Between the two are
            often models that keep most of what both can do (Wortsman et al., CVPR 2022).
        joint: Each step sums the losses of one batch of every data set. Default: each batch is of one, drawn at random.
    """

    batch_sampler: str | None = option(None, "Sampler of a data set. By default each loss's.")  # type: ignore[assignment]
    multi_dataset_batch_sampler: str | None = option(  # type: ignore[assignment]
        None,
        "Batches of several data sets: proportional, round_robin. By default as often as each loss asks for.",
    )
    precision: str = option(
        "auto",
        "Number format; auto is bf16 where the device computes in it, else fp32.",
        [*PRECISIONS, "fp16"],
    )
    train_seq_length: int | None = option(
        None, "Tokens to read of a text in training. By default the saved model's."
    )
    freeze_embeddings: bool = option(
        False, "Leave the word embeddings as they are: less memory, and faster steps."
    )
    lora_rank: int | None = option(
        None, 'Rank of LoRA adapters to train, such as 16, at 2e-4. Needs the extra "peft".'
    )
    dropout: float | None = option(
        None, "Dropout of the encoder's layers. By default the checkpoint's, mostly 0.1."
    )
    token_dropout: float = option(
        0.0, "Share of tokens to drop from the inputs of a static encoder."
    )
    lr_drops: list[float] = option(
        [], "Shares of the steps after which the learning rate is a tenth of what it was."
    )
    keep_trained: float = option(
        1.0, "Final weights: original (0), trained (1) or between; 0.5 to 0.7 suits search."
    )
    joint: bool = option(False, "Sum the losses of all kinds of batches in every step.")

    def __post_init__(self) -> None:
        formats = {self.precision, *(name for name in ("bf16", "fp16") if getattr(self, name))} - {
            "auto"
        }
        are_shares = all(0 <= share <= 1 for share in (self.keep_trained, *self.lr_drops))
        if not are_shares or (self.keep_trained < 1 and self.lora_rank) or len(formats) > 1:
            got = f"{self.keep_trained}, {self.lr_drops} and {sorted(formats)}"
            raise ValueError(
                f"keep_trained (1 with lora_rank), lr_drops: in [0, 1]; one number format: got {got}"
            )
        accelerator = (
            torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        )
        device = "cpu" if self.use_cpu or accelerator is None else accelerator.type
        precision = formats.pop() if formats else "auto"
        self.precision = precision if precision == "fp16" else resolve_precision(precision, device)
        self.bf16, self.fp16 = self.precision == "bf16", self.precision == "fp16"
        # The host refuses bf16 on a CPU unless it is told to use the CPU.
        self.use_cpu = self.use_cpu or (self.bf16 and device == "cpu")
        super().__post_init__()

    def __getstate__(self) -> dict[str, Any]:
        """The state without the token: the host's Trainer pickles the arguments into every folder that it pushes."""
        return {**vars(self), "hub_token": None}
