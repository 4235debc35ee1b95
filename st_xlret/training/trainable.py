"""What of an encoder is trained, and how its layers compute meanwhile."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding, WordEmbeddings
from torch import Tensor, nn
from transformers import PreTrainedModel

from st_xlret.modules.encoders import merge_adapters as merge_adapters
from st_xlret.modules.encoders import outermost_transformers
from st_xlret.optional import import_optional

# A pooler on top of the first token is no part of a sentence encoder, and would never get a
# gradient.
_POOLER = r"(.*\.)?pooler\..*"


def freeze_word_embeddings(model: SentenceTransformer) -> None:
    """Leave the word embeddings as they are, and with them a head that shares them."""
    for transformer in outermost_transformers(model):
        transformer.get_input_embeddings().requires_grad_(False)
    for module in model.modules():
        if isinstance(module, StaticEmbedding | WordEmbeddings):
            module.requires_grad_(False)


def add_lora(model: SentenceTransformer, rank: int) -> None:
    """Freeze a Transformer, and let each linear layer compute W x + 2 B A x.

    LoRA; Hu et al., ICLR 2022, Eq. 3.
    """
    peft = import_optional("peft", extra="peft", needed_for="training with LoRA")
    adapters = peft.LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        target_modules="all-linear",
        exclude_modules=_POOLER,
    )
    model.add_adapter(adapters)


def check_adapters_match_folder(model: SentenceTransformer) -> None:
    """Refuse adapters to weights that checkpoints could not refer to.

    Those are weights that are not what their folder holds.
    """
    for transformer in outermost_transformers(model):
        is_adapted = bool(getattr(transformer, "peft_config", None))
        is_quantized = getattr(transformer, "is_quantized", False)  # those are not trained
        if is_adapted and not is_quantized and not _has_weights_of_folder(transformer):
            raise ValueError(
                f"checkpoints of LoRA refer to the weights in {transformer.name_or_path!r}, and "
                "these are others: save the model and load it from there, or train with "
                "save_strategy='no'"
            )


def _has_weights_of_folder(transformer: PreTrainedModel) -> bool:
    saved = _weights_in_folder(transformer)
    weights = {}
    for name, weight in transformer.state_dict().items():
        name_without_adapter = re.sub(r"\.(base_layer|original_module)\b", "", name)
        weights[name_without_adapter] = weight
    compared = [name for name in saved if "pooler." not in name]
    for name in compared:
        if name not in weights:
            return False
        weight = weights[name]
        if not saved[name].to(weight).equal(weight):
            return False
    return bool(compared)


def _weights_in_folder(transformer: PreTrainedModel) -> dict[str, Tensor]:
    """The weights that a Transformer was loaded from; none if there is no such folder."""
    path = transformer.name_or_path
    if not path:
        return {}
    try:
        saved: Any = type(transformer).from_pretrained(path)
    except (OSError, ValueError):
        return {}
    weights: dict[str, Tensor] = saved.state_dict()
    return weights


@contextmanager
def changed_dropout(model: nn.Module, dropout: float | None) -> Iterator[None]:
    """A context in which the layers of an encoder have another dropout; None changes nothing."""
    before = []
    if dropout is not None:
        for module in model.modules():
            for name in _dropout_names(module):
                before.append((module, name, getattr(module, name)))
                setattr(module, name, dropout)
    try:
        yield
    finally:
        for module, name, share in before:
            setattr(module, name, share)


def _dropout_names(module: nn.Module) -> list[str]:
    """The attributes of a module that are the share that it drops."""
    names = []
    for name, value in vars(module).items():
        # Attention has its dropout as a number.
        says_dropout = "dropout" in name and not isinstance(module, nn.Dropout)
        is_share_of_layer = name == "p" and isinstance(module, nn.Dropout)
        if (says_dropout or is_share_of_layer) and type(value) in (int, float):
            names.append(name)
    return names


@contextmanager
def changed_attention(model: nn.Module, attention: str | None) -> Iterator[None]:
    """A context in which an encoder has another of the host's attentions; None changes nothing."""
    before: list[tuple[PreTrainedModel, Any]] = []
    if attention is not None:
        for transformer in outermost_transformers(model):
            before.append((transformer, transformer.config._attn_implementation))
            transformer.set_attn_implementation(attention)
    try:
        yield
    finally:
        for transformer, implementation in before:
            transformer.set_attn_implementation(implementation)


def copy_trainable_weights(model: nn.Module) -> dict[str, Tensor]:
    """Copy the weights that training changes: name -> tensor."""
    copies = {}
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            copies[name] = weight.detach().clone()
    return copies


@torch.no_grad()
def interpolate_weights(model: nn.Module, original: Mapping[str, Tensor], share: float) -> None:
    """Set each weight to `original + share (trained - original)`, in place.

    Weights that are not in `original` stay.
    """
    trained = dict(model.named_parameters())
    for name, before in original.items():
        weight = trained[name]
        weight.copy_(torch.lerp(before.to(weight), weight, share))
