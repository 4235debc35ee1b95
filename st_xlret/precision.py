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
    """Whether a CPU of these capabilities, as PyTorch names them, is faster in it."""
    if capabilities.get("amx_bf16") is True:
        return True
    # With AVX512-BF16 alone, an Intel CPU takes 1.5 times as long in bfloat16.
    is_amd = str(capabilities.get("cpu_name", "")).startswith("AMD")
    return is_amd and capabilities.get("avx512_bf16") is True


def resolve_precision(precision: str, device: str | torch.device) -> Literal["fp32", "bf16"]:
    """Turn `"auto"` into `"bf16"` where the device computes in it, else into `"fp32"`.

    These two stay; anything else is a `ValueError`.
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
