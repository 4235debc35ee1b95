"""Lazy Adam: AdamW where gradients are dense, SparseAdam where they are sparse, and whole in a Trainer run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from datasets import DatasetDict
from sentence_transformers import SentenceTransformerTrainer
from torch import nn

from st_xlret import CCPLoss, CrossLingualDataCollator, LossStateCallback, SemanticContrastiveLoss
from st_xlret.training.lazy_adam import GradientPart, LazyAdamW, LazyEmbeddingBag, gradients_of_rows, use_lazy_adam
from tests import tiny
from tests.training.runs import arguments, interleaved_run


def steps(optimizer: torch.optim.Optimizer, table: nn.EmbeddingBag, batches: list[list[int]]) -> None:
    weights = torch.linspace(-1, 1, table.embedding_dim)
    for batch in batches:
        optimizer.zero_grad()
        (table(torch.tensor(batch), torch.tensor([0])) * weights).square().sum().backward()
        optimizer.step()


def twins(one: type[nn.EmbeddingBag], other: type[nn.EmbeddingBag]) -> tuple[nn.EmbeddingBag, nn.EmbeddingBag]:
    torch.manual_seed(0)
    first, second = one(7, 3), other(7, 3)
    second.load_state_dict(first.state_dict())
    return first, second


BATCHES = [[1, 3, 3], [2, 3], [1], [6, 0, 1], [3]]


def test_sparse_gradients_take_the_steps_of_sparse_adam() -> None:
    mine, theirs = twins(LazyEmbeddingBag, nn.EmbeddingBag)
    theirs.sparse = True
    steps(LazyAdamW(mine.parameters(), lr=0.1, weight_decay=0), mine, BATCHES)
    steps(torch.optim.SparseAdam(theirs.parameters(), lr=0.1), theirs, BATCHES)
    torch.testing.assert_close(mine.weight, theirs.weight)


def test_dense_gradients_take_the_steps_of_adamw() -> None:
    mine, theirs = twins(nn.EmbeddingBag, nn.EmbeddingBag)
    steps(LazyAdamW(mine.parameters(), lr=0.1, weight_decay=0.3), mine, BATCHES)
    steps(torch.optim.AdamW(theirs.parameters(), lr=0.1, weight_decay=0.3), theirs, BATCHES)
    torch.testing.assert_close(mine.weight, theirs.weight)


def test_a_batch_of_all_rows_takes_the_step_of_adamw_with_its_weight_decay() -> None:
    mine, theirs = twins(LazyEmbeddingBag, nn.EmbeddingBag)
    batches = [[0, 1, 2, 3, 4, 5, 6]] * 3
    steps(LazyAdamW(mine.parameters(), lr=0.1, weight_decay=0.3), mine, batches)
    steps(torch.optim.AdamW(theirs.parameters(), lr=0.1, weight_decay=0.3), theirs, batches)
    torch.testing.assert_close(mine.weight, theirs.weight)


def test_a_saved_state_goes_on_as_if_nothing_had_happened() -> None:
    whole, halves = twins(LazyEmbeddingBag, LazyEmbeddingBag)
    steps(LazyAdamW(whole.parameters(), lr=0.1), whole, BATCHES)
    first = LazyAdamW(halves.parameters(), lr=0.1)
    steps(first, halves, BATCHES[:2])
    second = LazyAdamW(halves.parameters(), lr=0.1)
    second.load_state_dict(first.state_dict())
    steps(second, halves, BATCHES[2:])
    assert torch.equal(whole.weight, halves.weight)


def test_two_backward_passes_are_one_step_of_their_sum() -> None:
    together, apart = twins(LazyEmbeddingBag, LazyEmbeddingBag)
    steps(LazyAdamW(together.parameters(), lr=0.1), together, [[1, 2, 2, 5]])
    optimizer = LazyAdamW(apart.parameters(), lr=0.1)
    weights = torch.linspace(-1, 1, 3)
    for part in ([1, 2, 2, 5], [0]):  # the second part is forgotten
        optimizer.zero_grad()
        for _ in range(2):
            ((apart(torch.tensor(part), torch.tensor([0])) * weights).square().sum() / 2).backward()
        if part == [0]:
            optimizer.zero_grad()
        optimizer.step()
    torch.testing.assert_close(together.weight, apart.weight)


def test_a_closure_is_refused() -> None:
    with pytest.raises(ValueError, match="closure"):
        LazyAdamW([nn.Parameter(torch.ones(1))]).step(lambda: 0.0)


def test_means_are_those_of_an_embedding_bag() -> None:
    mine, theirs = twins(LazyEmbeddingBag, nn.EmbeddingBag)
    rows, offsets = torch.tensor([1, 3, 3, 0, 6]), torch.tensor([0, 2, 2, 4])  # the second bag is empty
    assert torch.equal(mine(rows, offsets), theirs(rows, offsets))


@pytest.mark.parametrize("rows_at_once", [1, 3, 256])
def test_rows_get_the_gradient_of_an_embedding_bag(rows_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("st_xlret.training.lazy_adam._ROWS_AT_ONCE", rows_at_once)
    table = nn.EmbeddingBag(7, 3, dtype=torch.float64)
    parts = []
    for rows, offsets in (([1, 3, 3, 0, 6], [0, 2, 2, 4]), ([5], [0]), ([3, 1, 1], [0, 1])):
        part = GradientPart(torch.tensor(rows), torch.tensor(offsets), torch.randn(len(offsets), 3).double())
        table(part.rows, part.offsets).backward(part.of_bags)
        parts.append(part)
    found = torch.zeros(7, 3, dtype=torch.float64)
    seen: list[int] = []
    for rows, gradient in gradients_of_rows(parts):
        found[rows] = gradient
        seen += rows.tolist()
    assert table.weight.grad is not None
    torch.testing.assert_close(found, table.weight.grad)
    assert seen == [0, 1, 3, 5, 6]


def test_a_batch_of_empty_texts_changes_nothing() -> None:
    table = LazyEmbeddingBag(7, 3)
    before = table.weight.detach().clone()
    optimizer = LazyAdamW(table.parameters(), lr=0.1)
    table(torch.tensor([], dtype=torch.long), torch.tensor([0, 0])).sum().backward()
    optimizer.step()
    assert torch.equal(table.weight, before)


def static_run(folder: Path, **changed: object) -> SentenceTransformerTrainer:
    args = arguments(folder, **{"max_grad_norm": 0, "max_steps": 4, "seed": 3, **changed})
    model = tiny.static()
    losses = {"ccp": CCPLoss(model, bank_size=16), "pairs": SemanticContrastiveLoss(model)}
    return SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=DatasetDict(ccp=tiny.documents(), pairs=tiny.pairs()),
        loss=losses,
        data_collator=CrossLingualDataCollator(model.preprocess, token_dropout=0.2),
        callbacks=[LossStateCallback(losses)],
    )


def test_a_resumed_run_of_a_static_encoder_repeats_the_whole_one(tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 2}
    whole = static_run(tmp_path, **saving)
    use_lazy_adam(whole)
    whole.train()
    resumed = static_run(tmp_path, **saving)
    use_lazy_adam(resumed)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    weights = [trainer.model[0].embedding.weight for trainer in (whole, resumed)]  # type: ignore[index]
    assert torch.equal(weights[0], weights[1])


def test_the_head_keeps_its_own_learning_rate(tmp_path: Path) -> None:
    trainer = static_run(tmp_path, learning_rate_mapping={"head": 0.123}, weight_decay=0.0)
    use_lazy_adam(trainer)
    rates = {id(p): group["lr"] for group in trainer.create_optimizer().param_groups for p in group["params"]}
    assert isinstance(trainer.optimizer, LazyAdamW)
    assert rates.pop(id(trainer.model[0].embedding.weight)) == 1e-2  # type: ignore[index]
    assert rates and set(rates.values()) == {0.123}


def test_what_has_no_sparse_gradients_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_grad_norm=1.0"):
        use_lazy_adam(static_run(tmp_path, max_grad_norm=1.0))
    trainer, _ = interleaved_run(tmp_path)
    with pytest.raises(ValueError, match="Transformer"):
        use_lazy_adam(trainer)
