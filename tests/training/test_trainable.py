"""What of an encoder is trained: adapters, weights in fp32, all but the word embeddings."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import WordEmbeddings
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

from st_xlret.losses import (
    CCPLoss,
    MaskedLMLoss,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
)
from st_xlret.modules import with_two_encoders
from st_xlret.training import CrossLingualTrainer
from st_xlret.training.trainable import add_lora, freeze_word_embeddings
from st_xlret.training.trainer import delete_adapters_on_hub
from tests import tiny
from tests.training.runs import Recorder, arguments, changed, questions, state_of, trainer_of

TEXTS = ["sun moon", "rain wind snow leaf", "fish"]
ADAPTERS = "adapter_model.safetensors"


def load(folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu")


def lora_run(
    model: SentenceTransformer,
    folder: Path,
    **options: Any,
) -> tuple[CrossLingualTrainer, Recorder]:
    torch.manual_seed(3)
    losses = {
        "mlm": MaskedLMLoss(model, fresh_head=True),
        "pairs": SemanticContrastiveLoss(model),
    }
    datasets = {"mlm": tiny.texts(), "pairs": tiny.pairs()}
    return trainer_of(
        folder,
        losses,
        datasets,
        lora_rank=4,
        max_steps=6,
        gradient_checkpointing=True,
        **options,
    )


def test_adapters_are_trained_resumed_and_merged(encoder: Path, tmp_path: Path) -> None:
    model = load(encoder)
    model[0].auto_model.pooler.requires_grad_(False)
    vectors = model.encode(TEXTS)
    trainer, recorded = lora_run(model, tmp_path, save_strategy="steps", save_steps=4)
    trainer.train()
    names = load_file(tmp_path / "checkpoint-4" / ADAPTERS).keys()
    assert names
    assert [name for name in names if ".lora_" not in name] == []
    assert abs(model.encode(TEXTS) - vectors).max() > 1e-3
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    assert len(frozen) == 2
    assert all("pooler" in name for name in frozen)

    again = load(encoder)
    resumed, repeated = lora_run(again, tmp_path, save_strategy="steps", save_steps=4)
    torch.manual_seed(9)  # other adapters than those of the checkpoint
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert repeated.steps == [entry for entry in recorded.steps if entry[0] >= 4]
    assert not changed(state_of(model), again)


@pytest.mark.slow
def test_adapters_go_on_on_the_weights_that_they_began_with_alone(
    encoder: Path, tmp_path: Path
) -> None:
    trainer, _ = lora_run(load(encoder), tmp_path, save_strategy="steps", save_steps=4)
    trainer.train()
    changed_model = load(encoder)
    for weight in changed_model.parameters():
        weight.data += 0.1
    changed_model.save(str(tmp_path / "changed"))
    resumed, _ = lora_run(load(tmp_path / "changed"), tmp_path, save_strategy="steps")
    resumed.loss_state.keeps_start = True
    with pytest.raises(ValueError, match="did not begin with the weights"):
        resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))


def test_a_merged_model_is_a_plain_one_without_files_of_adapters(
    encoder: Path,
    tmp_path: Path,
) -> None:
    model = load(encoder)
    trainer, _ = lora_run(model, tmp_path, save_strategy="steps", save_steps=3)
    trainer.train()
    # The host copies those of a checkpoint into the folder that it pushes.
    for name in ("adapter_config.json", ADAPTERS):
        (tmp_path / name).write_bytes((tmp_path / "checkpoint-6" / name).read_bytes())
    trainer.save_model()
    assert [path.parent.name for path in sorted(tmp_path.rglob(ADAPTERS))] == [
        "checkpoint-3",
        "checkpoint-6",
    ]
    saved = load(tmp_path)
    assert list(saved.state_dict()) == list(load(encoder).state_dict())
    np.testing.assert_allclose(saved.encode(TEXTS), model.encode(TEXTS), rtol=0, atol=1e-5)


def test_adapters_of_other_models_below_the_folder_stay(encoder: Path, tmp_path: Path) -> None:
    model = load(encoder)
    others = [tmp_path / "other" / ADAPTERS, tmp_path / "a" / "b" / "adapter_config.json"]
    for file in others:
        file.parent.mkdir(parents=True)
        file.write_bytes(b"mine")

    trainer, _ = lora_run(model, tmp_path)
    trainer.train()
    trainer.save_model()

    assert [file.read_bytes() for file in others] == [b"mine", b"mine"]


def test_of_a_merged_model_no_adapters_stay_in_the_repository(tmp_path: Path) -> None:
    class Hub:
        def list_repo_files(self, name: str, revision: str | None) -> list[str]:
            files = ["adapter_config.json", ADAPTERS, "query_0_Transformer/" + ADAPTERS]
            others = ["last-checkpoint/" + ADAPTERS, "other/" + ADAPTERS]
            return [*files, "model.safetensors", *others]

        def delete_files(self, name: str, delete_patterns: list[str], **options: Any) -> None:
            self.deleted = delete_patterns

    hub: Any = Hub()
    with_two_encoders(tiny.transformer()).save(str(tmp_path))
    delete_adapters_on_hub(hub, "alice/model", None, tmp_path)
    expected = ["adapter_config.json", ADAPTERS, "query_0_Transformer/" + ADAPTERS]
    assert hub.deleted == expected


def test_checkpoints_of_adapters_refer_to_weights_that_are_in_a_folder(
    encoder: Path,
    tmp_path: Path,
) -> None:
    model = load(encoder)
    trainer, _ = lora_run(model, tmp_path)
    trainer.train()
    # Trained weights are in no folder: checkpoints of adapters would refer to those before.
    trainer.args.save_strategy = "steps"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="LoRA"):
        trainer.train()
    before = state_of(model)
    trainer.args.save_strategy = "no"  # type: ignore[assignment]
    trainer.train()
    assert changed(before, model)
    assert [name for name in model.state_dict() if "lora_" in name] == []


def test_adapters_of_a_user_refer_to_a_folder_too(encoder: Path, tmp_path: Path) -> None:
    model = load(encoder)
    model[0].auto_model.embeddings.word_embeddings.weight.data += 1
    add_lora(model, 2)
    losses = {"pairs": SemanticContrastiveLoss(model)}
    trainer, _ = trainer_of(tmp_path, losses, {"pairs": tiny.pairs()}, save_strategy="steps")
    with pytest.raises(ValueError, match="LoRA"):
        trainer.train()


def test_both_of_two_encoders_are_adapted(encoder: Path, tmp_path: Path) -> None:
    model = with_two_encoders(load(encoder))
    queries = model.encode_query(TEXTS)
    documents = model.encode_document(TEXTS)
    args = arguments(tmp_path, lora_rank=4, max_steps=4)
    trainer = CrossLingualTrainer(model, args, questions(), loss=RetrievalContrastiveLoss(model))
    trained = []

    def record(*_: Any) -> None:
        weights = model.named_parameters()
        trained.append([name for name, weight in weights if weight.requires_grad])

    trainer.loss.register_forward_pre_hook(record)
    trainer.train()
    assert [name for name in trained[0] if "lora_" not in name] == []
    assert len([name for name in trained[0] if "sub_modules.query" in name]) == len(trained[0]) / 2
    assert abs(model.encode_query(TEXTS) - queries).max() > 1e-3
    assert abs(model.encode_document(TEXTS) - documents).max() > 1e-3
    assert [name for name in model.state_dict() if "lora_" in name] == []


def test_checkpoints_of_two_adapted_encoders_are_refused(encoder: Path, tmp_path: Path) -> None:
    model = with_two_encoders(load(encoder))
    args = arguments(tmp_path, lora_rank=4, max_steps=4, save_strategy="steps")
    trainer = CrossLingualTrainer(model, args, questions(), loss=RetrievalContrastiveLoss(model))
    with pytest.raises(ValueError, match="Router.*save_strategy='no'"):
        trainer.train()


def test_an_encoder_that_is_frozen_has_no_adapters(encoder: Path) -> None:
    model = with_two_encoders(load(encoder))
    model[0].sub_modules["document"].requires_grad_(False)
    add_lora(model, 4)
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert trained
    for name in trained:
        assert "sub_modules.query" in name
        assert "lora_" in name


@pytest.mark.parametrize("is_quantized", [False, True])
def test_adapters_with_whole_layers_and_on_quantised_weights(
    is_quantized: bool,
    encoder: Path,
    tmp_path: Path,
) -> None:
    peft = pytest.importorskip("peft")
    model = load(encoder)
    model.add_adapter(
        peft.LoraConfig(r=2, target_modules="all-linear", modules_to_save=["LayerNorm"])
    )
    if is_quantized:  # in 4 bits, which are not those of the folder
        model[0].auto_model.is_quantized = True
        model[0].auto_model.embeddings.word_embeddings.weight.data.round_(decimals=1)
    losses = {"pairs": SemanticContrastiveLoss(model)}
    trainer, _ = trainer_of(
        tmp_path, losses, {"pairs": tiny.pairs()}, save_strategy="steps", max_steps=1
    )
    trainer.train()
    assert (tmp_path / "checkpoint-1" / ADAPTERS).is_file()


def test_what_cannot_be_adapted(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="PEFT"):
        add_lora(tiny.static(), 4)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ImportError, match=r"\.\[peft\]"):
        add_lora(tiny.transformer(), 4)


# The number format of the weights

LOSSES: dict[str, tuple[Any, Dataset]] = {
    "ccp": (lambda model: CCPLoss(model, bank_size=8), tiny.documents()),
    "mlm": (lambda model: MaskedLMLoss(model, fresh_head=True), tiny.texts()),
    "pairs": (SemanticContrastiveLoss, tiny.pairs()),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LOSSES)
def test_weights_of_16_bits_are_trained_in_fp32(
    name: str,
    dtype: torch.dtype,
    encoder: Path,
    tmp_path: Path,
) -> None:
    make_loss, rows = LOSSES[name]
    model = load(encoder).to(dtype)
    before = state_of(model)
    args = arguments(tmp_path, max_steps=2, learning_rate=1e-5)
    trainer = CrossLingualTrainer(model, args, rows, loss=make_loss(model))
    trainer.train()
    for weight in trainer.loss.parameters():
        assert weight.dtype == torch.float32
    trained = [key for key in before if "layer.0" in key and key.endswith("weight")]
    for key in trained:
        moved = model.state_dict()[key] != before[key].float()
        assert moved.float().mean() > 0.9, f"of {key}, which 16 bits would round away"
    model.save(str(tmp_path / "model"))
    assert load(tmp_path / "model").dtype == torch.float32


def test_adapters_to_weights_of_16_bits_are_trained_in_fp32(
    encoder: Path,
    tmp_path: Path,
) -> None:
    load(encoder).to(torch.bfloat16).save(str(tmp_path / "half"))
    model = load(tmp_path / "half")
    assert model.dtype == torch.bfloat16
    trainer, _ = lora_run(model, tmp_path, save_strategy="steps", save_steps=3)
    trainer.train()
    adapters = load_file(tmp_path / "checkpoint-3" / ADAPTERS)
    assert {tensor.dtype for tensor in adapters.values()} == {torch.float32}


# Word embeddings


def test_word_vectors_of_other_encoders_are_frozen() -> None:
    words = WordEmbeddings(WhitespaceTokenizer(["sun"]), torch.ones(1, 4), update_embeddings=True)
    for module in (words, tiny.static()[0]):
        freeze_word_embeddings(SentenceTransformer(modules=[module], device="cpu"))
        trained = [weight for weight in module.parameters() if weight.requires_grad]
        assert trained == []
