"""A fitted calibration as a module: one affine map of sentence embeddings per language, or one for all languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers.base.modules import Module
from torch import Tensor

from st_xlret.languages import id_to_language

HUB_OPTIONS = {"subfolder", "token", "cache_folder", "revision", "local_files_only"}


class CalibrationLayer(Module):
    """One affine map per language over sentence embeddings (CCP, Wu et al. 2022, section 3.2).

    The map is `x -> x + B (M B^T x + m)`, the tensors of a saved [`VectorCalibration`][st_xlret.VectorCalibration]. A
    new layer is the identity; [`fit_calibration`][st_xlret.fit_calibration] returns fitted ones, and
    [`export`][st_xlret.export] makes them a part of a model that loads without st-xlret.

    Args:
        dimension: Size d of an embedding.
        languages: Language codes, in the order of the maps. Empty for one map for all text.
        tensors: `basis` (d, r), `matrix` M (1 or maps, r, r) and `offset` m (maps, r). Default: B = I, and zeros.
        steps: Kept as a record of the fit, like the other arguments, which are `VectorCalibration`'s.

    Example:
        >>> layer = CalibrationLayer(2, ["en", "fr"], pivot="en")
        >>> layer.offset[1] = torch.tensor([0.5, 0.0])
        >>> layer.transform(torch.ones(1, 2), "fr")
        tensor([[1.5000, 1.0000]])
    """

    basis: Tensor
    matrix: Tensor
    offset: Tensor
    config_file_name = "calibration.json"
    config_keys = [
        "dimension",
        "languages",
        "steps",
        "strength",
        "pivot",
        "normalize",
        "queries_only",
    ]
    config_keys += ["metric", "model", "notes"]
    forward_kwargs = {"language"}

    def __init__(
        self,
        dimension: int,
        languages: Sequence[str] = (),
        *,
        tensors: Mapping[str, Any] | None = None,
        steps: Sequence[str] = (),
        strength: float = 1.0,
        pivot: str | None = None,
        normalize: bool = False,
        queries_only: bool = False,
        metric: str = "cosine",
        model: str | None = None,
        notes: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.dimension, self.languages, self.steps = dimension, list(languages), list(steps)
        self.strength, self.pivot, self.normalize, self.queries_only = (
            strength,
            pivot,
            normalize,
            queries_only,
        )
        self.metric, self.model, self.notes = metric, model, dict(notes or {})
        maps = max(1, len(self.languages))
        if tensors is None:
            zeros = torch.zeros(maps, dimension, dimension)
            tensors = {"basis": torch.eye(dimension), "matrix": zeros, "offset": zeros[:, 0]}
        for name in ("basis", "matrix", "offset"):
            self.register_buffer(name, torch.as_tensor(tensors[name], dtype=torch.float32).clone())
        rank, shapes = self.basis.shape[-1], [tuple(tensor.shape) for tensor in self.buffers()]
        fitting = [
            [(dimension, rank), (matrices, rank, rank), (maps, rank)] for matrices in (1, maps)
        ]
        if shapes not in fitting or len(set(self.languages)) < len(self.languages):
            raise ValueError(
                f"no maps of {dimension} dimensions for the languages {self.languages}: {shapes}"
            )

    @property
    def language_agnostic(self) -> bool:
        """Whether one map applies to all text."""
        return not self.languages

    def map_of(self, language: str | None) -> tuple[Tensor, Tensor]:
        """Weight (d, d) and bias (d,) of a language's map; a `ValueError` names the languages that have one."""
        matrix, offset = self._matrix_and_offset(language)
        return torch.eye(self.dimension).to(
            matrix
        ) + self.basis @ matrix @ self.basis.T, self.basis @ offset

    def check_width(self, width: int | None) -> None:
        """Refuse, by a `ValueError`, a model whose embeddings have another width; None is unknown."""
        if width not in (None, self.dimension):
            raise ValueError(f"the model has {width} dimensions, the calibration {self.dimension}")

    def transform(self, embeddings: Tensor, language: str | None = None) -> Tensor:
        """Map embeddings (..., d), a tensor or a NumPy array, of one language; they are not scaled to unit length."""
        embeddings = torch.as_tensor(embeddings)
        basis, matrix, offset = (
            tensor.to(embeddings) for tensor in (self.basis, *self._matrix_and_offset(language))
        )
        return embeddings + (embeddings @ basis @ matrix.T + offset) @ basis.T

    def forward(
        self, features: dict[str, Any], language: str | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Map `features["sentence_embedding"]` (B, d), of one `language` or of each row's `features["language_id"]`."""
        embeddings, language_ids = features["sentence_embedding"], features.get("language_id")
        if self.language_agnostic or language is not None or language_ids is None:
            features["sentence_embedding"] = self.transform(embeddings, language)
            return features
        features["sentence_embedding"] = torch.empty_like(embeddings)
        for identifier in language_ids.unique().tolist():
            rows = language_ids == identifier
            features["sentence_embedding"][rows] = self.transform(
                embeddings[rows], id_to_language(identifier)
            )
        return features

    def get_embedding_dimension(self) -> int:
        """Size of an embedding, which the map does not change."""
        return self.dimension

    def save(self, output_path: str | Path, *args: Any, **kwargs: Any) -> None:
        """Write `calibration.json` and `model.safetensors` into a folder."""
        Path(output_path).mkdir(parents=True, exist_ok=True)
        self.save_config(str(output_path))
        self.save_torch_weights(str(output_path))

    @classmethod
    def load(cls, model_name_or_path: str | Path, **kwargs: Any) -> CalibrationLayer:  # type: ignore[override]
        """What `save`, or a `VectorCalibration`, wrote; the host calls it, in loading with `trust_remote_code`."""
        hub = {name: kwargs[name] for name in HUB_OPTIONS & kwargs.keys()}
        tensors = cls.load_torch_weights(str(model_name_or_path), **hub)
        return cls(**cls.load_config(str(model_name_or_path), **hub), tensors=tensors)

    def _matrix_and_offset(self, language: str | None) -> tuple[Tensor, Tensor]:
        """M (r, r) and m (r,) of a language."""
        if self.languages and language not in self.languages:
            raise ValueError(
                f"no map for language {language!r}: there are maps for {', '.join(self.languages)}"
            )
        number = self.languages.index(str(language)) if self.languages else 0
        return self.matrix[min(number, len(self.matrix) - 1)], self.offset[number]
