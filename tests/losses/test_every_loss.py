"""Of every loss: what it remembers and trains, 16 bits, `model.fit`, and what does not fit it."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import InputExample
from torch import Tensor
from torch.utils.data import DataLoader

from st_xlret.losses import (
    CCPLoss,
    CrossLingualLoss,
    CZNCELoss,
    MaskedLMLoss,
    MSMLoss,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
    SimilarityDistillationLoss,
)
from st_xlret.modules import ContextualEncoder
from tests import tiny
from tests.losses.batches import EN, FR
from tests.losses.examples import EXAMPLES, Share


def built(name: str, dtype: torch.dtype = torch.float32) -> CrossLingualLoss:
    model = EXAMPLES[name].encoder().to(dtype)
    torch.manual_seed(1)
    return EXAMPLES[name].build(model)


def computed(name: str, loss: CrossLingualLoss) -> Tensor:
    batch = EXAMPLES[name].batch(loss.model, 0, Share())
    return loss(batch, EXAMPLES[name].labels_of(0, Share()))


@pytest.mark.parametrize("name", EXAMPLES)
def test_all_parameters_are_trained(name: str) -> None:
    loss = built(name)
    computed(name, loss).backward()
    for key, parameter in loss.named_parameters():
        if ".pooler." not in key:
            assert parameter.grad is not None and parameter.grad.isfinite().all(), key


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_owns_what_is_not_of_the_encoder(name: str) -> None:
    loss = built(name)
    of_encoder = {id(parameter) for parameter in loss.model.parameters()}
    others = {id(parameter) for parameter in loss.parameters()} - of_encoder
    assert {id(parameter) for parameter in loss.owned_parameters()} == others
    names = [key for key, parameter in loss.named_parameters() if id(parameter) in others]
    for part in EXAMPLES[name].owns:
        assert any(key.startswith(part) for key in names), part
    for key in names:
        assert key.startswith(EXAMPLES[name].owns), key
    for key in loss.owned_state():
        assert not key.startswith("model.")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_evaluation_changes_nothing_and_does_not_read_what_training_fills(name: str) -> None:
    loss = built(name)
    assert loss.training
    with torch.no_grad():
        untrained = computed(name, loss)
    computed(name, loss).backward()
    before = {key: tensor.clone() for key, tensor in loss.owned_state().items()}
    with torch.no_grad():
        # Banks, statistics, steps: equal weights, equal losses.
        assert computed(name, loss) == untrained
        assert computed(name, loss) == untrained
    for key, tensor in loss.owned_state().items():
        assert torch.equal(tensor, before[key]), key


@pytest.mark.parametrize("name", EXAMPLES)
@torch.no_grad()
def test_its_weight_is_a_factor(name: str) -> None:
    loss = built(name)
    plain = computed(name, loss)
    loss.weight = 3.0
    torch.testing.assert_close(computed(name, loss), 3 * plain)
    assert loss.get_config_dict()["weight"] == 3.0


@pytest.mark.parametrize("name", EXAMPLES)
def test_unpadding_is_off_where_padding_is_read(name: str) -> None:
    encoder: Any = built(name).model[0]
    assert (encoder.unpad_inputs is False) == EXAMPLES[name].reads_padding


@pytest.mark.parametrize("kind", ["autocast", "bfloat16", "float16"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_16_bits_give_a_loss_in_32(name: str, kind: str) -> None:
    exact = computed(name, built(name))
    dtype = torch.float32 if kind == "autocast" else getattr(torch, kind)
    loss = built(name, dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
        low = computed(name, loss)
    low.backward()
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, exact, rtol=0.1, atol=0.1)
    for key, parameter in loss.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), key


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_card_has_its_paper_and_its_options(name: str) -> None:
    loss = built(name)
    assert loss.citation.startswith("@")
    assert "ratio" in loss.get_config_dict()


@pytest.mark.parametrize(
    ("name", "options", "paper"),
    [
        (
            "ccp",
            {"temperature": 0.1, "bank_size": 13, "normalization": "asymmetric"},
            "wu2022",
        ),
        ("words", {"objective": "cz_nce", "words": True, "mlm_weight": 0.0}, "Chen, Beiduo"),
        ("distillation", {"teacher": "40 vectors", "bank_size": 10}, "fang2021seed"),
    ],
)
def test_what_the_model_card_says(name: str, options: dict[str, Any], paper: str) -> None:
    loss = built(name)
    assert loss.get_config_dict().items() >= options.items()
    assert paper in loss.citation


def mlm_of_another_encoder() -> MaskedLMLoss:
    return MaskedLMLoss(tiny.transformer())


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: MSMLoss(tiny.transformer(), mlm=mlm_of_another_encoder()), "another encoder"),
        (lambda: CZNCELoss(tiny.transformer(), mlm=mlm_of_another_encoder()), "another encoder"),
        (lambda: CZNCELoss(tiny.static(), ContextualEncoder(8)), "StaticEmbedding"),
        (lambda: MaskedLMLoss(tiny.static()), "StaticEmbedding"),
        (lambda: SimilarityDistillationLoss(tiny.static(), torch.ones(6, 5)), r"\(6, 5\)"),
    ],
)
def test_encoders_and_teachers_that_do_not_fit(build: Callable[[], Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        build()


@pytest.mark.parametrize(
    ("build", "texts", "labels"),
    [
        (CCPLoss, 2, [EN, FR]),
        (partial(MSMLoss, cross_language_negatives=True), 4, list(range(7, 19))),
        (SemanticContrastiveLoss, 2, [1]),
        (RetrievalContrastiveLoss, 3, [1]),
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
    dice = random.Random(0)
    model = tiny.transformer()
    if build is SemanticContrastiveLoss:
        model = tiny.static()
    examples = []
    for number in range(12):
        row = [tiny.sentence(dice) for _ in range(texts)]
        examples.append(InputExample(texts=row, label=labels[number % len(labels)]))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    loader: Any = DataLoader(examples, shuffle=True, batch_size=4)  # type: ignore[arg-type]
    model.fit(
        [(loader, build(model))],
        optimizer_params={"lr": 1e-2},
        warmup_steps=0,
        show_progress_bar=False,
    )
    moved = 0
    for old, new in zip(before, model.parameters(), strict=True):
        assert new.isfinite().all()
        moved += not torch.equal(old, new)
    assert moved


@pytest.mark.parametrize(
    ("name", "options", "texts"),
    [
        ("msm", {}, 16),
        ("msm", {"mini_batch_size": 4}, 4),
        ("cz_nce", {"mlm_weight": 0.25}, 12),
    ],
)
def test_a_masked_language_model_is_added(name: str, options: dict[str, Any], texts: int) -> None:
    kinds: dict[str, Any] = {"msm": partial(MSMLoss, document_encoder={"dropout": 0.0})}
    kinds["cz_nce"] = CZNCELoss
    model = tiny.transformer()
    read: list[dict[str, Any]] = []
    mlm = MaskedLMLoss(model, seed=0)
    mlm.register_forward_pre_hook(lambda module, inputs: read.extend(inputs[0]))

    def parts_with(mlm: MaskedLMLoss | None) -> Any:
        torch.manual_seed(1)
        loss = kinds[name](model, mlm=mlm, **options)
        return loss(EXAMPLES[name].batch(model, 0, Share()))

    parts = parts_with(mlm)
    assert list(parts) == [name, "mlm"]
    assert [len(column["input_ids"]) for column in read] == [texts]
    torch.testing.assert_close(parts[name], parts_with(None))
    mlm.steps.zero_()
    expected = options.get("mlm_weight", 1.0) * mlm(read[:1])
    torch.testing.assert_close(parts["mlm"], expected)
