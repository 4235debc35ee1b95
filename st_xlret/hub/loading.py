"""Loading the models and calibrations that programs are given, with errors that name the option."""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from st_xlret.modules.calibration_layer import CalibrationLayer

Backend = Literal["torch", "onnx", "openvino"]
"""What computes a Transformer: PyTorch, or one of the host's other back ends."""

_LIBRARIES: dict[str, tuple[str, str]] = {
    "onnx": ("optimum.onnxruntime", "onnxruntime"),
    "openvino": ("optimum.intel", "openvino"),
}


def load_model(name: str, device: str | None = None, *, backend: Backend = "torch") -> SentenceTransformer:
    """The model that `--model` names.

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
    from safetensors import SafetensorError
    from sentence_transformers import SentenceTransformer

    check_backend(backend)
    if device is not None:
        check_device(device)
    path = os.path.expanduser(name)
    looks_local = not name.strip() or name.startswith((".", "/", "~")) or name.endswith("/") or name.count("/") > 1
    if os.path.isfile(path):
        raise ValueError(f"--model {name}: this is a file; name the folder of a model.")
    if looks_local and not os.path.isdir(path):
        raise ValueError(f"--model {name}: no such folder.")
    if os.path.isdir(path) and not any(os.path.isfile(os.path.join(path, f)) for f in ("modules.json", "config.json")):
        raise ValueError(f"--model {name}: the folder holds no model (neither modules.json nor config.json).")
    try:
        return SentenceTransformer(path, device=device, backend=backend)
    except ImportError as error:
        if backend == "torch":
            raise
        # Optimum is released for older versions of transformers than the host takes.
        raise ImportError(
            f"--backend {backend}: the installed Optimum does not work with transformers {version('transformers')}: "
            f'{error}. Install versions that fit together with pip install "sentence-transformers[{backend}]" in an '
            "environment of its own, or leave out --backend"
        ) from error
    except (OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
        offline = os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0")
        hint = " HF_HUB_OFFLINE is set: only folders and cached models can be loaded." if offline else ""
        nowhere = "" if os.path.isdir(path) else "there is no such folder, and from the Hub "
        raise ValueError(f"--model {name}: {nowhere}it cannot be loaded: {error}{hint}") from error


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
    if backend == "torch":
        return
    if backend not in _LIBRARIES:
        raise ValueError(f"--backend {backend}: there is no such back end; there are: torch, {', '.join(_LIBRARIES)}")
    missing = [library for library in _LIBRARIES[backend] if not _is_installed(library)]
    if missing:
        raise ImportError(
            f'--backend {backend} needs {" and ".join(missing)}: pip install "sentence-transformers[{backend}]"'
        )


def _is_installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # the package that the module is in
        return False


def check_device(device: str) -> None:
    """Check that a device that `--device` names is there.

    Raises:
        ValueError: If it is not.

    Example:
        >>> check_device("gpu")
        Traceback (most recent call last):
        ValueError: --device gpu: there is no such device here; there are: cpu...
    """
    import torch

    there = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    there += ["cuda"] if there else []
    there += ["mps", "mps:0"] if torch.backends.mps.is_available() else []
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = ""
    if not kind or (kind in ("cuda", "mps") and device not in there):
        raise ValueError(f"--device {device}: there is no such device here; there are: {', '.join(['cpu', *there])}")


def load_calibration(path: str | None) -> CalibrationLayer | None:
    """The calibration that `--calibration` names; None without one.

    Raises:
        ValueError: If there is no such folder.
    """
    if path is None:
        return None
    from st_xlret.modules.calibration_layer import CalibrationLayer

    if not os.path.isdir(path):
        raise ValueError(f"--calibration {path}: no such folder; give one that CalibrationLayer.save wrote.")
    return CalibrationLayer.load(path)
