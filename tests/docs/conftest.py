"""Where the examples of the documentation run."""

import shutil
from pathlib import Path

import datasets
import pytest
from sentence_transformers import SentenceTransformerTrainingArguments

from tests.docs.workspace import write_data, write_models


@pytest.fixture(scope="session")
def workspace_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "workspace"
    write_data(folder)
    write_models(folder)
    return folder


@pytest.fixture
def workspace(workspace_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files and checkpoints that the examples name.

    Trainings stop after one step.
    """
    folder = tmp_path / "workspace"
    shutil.copytree(workspace_template, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    as_written = SentenceTransformerTrainingArguments.__post_init__

    def cut_short(self: SentenceTransformerTrainingArguments) -> None:
        self.max_steps = 1
        self.gradient_accumulation_steps = 1
        self.per_device_train_batch_size = min(self.per_device_train_batch_size, 4)
        self.bf16 = False
        self.fp16 = False
        self.use_cpu = True
        self.report_to = "none"
        as_written(self)

    monkeypatch.setattr(SentenceTransformerTrainingArguments, "__post_init__", cut_short)
    return folder
