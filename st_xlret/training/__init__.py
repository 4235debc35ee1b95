"""What a training run needs beside the host's Trainer: callbacks, and encoders from scratch."""

from __future__ import annotations

from st_xlret.training.ccp_run import CCPOptions, build_ccp_trainer
from st_xlret.training.ir_run import IROptions, build_ir_trainer, with_two_encoders
from st_xlret.training.joint_steps import JointTrainer
from st_xlret.training.loss_state_callback import LOSS_STATE_FILE, LossStateCallback
from st_xlret.training.monitor_callback import LossMonitorCallback
from st_xlret.training.msm_run import MSMOptions, build_msm_trainer

__all__ = [
    "CCPOptions",
    "IROptions",
    "JointTrainer",
    "LOSS_STATE_FILE",
    "LossMonitorCallback",
    "LossStateCallback",
    "MSMOptions",
    "build_ccp_trainer",
    "build_ir_trainer",
    "build_msm_trainer",
    "with_two_encoders",
]
