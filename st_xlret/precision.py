"""The number format that a model computes in: float32, or bfloat16 where the processor or the GPU computes in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    import torch


Precision = Literal["auto", "fp32", "bf16"]

PRECISIONS: tuple[Precision, ...] = ("auto", "fp32", "bf16")
"""Values of the option `--precision`."""


def computes_in_bf16(device: str | torch.device) -> bool:
    """Whether a device computes in bfloat16 by itself, so that it is faster there than float32.

    A CPU does with the matrix instructions AMX-BF16 or, of AMD (Zen 4 and later), AVX512-BF16; an NVIDIA GPU from
    Ampere on. On multilingual-e5-small and an AMD EPYC, a forward pass takes 0.66 of the time of float32 and a step
    0.74. With AVX512-BF16 of an Intel CPU without AMX, it is 1.5 times as long and 1.1 to 1.4. Elsewhere bfloat16 is
    emulated, or there is no way to tell, and the answer is no.

    Args:
        device: A device, such as `"cpu"`, `"cuda:1"` or `model.device`.

    Example:
        >>> computes_in_bf16("meta")
        False
    """
    import torch

    kind = torch.device(device).type
    if kind == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if kind == "xpu":
        return torch.xpu.is_available() and torch.xpu.is_bf16_supported()
    features = _cpu_features() if kind == "cpu" else frozenset()
    return "amx_bf16" in features or {"avx512_bf16", "AMD"} <= features


def resolve_precision(precision: str, device: str | torch.device) -> Literal["fp32", "bf16"]:
    """Turn a value of the option `precision` into the format to compute in.

    Args:
        precision: `"auto"` (bfloat16 where the device computes in it, else float32), `"fp32"` or `"bf16"`.
        device: The device of the model.

    Raises:
        ValueError: On another value.

    Example:
        >>> resolve_precision("auto", "meta"), resolve_precision("bf16", "meta")
        ('fp32', 'bf16')
    """
    if precision == "auto":
        return "bf16" if computes_in_bf16(device) else "fp32"
    if precision in ("fp32", "bf16"):
        return cast(Literal["fp32", "bf16"], precision)
    raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")


def autocast(precision: str, device: str | torch.device) -> AbstractContextManager[Any]:
    """A context in which a model computes in the precision that was asked for; its weights stay as they are.

    In bfloat16 on an NVIDIA GPU, attention is not cuDNN's, see `avoid_cudnn_attention`.

    Args:
        precision: As for `resolve_precision`.
        device: The device of the model.

    Raises:
        ValueError: On an unknown precision.

    Example:
        >>> import torch
        >>> layer = torch.nn.Linear(2, 2)
        >>> with autocast("bf16", "cpu"):
        ...     layer(torch.ones(1, 2)).dtype
        torch.bfloat16
        >>> with autocast("fp32", "cpu"):
        ...     layer(torch.ones(1, 2)).dtype
        torch.float32
    """
    import torch

    if resolve_precision(precision, device) == "fp32":
        return nullcontext()
    kind = torch.device(device).type
    return _bf16_on_cuda() if kind == "cuda" else torch.autocast(kind, torch.bfloat16)


def avoid_cudnn_attention() -> bool:
    """Leave attention on NVIDIA GPUs to PyTorch's other kernels from now on, in this process.

    On an H100, PyTorch takes cuDNN's kernel first. It builds a plan for each new shape of a batch, and batches of texts
    have many shapes; and it fails where little memory is left on the GPU (`mha_graph.execute(...).is_good()`,
    [pytorch#190321](https://github.com/pytorch/pytorch/issues/190321)).

    Returns:
        Whether it was allowed before.

    Example:
        >>> before = avoid_cudnn_attention()
        >>> avoid_cudnn_attention()
        False
    """
    import torch

    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    return before


@contextmanager
def _bf16_on_cuda() -> Iterator[None]:
    import torch

    allowed = avoid_cudnn_attention()
    try:
        with torch.autocast("cuda", torch.bfloat16):
            yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(allowed)


@lru_cache(maxsize=1)
def _cpu_features() -> frozenset[str]:
    """Words of the CPU's name and its instruction sets, of PyTorch or, where it is older, of Linux."""
    import torch

    if hasattr(torch.cpu, "get_capabilities"):
        found = torch.cpu.get_capabilities()
        return frozenset([*str(found.get("cpu_name", "")).split(), *(name for name in found if found[name] is True)])
    file = Path("/proc/cpuinfo")
    return frozenset(file.read_text(encoding="utf-8", errors="replace").split()) if file.is_file() else frozenset()


def few_lengths(model: Any, *cuts: int | None) -> dict[str, Any]:
    """Options of `model.preprocess` by which batches have few different lengths, in bfloat16 on a CPU.

    There oneDNN compiles its kernels anew for each length of a batch and keeps them: about 10 MB and some tenths of a
    second for each. The lengths become multiples of 16. Padding is masked: the embeddings stay the same up to rounding.

    Args:
        model: Any Sentence Transformer.
        *cuts: Tokens that some texts are cut to, where it is not the model's own length.

    Returns:
        The options; none if the model does not start with a Transformer of texts, or if the longest texts have no
        multiple of 16 tokens: the tokenizer takes no other lengths to cut to then.
    """
    from sentence_transformers.base.modules import Transformer

    module = model[0] if len(model) else None
    tokenizer = getattr(module, "tokenizer", None)
    if not isinstance(module, Transformer) or tokenizer is None or tokenizer.pad_token_id is None:
        return {}
    own = (getattr(module, "processing_kwargs", None) or {}).get("text") or {}
    of_roles = [getattr(module, f"{role}_length", None) for role in ("query", "document")]
    limits = [model.max_seq_length, *cuts, own.get("max_length"), *of_roles]
    if limits[0] is None or any(limit % 16 for limit in limits if limit is not None):
        return {}
    return {"processing_kwargs": {"text": {"pad_to_multiple_of": 16}}}
