"""The number format that a model computes in.

It is float32, or bfloat16 where the processor or the GPU computes in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

Precision = Literal["auto", "fp32", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("auto", "fp32", "bf16")

_PADDED_TO = 16  # tokens, of batches in bfloat16 on a CPU


def computes_in_bf16(device: str | torch.device) -> bool:
    """Whether a device is faster in bfloat16 than in float32.

    It is a GPU that has it, a CPU with AMX, or AMD's with AVX512.
    """
    import torch

    kind = torch.device(device).type
    if kind == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if kind == "xpu":
        return torch.xpu.is_available() and torch.xpu.is_bf16_supported()
    if kind == "cpu" and hasattr(torch.cpu, "get_capabilities"):
        return _cpu_computes_in_bf16(torch.cpu.get_capabilities())
    return False


def _cpu_computes_in_bf16(capabilities: Mapping[str, Any]) -> bool:
    if capabilities.get("amx_bf16") is True:
        return True
    # With AVX512-BF16 alone, an Intel CPU takes 1.5 times as long in bfloat16.
    is_amd = str(capabilities.get("cpu_name", "")).startswith("AMD")
    return is_amd and capabilities.get("avx512_bf16") is True


def resolve_precision(precision: str, device: str | torch.device) -> Literal["fp32", "bf16"]:
    """Turn `"auto"` into `"bf16"` where the device computes in it, else into `"fp32"`.

    These two stay.
    """
    if precision == "fp32":
        return "fp32"
    if precision == "bf16":
        return "bf16"
    if precision != "auto":
        raise ValueError(
            f"precision={precision!r} is none of {', '.join(PRECISIONS)}; to make int8 or binary "
            "vectors, give what is embedded to `quantize_embeddings` of Sentence Transformers"
        )
    return "bf16" if computes_in_bf16(device) else "fp32"


@contextmanager
def autocast(precision: str, device: str | torch.device) -> Iterator[None]:
    """A context in which a model computes in a precision, as `resolve_precision` reads it.

    The weights stay.
    """
    import torch

    if resolve_precision(precision, device) == "fp32":
        yield
        return
    before = torch.backends.cuda.cudnn_sdp_enabled()
    # cuDNN's attention builds a plan for each shape of a batch, and fails where little memory is
    # left (pytorch#190321).
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def number_format(model: Any) -> torch.dtype | None:
    """What a model computes in on a CPU, at present; None if it has no weights."""
    import torch

    if torch.is_autocast_enabled("cpu"):
        return torch.get_autocast_dtype("cpu")
    for weights in model.parameters():
        if weights.is_floating_point():
            return weights.dtype
    return None


def padding_options(model: Any, *cuts: int | None) -> dict[str, Any]:
    """Options of `model.preprocess` that pad batches to multiples of 16 tokens.

    They are for bfloat16 on a CPU: there oneDNN compiles its kernels for each length of a batch, in
    tenths of a second. Models without a Transformer of texts have none, nor those that are cut,
    also to `cuts`, to other lengths than multiples of 16.
    """
    from sentence_transformers.base.modules import Transformer

    module = model[0] if len(model) else None
    tokenizer = getattr(module, "tokenizer", None)
    if not isinstance(module, Transformer) or tokenizer is None or tokenizer.pad_token_id is None:
        return {}
    if model.max_seq_length is None:
        return {}
    processing = getattr(module, "processing_kwargs", None) or {}
    text_options = processing.get("text") or {}
    limits = [model.max_seq_length, *cuts, text_options.get("max_length")]
    for role in ("query", "document"):
        limits.append(getattr(module, f"{role}_length", None))
    for limit in limits:
        if limit is not None and limit % _PADDED_TO:
            return {}
    return {"processing_kwargs": {"text": {"pad_to_multiple_of": _PADDED_TO}}}
