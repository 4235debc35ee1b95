"""Arguments of the host that batches and schedules of this package do not obey: refused by name."""

from typing import Any

from sentence_transformers.base.sampler import MultiDatasetBatchSamplers
from transformers.trainer_pt_utils import AcceleratorConfig

from st_xlret.training.arguments import CrossLingualTrainingArguments

# What else could be misunderstood is honoured: `data_seed` is the seed of all batches.


def check_host_arguments(
    args: CrossLingualTrainingArguments,
    *,
    has_own_loss: bool,
    is_stream: bool,
) -> None:
    """Refuse the arguments that would not have the effect that the host gives them.

    Args:
        args: The arguments of a Trainer.
        has_own_loss: Whether a loss of this package draws batches.
        is_stream: Whether the data to train on are streamed.
    """
    _check_of_loading(args, has_own_loss=has_own_loss, is_stream=is_stream)
    _check_of_several_data_sets(args, has_own_loss=has_own_loss)
    if args.auto_find_batch_size:
        raise ValueError(
            "auto_find_batch_size: batches are drawn once, in per_device_train_batch_size rows; "
            "give a smaller one, and mini_batch_size to the losses"
        )
    if str(args.train_sampling_strategy) != "random":
        raise ValueError(
            f"train_sampling_strategy {args.train_sampling_strategy}: rows come as a loss draws "
            "them; give it batches=LengthGroupedBatches(tokenizer), or a batch_sampler"
        )


def check_optimizers(args: CrossLingualTrainingArguments, optimizers: Any) -> None:
    """Refuse an optimizer or a schedule that is given, where the Trainer has to make it."""
    optimizer, schedule = optimizers or (None, None)
    if (args.lora_rank and optimizer) or (args.lr_drops and schedule):
        raise ValueError(
            "lora_rank needs the optimizer, and lr_drops the schedule, "
            "that the Trainer makes itself"
        )


def _check_of_loading(
    args: CrossLingualTrainingArguments,
    *,
    has_own_loss: bool,
    is_stream: bool,
) -> None:
    """Refuse what would tear apart the batches of several processes."""
    config = args.accelerator_config
    if args.world_size == 1 or not isinstance(config, AcceleratorConfig):
        return
    if config.split_batches and has_own_loss:
        raise ValueError(
            "accelerator_config split_batches: each process has a batch of "
            "per_device_train_batch_size already, and a part of it would not do; leave it out"
        )
    dispatches = config.dispatch_batches or (is_stream and config.dispatch_batches is None)
    if dispatches:
        raise ValueError(
            "accelerator_config dispatch_batches: batches hold the names of their columns, which "
            'cannot be dispatched; give accelerator_config={"dispatch_batches": False}'
        )


def _check_of_several_data_sets(
    args: CrossLingualTrainingArguments,
    *,
    has_own_loss: bool,
) -> None:
    """Refuse a sampler of several data sets that would not be used, or would never end."""
    chosen = args.multi_dataset_batch_sampler
    if args.joint and chosen is not None:
        raise ValueError(
            f"multi_dataset_batch_sampler {chosen}: with joint, each step has a batch of every "
            "data set; leave one of them out"
        )
    is_round_robin = chosen == MultiDatasetBatchSamplers.ROUND_ROBIN
    if is_round_robin and has_own_loss and args.world_size > 1:
        raise ValueError(
            "multi_dataset_batch_sampler round_robin gives processes batches of different data "
            "sets, and losses that gather rows would wait forever; leave it out, or take joint"
        )
