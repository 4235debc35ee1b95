"""Loading the models and calibrations that programs are given, with errors that name the option."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from huggingface_hub.constants import HF_HUB_OFFLINE

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from st_xlret.modules.calibration_layer import CalibrationLayer


def load_model(name: str, device: str | None = None) -> SentenceTransformer:
    """The model that the option `--model` of a program names.

    Args:
        name: A folder, or a name on the Hugging Face Hub.
        device: Such as "cuda:1". Default: the best there is.

    Raises:
        ValueError: If there is no such model or device.
    """
    from sentence_transformers import SentenceTransformer

    from st_xlret.hub.card import CrossLingualCardData

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
        return SentenceTransformer(path, device=device, model_card_data=card)
    except ImportError:  # a library that the model needs, which the message names
        raise
    except Exception as error:  # of the host, of safetensors, of tokenizers, of JSON
        if is_folder:
            raise ValueError(f"--model {name}: the model in this folder is damaged: {error}") from error
        hint = " HF_HUB_OFFLINE is set: only folders and cached models can be loaded." if HF_HUB_OFFLINE else ""
        raise ValueError(
            f"--model {name}: there is no such folder, and from the Hub it cannot be loaded: {error}{hint}"
        ) from error


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
