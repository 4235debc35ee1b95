"""The results of a module's `work`, on one process and on two."""

import pytest

from tests.distributed.workers import Result, run_on_two_ranks


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Result, Result, Result]:
    """Of one rank, and of each of two."""
    folder = tmp_path_factory.mktemp("ranks")
    single = request.module.work(0, 1, folder)
    first, second = run_on_two_ranks(request.module.work, folder)
    return single, first, second
