"""Encoders of the host's modules: from scratch, with avg-first-last pooling, and two in one."""

import copy
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Router, Transformer
from sentence_transformers.sentence_transformer.modules import (
    Pooling,
    StaticEmbedding,
    WeightedLayerPooling,
)
from sentence_transformers.util import batch_to_device
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

from st_xlret.ranges import check_range

# Layers, width, heads.
SIZES = {
    "tiny": (1, 32, 2),
    "mini": (1, 128, 4),
    "small": (3, 256, 4),
    "base": (12, 768, 12),
}


def static_encoder(tokenizer: PreTrainedTokenizerFast, features: int = 256) -> SentenceTransformer:
    """Build an untrained bag of token vectors (the host's `StaticEmbedding`).

    It trains on two CPU cores in minutes.

    Example:
        >>> from st_xlret.modules import train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> model.encode(["a b", "c"]).shape
        (2, 8)
    """
    check_range(1, features=features)
    embedding = StaticEmbedding(tokenizer, embedding_dim=features)
    # Vectors have unit length on average, so that frequent and rare tokens start with equal
    # influence.
    nn.init.normal_(embedding.embedding.weight, std=features**-0.5)
    return SentenceTransformer(modules=[embedding], device="cpu")


def transformer_encoder(
    tokenizer: PreTrainedTokenizerFast,
    size: Literal["tiny", "mini", "small", "base"] = "small",
    *,
    max_seq_length: int = 64,
    pooling: Literal["mean", "cls"] = "mean",
) -> SentenceTransformer:
    """Build an untrained XLM-R with pooling, of built-in modules.

    Args:
        tokenizer: A tokenizer as `train_tokenizer` makes it.
        size: "tiny" (1 layer of 32 features, for tests), "mini" (1 of 128), "small" (3 of 256) or
            "base" (12 of 768).
        max_seq_length: Maximum number of tokens of a text.
        pooling: "mean", which learns faster from scratch, or "cls", which the papers use.

    Example:
        >>> from st_xlret.modules import train_tokenizer
        >>> tokenizer = train_tokenizer(["a b c d"] * 4, vocabulary=60)
        >>> transformer_encoder(tokenizer, "tiny").encode(["a b", "c"]).shape
        (2, 32)
    """
    check_range(3, max_seq_length=max_seq_length)  # with the tokens around a text
    layers, features, heads = SIZES[size]
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=features,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * features,
        max_position_embeddings=max_seq_length + 2,
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    with tempfile.TemporaryDirectory() as folder:
        # Not the model's save_pretrained: with several processes it writes in the first one only.
        config.save_pretrained(folder)
        weights = XLMRobertaModel(config).state_dict()
        save_file(weights, Path(folder) / "model.safetensors", {"format": "pt"})
        tokenizer.save_pretrained(folder)
        encoder = Transformer(folder, max_seq_length=max_seq_length)
    # The folder is gone: a model made here has no checkpoint to load a language-model head from.
    encoder.auto_model.config.name_or_path = ""
    return SentenceTransformer(modules=[encoder, Pooling(features, pooling_mode=pooling)])


def first_last_encoder(model: SentenceTransformer) -> SentenceTransformer:
    """Build an encoder with avg-first-last pooling (ML-CTL, section 2.2) from the host's modules.

    After the model's own Transformer, a `WeightedLayerPooling` takes the average of its first and
    last layer (not the embedding layer; Chen et al. 2022), which `token_embeddings` are too, as
    `ContextualEncoder` needs them. Mean pooling follows. The configuration of that Transformer is
    changed to give all layers.

    Example:
        >>> from st_xlret.modules import train_tokenizer
        >>> plain = transformer_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), "tiny")
        >>> [type(module).__name__ for module in first_last_encoder(plain)]
        ['Transformer', 'WeightedLayerPooling', 'Pooling']
    """
    transformer: Any = model[0]
    # In the configuration, so that the saved model gives its layers too.
    transformer.auto_model.config.output_hidden_states = True
    features = transformer.get_embedding_dimension()
    # Counted by a run, since configurations name the number in many ways. The embeddings come
    # first.
    layers = len(_outputs_of_short_text(model)["all_layer_embeddings"]) - 1
    weights = torch.zeros(layers)
    weights[0] += 0.5
    weights[-1] += 0.5
    fixed = nn.Parameter(weights, requires_grad=False)
    first_last = WeightedLayerPooling(
        features, num_hidden_layers=layers, layer_start=1, layer_weights=fixed
    )
    include_prompt = all(module.include_prompt for module in model if isinstance(module, Pooling))
    pooling = Pooling(features, "mean", include_prompt=include_prompt)
    card = copy.copy(model.model_card_data)
    return with_modules(model, [transformer, first_last, pooling], model_card_data=card)


