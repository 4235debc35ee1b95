"""A training script around its Trainer: checks before it, resume, and what a finished run leaves behind."""

from __future__ import annotations

import json
import logging
import os
import random
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from filelock import FileLock, Timeout
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import TrainerState, set_seed

from st_xlret.evaluation.plots import plot_training
from st_xlret.files import check_output_directory, save_model, write_json
from st_xlret.hub.card import check_license, set_card_data
from st_xlret.losses.base import with_options
from st_xlret.options import option
from st_xlret.training.arguments import CrossLingualTrainingArguments
from st_xlret.training.checkpoints import ManifestCallback, differences, fingerprint, is_complete, last_checkpoint
from st_xlret.training.trainable import interpolate, merge_adapters, trainable_weights
from st_xlret.training.trainer import CrossLingualTrainer

logger = logging.getLogger(__name__)

# Options that a resumed run may change: they do not change what is learned.
_FREE_PREFIXES = (
    "log",
    "save_",
    "eval_",
    "hub_",
    "push_",
    "report_",
    "resume",
    "dataloader_",
    "trackio_",
    "ddp_",
    "multi_",
)
_FREE = {"output_dir", "overwrite", "license", "run_name", "project", "disable_tqdm", "local_rank", "batch_sampler"}

_MAIN_SCORES = ("accuracy", "mrr@10")
"""The held-out scores that tell whether a run was worth it; evaluators return others beside them."""


@dataclass
class TrainingArguments(CrossLingualTrainingArguments):
    """The training arguments with the defaults of this package's scripts; a script overrides those of its paper."""

    _argument_group_name = "training (the host's options; --help_all shows all of them)"

    output_dir: str = field(metadata={"help": "Folder for the model, checkpoints, results and plots."})
    max_steps: int = option(10_000, "Optimizer steps. --num_train_epochs replaces it.")
    num_train_epochs: float | None = option(  # type: ignore[assignment]
        None, "Passes over the data, in place of --max_steps."
    )
    per_device_train_batch_size: int = option(32, "Windows, sentences or pairs in a batch, per device.")
    gradient_accumulation_steps: int = option(1, "Batches whose gradients are added up for a step.")
    learning_rate: float = option(
        3e-5,
        "Peak learning rate. 3e-5 suits XLM-R, 3e-6 a trained sentence encoder such as E5, 5e-4 a small "
        "Transformer from scratch.",
    )
    warmup_steps: float = option(0.1, "Steps of linear warm-up; a number below 1 is a share of all steps.")
    weight_decay: float = option(0.01, "Weight decay.")
    logging_steps: float = option(50, "Steps between two lines of losses.")
    save_steps: float = option(500, "Steps between two checkpoints. --save_strategy no writes none.")
    save_total_limit: int | None = option(2, "Checkpoints to keep, besides the best one.")
    seed: int = option(0, "Seed of everything random.")
    resume: bool = option(False, "Continue from the last complete checkpoint in the output folder.")
    overwrite: bool = option(False, "Replace the model and the checkpoints in the output folder.")
    license: str | None = option(
        None, "Licence of the model, for its card. By default the base model's, if it is known."
    )

    def __post_init__(self) -> None:
        check_license(self.license)
        if not self.output_dir:
            raise ValueError("--output_dir is empty: name the folder for the model, checkpoints and results")
        if self.num_train_epochs is None:
            self.num_train_epochs = 3.0  # the host's, which counts with --max_steps -1 alone
        elif self.max_steps == type(self).max_steps:
            self.max_steps = -1
        if not (self.max_steps >= 1 or (self.max_steps == -1 and self.num_train_epochs > 0)):
            raise ValueError(
                f"--max_steps must be at least 1, or -1 for whole epochs (--num_train_epochs above 0), got "
                f"{self.max_steps} and {self.num_train_epochs:g} epochs"
            )
        super().__post_init__()


