"""The number format that a model computes in."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from st_xlret import precision
from st_xlret.precision import autocast, computes_in_bf16, resolve_precision


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch):
    def pretend(**features: bool | int | str) -> None:
        precision._cpu_features.cache_clear()
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: features, raising=False)

    yield pretend
    precision._cpu_features.cache_clear()


@pytest.mark.parametrize(
    "features", [{"amx_bf16": True}, {"amx_bf16": False, "avx512_bf16": True, "cpu_name": "AMD EPYC 9354"}]
)
def test_auto_takes_bf16_on_processors_where_it_is_faster(cpu, features: dict[str, bool | str]) -> None:
    cpu(avx512_f=True, l2_cache_size=2048, **features)
    assert computes_in_bf16("cpu")
    assert resolve_precision("auto", "cpu") == "bf16"


@pytest.mark.parametrize("name", ["Intel(R) Xeon(R) Platinum 8370C", "AMD EPYC 7763"])
def test_auto_takes_fp32_on_other_processors(cpu, name: str) -> None:
    cpu(avx512_f=True, avx512_bf16="Intel" in name, amx_bf16=False, avx512_vnni=True, cpu_name=name)
    assert resolve_precision("auto", torch.device("cpu")) == "fp32"
    assert resolve_precision("bf16", "cpu") == "bf16"  # asked for: emulated


@pytest.mark.parametrize("name", ["Intel(R) Xeon(R)", "AMD EPYC"])
def test_older_pytorch_reads_the_flags_of_linux(cpu, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    monkeypatch.setattr(Path, "is_file", lambda *_: True)
    for flags in ("fpu amx_bf16", "fpu avx512_bf16"):
        text = f"processor: 0\nmodel name\t: {name}\nflags\t\t: {flags}\n"
        monkeypatch.setattr(Path, "read_text", lambda *_, t=text, **__: t)
        precision._cpu_features.cache_clear()
        assert computes_in_bf16("cpu") == ("amx_bf16" in flags or "AMD" in name)


def test_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for supported in (True, False):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, s=supported: s)
        assert computes_in_bf16("cuda:1") is supported
    assert not computes_in_bf16("mps")


def test_an_unknown_precision_is_named() -> None:
    with pytest.raises(ValueError, match=r"precision must.*auto, fp32, bf16.*'int8'"):
        autocast("int8", "cpu")


def test_attention_in_bf16_on_a_gpu_is_not_cudnn_s() -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says that there is no GPU
        with autocast("bf16", "cuda"):
            assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled()
    with autocast("bf16", "cpu"), autocast("fp32", "cuda"):
        assert torch.backends.cuda.cudnn_sdp_enabled()
