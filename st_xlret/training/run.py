"""A training script around its Trainer: it checks before, resumes, measures, saves and pushes."""

import logging
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import torch
from sentence_transformers import SentenceTransformer
from transformers import (
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)

from st_xlret import __version__
from st_xlret.encoding import PROMPT_NAMES, role_prompt
from st_xlret.evaluation import LAReQAEvaluator
from st_xlret.files import atomic_file, write_json
from st_xlret.hub.card import set_card_data
from st_xlret.hub.portable import write_model
from st_xlret.hub.repository import Repository
from st_xlret.secrets import without_secrets
from st_xlret.training.arguments import ScriptArguments
from st_xlret.training.checkpoints import last_checkpoint
from st_xlret.training.loss_options import LossOptions
from st_xlret.training.output_folder import WRITER, claim_folder, delete_earlier_run
from st_xlret.training.plots import plot_training
from st_xlret.training.resume import (
    find_checkpoint_to_resume,
    has_all_steps,
    options_of_groups,
    options_to_compare,
    restore_finished_run,
)
from st_xlret.training.trainer import CrossLingualTrainer

logger = logging.getLogger(__name__)

_LIBRARIES = ("sentence-transformers", "transformers", "torch", "datasets")
_LINES = 20
"""The lines of losses that a short run logs."""

_SOURCES = ("documents", "queries", "further_queries", "pairs", "retrieval", "dictionaries")
"""The options that name data, which the card lists."""


Evaluator: TypeAlias = Callable[[SentenceTransformer], Mapping[str, Any]]
"""What gives scores of a model by their names, such as an evaluator of the host."""


