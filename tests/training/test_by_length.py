"""Short and long texts of a batch are read apart, and nothing else changes."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn

from st_xlret.losses import CCPLoss, CZNCELoss, MaskedLMLoss, MSMLoss
from st_xlret.modules import (
    ContextualEncoder,
    DocumentEncoder,
    first_last_encoder,
    transformer_encoder,
    with_two_encoders,
)
from st_xlret.training.by_length import short_and_long_apart
from tests import tiny
from tests.losses.documents import block_features

LENGTHS = [60, 3, 4, 5, 2, 33, 3, 1, 5, 20, 2, 7, 30, 3, 2, 4]


def model_of_long_texts() -> SentenceTransformer:
    torch.manual_seed(0)
    model = transformer_encoder(tiny.tokenizer(), "tiny", max_seq_length=64).to("cpu").train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def texts(lengths: list[int] = LENGTHS) -> list[str]:
    return [" ".join(tiny.WORDS[(i + j) % len(tiny.WORDS)] for j in range(n)) for i, n in enumerate(lengths)]


def features_of(model: Any, lengths: list[int] = LENGTHS, side: str = "right") -> dict[str, Any]:
    model.tokenizer.padding_side = side
    try:
        return model.preprocess(texts(lengths))
    finally:
        model.tokenizer.padding_side = "right"


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Rows and tokens of each pass through the Transformer inside of the module."""
    found: list[tuple[int, int]] = []
    original = Transformer.forward

    def forward(self: Transformer, features: dict[str, Any], **options: Any) -> dict[str, Any]:
        found.append(tuple(features["input_ids"].shape))
        return original(self, features, **options)

    monkeypatch.setattr(Transformer, "forward", forward)
    return found


def gradients(model: nn.Module, value: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    value.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, slope in theirs.items():
        torch.testing.assert_close(ours[name], slope, rtol=1e-3, atol=1e-5)


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


@pytest.mark.parametrize(("texts", "parts"), [(15, 1), (16, 2), (24, 3), (32, 4), (64, 4)])
def test_a_batch_is_read_in_up_to_four_parts_of_eight_texts(
    shapes: list[tuple[int, int]], texts: int, parts: int
) -> None:
    model = model_of_long_texts()
    with short_and_long_apart(model):
        model(features_of(model, [60] + [2] * (texts - 1)))
    assert len(shapes) == parts and sum(rows for rows, _ in shapes) == texts


def test_texts_with_padding_before_them_are_read_whole(shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts()
    with short_and_long_apart(model):
        model(features_of(model, side="left"))
    assert len(shapes) == 1


@pytest.mark.parametrize("lengths", [[5] * 16, [60] * 15 + [3], [60] * 12 + [3] * 4, [1]])
def test_a_batch_that_saves_little_is_read_whole(shapes: list[tuple[int, int]], lengths: list[int]) -> None:
    model = model_of_long_texts()
    with short_and_long_apart(model):
        model(features_of(model, lengths))
    assert len(shapes) == 1


def test_texts_without_a_token_are_read(shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts()
    features = features_of(model)
    features["attention_mask"][1:] = 0
    with short_and_long_apart(model):
        assert model(features)["token_embeddings"].isfinite().all() and len(shapes) == 2


def test_an_encoder_with_embeddings_of_something_else_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of_long_texts()
    original = Transformer.forward

    def every_second(self: Transformer, features: dict[str, Any], **options: Any) -> dict[str, Any]:
        found = original(self, features, **options)
        return {**found, "token_embeddings": found["token_embeddings"][:, ::2]}

    monkeypatch.setattr(Transformer, "forward", every_second)
    whole = model[0](features_of(model))["token_embeddings"]
    with short_and_long_apart(model):
        assert torch.equal(model[0](features_of(model))["token_embeddings"], whole)


def test_features_that_cannot_be_divided_are_read_whole(shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts()
    for name in ("position_ids", "query_expansion_positions"):
        shapes.clear()
        features = features_of(model)
        features[name] = torch.arange(features["input_ids"].shape[1])[None] + 2
        with short_and_long_apart(model):
            model(features)
        assert len(shapes) == 1


def test_a_subclass_with_a_forward_of_its_own_is_read_whole(shapes: list[tuple[int, int]]) -> None:
    class WithMore(Transformer):
        def forward(self, features: dict[str, Any], **options: Any) -> dict[str, Any]:
            found = super().forward(features, **options)
            return {**found, "more": found["token_embeddings"][:, 0]}

    model = model_of_long_texts()
    model[0].__class__ = WithMore
    with short_and_long_apart(model):
        found = model(features_of(model))
    assert len(shapes) == 1 and found["more"].shape[0] == 16


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


def test_evaluation_reads_whole_batches(shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts().eval()
    with short_and_long_apart(model):
        model(features_of(model))
    assert len(shapes) == 1


def test_an_error_leaves_the_model_as_it_was(shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts()
    with pytest.raises(KeyError, match="stop"), short_and_long_apart(model):
        raise KeyError("stop")
    model(features_of(model))
    assert len(shapes) == 1 and "forward" not in vars(model[0])


def test_a_static_encoder_has_no_padding() -> None:
    model = tiny.static().train()
    with short_and_long_apart(model):
        assert model(model.preprocess(texts()))["sentence_embedding"].shape == (16, 8)


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
