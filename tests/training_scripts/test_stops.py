"""What an interrupted run, a full disk and a loss that is no number leave, with train_ccp.py."""

import errno
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.files import write_json
from st_xlret.losses import CCPLoss
from st_xlret.marks import mark_folder
from tests.training_scripts.scripts import Runner, checkpoints, equal_weights

pytestmark = pytest.mark.slow  # whole runs
STEPS = "--pairs --max_steps 6 --save_steps 2"


@pytest.fixture(scope="module")
def healthy(script_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of a run without a fault."""
    train = Runner(script_data, tmp_path_factory.mktemp("healthy"))
    train("ccp", STEPS)
    return train.folder / "run" / "model"


def test_a_new_run_does_not_go_on_from_the_checkpoints_of_an_old_one(
    train: Runner, tmp_path: Path
) -> None:
    with train.stopped("ccp", 5), pytest.raises(SystemExit):
        train("ccp", STEPS)
    own = tmp_path / "run" / "tokenizer" / "notes.txt"
    own.touch()
    with pytest.raises(FileExistsError, match="notes.txt"):
        train("ccp", STEPS, "--max_steps 5 --overwrite")
    own.unlink()
    finished = write_json(tmp_path / "run" / "results.json", {"command": ""}, ours="train")
    with train.stopped("ccp", 3), pytest.raises(SystemExit, match="checkpoint-2"):
        train("ccp", STEPS, "--max_steps 5 --overwrite")
    assert checkpoints(tmp_path / "run") == ["checkpoint-2"]
    assert not finished.exists()


def fill_disk(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Let the disk be full when a model is written whose path holds `part`."""
    save_pretrained = SentenceTransformer.save_pretrained

    def save(self: Any, path: Any, *args: Any, **kwargs: Any) -> None:
        if part not in str(path):
            return save_pretrained(self, path, *args, **kwargs)
        (Path(path) / "modules.json").write_text("[")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(SentenceTransformer, "save_pretrained", save)


def break_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loss of the fourth batch be NaN."""
    factors = iter([1.0, 1.0, 1.0, math.nan])
    forward = CCPLoss.forward
    monkeypatch.setattr(
        CCPLoss, "forward", lambda self, *args: forward(self, *args) * next(factors)
    )


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            lambda patch: fill_disk(patch, "checkpoint-2"),
            "stopped at step 2: .*No space left.*no checkpoint",
        ),
        (
            lambda patch: fill_disk(patch, "checkpoint-4"),
            "stopped at step 4: .*No space left.*checkpoint-2",
        ),
        (break_loss, "stopped at step 3: .*nan.*checkpoint-2"),
    ],
)
def test_a_run_that_stopped_goes_on_from_its_last_checkpoint(
    fault: Any,
    message: str,
    train: Runner,
    tmp_path: Path,
    healthy: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch, pytest.raises(SystemExit, match=f"(?s){message}"):
        fault(patch)
        train("ccp", STEPS)
    train("ccp", STEPS, "--resume")
    assert equal_weights(tmp_path / "run" / "model", healthy)


def test_a_disk_that_fills_at_the_end(
    train: Runner, tmp_path: Path, healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Path(shutil.copytree(healthy, tmp_path / "run" / "model"))
    (model / "README.md").write_text("older")
    mark_folder(model)
    with monkeypatch.context() as patch:
        fill_disk(patch, ".model.")
        with pytest.raises(OSError, match="No space left"):
            train("ccp", STEPS, "--overwrite")
    assert (model / "README.md").read_text() == "older" and equal_weights(model, healthy)
    names = [path.name for path in (tmp_path / "run").rglob("*")]
    assert not [name for name in names if "tmp" in name]
    # Only the saving is done again.
    assert (
        train("ccp", STEPS, "--overwrite --resume")["steps"] == 6
        and (model / "README.md").read_text() != "older"
    )


def test_the_best_model_is_kept_and_saved(
    train: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = TatoebaEvaluator.__call__

    def scripted(
        self: Any, model: Any, output_path: Any = None, epoch: int = -1, steps: int = -1
    ) -> Any:
        """Is happiest after the second step."""
        return evaluate(self, model, output_path, epoch, steps) | {
            "pairs_average_accuracy": 1 - abs(steps - 2) / 10
        }

    monkeypatch.setattr(TatoebaEvaluator, "__call__", scripted)
    options = "--max_steps 5 --eval_steps 1 --save_steps 1 --save_total_limit 1 --overwrite"
    with train.stopped("ccp", 4), pytest.raises(SystemExit, match="checkpoint-3"):
        train("ccp", options)
    run = (tmp_path / "run").rename(tmp_path / "moved")
    assert "checkpoint-2" in checkpoints(run)
    train("ccp", options, "--resume", output="moved")
    assert equal_weights(run / "model", run / "checkpoint-2")
    assert not equal_weights(run / "model", run / "checkpoint-5")
