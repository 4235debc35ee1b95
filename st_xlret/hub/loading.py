"""Loading the models and calibrations that programs are given, with errors that name the option."""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, get_args

from huggingface_hub.constants import HF_HUB_OFFLINE

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from st_xlret.modules.calibration_layer import CalibrationLayer

Backend = Literal["torch", "onnx", "openvino"]
"""What computes a Transformer: PyTorch, or one of the host's other back ends."""

_LIBRARIES = {"onnx": ("optimum", "onnxruntime"), "openvino": ("optimum", "openvino")}


def load_model(name: str, device: str | None = None, *, backend: Backend = "torch") -> SentenceTransformer:
    """The model that the option `--model` of a program names.

    Args:
        name: A folder, or a name on the Hugging Face Hub.
        device: Such as "cuda:1". Default: the best there is.
        backend: `"onnx"` or `"openvino"` compute the Transformer by these libraries. A model without a file in their
            format is converted when it is loaded, which takes about a minute.

    Raises:
        ValueError: If there is no such model or device.
        ImportError: If the libraries of the back end are not installed, or do not fit the installed transformers. The
            message says how to install them.
    """
    from sentence_transformers import SentenceTransformer

    from st_xlret.hub.card import CrossLingualCardData

    check_backend(backend)
    if device is not None:
        check_device(device)
    path = os.path.expanduser(name)
    is_folder = os.path.isdir(path)
    if os.path.isfile(path):
        raise ValueError(f"--model {name}: this is a file; name the folder of a model.")
    looks_local = not name.strip() or name.startswith((".", "/", "~")) or name.endswith("/") or name.count("/") > 1
    if looks_local and not is_folder:
        raise ValueError(f"--model {name}: no such folder.")
    if is_folder and not {"modules.json", "config.json"} & set(os.listdir(path)):
        raise ValueError(f"--model {name}: the folder holds no model (neither modules.json nor config.json).")
    try:
        card = CrossLingualCardData(made_from=path)
        return SentenceTransformer(path, device=device, backend=backend, model_card_data=card)
    except ImportError as error:
        if backend == "torch":
            raise
        # Optimum is released for older versions of transformers than the host takes.
        raise ImportError(
            f"--backend {backend}: the installed Optimum does not work with transformers {version('transformers')}: "
            f'{error}. Install versions that fit together with pip install "sentence-transformers[{backend}]" in an '
            "environment of its own, or leave out --backend"
        ) from error
    except Exception as error:  # of the host, of safetensors, of tokenizers, of JSON
        if is_folder:
            raise ValueError(f"--model {name}: the model in this folder is damaged: {error}") from error
        hint = " HF_HUB_OFFLINE is set: only folders and cached models can be loaded." if HF_HUB_OFFLINE else ""
        raise ValueError(
            f"--model {name}: there is no such folder, and from the Hub it cannot be loaded: {error}{hint}"
        ) from error


def check_backend(backend: str) -> None:
    """Check that the libraries of the back end that `--backend` names are installed.

    Raises:
        ValueError: If there is no such back end.
        ImportError: If a library is missing. The message says how to install it.

    Example:
        >>> check_backend("tensorrt")
        Traceback (most recent call last):
        ValueError: --backend tensorrt: there is no such back end; there are: torch, onnx, openvino
    """
    if backend not in get_args(Backend):
        raise ValueError(f"--backend {backend}: there is no such back end; there are: {', '.join(get_args(Backend))}")
    missing = [library for library in _LIBRARIES.get(backend, ()) if find_spec(library) is None]
    if missing:
        raise ImportError(
            f'--backend {backend} needs {" and ".join(missing)}: pip install "sentence-transformers[{backend}]"'
        )


def check_device(device: str) -> None:
    """Check that a device that `--device` names is there and computes.

    Raises:
        ValueError: If it does not.

    Example:
        >>> check_device("gpu")
        Traceback (most recent call last):
        ValueError: --device gpu: there is no such device here; there are: cpu...
    """
    import torch

    there = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    there += ["mps"] if torch.backends.mps.is_available() else []
    try:
        torch.ones(1, device=device).sum().item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"--device {device}: there is no such device here; there are: {', '.join(there)}") from error


def load_calibration(path: str | None) -> CalibrationLayer | None:
    """The calibration that `--calibration` names; None without one.

    Raises:
        ValueError: If there is no such folder, or what is in it is no calibration.
    """
    if path is None:
        return None
    from st_xlret.modules.calibration_layer import CalibrationLayer

    if not os.path.isdir(path):
        raise ValueError(f"--calibration {path}: no such folder; give one that CalibrationLayer.save wrote.")
    try:
        return CalibrationLayer.load(path)
    except Exception as error:  # of JSON, of safetensors, of a constructor that is given other names
        raise ValueError(f"--calibration {path}: the calibration in this folder is damaged: {error}") from error