def with_two_encoders(model: SentenceTransformer) -> SentenceTransformer:
    """Copy an encoder, so that queries and passages each have their own, behind a `Router`.

    A `ValueError` refuses a model that has a `Router`.

    `encode_query` uses the copy; `encode_document` and `encode` use the encoder itself.

    Example:
        >>> from st_xlret.modules import train_tokenizer
        >>> tokenizer = train_tokenizer(["a b c d"] * 4, vocabulary=50)
        >>> model = with_two_encoders(static_encoder(tokenizer, features=8))
        >>> model.encode_query(["a b"]).shape
        (1, 8)
    """
    modules: list[Any] = list(model.children())
    if routers_of(model):
        raise ValueError(
            "the model has a Router already, of two encoders or a calibration: "
            "take what it was made from"
        )
    query_modules = [copy.deepcopy(module) for module in modules]
    router = Router.for_query_document(query_modules, modules)
    card = copy.copy(model.model_card_data)
    return with_modules(model, [router], model_card_data=card)


def routers_of(model: nn.Module) -> list[Router]:
    """The `Router`s among the modules of a model, in their order."""
    return [module for module in model.children() if isinstance(module, Router)]


def has_route_of_each_role(model: nn.Module) -> bool:
    """Whether the first `Router` of a model has two routes, of queries and of documents."""
    for router in routers_of(model):
        return set(router.sub_modules) == {"query", "document"}
    return False


def freeze_unused(model: SentenceTransformer) -> list[str]:
    """Freeze parameters that neither queries nor passages use; gives the names of all frozen ones.

    Gradients that the model has are dropped. XLM-R's pooler is unused under mean pooling. With none
    left, `ddp_find_unused_parameters=False` is right: a step on two encoders runs two forward
    passes.
    """
    for task in ("query", "document"):
        total = _outputs_of_short_text(model, task=task)["sentence_embedding"].sum()
        if total.requires_grad:  # a route may be frozen
            total.backward()
    unused = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    for name in unused:
        model.get_parameter(name).requires_grad_(False)
    model.zero_grad(set_to_none=True)
    return unused


def _outputs_of_short_text(model: SentenceTransformer, **task: str) -> dict[str, Any]:
    """What a forward pass gives, without dropout."""
    training = model.training
    features = batch_to_device(model.preprocess(["a"], **task), model.device)
    result = model.eval()({**features, **task})
    model.train(training)
    return result


def before_normalize(model: SentenceTransformer) -> SentenceTransformer | None:
    """The model without the `Normalize` at its end; None for a model that does not end in one."""
    *modules, last = model.children()
    if not isinstance(last, Normalize):
        return None
    return with_modules(model, modules, truncate_dim=None)


def with_modules(
    model: SentenceTransformer, modules: list[Any], **changed: Any
) -> SentenceTransformer:
    """A model of other modules, with the settings of a model but for those that are changed."""
    settings = {
        "prompts": {name: prompt or "" for name, prompt in model.prompts.items()},
        "default_prompt_name": model.default_prompt_name,
        "similarity_fn_name": model.similarity_fn_name,
        "truncate_dim": model.truncate_dim,
        "device": str(model.device),
    }
    return SentenceTransformer(modules=modules, **{**settings, **changed})


def outermost_transformers(model: nn.Module) -> Iterator[PreTrainedModel]:
    """The outermost models of Transformers in a module."""
    for child in model.children():
        if isinstance(child, PreTrainedModel):
            yield child
        else:
            yield from outermost_transformers(child)
