"""What a training run needs besides the host's Trainer: callbacks, joint steps, and what the scripts share."""

from __future__ import annotations

from st_xlret.training.joint_steps import JointTrainer
from st_xlret.training.layers import training_layers
from st_xlret.training.loss_state_callback import LOSS_STATE_FILE, LossStateCallback
from st_xlret.training.monitor_callback import LossMonitorCallback
from st_xlret.training.token_count_callback import TokenCountCallback
from st_xlret.training.trainable import merge_adapters

__all__ = [
    "LOSS_STATE_FILE",
    "JointTrainer",
    "LossMonitorCallback",
    "LossStateCallback",
    "TokenCountCallback",
    "merge_adapters",
    "training_layers",
]