class Run:
    """One run of a training script.

    Making it checks, before any work, that the result can be saved, locks the output folder, and sets the seed.

    Args:
        program: The script, for the command in `results.json`.
        arguments: Its command line; None for that of the process.
        args: The training arguments. With `push_to_hub` the finished model is pushed at the end, and no checkpoint.
        *groups: The script's other options. A resumed run must have the same ones; the number of processes may differ
            if the batch of all of them stays as large.

    Raises:
        FileExistsError: If the output folder holds a model or checkpoints and `args` says neither resume nor overwrite;
            or if another process trains in it.
        OSError: If the folder cannot be written to.
        SystemExit: If the run to resume is finished already.
        ValueError: If torchrun has started several processes and the host uses one.
    """

    def __init__(self, program: str, arguments: Sequence[str] | None, args: TrainingArguments, *groups: Any) -> None:
        self.args, self.output = args, Path(str(args.output_dir))
        args.resume = args.resume or bool(args.resume_from_checkpoint)
        self.command = command(program, sys.argv[1:] if arguments is None else arguments, args.hub_token)
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        if processes != args.world_size:
            raise ValueError(
                f"{processes} processes were started and the Trainer uses {args.world_size}: each would train on its "
                "own in the same folder; without GPUs, add --use_cpu"
            )
        if args.process_index == 0:
            self._lock()
        if not (args.resume or args.overwrite) and any(self.output.glob("checkpoint-*")):
            raise FileExistsError(
                f"{self.output} holds checkpoints of an earlier run; use --resume to continue from the last one, "
                "--overwrite to delete them and start anew, or give another --output_dir"
            )
        if args.resume and not args.overwrite and (self.output / "results.json").is_file():
            print(f"the run in {self.output} is finished: there is nothing to resume; --overwrite starts it anew")
            raise SystemExit(0)
        check_output_directory(self.output / "model", overwrite=args.overwrite, resume=args.resume)
        self._push_to, self._token = (args.hub_model_id or self.output.resolve().name), args.hub_token
        self._pushes, args.push_to_hub, args.hub_token = args.push_to_hub, False, None
        self.options, self._losses = recorded_options(args, *groups), set[str]()
        set_seed(args.seed)
        torch.backends.cuda.enable_cudnn_sdp(False)  # as in autocast
        threads = f" with {torch.get_num_threads()} threads (OMP_NUM_THREADS)" if args.device.type == "cpu" else ""
        logger.info("computing in %s on %s%s", args.precision, args.device, threads)

    def loss_options(self, name: str, **defaults: Any) -> dict[str, Any]:
        """The keyword arguments of a loss: those of the script, changed by `--loss_options`.

        Where both are mappings, or the script's is a dataclass such as `Rows()`, what is given changes fields of it.
        """
        try:
            given = dict(json.loads(self.options.get("loss_options") or "{}").get(name, {}))
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(
                f"--loss_options is a JSON mapping of losses to their arguments, such as {{{name!r}: {{...}}}}: {error}"
            ) from error
        self._losses.add(name)
        for key, default in defaults.items():
            if isinstance(given.get(key), dict):
                given[key] = with_options(default, key, given[key]) if is_dataclass(default) else default | given[key]
        return {**defaults, **given}

    def train_and_save(
        self,
        trainer: CrossLingualTrainer,
        about: Mapping[str, Any],
        *,
        evaluators: Sequence[Any] = (),
        test: Any = None,
        tag: str,
    ) -> dict[str, Any]:
        """Train, from the last complete checkpoint on if asked to; measure, save, and show how to use the model.

        Args:
            trainer: The Trainer.
            about: Further entries of `results.json`.
            evaluators: Evaluators of held-out data, which measure the model before and after it; None is left out.
            test: An evaluator with `evaluate`, such as that of LAReQA, which measures the finished model; or None.
            tag: Tag of the card.

        Returns:
            The content of `results.json`.

        Raises:
            SystemExit: If the run stops early (interrupted, on a full disk, on a loss or weights that are not finite),
                is resumed with other options or data, or cannot be saved. The message says how to continue.
        """
        if unknown := set(json.loads(self.options.get("loss_options") or "{}")) - self._losses:
            raise ValueError(f"--loss_options: this run has no losses {sorted(unknown)}, it has {sorted(self._losses)}")
        model, first = trainer.model, trainer.is_world_process_zero()
        evaluators = [evaluator for evaluator in evaluators if evaluator is not None]
        record = {"options": self.options, "data": fingerprint(trainer.train_dataset)}
        trainer.add_callback(ManifestCallback(record))
        checkpoint = self._checkpoint_to_resume(record)
        before = held_out_scores(evaluators, model) if first else {}
        started = time.perf_counter()
        if not (checkpoint and _restore_finished(trainer, checkpoint)):
            self._train(trainer, checkpoint)
        results: dict[str, Any] = {
            "command": self.command,
            "seconds": round(time.perf_counter() - started, 1),
            "steps": trainer.state.global_step,
            "tokens": trainer.state.num_input_tokens_seen,
            **about,
        }
        if not first:
            return results
        if evaluators:
            results |= {"held_out_before": before, "held_out": held_out_scores(evaluators, model)}
            compare(before, results["held_out"])
        if test is not None:
            measured = test.evaluate(model)
            results["xquad_r"] = {"scores": measured.scores, "average": measured.average}
        self._save(model, trainer, results, tag)
        return results

    def _lock(self) -> None:
        self.output.mkdir(parents=True, exist_ok=True)
        # A singleton: in a notebook, a run that has failed does not keep out the next one.
        self._lock_file = FileLock(self.output / ".lock", is_singleton=True)
        try:
            self._lock_file.acquire(timeout=0)
        except Timeout:
            raise FileExistsError(f"another process trains in {self.output}: give another --output_dir") from None

    def _checkpoint_to_resume(self, record: dict[str, Any]) -> Path | None:
        if self.args.resume_from_checkpoint:
            return Path(self.args.resume_from_checkpoint)
        if not self.args.resume:
            if self.args.process_index == 0:
                for path in self.output.glob("checkpoint-*"):
                    shutil.rmtree(path, ignore_errors=True)
            return None
        with PartialState().main_process_first():
            checkpoint = last_checkpoint(self.output)
        if checkpoint and (changed := differences(checkpoint, record)):
            listed = "\n".join(f"  {line}" for line in changed)
            raise SystemExit(
                f"{checkpoint} is of a run with other options or data:\n{listed}\ngive the same ones, or continue all "
                f"the same with --resume_from_checkpoint {checkpoint}"
            )
        logger.info("continuing from %s", checkpoint or "the start: there is no complete checkpoint")
        return checkpoint

    def _train(self, trainer: CrossLingualTrainer, checkpoint: Path | None) -> None:
        try:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        except (Exception, KeyboardInterrupt) as error:
            step, reason = trainer.state.global_step, str(error) or type(error).__name__
            unfinished = self.output / f"checkpoint-{step}"
            # A full disk shows itself as OSError, SafetensorError or RuntimeError, as the file is.
            if self.args.process_index == 0 and unfinished.is_dir() and not is_complete(unfinished):
                shutil.rmtree(unfinished, ignore_errors=True)
                reason = f"its checkpoint could not be written: is the disk full? {reason}"
            elif not isinstance(error, OSError | FloatingPointError | KeyboardInterrupt):
                raise
            raise SystemExit(f"stopped at step {step}: {reason}\n{how_to_continue(self.output)}") from error

    def _save(
        self, model: SentenceTransformer, trainer: CrossLingualTrainer, results: dict[str, Any], tag: str
    ) -> None:
        sources = {use: self.options.get(use) or [] for use in ("documents", "pairs", "retrieval", "dictionaries")}
        languages = results.get("languages", [])
        set_card_data(model, license=self.args.license, data=sources, languages=sorted(languages), tags=[tag])
        try:
            path = save_model(model, self.output / "model", overwrite=self.args.overwrite or self.args.resume)
            write_json(self.output / "results.json", results)
        except OSError as error:
            shown = json.dumps(results, default=str)
            raise SystemExit(
                f"the training is done, but: {error}\nthe results are: {shown}\n{how_to_continue(self.output)}"
            ) from error
        if not any("loss" in line for line in trainer.state.log_history):
            print(f"no training.png: --logging_steps {self.args.logging_steps:g}, and only {results['steps']} steps")
        try:
            plot_training(trainer.state.log_history, self.output / "training.png")
        except Exception as error:  # a picture does not decide over a run
            logger.warning("the curves are not drawn: %s", error)
        if self._pushes:
            print(
                f"pushed to {model.push_to_hub(self._push_to, private=self.args.hub_private_repo, token=self._token)}"
            )
        kind = "static" if isinstance(model[0], StaticEmbedding) else "Transformer"
        print(f"\nThe {kind} model is in {path}. Use it with Sentence Transformers alone:\n")
        print(f'    from sentence_transformers import SentenceTransformer\n    model = SentenceTransformer("{path}")')
        print('    model.similarity(model.encode_query(["good morning"]), model.encode_document(["bonjour"]))\n')


