"""MSMLoss in training: it learns, beside a masked language model, and resumes exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from torch import Tensor

from st_xlret.batches import Blocks, CrossLingualDataCollator
from st_xlret.losses import MaskedLMLoss, MSMLoss
from st_xlret.modules import DocumentEncoder
from st_xlret.training import LossStateCallback
from tests import tiny
from tests.losses.documents import block_features
from tests.training.runs import Recorder, arguments


def test_it_learns() -> None:
    """Documents that count in order: what is missing can be told."""
    model = tiny.static(features=16)
    torch.manual_seed(0)
    loss = MSMLoss(model, DocumentEncoder(16, heads=2, dropout=0.0))
    texts = [word for start in range(8) for word in (tiny.WORDS * 2)[start : start + 4]]
    features = block_features(model, [4] * 8, texts=texts)
    optimizer = torch.optim.Adam(loss.parameters(), lr=0.01)
    values = []
    for _ in range(60):
        value = loss([dict(features)])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < 0.5 * values[0]


@pytest.mark.parametrize("mini_batch_size", [None, 4])
def test_a_masked_language_model_is_added(mini_batch_size: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.transformer()
    mlm = MaskedLMLoss(model)
    loss = MSMLoss(model, DocumentEncoder(32, dropout=0.0), mini_batch_size=mini_batch_size, mlm=mlm)
    features = block_features(model)
    given: list[dict[str, Tensor]] = []
    forward = mlm.forward

    def remember(columns: list[dict[str, Tensor]], labels: None = None) -> Tensor:
        given.extend(columns)
        torch.manual_seed(3)
        return forward(columns, labels)

    monkeypatch.setattr(mlm, "forward", remember)
    before = {name: tensor.clone() for name, tensor in loss.owned_state().items()}
    parts = loss([dict(features)])
    torch.stack(list(parts.values())).sum().backward()
    ours = {name: p.grad.clone() for name, p in loss.named_parameters() if p.grad is not None}
    assert len(given[0]["input_ids"]) == (mini_batch_size or 10)
    assert loss.last_value == parts["msm"].detach() + parts["mlm"]

    loss.zero_grad()
    loss.load_owned_state(before)
    loss.mlm = None
    (loss([dict(features)]) + mlm([given[0]])).backward()
    loss.mlm = mlm
    theirs = {name: p.grad for name, p in loss.named_parameters() if p.grad is not None}
    assert set(ours) == set(theirs) and any("mlm.lm_head" in name for name in ours)
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-4, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
    with torch.no_grad():
        assert set(loss([dict(features)])) == {"msm", "mlm"}


def test_what_is_owned_beside_a_masked_language_model() -> None:
    model = tiny.transformer()
    loss = MSMLoss(model, mlm=MaskedLMLoss(model))
    names = set(loss.owned_state())
    assert not [name for name in names if "model." in name.replace("lm_head.transform.", "")]
    assert {"steps", "negatives_only", "mlm.lm_head.bias", "networks.document_encoders.0.mask_vector"} <= names
    encoder = {id(p) for p in model.parameters()}
    assert loss.owned_parameters() and not encoder & {id(p) for p in loss.owned_parameters()}
    loss.load_owned_state(loss.owned_state())
    with pytest.raises(ValueError, match="the saved state does not fit MSMLoss"):
        MSMLoss(model).load_owned_state(loss.owned_state())


def run(folder: Path, *, seed: int, **options: Any) -> tuple[SentenceTransformerTrainer, Recorder]:
    model = tiny.transformer(dropout=0.1, seed=seed)
    loss = MSMLoss(model, mini_batch_size=4, num_negatives=3, mlm=MaskedLMLoss(model))
    recorder = Recorder({"msm": loss})
    torch.manual_seed(seed + 1)
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments(folder, batch_sampler=Blocks(), per_device_train_batch_size=3, **options),
        train_dataset=tiny.documents(12, 4),
        loss=loss,
        data_collator=CrossLingualDataCollator(model.preprocess),
        callbacks=[recorder, LossStateCallback(loss)],
    )
    return trainer, recorder


def test_a_resumed_run_repeats_the_uninterrupted_one(tmp_path: Path) -> None:
    steps = {"max_steps": 8, "save_strategy": "steps", "save_steps": 4, "gradient_accumulation_steps": 2}
    whole, recorded = run(tmp_path, seed=0, **steps)
    whole.train()
    resumed, repeated = run(tmp_path, seed=7, **steps)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert repeated.steps == [entry for entry in recorded.steps if entry[0] >= 4] and len(repeated.steps) == 8
    expected = whole.model.state_dict() | whole.loss.owned_state()
    for name, tensor in (resumed.model.state_dict() | resumed.loss.owned_state()).items():
        assert torch.equal(tensor, expected[name]), name
    assert whole.loss.steps == 16
    assert SentenceTransformer(str(tmp_path / "checkpoint-8"), device="cpu").encode(["sun"]).shape == (1, 32)