class Run:
    """One run of a training script.

    Making it locks and checks the output folder before any work, and sets the seed; it comes before
    the Trainer, which must not see `push_to_hub`. With it the finished model is pushed, and no
    checkpoint. A resumed run must have the same
    options; the number of processes may differ if the batch of all of them stays as large.
    """

    def __init__(self, args: ScriptArguments, *groups: Any) -> None:
        options = options_of_groups(groups)
        self.args = args
        self.output = Path(str(args.output_dir))
        self._lock = claim_folder(args, options)
        self.options = options_to_compare(args, options)
        self._loss_options = LossOptions(self.options.get("loss_options") or "{}")
        # Taken from the host, which would push checkpoints and write the token into them.
        self._push = args.push_to_hub
        self._token = args.hub_token
        args.push_to_hub = False
        args.hub_token = None
        set_seed(args.seed)
        torch.backends.cuda.enable_cudnn_sdp(False)  # as in `autocast`
        logger.info(
            "computing in %s on %s, %d threads",
            args.precision,
            args.device,
            torch.get_num_threads(),
        )

    def loss_arguments(self, name: str, **defaults: Any) -> dict[str, Any]:
        """The arguments of a loss: defaults, changed by `--loss_options`.

        `train_and_save` refuses options of losses that were not asked for here before.
        """
        return self._loss_options.arguments_of(name, defaults)

    def train_and_save(
        self,
        trainer: CrossLingualTrainer,
        entries: dict[str, Any],
        *,
        tag: str,
        evaluators: Sequence[Evaluator | None] = (),
        test: LAReQAEvaluator | None = None,
    ) -> dict[str, Any]:
        """Train, from the last complete checkpoint on if asked to; measure and save.

        Then show how to use the model. All ranks call it together; the first one alone measures,
        saves, and returns what was measured.

        Args:
            trainer: The Trainer, made with the arguments of the run.
            entries: Further entries of `results.json`, whose content is returned; `languages` are
                on the card, too.
            tag: One of the model's card.
            evaluators: They measure the model before and after training; None is left out.
            test: Measures the finished model.
        """
        self._loss_options.check_all_read()
        is_first = trainer.is_world_process_zero()
        repository = self._open_repository() if self._push and is_first else None
        model = trainer.model
        used = [evaluator for evaluator in evaluators if evaluator is not None]
        self._prepare_trainer(trainer)
        if is_first and not self.args.resume:
            delete_earlier_run(self.output)
        checkpoint = find_checkpoint_to_resume(self.args, self.options)
        before = _evaluator_scores(used, model) if is_first else {}
        started = time.perf_counter()
        if checkpoint is not None and has_all_steps(checkpoint, self.args):
            restore_finished_run(trainer, checkpoint)
        else:
            self._train_or_exit(trainer, checkpoint)
        seconds = time.perf_counter() - started
        results = {**self._record_of_run(trainer, seconds), **entries}
        if not is_first:
            return results
        if used:
            after = _evaluator_scores(used, model)
            results["held_out_before"] = before
            results["held_out"] = after
            _print_held_out_scores(before, after)
        if test is not None:
            measured = test.evaluate(model)
            results["xquad_r"] = {"scores": measured.scores, "average": measured.average}
        path = self._save(trainer, results, tag, repository)
        if repository is not None:
            print(f"pushed to {repository.upload(path)}")
        return results

    def _prepare_trainer(self, trainer: CrossLingualTrainer) -> None:
        """Set the Trainer's callback and arguments to keep the run's options and checkpoints.

        A short run logs more often.
        """
        trainer.loss_state.options = self.options
        trainer.loss_state.keeps_start = True
        trainer.loss_state.keep = self.args.save_total_limit
        trainer.args.save_total_limit = None  # the host would remove the checkpoints of others, too
        if self.args.logging_steps == type(self.args).logging_steps:
            trainer.add_callback(LogOftenInShortRuns())

    def _open_repository(self) -> Repository:
        """The repository to push to, which is made or refused here, before the training."""
        args = self.args
        return Repository(
            args.hub_model_id or self.output.resolve().name,
            token=self._token,
            private=args.hub_private_repo,
            revision=args.hub_revision,
            overwrite=args.overwrite,
        )

    def _train_or_exit(self, trainer: CrossLingualTrainer, checkpoint: Path | None) -> None:
        """Train, or exit with the checkpoint to go on from.

        A `FloatingPointError` is the Trainer's, of a loss or weight that is not finite; an
        `OSError` mostly a full disk.
        """
        set_seed(self.args.seed)  # the score before training leaves no trace in it
        try:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        except (OSError, FloatingPointError, KeyboardInterrupt) as error:
            kept = last_checkpoint(self.output)
            advice = "there is no checkpoint"
            if kept:
                advice = f"the same command with --resume continues from {kept}"
            sys.exit(f"stopped at step {trainer.state.global_step}: {error!r}\n{advice}")

    def _record_of_run(self, trainer: CrossLingualTrainer, seconds: float) -> dict[str, Any]:
        """What `results.json` says of every run."""
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        if self._token:
            command = command.replace(self._token, "***")
        command = without_secrets(command)
        versions = {"st-xlret": __version__}
        for name in _LIBRARIES:
            versions[name] = version(name)
        return {
            "command": command,
            "seconds": round(seconds, 1),
            "steps": trainer.state.global_step,
            "tokens": trainer.state.num_input_tokens_seen,
            "versions": versions,
        }

    def _save(
        self,
        trainer: CrossLingualTrainer,
        results: dict[str, Any],
        tag: str,
        repository: Repository | None,
    ) -> Path:
        """Write the model, then `results.json`, which says that the run is finished."""
        args = self.args
        model = trainer.model
        for role in PROMPT_NAMES:  # the host's calls take those that were trained with
            model.prompts[role] = role_prompt(model, role)
        set_card_data(
            model,
            license=args.license,
            data={use: self.options.get(use) or [] for use in _SOURCES},
            languages=sorted(results.get("languages", [])),
            tags=[tag],
        )
        model.model_card_data.model_id = repository.repo_id if repository else None
        may_replace = args.overwrite or args.resume
        path = write_model(model, self.output / "model", overwrite=may_replace)
        write_json(self.output / "results.json", results, ours=WRITER)
        use = f'SentenceTransformer("{path}")  # encode_query, encode_document'
        print(f"\nThe model is in {path}, for Sentence Transformers alone:\n\n    {use}\n")
        self._draw_losses(trainer.state.log_history)
        return path

    def _draw_losses(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Write `training.png`; a file of the user's, of the hours of the training, stays."""
        if not any("loss" in line for line in history):
            return
        try:
            with atomic_file(self.output / "training.png", ours=WRITER) as temporary:
                plot_training(history, temporary)
        except FileExistsError as error:
            logger.warning("%s", error)


class LogOftenInShortRuns(TrainerCallback):
    """Lets a short run, too, show how the losses fall."""

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Log about twenty times, where the steps of the arguments give fewer lines."""
        # `state.logging_steps` stays, which the host compares with that of a checkpoint.
        steps = max(1, state.max_steps // _LINES)
        if args.logging_strategy == "steps" and steps < state.logging_steps:
            control.should_log = state.global_step % steps == 0


def _evaluator_scores(
    evaluators: Sequence[Evaluator], model: SentenceTransformer
) -> dict[str, float]:
    """The scores of evaluators, without their other entries."""
    scores = {}
    for evaluator in evaluators:
        for name, value in evaluator(model).items():
            if isinstance(value, int | float):
                scores[name] = float(value)
    return scores


def _print_held_out_scores(before: dict[str, float], after: dict[str, float]) -> None:
    """Show the scores that say most: accuracies, and MRR@10 as the host names it."""
    for name, score in after.items():
        if name.endswith(("accuracy", "mrr@10")):
            print(f"held-out {name}: {before[name]:.4f} before training, {score:.4f} after")


def run_script(main: Callable[[], Any]) -> None:
    """Run a script's `main`; errors in its input end it with one line instead of a traceback.

    Other errors, which are faults of the program, are raised.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        main()
    except (ImportError, ValueError, OSError, RuntimeError, TypeError) as error:
        if not _is_error_of_input(error):
            raise
        sys.exit(f"error: {without_secrets(str(error))}")
    except KeyboardInterrupt:
        sys.exit("stopped")


def _is_error_of_input(error: Exception) -> bool:
    """Whether what a user gave made an error, and not a fault of the program."""
    if isinstance(error, TypeError):  # a name in --loss_options
        return "unexpected keyword argument" in str(error)
    if isinstance(error, RuntimeError):  # a tracker of the host that is not installed
        return "install" in str(error)
    return True
