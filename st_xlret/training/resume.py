"""How a run goes on where it was stopped: with the same options, from its last checkpoint."""

import hashlib
import json
import logging
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from accelerate import PartialState
from sentence_transformers import SentenceTransformer
from transformers import TrainerState

from st_xlret.data.pair_files import moses_files
from st_xlret.modules.adapters import merge_adapters
from st_xlret.secrets import without_secrets
from st_xlret.training.arguments import ScriptArguments
from st_xlret.training.checkpoints import last_checkpoint, read_record
from st_xlret.training.preparation import EncoderPreparation
from st_xlret.training.trainable import weights_to_fp32
from st_xlret.training.trainer import CrossLingualTrainer

logger = logging.getLogger(__name__)

_FREE = re.compile(
    "log|save_(?!only_model)|eval_|hub_|push_|report_|resume|dataloader_(?!drop_last)|trackio_|ddp_|"
    "output_dir|overwrite|license|run_name|project|disable_tqdm|local_rank"
)
"""Beginnings of options that a resumed run may change: they do not change what is learned."""


def options_of_groups(groups: Iterable[Any]) -> dict[str, Any]:
    """The options of several groups of them, by name."""
    options: dict[str, Any] = {}
    for group in groups:
        options.update(vars(group))
    return options


def options_to_compare(args: ScriptArguments, others: dict[str, Any]) -> dict[str, Any]:
    """What a resumed run must have alike, as JSON has it. Checkpoints keep it.

    Of options that name files, the files are read: other content under the same name is another
    option.
    """
    options = {}
    for name, value in others.items():
        options[name] = value
        if isinstance(value, list):  # names of files and data sets are written into checkpoints
            options[name] = [without_secrets(str(each)) for each in value]
            options[f"content of {name}"] = _hash_of_files(value, Path(str(args.output_dir)))
        if name == "test" and value is not None:  # its questions are left out of the training
            options[f"content of {name}"] = _hash_of_files([value], Path(str(args.output_dir)))
    for name, value in args.to_dict().items():
        if not _FREE.match(name):
            options[name] = value
    batch_size = options.pop("per_device_train_batch_size")
    options["batch of all processes"] = batch_size * args.world_size
    as_json: dict[str, Any] = json.loads(json.dumps(options, default=str))
    return as_json


def _hash_of_files(sources: list[Any], output: Path) -> str:
    """A hash of the names and content of all files of sources, but for those of the run itself."""
    digest = hashlib.sha256()
    for source in sources:
        path = Path(str(source)).expanduser()
        files = {path, *path.rglob("*")}
        if path.is_file():
            files.update(moses_files(path) or ())
        for file in sorted(files):
            if file.is_file() and output not in file.parents:
                digest.update(os.path.relpath(file, path).encode())
                with open(file, "rb") as content:
                    while part := content.read(2**20):
                        digest.update(part)
    return digest.hexdigest()


def find_checkpoint_to_resume(args: ScriptArguments, options: dict[str, Any]) -> Path | None:
    """The checkpoint from which a run goes on; None where it begins anew.

    Exits if the run of the checkpoint had other options. All ranks call it together. A `ValueError`
    refuses checkpoints of the model alone.
    """
    if args.resume_from_checkpoint:
        return Path(args.resume_from_checkpoint)
    if not args.resume:
        return None
    if args.save_only_model:
        raise ValueError(
            "--resume goes on with the state of the optimizer, which checkpoints of "
            "--save_only_model do not have"
        )
    with PartialState().main_process_first():
        checkpoint = last_checkpoint(Path(str(args.output_dir)))
    if checkpoint is None:
        logger.info("there is no complete checkpoint: continuing from the start")
        return None
    _exit_if_options_differ(checkpoint, options)
    return checkpoint


def _exit_if_options_differ(checkpoint: Path, options: dict[str, Any]) -> None:
    """Exit with a list of the options that are not those of the checkpoint."""
    before = read_record(checkpoint).options
    changed = []
    for name in sorted(before.keys() | options.keys()):
        was = before.get(name)
        now = options.get(name)
        if was != now:
            changed.append(f"  {name} was {was!r}, is {now!r}")
    if changed:
        listed = "\n".join(changed)
        sys.exit(
            f"{checkpoint} has other options:\n{listed}\n"
            f"--resume_from_checkpoint {checkpoint} takes them"
        )


def has_all_steps(checkpoint: Path, args: ScriptArguments) -> bool:
    """Whether a run was stopped after its last step."""
    state = _read_state(checkpoint)
    all_steps = args.max_steps if args.max_steps > 0 else state.max_steps
    return state.global_step >= all_steps


def restore_finished_run(trainer: CrossLingualTrainer, checkpoint: Path) -> None:
    """Load the result of a run that was stopped after its last step, as the host does not."""
    args = trainer.args
    state = _read_state(checkpoint)
    folder = checkpoint
    if args.load_best_model_at_end and state.best_model_checkpoint:
        folder = checkpoint.parent / Path(state.best_model_checkpoint).name
    weights_to_fp32([trainer.model])
    preparation = EncoderPreparation()
    preparation.remember_start(trainer.model, args, trainer.loss_state)
    trainer.loss_state.take_start(checkpoint)
    trained = merge_adapters(SentenceTransformer(str(folder), device="cpu"))
    trainer.model.load_state_dict(trained.state_dict())
    preparation.finish(trainer.model, args, trainer.loss_state)
    trainer.state = state


def _read_state(checkpoint: Path) -> TrainerState:
    """What the host's Trainer wrote of a run into a checkpoint."""
    return TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
