"""A training script around its Trainer: what is checked before it, how it resumes, and what it leaves behind."""

import json
import logging
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from filelock import FileLock
from safetensors import safe_open
from sentence_transformers import SentenceTransformer
from transformers import TrainerState, set_seed

from st_xlret import __version__
from st_xlret.evaluation.tables import plot_training
from st_xlret.files import (
    atomic_directory,
    atomic_file,
    check_output_directory,
    check_output_file,
    write_json,
)
from st_xlret.hub.card import check_license, set_card_data
from st_xlret.hub.export import Repository
from st_xlret.options import option
from st_xlret.portable import write_model
from st_xlret.secrets import without_secrets
from st_xlret.training.arguments import CrossLingualTrainingArguments
from st_xlret.training.loss_state import LOSS_STATE_FILE, complete_checkpoints
from st_xlret.training.trainable import copy_trainable_weights, interpolate_weights, merge_adapters
from st_xlret.training.trainer import CrossLingualTrainer

logger = logging.getLogger(__name__)

_LIBRARIES = ("sentence-transformers", "transformers", "torch", "datasets")
# Beginnings of options that a resumed run may change: they do not change what is learned.
_FREE = re.compile(
    "log|save_|eval_|hub_|push_|report_|resume|dataloader_|trackio_|ddp_|multi_|batch_sampler|"
    "output_dir|overwrite|license|run_name|project|disable_tqdm|local_rank"
)


@dataclass
class ScriptArguments(CrossLingualTrainingArguments):
    """The training arguments with the defaults of this package's scripts; a script overrides those of its paper."""

    _argument_group_name = "training (the host's options, and a few more)"

    output_dir: str = field(
        metadata={"help": "Folder for the model, checkpoints, results.json and training.png."}
    )
    max_steps: int = option(10_000, "Optimizer steps. --num_train_epochs replaces it.")
    num_train_epochs: float | None = option(None, "Passes over the data, in place of --max_steps.")  # type: ignore[assignment]
    per_device_train_batch_size: int = option(
        32, "Windows, sentences or pairs in a batch, per device."
    )
    learning_rate: float = option(
        3e-5, "Peak learning rate. 3e-5 suits XLM-R, 3e-6 E5 and its like, 5e-4 small ones."
    )
    warmup_steps: float = option(
        0.1, "Steps of linear warm-up; a number below 1 is a share of all steps."
    )
    weight_decay: float = option(0.01, "Weight decay.")
    logging_steps: float = option(50, "Steps between two lines of losses.")
    save_steps: float = option(
        500, "Steps between two checkpoints. --save_strategy no writes none."
    )
    save_total_limit: int | None = option(2, "Checkpoints to keep, besides the best one.")
    seed: int = option(0, "Seed of everything random.")
    resume: bool = option(
        False, "Go on from the last complete checkpoint, as if the run had not been stopped."
    )
    overwrite: bool = option(False, "Replace the model and the checkpoints in the output folder.")
    license: str | None = option(
        None, "Licence of the model, for its card. By default the base model's."
    )

    def __post_init__(self) -> None:
        check_license(self.license)
        if self.num_train_epochs is None:
            self.num_train_epochs = 3.0  # the host's, which counts with --max_steps -1 alone
        elif self.max_steps == type(self).max_steps:
            self.max_steps = -1
        super().__post_init__()


