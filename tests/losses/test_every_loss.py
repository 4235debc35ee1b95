"""What holds for every loss: what it remembers, what it trains, 16 bits, and what it says to what does not fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret.losses import (
    CCPLoss,
    CrossLingualLoss,
    CZNCELoss,
    LangContrastiveLoss,
    MaskedLMLoss,
    MSMLoss,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
    SimilarityDistillationLoss,
)
from st_xlret.losses.masked_lm import NoHeadError
from st_xlret.modules import AsymmetricBNHead, ContextualEncoder, DocumentEncoder, LanguageMemoryBank
from tests import tiny
from tests.losses.batches import block_features, columns

Columns = list[dict[str, Any]]


def parallel(model: SentenceTransformer) -> Columns:
    return columns(model, tiny.pairs(6).to_list())


def with_others(model: SentenceTransformer) -> Columns:
    pairs = tiny.pairs(12).to_list()
    rows = [{**row, "other": other["source"]} for row, other in zip(pairs[:6], pairs[6:], strict=True)]
    return columns(model, rows, ("source", "target", "other"))


def words(model: SentenceTransformer) -> Columns:
    return columns(model, tiny.word_rows())


def msm(model: SentenceTransformer, **options: Any) -> MSMLoss:
    return MSMLoss(model, {"dropout": 0.0}, **options)


def distillation(model: SentenceTransformer, **options: Any) -> SimilarityDistillationLoss:
    return SimilarityDistillationLoss(model, torch.eye(8, model.get_embedding_dimension()), **options)


def windows(model: SentenceTransformer) -> Columns:
    return [tiny.features(model, tiny.window_rows(4))]


LOSSES: dict[str, tuple[Callable[..., CrossLingualLoss], Callable[[Any], Columns]]] = {
    "ccp": (lambda model: CCPLoss(model, bank_size=6), windows),
    "msm": (msm, lambda model: [block_features(model)]),
    "msm, micro-batches": (lambda model: msm(model, mini_batch_size=3), lambda model: [block_features(model)]),
    "mlm": (MaskedLMLoss, windows),
    "cz_nce": (CZNCELoss, parallel),
    "cz_nce, words": (lambda model: CZNCELoss(model, ContextualEncoder(32)), words),
    "semantic": (SemanticContrastiveLoss, parallel),
    "language": (LangContrastiveLoss, with_others),
    "retrieval": (RetrievalContrastiveLoss, with_others),
    "distillation": (distillation, lambda model: parallel(model)[:1]),
}
LABELS = torch.arange(6)


def built(name: str, dtype: torch.dtype = torch.float32) -> tuple[CrossLingualLoss, Columns]:
    model = tiny.transformer().to(dtype)
    torch.manual_seed(1)
    make, given = LOSSES[name]
    return make(model), given(model)


def computed(loss: CrossLingualLoss, given: Columns) -> torch.Tensor:
    return loss([dict(column) for column in given], LABELS)


@pytest.mark.parametrize("name", LOSSES)
def test_a_batch_is_remembered_and_evaluation_in_training_mode_changes_nothing(name: str) -> None:
    loss, given = built(name)
    value = computed(loss, given)
    assert loss.last_value == value and not loss.last_value.requires_grad
    before, last = {key: tensor.clone() for key, tensor in loss.owned_state().items()}, loss.last_value
    assert loss.training
    with torch.no_grad():
        assert computed(loss, given) == computed(loss, given)
    assert loss.last_value is last
    assert all(torch.equal(tensor, before[key]) for key, tensor in loss.owned_state().items())


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_reach_all_of_the_encoder_and_what_the_loss_owns(name: str) -> None:
    loss, given = built(name)
    computed(loss, given).backward()
    trained = {key: p for key, p in loss.named_parameters() if ".pooler." not in key}
    assert all(p.grad is not None and p.grad.isfinite().all() for p in trained.values())
    encoder = {id(p) for p in loss.model.parameters()}
    assert {id(p) for p in loss.owned_parameters()} == {id(p) for p in loss.parameters()} - encoder
    assert not [key for key in loss.owned_state() if key.startswith("model.")]
    assert bool(loss.owned_parameters()) == (name.split(",")[0] in ("ccp", "msm", "mlm") or name == "cz_nce, words")


@pytest.mark.parametrize("kind", ["autocast", "bfloat16", "float16"])
@pytest.mark.parametrize("name", LOSSES)
def test_in_16_bits_the_loss_is_a_float32_near_the_exact_one(name: str, kind: str) -> None:
    exact = computed(*built(name))
    loss, given = built(name, torch.float32 if kind == "autocast" else getattr(torch, kind))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "autocast"):
        low = computed(loss, given)
    low.backward()
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, exact, rtol=0.1, atol=0.1)
    assert all(p.grad is None or p.grad.isfinite().all() for p in loss.parameters())


COMMON = {"weight": 1.0, "gather_across_devices": True}


@pytest.mark.parametrize(
    ("name", "learned", "paper"),
    [
        ("ccp", {"temperature": 0.1, "bank_size": 6, "bank_scope": "total", "normalization": "asymmetric"}, "wu2022"),
        ("msm", {"document_encoder_layers": 2, "num_negatives": 512, "language_groups": [], "mlm": None}, "zhang2023"),
        ("mlm", {"mask_probability": 0.15, "weight": 1.0}, "devlin2019bert"),
        ("cz_nce, words", {"objective": "cz_nce", "words": True, "mlm_weight": 0.0, **COMMON}, "Chen, Beiduo"),
        ("semantic", {"temperature": 0.07, **COMMON}, "hu2023language"),
        ("language", {"reduction": "mean", **COMMON}, "hu2023language"),
        ("retrieval", {"temperature": 0.05, **COMMON}, "hu2023language"),
        ("distillation", {"teacher": "8 vectors", "bank_size": 8192}, "fang2021seed"),
    ],
)
def test_what_the_model_card_learns(name: str, learned: dict[str, Any], paper: str) -> None:
    loss, _ = built(name)
    assert loss.get_config_dict().items() >= learned.items() and paper in loss.citation


@pytest.mark.parametrize(
    ("name", "count"),
    [("ccp", 3), *((name, n) for name in ("cz_nce", "semantic") for n in (1, 3))]
    + [("language", 1), ("language", 4), ("retrieval", 1), ("distillation", 2)],
)
def test_too_few_or_too_many_columns(name: str, count: int) -> None:
    loss, given = built(name)
    with pytest.raises(ValueError, match=f"{re.escape(loss.takes)}, got {count} .*CrossLingualDataCollator"):
        computed(loss, (given * 4)[:count])


STATIC, MODEL = tiny.static(), tiny.transformer()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CCPLoss(STATIC, AsymmetricBNHead(5)), r"5 features.*encoder gives 8.*AsymmetricBNHead\(8\)"),
        (lambda: CCPLoss(STATIC, bank=LanguageMemoryBank(3, 4)), r"keys of 3 .*head gives 8.*LanguageMemoryBank\(8\)"),
        (lambda: CCPLoss(STATIC, bank_size=-1), "bank_size.*-1"),
        (lambda: CCPLoss(STATIC, bank_size=4, matryoshka_dims=[16, 8]), "matryoshka_dims.*8.*16"),
        (lambda: MSMLoss(STATIC, DocumentEncoder(16)), r"16 features.*encoder gives 8.*DocumentEncoder\(8\)"),
        (lambda: MSMLoss(STATIC, heads="two"), "heads must be 'separate', 'shared' or 'none', got 'two'"),
        (lambda: MSMLoss(STATIC, separate_heads=True), "separate_heads needs language_groups"),
        (lambda: MSMLoss(STATIC, language_groups=[["english"]]), "unknown language code 'english'"),
        (lambda: MSMLoss(MODEL, mini_batch_size=0), "mini_batch_size must be at least 1, or None for one pass, got 0"),
        (lambda: MSMLoss(MODEL, mlm=MaskedLMLoss(tiny.transformer())), "mlm.*another encoder"),
        (lambda: CZNCELoss(MODEL, mlm=MaskedLMLoss(tiny.transformer())), "mlm.*another encoder"),
        (lambda: CZNCELoss(MODEL, objective="nce"), "objective must be one of .'cz_nce', 'info_nce'., got 'nce'"),
        (lambda: CZNCELoss(MODEL, ContextualEncoder(16)), "sentence vectors of 16 features, the encoder gives 32"),
        (lambda: CZNCELoss(STATIC, ContextualEncoder(8)), "need token vectors, and a StaticEmbedding gives none"),
        (lambda: MaskedLMLoss(STATIC), "starts with a Transformer module, got StaticEmbedding"),
        (lambda: MaskedLMLoss(MODEL, mask_probability=0), r"mask_probability must lie in \(0, 1\], got 0"),
        (lambda: MaskedLMLoss(MODEL, mask_probability=1.5), r"mask_probability must lie in \(0, 1\], got 1.5"),
        (lambda: SimilarityDistillationLoss(STATIC, torch.ones(6, 5)), r"\(6, 5\).*8"),
        (lambda: SimilarityDistillationLoss(STATIC, torch.ones(0, 8)), r"\(0, 8\)"),
        (lambda: SimilarityDistillationLoss(STATIC, torch.ones(6, 8), bank_size=-1), "bank_size.*-1"),
    ],
)
def test_options_that_do_not_fit(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_a_tokenizer_without_a_mask_token_will_not_do() -> None:
    model = tiny.transformer()
    model[0].tokenizer.mask_token = None
    with pytest.raises(NoHeadError, match="tokenizer with a mask token"):
        MaskedLMLoss(model)


@pytest.mark.parametrize("name", ["mlm", "cz_nce, words", "msm, micro-batches"])
def test_unpadding_is_switched_off_where_the_padded_layout_is_read(name: str) -> None:
    model = tiny.transformer()
    model[0].unpad_inputs = True
    LOSSES[name][0](model)
    assert model[0].unpad_inputs is False
