"""What a finished run leaves behind: model, results, plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer

from st_xlret.files import save_model_atomically, write_json_atomically
from st_xlret.hub.push import push_to_hub
from st_xlret.training.plots import plot_training
from st_xlret.training.run_arguments import RunArguments
from st_xlret.training.running import show_example, way_on


def finish_run(
    model: SentenceTransformer,
    output: str | Path,
    results: dict[str, Any],
    *,
    history: list[dict[str, Any]] | None = None,
    overwrite: bool = False,
    repo_id: str | None = None,
) -> Path:
    """Save a run's model to ``output/model``, its results to ``output/results.json``, its curves to a PNG.

    Args:
        model: The finished model, of built-in modules.
        output: Folder of the run.
        results: Anything JSON can hold.
        history: ``trainer.state.log_history``.
        overwrite: Replace an existing model.
        repo_id: Hub repository to push to, after everything is saved.

    Returns:
        Folder of the model.

    Raises:
        FileExistsError: If there is a model and ``overwrite`` is off.
        OSError: If the disk is full; what was there before stays.
    """
    output = Path(output)
    path = save_model_atomically(model, output / "model", overwrite=overwrite)
    write_json_atomically(output / "results.json", results)
    if history:
        plot_training(history, output / "training.png")
    if repo_id:
        push_to_hub(path, repo_id)
    return path


def finish_training(
    model: SentenceTransformer, trainer: SentenceTransformerTrainer, run: RunArguments, results: dict[str, Any]
) -> None:
    """End a training script: :func:`finish_run` with its options, and an example of use.

    Raises:
        SystemExit: If the model cannot be written, as on a full disk; the message says which checkpoint is whole.
    """
    try:
        path = finish_run(
            model,
            run.output,
            results,
            history=trainer.state.log_history,
            overwrite=run.overwrite,
            repo_id=run.push_to_hub,
        )
    except OSError as error:
        raise SystemExit(f"the training is done, but: {error}\n{way_on(run)}") from error
    show_example(model, path)
