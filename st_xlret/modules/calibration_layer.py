"""A fitted calibration as a module: an affine map of embeddings per language, or one for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers.base.modules import Module
from torch import Tensor

from st_xlret.languages import id_to_language, language_form

HUB_OPTIONS = ("subfolder", "token", "cache_folder", "revision", "local_files_only")
TENSORS = ("basis", "matrix", "offset")


class CalibrationLayer(Module):
    """One affine map per language over sentence embeddings (CCP, Wu et al. 2022, section 3.2).

    The map is `x -> x + B (M B^T x + m)`, the tensors of a saved
    [`VectorCalibration`][st_xlret.VectorCalibration]. A new layer is the identity;
    `VectorCalibration.layer` gives fitted ones, and [`export`][st_xlret.export] makes them a part
    of a model that loads without st-xlret.

    Args:
        dimension: Size d of an embedding.
        languages: Language codes, in the order of the maps. Empty for one map for all text.
        tensors: `basis` (d, r), `matrix` M (1 or maps, r, r) and `offset` m (maps, r). Default: B =
            I, and zeros.
        steps: Kept as a record of the fit, like the other arguments, which are
            `VectorCalibration`'s.

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
        "metric",
        "model",
        "notes",
    ]
    """What `calibration.json` has, also of a `VectorCalibration`: the arguments but the tensors."""
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
        self.dimension = dimension
        self.languages = list(map(language_form, languages))
        self.steps = list(steps)
        self.strength = strength
        self.pivot = pivot
        self.normalize = normalize
        self.queries_only = queries_only
        self.metric = metric
        self.model = model
        self.notes = dict(notes or {})
        maps = max(1, len(self.languages))
        if tensors is None:
            tensors = _identity_maps(maps, dimension)
        for name in TENSORS:
            tensor = torch.as_tensor(tensors[name], dtype=torch.float32)
            self.register_buffer(name, tensor.clone())
        self._check_maps(maps)

    def _check_maps(self, maps: int) -> None:
        """Refuse buffers whose shapes are not those of so many maps."""
        rank = self.basis.shape[-1]
        shapes = [tuple(tensor.shape) for tensor in self.buffers()]
        # One matrix may serve all languages.
        fits = False
        for matrices in (1, maps):
            fits |= shapes == [(self.dimension, rank), (matrices, rank, rank), (maps, rank)]
        if not fits or len(set(self.languages)) < len(self.languages):
            raise ValueError(
                f"no maps of {self.dimension} dimensions for the languages {self.languages}: "
                f"{shapes}"
            )

    @property
    def language_agnostic(self) -> bool:
        """Whether one map applies to all text."""
        return not self.languages

    def map_of(self, language: str | None) -> tuple[Tensor, Tensor]:
        """Weight (d, d) and bias (d,) of a language's map.

        A `ValueError` names the languages that have one.
        """
        matrix, offset = self._matrix_and_offset(language)
        identity = torch.eye(self.dimension).to(matrix)
        return identity + self.basis @ matrix @ self.basis.T, self.basis @ offset

    def check_width(self, width: int | None) -> None:
        """Refuse, by a `ValueError`, a model whose embeddings have another width.

        None is unknown.
        """
        if width not in (None, self.dimension):
            raise ValueError(f"the model has {width} dimensions, the calibration {self.dimension}")

    def transform(self, embeddings: Tensor, language: str | None = None) -> Tensor:
        """Map embeddings (..., d), a tensor or a NumPy array, of one language.

        They are scaled to unit length, before and after, if the layer has `normalize`.
        """
        embeddings = torch.as_tensor(embeddings)
        matrix, offset = self._matrix_and_offset(language)
        if self.normalize:
            embeddings = F.normalize(embeddings, dim=-1)
        basis = self.basis.to(embeddings)
        matrix = matrix.to(embeddings)
        offset = offset.to(embeddings)
        mapped = embeddings + (embeddings @ basis @ matrix.T + offset) @ basis.T
        if self.normalize:
            return F.normalize(mapped, dim=-1)
        return mapped

    def forward(
        self, features: dict[str, Any], language: str | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Map `features["sentence_embedding"]` (B, d).

        The rows are of one `language`, or each is of that of `features["language_id"]`.
        """
        embeddings = features["sentence_embedding"]
        language_ids = features.get("language_id")
        if self.language_agnostic or language is not None or language_ids is None:
            features["sentence_embedding"] = self.transform(embeddings, language)
            return features
        mapped = torch.empty_like(embeddings)
        for identifier in language_ids.unique().tolist():
            rows = language_ids == identifier
            mapped[rows] = self.transform(embeddings[rows], id_to_language(identifier))
        features["sentence_embedding"] = mapped
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
        """What `save`, or a `VectorCalibration`, wrote.

        The host calls it, in loading with `trust_remote_code`.
        """
        hub = {name: kwargs[name] for name in HUB_OPTIONS if name in kwargs}
        place = str(model_name_or_path)
        tensors = cls.load_torch_weights(place, **hub)
        return cls(**cls.load_config(place, **hub), tensors=tensors)

    def _matrix_and_offset(self, language: str | None) -> tuple[Tensor, Tensor]:
        """M (r, r) and m (r,) of a language.

        A `ValueError` names the languages that have a map.
        """
        number = 0
        if self.languages:
            code = language_form(language)
            if code not in self.languages:
                known = ", ".join(self.languages)
                raise ValueError(f"no map for language {language!r}: there are maps for {known}")
            number = self.languages.index(code)
        shared_or_own = min(number, len(self.matrix) - 1)
        return self.matrix[shared_or_own], self.offset[number]


def _identity_maps(maps: int, dimension: int) -> dict[str, Tensor]:
    """The tensors of maps that change nothing."""
    return {
        "basis": torch.eye(dimension),
        "matrix": torch.zeros(maps, dimension, dimension),
        "offset": torch.zeros(maps, dimension),
    }
