"""Adapters that are trained, resumed and merged, and what cannot be adapted."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import WordEmbeddings
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

from st_xlret.losses import MaskedLMLoss, SemanticContrastiveLoss
from st_xlret.modules import with_two_encoders
from st_xlret.training.trainable import add_lora, freeze_word_embeddings, merge_adapters
from tests import tiny
from tests.training.runs import changed, state_of, trainer_of

TEXTS = ["sun moon", "rain wind snow leaf", "fish"]


def load(folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu")


def test_adapters_are_trained_resumed_and_merged(encoder: Path, tmp_path: Path) -> None:
    def run(model: SentenceTransformer) -> Any:
        torch.manual_seed(3)
        losses: dict[str, Any] = {
            "mlm": MaskedLMLoss(model, fresh_head=True),
            "pairs": SemanticContrastiveLoss(model),
        }
        options = {
            "max_steps": 6,
            "save_strategy": "steps",
            "save_steps": 4,
            "gradient_checkpointing": True,
        }
        return trainer_of(
            tmp_path, losses, {"mlm": tiny.texts(), "pairs": tiny.pairs()}, lora_rank=4, **options
        )

    model, again = load(encoder), load(encoder)
    model[0].auto_model.pooler.requires_grad_(False)
    vectors = model.encode(TEXTS)
    trainer, recorded = run(model)
    trainer.train()
    adapters = load_file(tmp_path / "checkpoint-4" / "adapter_model.safetensors")
    assert adapters and all(".lora_" in name for name in adapters)
    resumed, repeated = run(again)
    torch.manual_seed(9)  # other adapters than those of the checkpoint
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert repeated.steps == [entry for entry in recorded.steps if entry[0] >= 4]
    assert not changed(state_of(model), again)
    # The trained model is a plain one.
    assert abs(model.encode(TEXTS) - vectors).max() > 1e-3
    model.save(str(tmp_path / "model"))
    plain = load(tmp_path / "model")
    assert list(plain.state_dict()) == list(load(encoder).state_dict())
    assert not list((tmp_path / "model").rglob("adapter_*"))
    np.testing.assert_allclose(plain.encode(TEXTS), model.encode(TEXTS), rtol=0, atol=1e-5)
    assert all(
        weight.requires_grad == ("pooler" not in name) for name, weight in model.named_parameters()
    )
    # Trained weights are in no folder: checkpoints of adapters would refer to those before.
    with pytest.raises(ValueError, match="LoRA"):
        trainer.train()
    add_lora(again, 2)
    losses, datasets = {"pairs": SemanticContrastiveLoss(again)}, {"pairs": tiny.pairs()}
    with pytest.raises(ValueError, match="LoRA"):
        trainer_of(tmp_path, losses, datasets, save_strategy="steps")[0].train()
    trainer.args.save_strategy, between = "no", state_of(model)
    trainer.train()
    assert changed(between, model) and not [name for name in model.state_dict() if "lora_" in name]


@pytest.mark.parametrize("is_quantized", [False, True])
def test_adapters_with_whole_layers_and_on_quantised_weights(
    is_quantized: bool, encoder: Path, tmp_path
) -> None:
    peft, model = pytest.importorskip("peft"), load(encoder)
    model.add_adapter(
        peft.LoraConfig(r=2, target_modules="all-linear", modules_to_save=["LayerNorm"])
    )
    if is_quantized:  # in 4 bits, which are not those of the folder
        model[0].auto_model.is_quantized = True
        model[0].auto_model.embeddings.word_embeddings.weight.data.round_(decimals=1)
    losses, options = (
        {"pairs": SemanticContrastiveLoss(model)},
        {"save_strategy": "steps", "max_steps": 1},
    )
    trainer_of(tmp_path, losses, {"pairs": tiny.pairs()}, **options)[0].train()
    assert (tmp_path / "checkpoint-1" / "adapter_model.safetensors").is_file()


def test_two_encoders_have_adapters_of_their_own(encoder: Path) -> None:
    adapted = load(encoder)
    add_lora(adapted, 4)
    model = with_two_encoders(adapted)
    for number, weight in enumerate(
        weight for name, weight in model.named_parameters() if "lora_B" in name
    ):
        torch.nn.init.normal_(weight, std=0.1 * (1 + number))
    query, document = model.encode_query(TEXTS), model.encode_document(TEXTS)
    assert abs(query - document).max() > 1e-2
    merge_adapters(model)
    assert not [name for name in model.state_dict() if "lora_" in name]
    np.testing.assert_allclose(model.encode_query(TEXTS), query, rtol=0, atol=1e-5)
    np.testing.assert_allclose(model.encode_document(TEXTS), document, rtol=0, atol=1e-5)


def test_word_vectors_of_other_encoders_are_frozen() -> None:
    words = WordEmbeddings(WhitespaceTokenizer(["sun"]), torch.ones(1, 4), update_embeddings=True)
    for module in (words, tiny.static()[0]):
        freeze_word_embeddings(SentenceTransformer(modules=[module], device="cpu"))
        assert not any(weight.requires_grad for weight in module.parameters())


def test_what_cannot_be_adapted(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.transformer()
    assert merge_adapters(model) is model
    with pytest.raises(ValueError, match="PEFT"):
        add_lora(tiny.static(), 4)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ImportError, match=r"st-xlret\[peft\]"):
        add_lora(model, 4)
