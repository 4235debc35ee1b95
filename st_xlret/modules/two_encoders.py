"""An encoder of queries beside one of passages, behind the host's `Router`."""

from __future__ import annotations

import copy
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.util import batch_to_device

QUERY, PASSAGE = "query", "document"
"""Routes of the two encoders, as `encode_query` and `encode_document` take them."""


def with_two_encoders(model: SentenceTransformer) -> SentenceTransformer:
    """Copy an encoder, so that queries and passages each have their own.

    Args:
        model: The encoder that both start from. It becomes the encoder of passages.

    Returns:
        A model of built-in modules with the prompts of the given one: `encode_query` uses the one encoder,
        `encode_document` and `encode` the other.

    Raises:
        ValueError: If the model already has a `Router`.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = with_two_encoders(static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8))
        >>> model.encode_query(["a b"]).shape
        (1, 8)
    """
    modules: list[Any] = list(model.children())
    if any(isinstance(module, Router) for module in modules):
        raise ValueError("the model already has a Router with encoders of its own: leave out --two_encoders")
    router = Router.for_query_document([copy.deepcopy(module) for module in modules], modules)
    return SentenceTransformer(
        modules=[router],
        device=str(model.device),
        prompts={name: prompt for name, prompt in model.prompts.items() if prompt is not None},
        default_prompt_name=model.default_prompt_name,
    )


def freeze_unused(model: SentenceTransformer) -> list[str]:
    """Freeze the parameters that neither queries nor passages use, such as the pooler of XLM-R under mean pooling.

    A step on two encoders runs two forward passes on different parameters, and `DistributedDataParallel` takes the
    parameters of each for all there are if it looks for unused ones. With none left, it need not look: set
    `ddp_find_unused_parameters=False` in the training arguments.
    """
    training = model.training
    model.eval()
    for task in (QUERY, PASSAGE):
        features = batch_to_device(model.preprocess(["a"], task=task), model.device)
        model({**features, "task": task})["sentence_embedding"].sum().backward()
    unused = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    for name in unused:
        model.get_parameter(name).requires_grad_(False)
    model.zero_grad(set_to_none=True)
    model.train(training)
    return unused
