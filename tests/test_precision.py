"""The number format that a model computes in."""

from __future__ import annotations

import warnings

import pytest
import torch

from st_xlret.precision import autocast, computes_in_bf16, resolve_precision


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        ({"amx_bf16": True}, "bf16"),
        ({"avx512_bf16": True, "cpu_name": "AMD EPYC 9354"}, "bf16"),
        ({"avx512_bf16": True, "cpu_name": "Intel(R) Xeon(R) Platinum 8370C"}, "fp32"),  # slower than float32
    ],
)
def test_auto_takes_bf16_where_it_is_faster(cpu: dict, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: cpu, raising=False)
    assert resolve_precision("auto", torch.device("cpu")) == expected
    assert resolve_precision("bf16", "cpu") == "bf16"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: expected == "bf16")
    assert resolve_precision("auto", "cuda:1") == expected and not computes_in_bf16("mps")
    with pytest.raises(KeyError, match="int8"), autocast("int8", "cpu"):
        pass


def test_attention_in_bf16_on_a_gpu_is_not_cudnn_s() -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says that there is no GPU
        with autocast("bf16", "cuda"):
            assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled()
    with autocast("fp32", "cuda"):
        assert torch.backends.cuda.cudnn_sdp_enabled()
