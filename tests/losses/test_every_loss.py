"""Of every loss: what it remembers and trains, 16 bits, `model.fit`, and what it says to what does not fit."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import InputExample, SentenceTransformer
from torch.utils.data import DataLoader

from st_xlret import losses
from st_xlret.losses import CrossLingualLoss, MaskedLMLoss
from st_xlret.modules import ContextualEncoder
from tests import tiny
from tests.losses.batches import EN, FR, block_features, columns, msm, rows_with_others, taught

Columns = list[dict[str, Any]]
PAIRS, WORDS = (
    (tiny.pairs(6).to_list(), ("source", "target")),
    (tiny.word_rows(), ("source", "target")),
)
NEGATIVES = (
    [{**row, "negative": row["other"]} for row in rows_with_others()],
    ("source", "target", "negative"),
)
for _row in NEGATIVES[0]:
    del _row["other"]
OTHERS, WINDOWS = (
    (rows_with_others(), ("source", "target", "other")),
    (tiny.window_rows(4), ("sentence",)),
)
# A loss, and the rows and text columns of its batch; those of masked sentences are blocks.
LOSSES: dict[str, tuple[Callable[..., CrossLingualLoss], Any]] = {
    "ccp": (partial(losses.CCPLoss, bank_size=6), WINDOWS),
    "msm": (msm, None),
    "msm, micro-batches": (partial(msm, mini_batch_size=3), None),
    "mlm": (MaskedLMLoss, WINDOWS),
    "cz_nce": (losses.CZNCELoss, PAIRS),
    "words": (lambda model: losses.CZNCELoss(model, ContextualEncoder(32)), WORDS),
    "semantic": (losses.SemanticContrastiveLoss, PAIRS),
    "language": (losses.LangContrastiveLoss, OTHERS),
    "retrieval": (losses.RetrievalContrastiveLoss, NEGATIVES),
    "distillation": (taught, (PAIRS[0], ("source",))),
}
READ_WITH_PADDING = {"mlm", "words", "msm, micro-batches"}
OWNERS = {"ccp", "msm", "msm, micro-batches", "mlm", "words"}


def batch_of(name: str, model: SentenceTransformer) -> Columns:
    rows_and_columns = LOSSES[name][1]
    return columns(model, *rows_and_columns) if rows_and_columns else [block_features(model)]


def built(name: str, dtype: torch.dtype = torch.float32) -> tuple[CrossLingualLoss, Columns]:
    model = tiny.transformer().to(dtype)
    torch.manual_seed(1)
    return LOSSES[name][0](model), batch_of(name, model)


def computed(loss: CrossLingualLoss, batch: Columns) -> torch.Tensor:
    rows = torch.arange(6) if isinstance(loss, losses.SimilarityDistillationLoss) else None
    return loss([dict(column) for column in batch], rows)


@pytest.mark.parametrize("name", LOSSES)
def test_all_parameters_are_trained_and_an_evaluation_changes_nothing(name: str) -> None:
    loss, batch = built(name)
    assert loss.training and (loss.model[0].unpad_inputs is False) == (name in READ_WITH_PADDING)
    with torch.no_grad():
        untrained = computed(loss, batch)
    computed(loss, batch).backward()
    trained = {key: p for key, p in loss.named_parameters() if ".pooler." not in key}
    assert all(p.grad is not None and p.grad.isfinite().all() for p in trained.values())
    encoder = {id(p) for p in loss.model.parameters()}
    assert {id(p) for p in loss.owned_parameters()} == {id(p) for p in loss.parameters()} - encoder
    assert bool(loss.owned_parameters()) == (name in OWNERS)
    before = {key: tensor.clone() for key, tensor in loss.owned_state().items()}
    assert not [key for key in before if key.startswith("model.")]
    with torch.no_grad():
        # What training fills (banks, statistics, steps) is not read: equal weights, equal losses.
        assert computed(loss, batch) == computed(loss, batch) == untrained
    assert all(torch.equal(tensor, before[key]) for key, tensor in loss.owned_state().items())


@pytest.mark.parametrize("kind", ["autocast", "bfloat16", "float16"])
@pytest.mark.parametrize("name", LOSSES)
def test_16_bits_give_a_loss_in_32(name: str, kind: str) -> None:
    exact = computed(*built(name))
    loss, batch = built(name, torch.float32 if kind == "autocast" else getattr(torch, kind))
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
        low = computed(loss, batch)
    low.backward()
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, exact, rtol=0.1, atol=0.1)
    assert all(p.grad is None or p.grad.isfinite().all() for p in loss.parameters())


def test_what_the_model_card_says() -> None:
    for name, options, paper in (
        ("ccp", {"temperature": 0.1, "bank_size": 6, "normalization": "asymmetric"}, "wu2022"),
        ("words", {"objective": "cz_nce", "words": True, "mlm_weight": 0.0}, "Chen, Beiduo"),
        ("distillation", {"teacher": "8 vectors", "bank_size": 8192}, "fang2021seed"),
    ):
        loss, _ = built(name)
        assert loss.get_config_dict().items() >= options.items() and paper in loss.citation


def test_encoders_and_teachers_that_do_not_fit() -> None:
    static, model, mlm = tiny.static(), tiny.transformer(), MaskedLMLoss(tiny.transformer())
    for build, named in (
        (lambda: losses.MSMLoss(model, mlm=mlm), "another encoder"),
        (lambda: losses.CZNCELoss(model, mlm=mlm), "another encoder"),
        (lambda: losses.CZNCELoss(static, ContextualEncoder(8)), "StaticEmbedding"),
        (lambda: MaskedLMLoss(static), "StaticEmbedding"),
        (lambda: losses.SimilarityDistillationLoss(static, torch.ones(6, 5)), r"\(6, 5\)"),
    ):
        with pytest.raises(ValueError, match=named):
            build()


@pytest.mark.parametrize(
    ("build", "texts", "labels"),
    [
        (losses.CCPLoss, 2, [EN, FR]),
        (lambda model: losses.MSMLoss(model, cross_language_negatives=True), 4, list(range(7, 19))),
        (losses.SemanticContrastiveLoss, 2, [1]),
        (losses.RetrievalContrastiveLoss, 3, [1]),
        (MaskedLMLoss, 2, [1]),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fit_trains_without_a_collator_of_ours(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    build: Callable[[Any], Any],
    texts: int,
    labels: list[int],
) -> None:
    monkeypatch.chdir(tmp_path)  # where the host writes "checkpoints"
    model, dice = (
        (tiny.static if build is losses.SemanticContrastiveLoss else tiny.transformer)(),
        random.Random(0),
    )
    rows = [[tiny.sentence(dice) for _ in range(texts)] for _ in range(12)]
    examples = [
        InputExample(texts=row, label=labels[i % len(labels)]) for i, row in enumerate(rows)
    ]
    before = [p.detach().clone() for p in model.parameters()]
    objective: Any = (DataLoader(examples, shuffle=True, batch_size=4), build(model))  # type: ignore[arg-type]
    model.fit([objective], optimizer_params={"lr": 1e-2}, warmup_steps=0, show_progress_bar=False)
    assert all(p.isfinite().all() for p in model.parameters())
    assert any(
        not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)
    )


@pytest.mark.parametrize(
    ("name", "options", "texts"),
    [("msm", {}, 10), ("msm", {"mini_batch_size": 4}, 4), ("cz_nce", {"mlm_weight": 0.25}, 12)],
)
def test_a_masked_language_model_is_added(name: str, options: dict[str, Any], texts: int) -> None:
    model, read = tiny.transformer(), list[dict[str, Any]]()
    mlm = MaskedLMLoss(model, seed=0)
    mlm.register_forward_pre_hook(lambda module, inputs: read.extend(inputs[0]))
    make = partial(LOSSES[name][0], model, **options)
    parts: Any = make(mlm=mlm)(batch_of(name, model))
    assert list(parts) == [name, "mlm"] and [len(column["input_ids"]) for column in read] == [texts]
    mlm.steps.zero_()
    torch.testing.assert_close(parts[name], make()(batch_of(name, model)))
    torch.testing.assert_close(parts["mlm"], options.get("mlm_weight", 1.0) * mlm(read[:1]))
