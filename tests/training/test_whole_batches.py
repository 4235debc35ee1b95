"""Encoders and batches that are not read in parts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import CNN, Dropout, LayerNorm, Pooling

from st_xlret.training.by_length import short_and_long_apart
from st_xlret.training.layers import training_layers
from tests import tiny
from tests.training.long_texts import features_of, model_of_long_texts, model_of_type, passes, texts


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    return passes(monkeypatch)


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


@pytest.mark.parametrize(("name", "rows"), [("position_ids", 1), ("query_expansion_positions", 16)])
def test_features_that_cannot_be_divided_are_read_whole(name: str, rows: int, shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts()
    features = features_of(model)
    features[name] = torch.arange(features["input_ids"].shape[1]).expand(rows, -1) + 2
    with short_and_long_apart(model):
        model(features)
    assert len(shapes) == 1


def test_tensors_among_the_options_are_read_whole(shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts()
    positions = torch.arange(features_of(model)["input_ids"].shape[1]).expand(16, -1)
    with short_and_long_apart(model):
        model[0](features_of(model), position_ids=positions)
        assert len(shapes) == 1
        model[0](features_of(model), output_attentions=False)
        assert len(shapes) == 1 + 2


def test_a_mask_for_each_pair_of_tokens_is_read_whole(shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts()
    features = features_of(model)
    mask = features["attention_mask"].bool()
    features["attention_mask"] = mask[:, None, None] & mask[:, None, :, None]
    with short_and_long_apart(model):
        model[0](features)
    assert len(shapes) == 1


def test_a_transformer_with_another_output_is_read_whole(shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts()
    model[0].module_output_name = "vectors"
    with short_and_long_apart(model):
        assert model[0](features_of(model))["vectors"].shape[0] == 16
    assert len(shapes) == 1


DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}


@pytest.mark.parametrize(
    ("model_type", "options", "count"),
    [
        ("bert", {}, 2),
        ("nomic_bert", {}, 2),
        ("fnet", {}, 1),
        ("convbert", {"embedding_size": 32}, 1),
        ("nomic_bert", {"rope_parameters": DYNAMIC}, 1),
        ("modernbert", {"rope_parameters": {"full_attention": DYNAMIC, "sliding_attention": DYNAMIC}}, 1),
    ],
)
def test_encoders_whose_texts_depend_on_the_padding_are_read_whole(
    model_type: str, options: dict[str, Any], count: int, shapes: list[tuple[int, int]], tmp_path: Path
) -> None:
    model = model_of_type(model_type, tmp_path, **options)
    with short_and_long_apart(model):
        model(features_of(model))
    assert len(shapes) == count


def test_code_of_a_checkpoint_with_the_name_of_a_known_type_is_read_whole(shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts()
    kind = type(model[0].model)
    model[0].model.__class__ = type("Own", (kind,), {"__module__": "checkpoint.modeling"})
    with short_and_long_apart(model):
        model(features_of(model))
    assert len(shapes) == 1


@pytest.mark.parametrize("routed", [False, True])
def test_encoders_that_mix_tokens_after_the_transformer_are_read_whole(
    routed: bool, shapes: list[tuple[int, int]]
) -> None:
    plain = model_of_long_texts()
    modules = [plain[0], CNN(32, out_channels=32, kernel_sizes=[3]), Pooling(32)]
    if routed:
        modules = [Router.for_query_document([plain[0]], [plain[0]]), *modules[1:]]
    model = SentenceTransformer(modules=modules, device="cpu").train()
    with short_and_long_apart(model):
        model({**features_of(plain), "task": "query"})
    assert len(shapes) == 1


def test_modules_that_take_texts_one_by_one_may_follow(shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts()
    for module in (Dense(32, 8), LayerNorm(8), Dropout(0.1), Normalize()):
        model.append(module)
    with short_and_long_apart(model):
        model(features_of(model))
    assert len(shapes) == 2


@pytest.mark.parametrize(
    ("reentrant", "checkpointing", "processes", "count"),
    [(True, True, 2, 1), (False, True, 2, 2), (True, False, 2, 2), (True, True, 1, 2)],
)
def test_distributed_training_with_reentrant_checkpointing_reads_whole_batches(
    reentrant: bool, checkpointing: bool, processes: int, count: int, shapes: list[tuple[int, int]]
) -> None:
    model = model_of_long_texts()
    args: Any = SimpleNamespace(
        **{"bf16": False, "device": torch.device("cpu"), "torch_compile": False, "world_size": processes},
        gradient_checkpointing=checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": reentrant},
    )
    with training_layers(model, args):
        model(features_of(model))
    assert len(shapes) == count


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


def test_evaluation_reads_whole_batches(shapes: list[tuple[int, int]]) -> None:
    model = model_of_long_texts().eval()
    with short_and_long_apart(model):
        model(features_of(model))
    assert len(shapes) == 1


def test_a_static_encoder_has_no_padding() -> None:
    model = tiny.static().train()
    with short_and_long_apart(model):
        assert model(model.preprocess(texts()))["sentence_embedding"].shape == (16, 8)
