"""The checkpoint of an encoder, loaded once more: as it was loaded first, and whether it is it."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import PreTrainedModel


def load_again(
    kind: Any,
    name: str,
    model: SentenceTransformer,
    *,
    revision: str | None = None,
    is_given: bool = False,
) -> tuple[Any, list[str]]:
    """Load a checkpoint of an encoder by a class of Transformers, and the keys that it lacks.

    The cache is that of `SENTENCE_TRANSFORMERS_HOME`; no model remembers `cache_folder` or a token.
    Code of the checkpoint runs only if that of the encoder was trusted and this is known to be the
    same: nothing asks at the keyboard. The host's report of what is missing is not shown, as the
    caller reads it.

    Args:
        kind: Class of Transformers.
        name: Folder, or name on the Hub.
        model: The encoder.
        revision: That of the encoder, if it is known; else `main` is loaded.
        is_given: Whether a user gave the name, and so means this checkpoint.
    """
    is_known = is_given or revision is not None or os.path.isdir(name)
    with _quiet_transformers():
        loaded, report = kind.from_pretrained(
            name,
            revision=revision or "main",
            cache_dir=os.getenv("SENTENCE_TRANSFORMERS_HOME"),
            trust_remote_code=model.trust_remote_code and is_known,
            output_loading_info=True,
        )
    return loaded, list(report["missing_keys"])


def revision_on_card(model: SentenceTransformer, name: str) -> str | None:
    """The revision of a name on the Hub that a model was loaded from; None if no card says it."""
    card = model.model_card_data
    return card.base_model_revision if card.base_model == name else None


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """A context in which Transformers reports errors alone."""
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(before)


def has_weights_of_checkpoint(transformer: PreTrainedModel, saved: Mapping[str, Tensor]) -> bool:
    """Whether the weights of a Transformer, without its adapters, are those of a checkpoint.

    The pooler is not compared, which a sentence encoder does not use.
    """
    weights = {}
    for name, weight in transformer.state_dict().items():
        name_without_adapter = re.sub(r"\.(base_layer|original_module)\b", "", name)
        weights[name_without_adapter] = weight
    compared = [name for name in saved if "pooler." not in name]
    for name in compared:
        if name not in weights or not _are_equal(saved[name], weights[name]):
            return False
    return bool(compared)


def _are_equal(saved: Tensor, weight: Tensor) -> bool:
    """Whether a weight is the saved one, also where it was loaded in 16 bits and then turned."""
    for kind in (weight.dtype, torch.bfloat16, torch.float16):
        if saved.to(weight.device, kind).equal(weight.to(kind)):
            return True
    return False