class Run:
    """One run of a training script. Making it locks and checks the output folder before any work, and sets the seed.

    With `push_to_hub` the finished model is pushed, and no checkpoint. A resumed run must have the same options; the
    number of processes may differ if the batch of all of them stays as large.
    """

    def __init__(self, args: ScriptArguments, *groups: Any) -> None:
        self.args, self.output = args, Path(str(args.output_dir))
        args.resume = args.resume or bool(args.resume_from_checkpoint)
        if args.process_index == 0:
            self.output.mkdir(parents=True, exist_ok=True)
            # A singleton: in a notebook, a run that has failed does not keep out the next one.
            self._lock = FileLock(self.output / ".lock", is_singleton=True)
            self._lock.acquire(timeout=0)
        if args.resume and not args.overwrite and (self.output / "results.json").is_file():
            print(
                f"the run in {self.output} is finished: there is nothing to resume; --overwrite starts it anew"
            )
            sys.exit(0)
        made = [
            path
            for name in ("checkpoint-*", "tokenizer", "negatives")
            for path in self.output.glob(name)
        ]
        options = {name: value for group in groups for name, value in vars(group).items()}
        read = [
            one
            for value in options.values()
            for one in (value if isinstance(value, list) else [value])
        ]
        paths = [Path(os.path.realpath(os.path.expanduser(str(one)))) for one in read]
        kept = [
            at
            for at in made
            if not args.overwrite or any(at.resolve() in (one, *one.parents) for one in paths)
        ]
        if kept and not args.resume:
            what = (
                "holds what is read"
                if args.overwrite
                else "is of a run: --resume continues, --overwrite deletes it"
            )
            raise FileExistsError(f"{kept[0]} {what}")
        check_output_directory(self.output / "model", args.overwrite or args.resume, inputs=read)
        check_output_file(self.output / "results.json", ours="train")
        check_output_file(self.output / "training.png", ours="train")
        self._push, self._token = args.push_to_hub, args.hub_token
        args.push_to_hub, args.hub_token = False, None
        options |= {name: value for name, value in args.to_dict().items() if not _FREE.match(name)}
        options["batch of all processes"] = (
            options.pop("per_device_train_batch_size") * args.world_size
        )
        self.options = json.loads(json.dumps(options, default=str))
        self._losses: dict[str, dict[str, Any]] = json.loads(
            self.options.get("loss_options") or "{}"
        )
        set_seed(args.seed)
        torch.backends.cuda.enable_cudnn_sdp(False)  # as in `autocast`
        logger.info(
            "computing in %s on %s, %d threads",
            args.precision,
            args.device,
            torch.get_num_threads(),
        )

    def loss_arguments(self, name: str, **defaults: Any) -> dict[str, Any]:
        """The arguments of a loss: defaults, changed by `--loss_options`, whose rest `train_and_save` refuses."""
        changes = self._losses.pop(name, {})
        for key, default in defaults.items():
            if isinstance(change := changes.get(key), dict):
                changes[key] = (
                    replace(default, **change) if is_dataclass(default) else default | change
                )  # type: ignore[type-var]
        return {**defaults, **changes}

    def train_and_save(
        self,
        trainer: CrossLingualTrainer,
        entries: dict[str, Any],
        *,
        tag: str,
        evaluators: Any = (),
        test: Any = None,
    ) -> dict[str, Any]:
        """Train, from the last complete checkpoint on if asked to; measure, save, and show how to use the model.

        Evaluators (None is left out) measure the model before and after it, `test` the finished one. `entries` has
        further entries of `results.json`, whose content is returned; `tag` is one of the card.
        """
        if self._losses:
            raise ValueError(f"--loss_options: this run has no losses {sorted(self._losses)}")
        args, is_first, repository = self.args, trainer.is_world_process_zero(), None
        if self._push and is_first:
            place: Any = {
                "token": self._token,
                "private": args.hub_private_repo,
                "revision": args.hub_revision,
            }
            name = args.hub_model_id or self.output.resolve().name
            repository = Repository(name, overwrite=args.overwrite, **place)
        model, evaluators = (
            trainer.model,
            [evaluator for evaluator in evaluators if evaluator is not None],
        )
        trainer.loss_state.options, trainer.loss_state.keep = self.options, args.save_total_limit
        trainer.args.save_total_limit = None  # the host would remove the checkpoints of others, too
        checkpoint = self._checkpoint_to_resume()
        before = evaluator_scores(evaluators, model) if is_first else {}
        started = time.perf_counter()
        if not (checkpoint and restore_finished_run(trainer, checkpoint)):
            self._train_or_exit(trainer, checkpoint)
        results: dict[str, Any] = {
            "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]).replace(
                self._token or "\0", "***"
            ),
            "seconds": round(time.perf_counter() - started, 1),
            "steps": trainer.state.global_step,
            "tokens": trainer.state.num_input_tokens_seen,
            "versions": {"st-xlret": __version__, **{name: version(name) for name in _LIBRARIES}},
            **entries,
        }
        if not is_first:
            return results
        if evaluators:
            results |= {
                "held_out_before": before,
                "held_out": (after := evaluator_scores(evaluators, model)),
            }
            for score in (score for score in after if score.endswith(("accuracy", "mrr@10"))):
                print(
                    f"held-out {score}: {before[score]:.4f} before training, {after[score]:.4f} after"
                )
        if test is not None:
            measured = test.evaluate(model)
            results["xquad_r"] = {"scores": measured.scores, "average": measured.average}
        self._save_and_push(trainer, results, tag, repository)
        return results

    def _save_and_push(
        self, trainer: Any, results: dict[str, Any], tag: str, repository: Repository | None
    ) -> None:
        """Write the model, then `results.json`, which says that the run is finished, and the picture; push last."""
        uses = ("documents", "queries", "pairs", "retrieval", "dictionaries")
        sources = {use: self.options.get(use) or [] for use in uses}
        languages = sorted(results.get("languages", []))
        set_card_data(
            trainer.model, license=self.args.license, data=sources, languages=languages, tags=[tag]
        )
        trainer.model.model_card_data.model_id = repository.repo_id if repository else None
        path = write_model(
            trainer.model, self.output / "model", overwrite=self.args.overwrite or self.args.resume
        )
        write_json(self.output / "results.json", results, ours="train")
        use = f'SentenceTransformer("{path}")  # encode_query, encode_document'
        print(f"\nThe model is in {path}, for Sentence Transformers alone:\n\n    {use}\n")
        (self.output / "training.png").unlink(missing_ok=True)  # that of an earlier run
        if any("loss" in line for line in trainer.state.log_history):
            with atomic_file(self.output / "training.png", ours="train") as picture:
                plot_training(trainer.state.log_history, picture)
        if repository:
            print(f"pushed to {repository.upload(path)}")

    def _checkpoint_to_resume(self) -> Path | None:
        """Where to go on, if asked to; else old checkpoints are deleted. Exits if the run had other options."""
        if self.args.resume_from_checkpoint:
            return Path(self.args.resume_from_checkpoint)
        if not self.args.resume:
            if self.args.process_index == 0:
                (self.output / "results.json").unlink(
                    missing_ok=True
                )  # it says that a run is finished
                for path in complete_checkpoints(self.output):
                    shutil.rmtree(path, ignore_errors=True)
            return None
        with PartialState().main_process_first():
            checkpoint = last_checkpoint(self.output)
        if checkpoint is None:
            logger.info("there is no complete checkpoint: continuing from the start")
            return None
        with safe_open(checkpoint / LOSS_STATE_FILE, "pt") as file:
            before, now = json.loads(file.metadata()["options"]), self.options
        changed = sorted(name for name in before.keys() | now if before.get(name) != now.get(name))
        if changed:
            listed = "\n".join(
                f"  {name} was {before.get(name)!r}, is {now.get(name)!r}" for name in changed
            )
            sys.exit(
                f"{checkpoint} has other options:\n{listed}\n--resume_from_checkpoint {checkpoint} takes them"
            )
        return checkpoint

    def _train_or_exit(self, trainer: CrossLingualTrainer, checkpoint: Path | None) -> None:
        set_seed(self.args.seed)  # the score before training leaves no trace in it
        try:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        except (OSError, FloatingPointError, KeyboardInterrupt) as error:
            kept = last_checkpoint(self.output)
            advice = (
                f"the same command with --resume continues from {kept}"
                if kept
                else "there is no checkpoint"
            )
            sys.exit(f"stopped at step {trainer.state.global_step}: {error!r}\n{advice}")


