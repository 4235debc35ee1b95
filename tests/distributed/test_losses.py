"""Two ranks compute what one rank computes with a batch twice as large."""

from __future__ import annotations

import pytest
import torch

from tests.distributed.workers import Result, losses_and_gradients, run_on_two_ranks

pytestmark = pytest.mark.distributed
LOSSES = ["ccp", "ccp per language", "pairs", "mlm"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Result, Result]:
    """Of one rank, and of each of two."""
    folder = tmp_path_factory.mktemp("ranks")
    first, second = run_on_two_ranks(losses_and_gradients, folder)
    return losses_and_gradients(0, 1, folder), first, second


@pytest.mark.parametrize("name", LOSSES)
def test_losses(results: tuple[Result, Result, Result], name: str) -> None:
    single, *ranks = (torch.stack(result[name]["losses"]) for result in results)
    torch.testing.assert_close(torch.stack(ranks).mean(0), single)
    if name != "mlm":  # each rank predicts its own tokens
        assert torch.equal(*ranks)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_encoder_and_head(results: tuple[Result, Result, Result], name: str) -> None:
    single, *ranks = (result[name] for result in results)
    gradients = [key for key in single if "gradient of" in key]
    assert any("word_embeddings" in key for key in gradients)
    assert any("head." in key for key in gradients) == (name != "pairs")
    for key in gradients:
        for rank in ranks:
            torch.testing.assert_close(rank[key], single[key], rtol=1e-5, atol=1e-7, msg=lambda m, k=key: f"{k}: {m}")
        assert torch.equal(ranks[0][key], ranks[1][key]), key


@pytest.mark.parametrize("name", ["ccp", "ccp per language", "mlm"])
def test_statistics_and_bank(results: tuple[Result, Result, Result], name: str) -> None:
    single, *ranks = (result[name] for result in results)
    states = [key for key in single if key.startswith("state ")]
    assert any("running_var" in key for key in states) == (name != "mlm")
    for key in states:
        assert torch.equal(ranks[0][key], ranks[1][key]), key
        torch.testing.assert_close(ranks[0][key], single[key], rtol=1e-5, atol=1e-7, msg=lambda m, k=key: f"{k}: {m}")