def loss_options(losses: str, example: str) -> Any:
    """The option `--loss_options` of a script, whose losses have these names."""
    return option(
        "{}",
        f"Further arguments of the losses ({losses}) as JSON, such as '{example}'. The losses' docstrings name all; "
        "`batches` sets how batches are drawn.",
    )


def recorded_options(args: TrainingArguments, *groups: Any) -> dict[str, Any]:
    """The options that a run is made of. Batch sizes are those of all processes together."""
    options = {name: value for group in groups for name, value in vars(group).items()}
    given = args.to_dict().items()
    options |= {name: value for name, value in given if not (name in _FREE or name.startswith(_FREE_PREFIXES))}
    options["batch of all processes"] = options.pop("per_device_train_batch_size") * args.world_size
    return json.loads(json.dumps(options, default=str))


def keep_best(args: TrainingArguments, metric: str | None) -> None:
    """Evaluate the run as it goes, and load its best checkpoint at the end, where every checkpoint is evaluated.

    Args:
        args: The training arguments, changed in place. Without `eval_strategy`, every checkpoint is evaluated.
        metric: The evaluator's metric, such as "eval_pairs_average_accuracy"; None without an evaluator.
    """
    saves = args.save_strategy != "no"
    if metric is None:
        args.eval_strategy = "no"  # type: ignore[assignment]
    elif args.eval_strategy == "no":
        args.eval_strategy = args.save_strategy if saves else "steps"  # type: ignore[assignment]
        args.eval_steps = args.eval_steps or args.save_steps
    evaluated = args.eval_strategy == args.save_strategy and (
        args.eval_strategy != "steps" or (args.save_steps / (args.eval_steps or 1)).is_integer()
    )
    args.load_best_model_at_end = metric is not None and saves and evaluated
    args.metric_for_best_model, args.greater_is_better = metric, True
    # With 1, the host deletes the previous checkpoint before the new one is complete.
    args.save_total_limit = max(2, (args.save_total_limit or 2) + args.load_best_model_at_end)