def loss_options_field(losses: str, example: str) -> Any:
    """The field of the option `--loss_options` for the options of a script, whose losses have these names."""
    return option(
        "{}", f"Arguments of the losses ({losses}), as '{example}'; their docstrings name all."
    )


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint of a run, None if there is none."""
    return next(reversed(complete_checkpoints(folder)), None)


def make_folder(
    args: ScriptArguments, name: str, make: Callable[[Path], Any], *, keep: bool
) -> str:
    """A folder in that of the run, which rank 0 fills by `make`; with `keep`, as an earlier run left it."""
    folder = Path(str(args.output_dir), name)
    state = PartialState()
    with state.main_process_first():
        if state.is_main_process and not (keep and folder.is_dir()):
            with atomic_directory(folder, overwrite=True) as temporary:
                make(temporary)
    return str(folder)


def keep_best_checkpoint(args: ScriptArguments, metric: str | None) -> None:
    """Let `args` evaluate at every checkpoint, or as they say, and load the best one, where all have a score."""
    saves = args.save_strategy != "no"
    if metric is None:
        args.eval_strategy = "no"  # type: ignore[assignment]
    elif args.eval_strategy == "no":
        args.eval_strategy = args.save_strategy if saves else "steps"  # type: ignore[assignment]
        args.eval_steps = args.eval_steps or args.save_steps
    in_step = (
        args.eval_strategy != "steps" or (args.save_steps / (args.eval_steps or 1)).is_integer()
    )
    args.load_best_model_at_end = (
        metric is not None and saves and args.eval_strategy == args.save_strategy and in_step
    )
    args.metric_for_best_model, args.greater_is_better = metric, True


def evaluator_scores(evaluators: Sequence[Any], model: SentenceTransformer) -> dict[str, float]:
    """The scores of evaluators, without their other entries."""
    scores = {name: value for evaluator in evaluators for name, value in evaluator(model).items()}
    return {name: float(value) for name, value in scores.items() if isinstance(value, int | float)}


def restore_finished_run(trainer: CrossLingualTrainer, checkpoint: Path) -> bool:
    """Load the result of a run that was stopped after its last step, as the host does not; False if steps are left."""
    state, args = TrainerState.load_from_json(str(checkpoint / "trainer_state.json")), trainer.args
    if state.global_step < (args.max_steps if args.max_steps > 0 else state.max_steps):
        return False
    best = state.best_model_checkpoint if args.load_best_model_at_end else None
    folder, original = (
        checkpoint.parent / Path(best or checkpoint).name,
        copy_trainable_weights(trainer.model),
    )
    trainer.model.load_state_dict(
        merge_adapters(SentenceTransformer(str(folder), device="cpu")).state_dict()
    )
    interpolate_weights(trainer.model, original, args.keep_trained)
    trainer.state = state
    return True


def run_script(main: Callable[[], Any]) -> None:
    """Run a script's `main`; errors in its input end it with one line instead of a traceback."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        main()
    except (ImportError, ValueError, OSError, RuntimeError) as error:
        # The host's RuntimeError of a tracker that is not installed has a way out; others are faults.
        if isinstance(error, RuntimeError) and "install" not in str(error):
            raise
        sys.exit(f"error: {without_secrets(str(error))}")
    except KeyboardInterrupt:
        sys.exit("stopped")
