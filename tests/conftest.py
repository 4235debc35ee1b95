"""What all tests share: no network, one thread, fixed seeds, and the way to the real data."""

import gc
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

from tests import tiny

REPOSITORY = Path(__file__).resolve().parent.parent
SLOW_FOLDERS = [
    REPOSITORY / "tests" / name for name in ("training_scripts/studies", "training_scripts/demo")
]


def pytest_configure(config: pytest.Config) -> None:
    """Keep workers of pytest-xdist from fighting over the cores."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave studies and the demo to `make test-all`: they are not in the package."""
    for item in items:
        if any(folder in item.path.parents for folder in SLOW_FOLDERS):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Spare what is loaded from `gc.collect`, which the host calls in each training."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return REPOSITORY


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """The folder of a tiny encoder."""
    tiny.transformer().save(str(tmp_path / "encoder"))
    return tmp_path / "encoder"


@pytest.fixture
def real_data(request: pytest.FixtureRequest) -> Path:
    """The folder of real text that a test's mark names; where there is none, it is skipped."""
    (mark,) = request.node.iter_markers("real_data")
    folder = Path(os.environ.get("XLRET_DATA", REPOSITORY.parent / "shared" / "data"), *mark.args)
    if not folder.is_dir():
        pytest.skip(f"needs real text: set XLRET_DATA to its folder ({folder} does not exist)")
    return folder
