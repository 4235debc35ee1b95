"""Tiny data for all scripts, and the scripts as functions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.training_scripts.scripts import Runner, write_data


@pytest.fixture(scope="session")
def script_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of tiny data, which is read once: all tests share its cache."""
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datasets.config.HF_DATASETS_CACHE", folder / "cache")
        yield folder


@pytest.fixture
def train(script_data: Path, tmp_path: Path) -> Runner:
    """Run scripts into the folder of the test.

    Further options, a string of several or paths, override.
    """
    return Runner(script_data, tmp_path)
