"""The Trainer, its arguments, and what a training script needs around them."""

from st_xlret.modules.adapters import merge_adapters
from st_xlret.training.arguments import CrossLingualTrainingArguments
from st_xlret.training.checkpoints import LOSS_STATE_FILE
from st_xlret.training.loss_state import LossStateCallback
from st_xlret.training.trainer import CrossLingualTrainer

__all__ = [
    "LOSS_STATE_FILE",
    "CrossLingualTrainer",
    "CrossLingualTrainingArguments",
    "LossStateCallback",
    "merge_adapters",
]
