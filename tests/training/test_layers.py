"""Dropout and attention while a Transformer is trained, and that both are as before afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Dropout
from torch import Tensor, nn
from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig, TrainerCallback

from st_xlret.losses import SemanticContrastiveLoss
from st_xlret.modules import transformer_encoder, with_two_encoders
from st_xlret.training import layers
from st_xlret.training import run as runs
from st_xlret.training.arguments import RunArguments, TrainingArguments
from st_xlret.training.layers import dropout, stepwise_attention, training_layers
from st_xlret.training.trainable import transformers_of
from tests import tiny

TEXTS = ["sun moon", "rain wind snow leaf", "fish"]
STEPWISE = layers._STEPWISE


def vectors(model: SentenceTransformer) -> Tensor:
    return model(model.preprocess(TEXTS))["sentence_embedding"]


def shares(model: SentenceTransformer) -> set[float]:
    return {layer.p for layer in model.modules() if isinstance(layer, nn.Dropout)}


def attention(model: SentenceTransformer) -> list[str]:
    return [part.config._attn_implementation for part in transformers_of(model)]


@pytest.fixture
def without_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("PyTorch's fused kernel was called")

    monkeypatch.setattr(layers, "sdpa_attention_forward", fail)


def test_without_dropout_training_computes_as_evaluation_does() -> None:
    model = tiny.transformer(dropout=0.1).train()
    before = shares(model)
    with dropout(model, 0):
        trained = vectors(model)
    assert shares(model) == before and not torch.equal(vectors(model), vectors(model))
    torch.testing.assert_close(trained, vectors(model.eval()))


def test_more_dropout_changes_more() -> None:
    model, sizes = tiny.transformer(dropout=0.1), []
    exact = vectors(model.eval())
    for share in (0.01, 0.5):
        torch.manual_seed(0)
        with dropout(model.train(), share):
            sizes.append((vectors(model) - exact).norm().item())
    assert 0 < 3 * sizes[0] < sizes[1]


def test_numbers_and_modules_outside_of_the_transformer_are_set_and_switches_are_not() -> None:
    model = tiny.transformer(dropout=0.0)
    model.append(Dropout(0.2))
    module: Any = next(transformers_of(model))
    module.attention_dropout, module.token_dropout = 0.2, True
    with dropout(model, 0.3):
        assert module.attention_dropout == 0.3 and module.token_dropout is True and shares(model) == {0.3}
    assert module.attention_dropout == 0.2 and shares(model) == {0.0, 0.2}


def test_an_error_in_training_leaves_the_layers_as_they_were() -> None:
    model = tiny.transformer(dropout=0.1)
    before = shares(model), attention(model)
    with pytest.raises(RuntimeError, match="stopped"), dropout(model, 0), stepwise_attention(model):
        raise RuntimeError("stopped")
    assert (shares(model), attention(model)) == before == ({0.1}, ["sdpa"])


def test_a_static_encoder_has_nothing_that_drops_out() -> None:
    with dropout(tiny.static(), 0), pytest.raises(ValueError, match=r"--dropout 0.2: this encoder has no layers"):
        dropout(tiny.static(), 0.2).__enter__()


@pytest.mark.parametrize("bf16, device, stepwise", [(True, "cpu", True), (False, "cpu", False), (True, "cuda", False)])
def test_attention_is_stepwise_in_bf16_on_a_cpu_alone(bf16: bool, device: str, stepwise: bool) -> None:
    model = with_two_encoders(tiny.transformer(dropout=0.1))
    args: Any = SimpleNamespace(
        bf16=bf16, device=torch.device(device), dropout=0.0, torch_compile=False, gradient_checkpointing=False
    )
    with training_layers(model, args):
        assert attention(model) == [STEPWISE if stepwise else "sdpa"] * 2 and shares(model) == {0.0}
    assert attention(model) == ["sdpa"] * 2 and shares(model) == {0.1}


@pytest.mark.parametrize(
    "device, torch_compile, faster", [("cpu", False, True), ("cpu", True, False), ("cuda", False, False)]
)
def test_lengths_and_dropout_are_computed_otherwise_on_a_cpu_alone(
    device: str, torch_compile: bool, faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    original = Transformer.forward

    def forward(self: Transformer, features: dict[str, Any], **options: Any) -> dict[str, Any]:
        read.append(len(features["input_ids"]))
        return original(self, features, **options)

    monkeypatch.setattr(Transformer, "forward", forward)
    model = transformer_encoder(tiny.tokenizer(), "tiny", max_seq_length=64).to("cpu").train()
    args: Any = SimpleNamespace(
        bf16=False, device=torch.device(device), torch_compile=torch_compile, gradient_checkpointing=False
    )
    with training_layers(model, args):
        model(model.preprocess(["sun moon rain wind snow leaf fish " * 4] * 4 + ["sun"] * 28))
        patched = {"forward" in vars(module) for module in model.modules() if isinstance(module, nn.Dropout)}
    assert read == ([8] * 4 if faster else [32]) and patched == {faster}
    assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_stepwise_attention_has_the_values_and_gradients_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch, precision: torch.dtype
) -> None:
    torch.manual_seed(0)
    model, found = tiny.transformer().train(), []
    for stepwise in (False, True):
        with torch.autocast("cpu", precision, enabled=precision != torch.float32):
            if stepwise:
                monkeypatch.setattr(layers, "sdpa_attention_forward", None)
                with stepwise_attention(model):
                    result = vectors(model)
            else:
                result = vectors(model)
        weights = [weight for name, weight in model.named_parameters() if "attention" in name and "key.b" not in name]
        found.append([result, *torch.autograd.grad(result.float().pow(3).sum(), weights)])
    tolerance = 1e-5 if precision == torch.float32 else 3e-2
    for fused, steps in zip(*found, strict=True):
        torch.testing.assert_close(fused, steps, atol=tolerance * fused.abs().max().item(), rtol=tolerance)


@pytest.mark.usefixtures("without_fused_kernel")
@pytest.mark.parametrize(
    "training, share, length, fused",
    [
        (True, 0.0, layers._LONG, False),
        (True, 0.0, layers._LONG + 1, True),
        (True, 0.1, layers._LONG + 1, False),
        (False, 0.0, 2, True),
    ],
)
def test_evaluation_and_long_texts_without_dropout_are_left_to_the_kernel(
    training: bool, share: float, length: int, fused: bool
) -> None:
    module: Any = nn.Module().train(training)
    module.is_causal = False
    query = torch.ones(1, 1, length, 2)
    if fused:
        with pytest.raises(AssertionError, match="fused kernel"):
            layers._attention(module, query, query, query, None, dropout=share)
    else:
        assert layers._attention(module, query, query, query, None, dropout=share)[0].shape == (1, length, 1, 2)


@pytest.mark.usefixtures("without_fused_kernel")
@pytest.mark.parametrize("case", ["causal", "causal by default", "grouped", "bias"])
def test_other_kinds_of_attention_are_left_to_the_kernel(case: str) -> None:
    module: Any = nn.Module().train()
    module.is_causal = case == "causal"
    if case == "causal by default":
        del module.is_causal
    query = torch.ones(1, 2, 3, 2)
    key = query[:, :1] if case == "grouped" else query
    with pytest.raises(AssertionError, match="fused kernel"):
        layers._attention(module, query, key, key, None, **({"position_bias": query} if case == "bias" else {}))


def test_masks_of_both_kinds_leave_tokens_out() -> None:
    torch.manual_seed(0)
    module: Any = nn.Module().train()
    query, key, value = torch.randn(3, 1, 2, 4, 8)
    seen = torch.tensor([True, True, True, False]).expand(1, 1, 4, 4)
    expected = layers.sdpa_attention_forward(module, query, key, value, seen)[0]
    added = torch.zeros(1, 1, 4, 4).masked_fill(~seen, -torch.inf)
    for mask in (seen, added):
        torch.testing.assert_close(layers._attention(module, query, key, value, mask)[0], expected)


@pytest.mark.usefixtures("without_fused_kernel")
def test_attention_drops_weights_after_the_softmax() -> None:
    torch.manual_seed(0)
    module: Any = nn.Module().train()
    module.is_causal = False
    query, value = torch.zeros(64, 4, 16, 8), torch.ones(64, 4, 16, 8)
    # All weights are equal: without dropout their sum is 1, with it the share that is kept, times two.
    assert torch.allclose(layers._attention(module, query, query, value, None)[0], torch.ones(1))
    dropped = layers._attention(module, query, query, value, None, dropout=0.5)[0][..., 0]
    torch.testing.assert_close(dropped * 8, (dropped * 8).round())
    assert dropped.mean().item() == pytest.approx(1, abs=0.02)
    assert dropped.std().item() == pytest.approx(0.25, abs=0.02)  # of a sum of 16 weights, each dropped by itself


def test_a_model_of_models_with_several_kinds_of_attention_keeps_them() -> None:
    text = CLIPTextConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    vision = CLIPVisionConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, image_size=8, patch_size=8
    )
    clip = CLIPModel(CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=8))
    clip.set_attn_implementation({"text_config": "sdpa", "vision_config": "eager"})

    def kinds() -> list[str]:
        return [part.config._attn_implementation for part in (clip.text_model, clip.vision_model)]

    before = kinds()
    with stepwise_attention(nn.Sequential(clip)):  # type: ignore[arg-type]
        assert kinds() == before == ["sdpa", "eager"]
    assert kinds() == before


def test_attention_of_another_kind_stays() -> None:
    model = tiny.transformer()
    next(transformers_of(model)).set_attn_implementation("eager")
    with stepwise_attention(model):
        assert attention(model) == ["eager"]
    assert attention(model) == ["eager"]


class Watch(TrainerCallback):
    """What the layers are in each step."""

    def __init__(self) -> None:
        self.seen: list[tuple[set[float], list[str]]] = []
        self.patched: list[bool] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.seen.append((shares(kwargs["model"]), attention(kwargs["model"])))
        self.patched.append("forward" in vars(kwargs["model"][0]))


def trainer_of(model: SentenceTransformer, folder: Path, watch: Watch, **options: Any) -> SentenceTransformerTrainer:
    return SentenceTransformerTrainer(
        model=model,
        args=TrainingArguments(output_dir=str(folder), use_cpu=True, max_steps=2, report_to="none", **options),
        train_dataset=tiny.pairs().select_columns(["source", "target"]),
        loss=SemanticContrastiveLoss(model),
        callbacks=[watch],
    )


@pytest.mark.parametrize(
    "options, share, kind",
    [({"dropout": 0.0, "precision": "bf16"}, 0.0, STEPWISE), ({"precision": "fp32"}, 0.1, "sdpa")],
)
def test_a_run_trains_as_its_options_say(tmp_path: Path, options: dict[str, Any], share: float, kind: str) -> None:
    model, watch = tiny.transformer(dropout=0.1), Watch()
    runs.train(trainer_of(model, tmp_path, watch, **options), RunArguments())
    assert watch.patched == [True, True] and "forward" not in vars(model[0])
    assert watch.seen == [({share}, [kind])] * 2 and (shares(model), attention(model)) == ({0.1}, ["sdpa"])
    model.save(str(tmp_path / "model"))
    saved = json.loads((tmp_path / "model/config.json").read_text())
    assert saved["hidden_dropout_prob"] == 0.1 and STEPWISE not in json.dumps(saved)


def test_a_dropout_that_cannot_be_is_refused_before_old_checkpoints_go(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-2").mkdir()
    trainer = trainer_of(tiny.static(), tmp_path, Watch(), dropout=0.1)
    with pytest.raises(ValueError, match="--dropout 0.1"):
        runs.train(trainer, RunArguments(overwrite=True))
    assert (tmp_path / "checkpoint-2").is_dir()
