"""What of an encoder is trained, and in which number format."""

import logging
from collections.abc import Iterable, Mapping

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding, WordEmbeddings
from torch import Tensor, nn
from transformers import PreTrainedModel

from st_xlret.modules.adapters import has_adapters
from st_xlret.modules.encoders import outermost_transformers, routers_of
from st_xlret.modules.reloading import has_weights_of_checkpoint, load_again
from st_xlret.optional import import_optional

logger = logging.getLogger(__name__)

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
    """Freeze each Transformer that is trained, and let its linear layers compute W x + 2 B A x.

    LoRA; Hu et al., ICLR 2022, Eq. 3. A `ValueError` says that none is trained.
    """
    peft = import_optional("peft", extra="peft", needed_for="training with LoRA")
    trained = []
    for transformer in set(outermost_transformers(model)):  # routes may share one
        if any(weight.requires_grad for weight in transformer.parameters()):
            trained.append(transformer)
    if not trained:
        raise ValueError("lora_rank: PEFT adapts a Transformer that is trained, and there is none")
    for transformer in trained:
        adapters = peft.LoraConfig(
            r=rank,
            lora_alpha=2 * rank,
            target_modules="all-linear",
            exclude_modules=_POOLER,
        )
        transformer.add_adapter(adapters)


def weights_to_fp32(modules: Iterable[nn.Module]) -> None:
    """Turn weights of 16 bits into those of 32, in place: small updates would be rounded away.

    Quantised weights stay, as they are not trained.
    """
    turned = set()
    for module in modules:
        kept = _weights_of_quantised(module)
        for weight in [*module.parameters(), *module.buffers()]:
            if weight.dtype in (torch.bfloat16, torch.float16) and id(weight) not in kept:
                turned.add(str(weight.dtype).removeprefix("torch."))
                weight.data = weight.data.float()
    if turned:
        logger.info("weights in %s are trained and saved in fp32", " and ".join(sorted(turned)))


def _weights_of_quantised(module: nn.Module) -> set[int]:
    """The ids of the weights and buffers of quantised Transformers."""
    ids: set[int] = set()
    for part in module.modules():
        if isinstance(part, PreTrainedModel) and getattr(part, "is_quantized", False):
            ids.update(map(id, part.parameters()))
            ids.update(map(id, part.buffers()))
    return ids


def check_adapters_match_folder(model: SentenceTransformer) -> None:
    """Refuse adapters that could not be loaded from a checkpoint.

    Those are adapters to weights that are not what their folder holds, or inside a `Router`.
    """
    if not has_adapters(model):
        return
    if routers_of(model):
        raise ValueError(
            "Sentence Transformers cannot load checkpoints of LoRA in a model with a Router, as of "
            "two encoders: train with save_strategy='no'"
        )
    for transformer in outermost_transformers(model):
        is_adapted = bool(getattr(transformer, "peft_config", None))
        is_quantized = getattr(transformer, "is_quantized", False)  # those are not trained
        if is_adapted and not is_quantized and not _has_weights_of_folder(model, transformer):
            raise ValueError(
                f"checkpoints of LoRA refer to the weights in {transformer.name_or_path!r}, and "
                "these are others: save the model and load it from there, or train with "
                "save_strategy='no'"
            )


def _has_weights_of_folder(model: SentenceTransformer, transformer: PreTrainedModel) -> bool:
    """Whether a Transformer has the weights that it was loaded from."""
    path = transformer.name_or_path
    if not path:
        return False
    try:
        saved, _ = load_again(type(transformer), path, model)
    except (OSError, ValueError):
        return False
    return has_weights_of_checkpoint(transformer, saved.state_dict())


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