def held_out_scores(evaluators: Sequence[Any], model: SentenceTransformer) -> dict[str, float]:
    """The scores on held-out data, without a trace in the random state: training is the same with and without them."""
    python, numpy_state, mode = random.getstate(), np.random.get_state(), model.training
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices=devices):
            scores = {name: value for evaluator in evaluators for name, value in evaluator(model).items()}
    finally:
        random.setstate(python)
        np.random.set_state(numpy_state)
        model.train(mode)
    return {name: float(value) for name, value in scores.items() if isinstance(value, int | float)}


def compare(before: Mapping[str, float], after: Mapping[str, float]) -> None:
    """Show the main held-out scores before and after training, and warn of each that training made worse.

    Example:
        >>> compare({"accuracy": 0.5}, {"accuracy": 0.75})
        held-out accuracy: 0.5000 before training, 0.7500 after
    """
    names = [name for name in after if name in before and name.endswith(_MAIN_SCORES)]
    for name in names:
        print(f"held-out {name}: {before[name]:.4f} before training, {after[name]:.4f} after")
        if after[name] < before[name]:
            logger.warning("training made the held-out %s worse; a lower learning rate or fewer steps may help", name)
    if any(before[name] == after[name] == 1 for name in names):
        print("1.0000 before and after: so few pairs or questions cannot show a change; hold out more of them")


def how_to_continue(folder: Path) -> str:
    """How to continue a run that stopped."""
    kept = last_checkpoint(folder)
    if kept is None:
        return "there is no checkpoint to continue from"
    return f"{kept} is complete: the same command with --resume continues from it"


def _restore_finished(trainer: CrossLingualTrainer, checkpoint: Path) -> bool:
    """Load the result of a run that was stopped after its last step: the host would train one step more."""
    state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    if state.global_step < (trainer.args.max_steps if trainer.args.max_steps > 0 else state.max_steps):
        return False
    best = state.best_model_checkpoint if trainer.args.load_best_model_at_end else None
    folder = checkpoint.parent / Path(best).name if best else checkpoint
    if not is_complete(folder):
        logger.warning("the best checkpoint, %s, is damaged: the model is that of %s", folder, checkpoint)
        folder = checkpoint
    original = trainable_weights(trainer.model)
    trainer.model.load_state_dict(SentenceTransformer(str(folder), device="cpu").state_dict())
    interpolate(trainer.model, original, trainer.args.keep_trained)
    merge_adapters(trainer.model)
    trainer.state = state
    return True


def command(program: str, arguments: Sequence[str], secret: str | None = None) -> str:
    """The command line of a run, for `results.json` and the model card, without an access token.

    Example:
        >>> command("train.py", ["--hub_token", "hf_abc", "--seed", "1"], "hf_abc")
        'python train.py --hub_token *** --seed 1'
    """
    words = ["python", *program.split(), *map(shlex.quote, arguments)]
    return " ".join(word.replace(secret, "***") if secret else word for word in words)


def run_script(main: Callable[[], Any]) -> None:
    """Run a script's `main`; errors in its input end it with one line instead of a traceback."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        main()
    except (ImportError, ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped")
