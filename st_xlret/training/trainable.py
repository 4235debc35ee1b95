"""Training fewer weights: frozen word embeddings, and low-rank adapters (LoRA) that are merged afterwards."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import nn
from transformers import PreTrainedModel

from st_xlret.optional import import_optional

logger = logging.getLogger(__name__)

LORA_SCALE = 2
"""The product of an adapter is multiplied by this; PEFT's `lora_alpha` is the rank times as much."""


def freeze_word_embeddings(model: SentenceTransformer) -> SentenceTransformer:
    """Leave the word embeddings of a Transformer as they are, in place.

    They are most of the weights of a small multilingual encoder, and of the optimizer's time and memory. A head for
    masked language modelling that shares them is frozen with them.

    Args:
        model: The encoder.

    Returns:
        The same model.

    Raises:
        ValueError: If the encoder is static: its vectors are all that it has.

    Example:
        >>> from st_xlret.modules import train_tokenizer, transformer_encoder
        >>> model = transformer_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), "tiny")
        >>> frozen = freeze_word_embeddings(model)
        >>> [name for name, weight in frozen.named_parameters() if not weight.requires_grad]
        ['0.model.embeddings.word_embeddings.weight']
    """
    transformers = list(transformers_of(model))
    if not transformers or any(isinstance(module, StaticEmbedding) for module in model.modules()):
        raise ValueError(
            "--freeze_embeddings: this encoder has word embeddings alone, and nothing else would be trained"
        )
    for transformer in transformers:
        transformer.get_input_embeddings().requires_grad_(False)
    return model


def add_lora(model: SentenceTransformer, rank: int) -> SentenceTransformer:
    """Freeze a Transformer and put an adapter of low rank beside each of its linear layers, in place.

    Low-Rank Adaptation (Hu et al., ICLR 2022, Eq. 3): a layer with weights W computes W x + 2 B A x, and only A and B
    are trained. B starts at zero, so that the encoder starts as it was. The checkpoints of a run contain the adapters
    alone; `merge_adapters` makes a plain model of the trained one.

    Args:
        model: The encoder, from a checkpoint.
        rank: Rank of the adapters, such as 16.

    Returns:
        The same model.

    Raises:
        ImportError: If PEFT is not installed (extra `peft`).
        ValueError: If the encoder has no Transformer.

    Example:
        >>> from st_xlret.modules import train_tokenizer, transformer_encoder
        >>> model = transformer_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), "tiny")
        >>> before = model.encode("a b")
        >>> (add_lora(model, 4).encode("a b") == before).all().item()
        True
    """
    peft = import_optional("peft", extra="peft", needed_for="training with LoRA (--lora_rank)")
    if not model.has_peft_compatible_model():
        raise ValueError(f"--lora_rank {rank}: this encoder has no Transformer whose layers could get adapters")
    # A pooler on top of the first token is no part of a sentence encoder, and would never get a gradient.
    model.add_adapter(
        peft.LoraConfig(
            r=rank,
            lora_alpha=LORA_SCALE * rank,
            target_modules="all-linear",
            exclude_modules=r"(.*\.)?pooler\..*",
        )
    )
    return model


def has_adapters(model: SentenceTransformer) -> bool:
    """Whether there are adapters in a model that are not merged."""
    return any(getattr(transformer, "peft_config", None) for transformer in transformers_of(model))


def merge_adapters(model: SentenceTransformer) -> SentenceTransformer:
    """Add the adapters of a model to its weights, in place: what is left is a plain model with the same vectors.

    Args:
        model: A model, with adapters of PEFT that can be merged, such as those of LoRA, or without any.

    Returns:
        The same model.

    Raises:
        ImportError: If there are adapters and PEFT is not installed (extra `peft`).

    Example:
        >>> from st_xlret.modules import train_tokenizer, transformer_encoder
        >>> model = transformer_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), "tiny")
        >>> names = list(model.state_dict())
        >>> list(merge_adapters(add_lora(model, 4)).state_dict()) == names
        True
    """
    if not has_adapters(model):
        return model
    tuners = import_optional("peft.tuners.tuners_utils", extra="peft", needed_for="merging adapters")
    for transformer in transformers_of(model):
        for name, module in list(transformer.named_modules()):
            if isinstance(module, tuners.BaseTunerLayer):
                module.merge(safe_merge=True)
                parent, _, own = name.rpartition(".")
                setattr(transformer.get_submodule(parent), own, module.get_base_layer())
        transformer.delete_adapter(list(transformer.peft_config))
        # A model that was loaded with adapters would save its weights under PEFT's names.
        vars(transformer).pop("_weight_conversions", None)
        transformer.requires_grad_(True)
    return model


def log_trainable(model: SentenceTransformer) -> None:
    """Log how many of the weights are trained."""
    weights = list(model.parameters())
    trained = sum(weight.numel() for weight in weights if weight.requires_grad)
    logger.info("training %.1f M of %.1f M weights", trained / 1e6, sum(weight.numel() for weight in weights) / 1e6)


def transformers_of(model: nn.Module) -> Iterator[PreTrainedModel]:
    """The outermost models of Transformers in a module."""
    for child in model.children():
        if isinstance(child, PreTrainedModel):
            yield child
        else:
            yield from transformers_of(child)
