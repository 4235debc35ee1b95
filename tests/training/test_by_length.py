"""Short and long texts of a batch are read apart, and nothing else changes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from st_xlret.losses import CCPLoss, CZNCELoss, MaskedLMLoss, MSMLoss
from st_xlret.modules import (
    ContextualEncoder,
    DocumentEncoder,
    first_last_encoder,
    with_two_encoders,
)
from st_xlret.training.by_length import ATTEND_BY_MASK, short_and_long_apart
from st_xlret.training.forwards import other_forward
from st_xlret.training.layers import dropout
from tests import tiny
from tests.losses.documents import block_features
from tests.training.long_texts import (
    LENGTHS,
    assert_same,
    features_of,
    gradients,
    model_of_long_texts,
    model_of_type,
    passes,
    texts,
)


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    return passes(monkeypatch)


def test_parts_are_as_long_as_their_longest_text(shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts()
    features = features_of(model)
    width = features["input_ids"].shape[1]
    with short_and_long_apart(model):
        found = model(features)
    assert shapes == [(8, width), (8, 16)]
    assert found["token_embeddings"].shape[:2] == found["attention_mask"].shape == (16, width)


def test_embeddings_and_gradients_are_those_of_the_whole_batch(shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts()
    weights = torch.randn(len(LENGTHS), 1)
    found = []
    for apart in (False, True):
        shapes.clear()
        with short_and_long_apart(model) if apart else nullcontext():
            vectors = model(features_of(model))["sentence_embedding"]
        assert len(shapes) == 1 + apart
        found.append((vectors.detach(), gradients(model, (weights * vectors.square()).sum())))
    (whole, slopes), (parts, slopes_of_parts) = found
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)
    assert_same(slopes_of_parts, slopes)


OPTIONS: dict[str, dict[str, Any]] = {
    "deberta": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "deberta-v2": {
        **{"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
        **{"conv_kernel_size": 3, "conv_act": "gelu"},
    },
    "distilbert": {"hidden_dim": 64},
    "gemma3_text": {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 8},
    "modernbert": {"local_attention": 8, "global_attn_every_n_layers": 2},
    "qwen2": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
}


@pytest.mark.parametrize("model_type", sorted(ATTEND_BY_MASK))
def test_vectors_and_gradients_of_each_model_type_are_those_of_the_whole_batch(
    model_type: str, shapes: list[tuple[int, int]], tmp_path: Path
) -> None:
    model = model_of_type(model_type, tmp_path, **OPTIONS.get(model_type, {}))
    weights = torch.randn(len(LENGTHS), 1)
    found = []
    for apart in (False, True):
        shapes.clear()
        with dropout(model, 0), short_and_long_apart(model) if apart else nullcontext():
            vectors = model(features_of(model))["sentence_embedding"]
            assert len(shapes) == 1 + apart
            found.append((vectors.detach(), gradients(model, (weights * vectors).mean())))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-5, atol=1e-6)
    assert_same(found[1][1], found[0][1])


@pytest.mark.parametrize(("texts", "parts"), [(15, 1), (16, 2), (24, 3), (32, 4), (64, 4)])
def test_a_batch_is_read_in_up_to_four_parts_of_eight_texts(
    shapes: list[tuple[int, int]], texts: int, parts: int
) -> None:
    model = model_of_long_texts()
    with short_and_long_apart(model):
        model(features_of(model, [60] + [2] * (texts - 1)))
    assert len(shapes) == parts and sum(rows for rows, _ in shapes) == texts


@pytest.mark.parametrize(("longest", "expected"), [(53, [(16, 53)]), (54, [(8, 54), (8, 32)])])
def test_a_fifth_is_saved_by_parts_whose_lengths_are_multiples_of_16(
    longest: int, expected: list[tuple[int, int]], shapes: list[tuple[int, int]]
) -> None:
    model = model_of_long_texts()
    lengths = torch.tensor([longest] + [20] * 15)
    mask = (torch.arange(longest) < lengths[:, None]).long()
    with short_and_long_apart(model):
        model({"input_ids": 5 * mask, "attention_mask": mask})
    # Half of the texts as 32 tokens save (1 - 32/54) / 2 = 0.204 of 54, and 0.198 of 53.
    assert shapes == expected


def test_texts_without_a_token_are_read(shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts()
    features = features_of(model)
    features["attention_mask"][1:] = 0
    with short_and_long_apart(model):
        assert model(features)["token_embeddings"].isfinite().all() and len(shapes) == 2


def test_layers_of_an_earlier_pass_are_left_alone() -> None:
    model = model_of_long_texts()
    features = features_of(model)
    layers = (torch.randn(16, features["input_ids"].shape[1], 3),)
    features["all_layer_embeddings"] = layers
    with short_and_long_apart(model):
        assert model(features)["all_layer_embeddings"] is layers


def test_contexts_in_each_other_and_a_forward_from_before(shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts()
    sharing = first_last_encoder(model)
    model[0].model.config.output_hidden_states = False
    model[0].forward = own = model[0].forward
    shapes.clear()
    with short_and_long_apart(model):
        with short_and_long_apart(model), short_and_long_apart(sharing):
            model(features_of(model))
        model(features_of(model))
    assert len(shapes) == 4 and vars(model[0])["forward"] is own


def test_a_forward_is_replaced_once() -> None:
    layer = nn.Identity()

    def doubled(module: nn.Module, own: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
        return 2 * own(values)

    with other_forward([layer], doubled):
        with other_forward([layer], doubled):
            assert layer(torch.tensor(3)).item() == 6
        assert layer(torch.tensor(3)).item() == 6
    assert layer(torch.tensor(3)).item() == 3


def test_all_layers_are_those_of_the_whole_batch(shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts()
    module: Any = model[0]
    module.model.config.output_hidden_states = True
    whole = model(features_of(model))
    with short_and_long_apart(model):
        parts = model(features_of(model))
    assert len(shapes) == 1 + 2 and len(parts["all_layer_embeddings"]) == len(whole["all_layer_embeddings"]) > 1
    token = whole["attention_mask"].bool()
    for ours, theirs in zip(parts["all_layer_embeddings"], whole["all_layer_embeddings"], strict=True):
        torch.testing.assert_close(ours[token], theirs[token], rtol=1e-5, atol=1e-6)


def test_an_error_leaves_the_model_as_it_was(shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts()
    with pytest.raises(KeyError, match="stop"), short_and_long_apart(model):
        raise KeyError("stop")
    model(features_of(model))
    assert len(shapes) == 1 and "forward" not in vars(model[0])


def test_both_encoders_of_a_router_read_in_parts(shapes: list[tuple[int, int]]) -> None:
    model = with_two_encoders(model_of_long_texts()).train()
    for task in ("query", "document"):
        shapes.clear()
        with short_and_long_apart(model):
            model({**features_of(model), "task": task})
        assert len(shapes) == 2


def test_processes_that_load_data_can_be_handed_the_model() -> None:
    model = model_of_long_texts()
    with short_and_long_apart(model):
        copied = pickle.loads(pickle.dumps(model))
        whole = model(features_of(model))["sentence_embedding"]
        assert torch.equal(copied(features_of(model))["sentence_embedding"], whole)


def test_gradient_checkpointing_gives_the_same_gradients() -> None:
    model = model_of_long_texts()
    found = []
    for checkpointed in (False, True):
        if checkpointed:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        with short_and_long_apart(model):
            found.append(gradients(model, model(features_of(model))["sentence_embedding"].square().sum()))
    for name, slope in found[0].items():
        torch.testing.assert_close(found[1][name], slope)


def loss_and_columns(name: str) -> tuple[Any, list[dict[str, Tensor]]]:
    model = model_of_long_texts()
    if name == "words":
        model = first_last_encoder(model)
    if name == "MSM":
        blocks = block_features(model, [4, 4, 4, 4], texts=texts())
        return MSMLoss(model, DocumentEncoder(32, dropout=0.0), num_negatives=4), [blocks]
    rows = [{"sentence": text, "language": "en", "document": i % 8} for i, text in enumerate(texts())]
    columns = [tiny.features(model, part) for part in (rows[:8], rows[8:])]
    if name == "CCP":
        return CCPLoss(model, bank_size=0), columns
    mlm = MaskedLMLoss(model, seed=0)
    if name == "MLM":
        return mlm, [tiny.features(model, rows)]
    if name == "sentences":
        return CZNCELoss(model, mlm=mlm), columns
    for column in columns:
        column["word_start"], column["word_end"] = torch.ones(8, dtype=torch.long), torch.full((8,), 2)
    return CZNCELoss(model, ContextualEncoder(32), mlm=mlm), columns


@pytest.mark.parametrize("name", ["CCP", "MSM", "MLM", "sentences", "words"])
def test_losses_and_gradients_are_those_of_whole_batches(name: str, shapes: list[tuple[int, int]]) -> None:
    values, slopes = [], []
    for apart in (False, True):
        torch.manual_seed(0)
        loss, columns = loss_and_columns(name)
        shapes.clear()
        with short_and_long_apart(loss.model) if apart else nullcontext():
            value = loss.train()(columns)
        assert (min(rows for rows, _ in shapes) < 16) is apart
        value = sum(value.values()) if isinstance(value, dict) else value
        values.append(value.detach())
        slopes.append(gradients(loss, value))
    torch.testing.assert_close(values[1], values[0], rtol=1e-5, atol=1e-6)
    assert_same(slopes[1], slopes[0])
