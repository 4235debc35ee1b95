"""Adapters (LoRA and its like) of an encoder: merged into its weights, and their files."""

import json
from collections.abc import Iterable
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.modules.encoders import outermost_transformers, routers_of

_FILES = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
_COMPARED = ["a", "The sun shines today.", "雨が降っています。", "Вечером будет снег, 12 °C."]
"""Texts whose vectors are the same before and after."""


def has_adapters(model: SentenceTransformer) -> bool:
    """Whether a Transformer of a model has adapters."""
    return any(getattr(part, "peft_config", None) for part in outermost_transformers(model))


def merge_adapters(model: SentenceTransformer) -> SentenceTransformer:
    """Add the adapters of a model to its weights, in place.

    A plain model with the same vectors is left.

    Raises:
        ValueError: The vectors are others: the adapters are of a kind that cannot be merged.
    """
    if not has_adapters(model):
        return model
    before = _vectors_of_routes(model)
    for transformer in outermost_transformers(model):
        if getattr(transformer, "peft_config", None):
            _merge_adapters_of(transformer)
    _check_same_vectors(before, _vectors_of_routes(model), _tolerance(model))
    return model


def _merge_adapters_of(transformer: Any) -> None:
    """Merge adapters into the weights, in place; all weights can be trained then.

    What tells the host of adapters goes, its private names as well: it would save them.
    """
    for parent in list(transformer.modules()):
        for name, layer in list(parent.named_children()):
            if hasattr(layer, "unload_and_optionally_merge_module"):
                # A layer that was trained whole (`modules_to_save`), or some rows of one.
                merged = layer.unload_and_optionally_merge_module(
                    merge=True, safe_merge=True, adapter_names=None
                )
                setattr(parent, name, merged)
            elif hasattr(layer, "get_base_layer"):
                layer.merge(safe_merge=True)
                setattr(parent, name, layer.get_base_layer())
    del transformer.peft_config
    transformer._hf_peft_config_loaded = False  # else the host would save adapters
    # Else it would save weights under names of the adapter.
    vars(transformer).pop("_weight_conversions", None)
    transformer.requires_grad_(True)


def _vectors_of_routes(model: SentenceTransformer) -> dict[str | None, Tensor]:
    """The vectors of some texts by each route of a model."""
    routes: list[str | None] = [None]
    for router in routers_of(model):
        routes.extend(router.sub_modules)
    is_training = model.training
    vectors = {}
    with torch.autocast(model.device.type, enabled=False):
        for route in routes:
            vectors[route] = model.encode(
                _COMPARED, task=route, convert_to_tensor=True, show_progress_bar=False
            ).float()
    model.train(is_training)
    return vectors


def _tolerance(model: SentenceTransformer) -> float:
    """How much of its length a vector may move: what rounding the weights may cost."""
    precisions = []
    for weight in model.parameters():
        if weight.is_floating_point():
            precisions.append(torch.finfo(weight.dtype).eps)
    return float(max(precisions) ** 0.5)


def _check_same_vectors(
    before: dict[str | None, Tensor],
    after: dict[str | None, Tensor],
    tolerance: float,
) -> None:
    """Refuse a merge after which a vector has moved by more than this part of its length."""
    for route, expected in before.items():
        lengths = expected.norm(dim=1)
        moved = (after[route] - expected).norm(dim=1) / lengths.clamp(min=1e-12)
        if float(moved.max()) > tolerance:
            of_route = f" of {route!r}" if route else ""
            raise ValueError(
                f"the adapters cannot be merged: vectors{of_route} would move by "
                f"{float(moved.max()):.1g} of their length. Keep the model as it is saved with its "
                "adapters, or train it without"
            )


def delete_adapters(model_folder: Path) -> None:
    """Delete the adapters of the modules which are saved in a folder."""
    paths = [path.relative_to(model_folder) for path in model_folder.rglob("adapter_*")]
    for path in adapter_files(paths, model_folder):
        (model_folder / path).unlink()


def adapter_files(paths: Iterable[PurePath], model_folder: Path) -> list[PurePath]:
    """Those of the paths, relative to a model's folder, that are adapters of its saved modules.

    Adapters of other models below it, and of checkpoints, are none of them.
    """
    own = _module_folders(model_folder)
    files = []
    for path in paths:
        if path.name in _FILES and path.parent.as_posix() in own:
            files.append(path)
    return files


def _module_folders(model_folder: Path) -> set[str]:
    """The folders of a saved model's modules, and of those inside a `Router`."""
    folders = set()
    for module in _read_json(model_folder / "modules.json"):
        folder = PurePosixPath(module["path"])
        folders.add(str(folder))
        router = model_folder / folder / "router_config.json"
        if router.exists():
            folders.update(str(folder / name) for name in _read_json(router)["types"])
    return folders


def _read_json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))
