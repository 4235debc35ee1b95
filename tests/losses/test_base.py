"""What a loss owns besides the encoder, and the encoder inside its wrappers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from st_xlret.losses import CCPLoss
from st_xlret.losses.base import embedding_size, unwrapped
from st_xlret.modules import AsymmetricBNHead, LanguageMemoryBank
from tests import tiny


def test_the_encoder_is_not_owned() -> None:
    loss = CCPLoss(tiny.static(), bank=LanguageMemoryBank(8, 4))
    head = [f"head.{name}" for name, _ in loss.head.named_parameters()]
    assert [id(p) for p in loss.owned_parameters()] == [id(loss.get_parameter(name)) for name in head]
    assert set(loss.owned_state()) == set(head) | {
        *("head.toggle", "head.norm.running_mean", "head.norm.running_var", "head.norm.num_batches_tracked"),
        *("bank.keys", "bank.tags", "bank.slot_language", "bank.pointer", "bank.count"),
    }
    loss.head.linear_in.weight.requires_grad_(False)
    assert len(loss.owned_parameters()) == len(head) - 1


def test_the_encoder_inside_of_its_wrappers() -> None:
    model = tiny.static()
    assert unwrapped(model) is model and unwrapped(nn.DataParallel(model)) is model
    assert unwrapped(torch.compile(nn.DataParallel(model))) is model


def test_an_encoder_that_does_not_tell_its_size() -> None:
    assert embedding_size(tiny.static(features=8)) == 8
    model = tiny.static()
    model.get_embedding_dimension = lambda: None  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="get_embedding_dimension"):
        CCPLoss(model)


def test_owned_state_is_restored_and_the_encoder_left_alone() -> None:
    first, second = CCPLoss(tiny.static(seed=0), bank_size=8), CCPLoss(tiny.static(seed=1), bank_size=8)
    embedding = second.model[0].embedding.weight.clone()
    second.load_owned_state(first.owned_state())
    assert all(torch.equal(t, first.owned_state()[name]) for name, t in second.owned_state().items())
    assert torch.equal(second.model[0].embedding.weight, embedding)


def test_a_state_that_does_not_fit() -> None:
    loss = CCPLoss(tiny.static(), bank=LanguageMemoryBank(8, 4))
    state = loss.owned_state()
    with pytest.raises(ValueError, match=r"does not fit CCPLoss.*unexpected.*bank\.keys.*options of the saved run"):
        CCPLoss(tiny.static(), bank_size=0).load_owned_state(state)
    with pytest.raises(ValueError, match=r"missing.*head\.norm"):
        without_norm = AsymmetricBNHead(8, normalization="none")
        loss.load_owned_state(CCPLoss(tiny.static(), without_norm, LanguageMemoryBank(8, 4)).owned_state())
    with pytest.raises(ValueError, match="(?s)does not fit CCPLoss.*size mismatch"):
        CCPLoss(tiny.static(), bank=LanguageMemoryBank(8, 5)).load_owned_state(state)
    with pytest.raises(ValueError, match="another scope"):
        CCPLoss(tiny.static(), bank=LanguageMemoryBank(8, 4, scope="per_language")).load_owned_state(state)
