"""What of an encoder is trained, and how its layers compute meanwhile."""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding, WordEmbeddings
from torch import Tensor, nn

from st_xlret.modules.encoders import merge_adapters as merge_adapters
from st_xlret.modules.encoders import outermost_transformers
from st_xlret.optional import import_optional


def freeze_word_embeddings(model: SentenceTransformer) -> None:
    """Leave the word embeddings as they are, and with them a head that shares them."""
    tables: list[Any] = [each.get_input_embeddings() for each in outermost_transformers(model)]
    others = (
        module for module in model.modules() if isinstance(module, StaticEmbedding | WordEmbeddings)
    )
    tables += [table for module in others for table in module.children()]
    for table in tables:
        table.requires_grad_(False)


def add_lora(model: SentenceTransformer, rank: int) -> None:
    """Freeze a Transformer, and let each linear layer compute W x + 2 B A x (LoRA; Hu et al., ICLR 2022, Eq. 3)."""
    peft = import_optional("peft", extra="peft", needed_for="training with LoRA")
    # A pooler on top of the first token is no part of a sentence encoder, and would never get a gradient.
    pooler = r"(.*\.)?pooler\..*"
    model.add_adapter(
        peft.LoraConfig(
            r=rank, lora_alpha=2 * rank, target_modules="all-linear", exclude_modules=pooler
        )
    )


def check_adapters_match_folder(model: SentenceTransformer) -> None:
    """Refuse adapters to weights that checkpoints could not refer to: those that are not what their folder holds."""
    for transformer in outermost_transformers(model):
        if not getattr(transformer, "peft_config", None) or getattr(
            transformer, "is_quantized", False
        ):
            continue  # quantised weights are not trained
        path = transformer.name_or_path
        try:
            saved = type(transformer).from_pretrained(path).state_dict() if path else {}
        except (OSError, ValueError):
            saved = {}
        weights = {
            re.sub(r"\.(base_layer|original_module)\b", "", n): w
            for n, w in transformer.state_dict().items()
        }
        same = [
            n in weights and w.to(weights[n]).equal(weights[n])
            for n, w in saved.items()
            if "pooler." not in n
        ]
        if not same or not all(same):
            way_out = "save the model and load it from there, or train with save_strategy='no'"
            raise ValueError(
                f"checkpoints of LoRA refer to the weights in {path!r}, and these are others: {way_out}"
            )


@contextmanager
def changed_layers(
    model: nn.Module, *, dropout: float | None = None, attention: str | None = None
) -> Iterator[None]:
    """A context in which an encoder has another dropout, or another of the host's attentions; None changes nothing."""
    with ExitStack() as take_back:
        for module in model.modules() if dropout is not None else ():
            # Attention has its dropout as a number.
            names = (
                ["p"]
                if isinstance(module, nn.Dropout)
                else [name for name in vars(module) if "dropout" in name]
            )
            for name in names:
                if type(share := getattr(module, name)) in (int, float):
                    take_back.callback(setattr, module, name, share)
                    setattr(module, name, dropout)
        for transformer in outermost_transformers(model) if attention else ():
            take_back.callback(
                transformer.set_attn_implementation, transformer.config._attn_implementation
            )
            transformer.set_attn_implementation(attention)  # type: ignore[arg-type]
        yield


def copy_trainable_weights(model: nn.Module) -> dict[str, Tensor]:
    """Copy the weights that training changes: name -> tensor."""
    return {
        name: weight.detach().clone()
        for name, weight in model.named_parameters()
        if weight.requires_grad
    }


@torch.no_grad()
def interpolate_weights(model: nn.Module, original: Mapping[str, Tensor], share: float) -> None:
    """Set each weight to `original + share (trained - original)`, in place; weights not in `original` stay."""
    trained = dict(model.named_parameters())
    for name, before in original.items():
        trained[name].copy_(torch.lerp(before.to(trained[name]), trained[name], share))
