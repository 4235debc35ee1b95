"""Arguments of a Trainer that would not do what they say: refused by name, before a training."""

from collections.abc import Iterable, Mapping
from typing import Any

from sentence_transformers.base.sampler import MultiDatasetBatchSamplers
from transformers.trainer_pt_utils import AcceleratorConfig

from st_xlret.columns import TAGGED_KINDS, ColumnError, Declared
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
    _check_loading(args, has_own_loss=has_own_loss, is_stream=is_stream)
    _check_several_data_sets(args, has_own_loss=has_own_loss)
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


def _check_loading(
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


def _check_several_data_sets(
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


def columns_by_data_set(*datasets: Any) -> dict[str, set[str]]:
    """The columns of data sets whose texts a collator makes tokens of, by the name of the set."""
    columns: dict[str, set[str]] = {}
    for given in datasets:
        named = given if isinstance(given, Mapping) else {"": given}
        for name, dataset in named.items():
            declared = Declared(getattr(dataset, "column_names", None) or ())
            described = declared.of(*TAGGED_KINDS, "label")
            read = [column for column in declared.names if column not in described]
            if read:
                columns.setdefault(name, set()).update(read)
    return columns


def check_named_columns(columns: Mapping[str, set[str]], **options: Any) -> None:
    """Refuse options that name a data set or a column which there is not.

    Args:
        columns: Columns of texts by the name of their data set, as `columns_by_data_set` gives
            them. Nothing is checked where there are none.
        **options: What is a mapping by the names of data sets or of columns, or of both.
    """
    for option, by_name in options.items():
        if not columns or not isinstance(by_name, Mapping):
            continue
        for name, value in by_name.items():
            known = set(columns)
            if isinstance(value, str):
                known = known.union(*columns.values())
            _refuse_unknown(option, [name], known)
            if isinstance(value, Mapping):
                _refuse_unknown(option, value, columns[name])


def _refuse_unknown(option: str, names: Iterable[str], known: set[str]) -> None:
    """Raise a `ColumnError` for an option that names what is not there."""
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ColumnError(f"{option} names {unknown}, and there are {sorted(known)}")
