"""The maps that calibration fits, as a module: one affine map per language, or one for all languages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers.base.modules import Module
from torch import Tensor


class CalibrationLayer(Module):
    """One affine map per language over sentence embeddings (CCP, Wu et al. 2022, section 3.2).

    Shift, scale, rotation and the projections that remove language bias are all affine, so that every fitted
    calibration is `y = W_l x + b_l`. A layer without languages has a single map for all text and needs to know no
    language. A new layer is the identity; `st_xlret.fit_calibration` returns fitted ones.

    In a pipeline the layer reads `features["language_id"]` (B,) or takes `encode(texts, language="fr")`. To publish a
    model use `st_xlret.export`: the exported model loads without st-xlret.

    Args:
        dimension: Size d of an embedding.
        languages: Language codes, in the order of the maps. Empty for one map for all text.
        pivot: The language into whose space the others are mapped.
        steps: The steps of the calibration, kept as a record.
        strength: The strength of the steps, kept as a record.
        notes: Further notes on the fit, for example which rotation was chosen for a language. Saved as JSON.

    Attributes:
        weight: W, (L, d, d) float32; L is 1 without languages.
        bias: b, (L, d) float32.

    Raises:
        ValueError: If the dimension is below 1, a language is named twice, or the pivot is not one of the languages.

    Example:
        >>> layer = CalibrationLayer(2, ["en", "fr"], pivot="en")
        >>> layer.bias[1] = torch.tensor([0.5, 0.0])
        >>> layer.transform(torch.ones(1, 2), "fr")
        tensor([[1.5000, 1.0000]])
    """

    weight: Tensor
    bias: Tensor
    config_file_name = "calibration_config.json"
    config_keys = ["dimension", "languages", "pivot", "steps", "strength", "notes"]
    forward_kwargs = {"language"}

    def __init__(
        self,
        dimension: int,
        languages: Sequence[str] = (),
        *,
        pivot: str | None = None,
        steps: Sequence[str] = (),
        strength: float = 1.0,
        notes: dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        if dimension < 1:
            raise ValueError(f"dimension must be at least 1, got {dimension}")
        if len(set(languages)) != len(languages):
            raise ValueError(f"languages are named twice in {list(languages)}")
        if pivot is not None and languages and pivot not in languages:
            raise ValueError(f"pivot {pivot!r} is none of the languages {list(languages)}")
        self.dimension = dimension
        self.languages = list(languages)
        self.pivot = pivot
        self.steps = list(steps)
        self.strength = strength
        self.notes = dict(notes or {})
        maps = max(1, len(self.languages))
        self.register_buffer("weight", torch.eye(dimension).repeat(maps, 1, 1))
        self.register_buffer("bias", torch.zeros(maps, dimension))
        self._index_of = {language: index for index, language in enumerate(self.languages)}
        self._index_of_id = {_language_id(language): index for language, index in self._index_of.items()}

    @property
    def language_agnostic(self) -> bool:
        """Whether one map applies to all text."""
        return not self.languages

    def map_of(self, language: str | None) -> tuple[Tensor, Tensor]:
        """Weight (d, d) and bias (d,) of a language's map; a `ValueError` names the languages that have one."""
        if self.language_agnostic:
            return self.weight[0], self.bias[0]
        if language not in self._index_of:
            raise self._unknown(language)
        index = self._index_of[language]
        return self.weight[index], self.bias[index]

    def transform(self, embeddings: Tensor, language: str | None = None) -> Tensor:
        """Map embeddings (..., d), as a tensor or a NumPy array, of one language; they are not scaled to unit length.

        Raises:
            ValueError: If the layer has no map for the language, or the embeddings have another size.
        """
        embeddings = torch.as_tensor(embeddings)
        if embeddings.shape[-1] != self.dimension:
            raise ValueError(
                f"embeddings have {embeddings.shape[-1]} dimensions, the calibration {self.dimension}: "
                "fit it on embeddings of this model, without truncate_dim"
            )
        weight, bias = self.map_of(language)
        return F.linear(embeddings, weight.to(embeddings), bias.to(embeddings))

    def forward(self, features: dict[str, Any], language: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Replace `features["sentence_embedding"]` (B, d) by its calibrated value.

        The language is `language`, or each row's `features["language_id"]`; a language-agnostic layer needs none.

        Raises:
            ValueError: If a language is missing or unknown; the message names those that the layer has.
        """
        embeddings = features["sentence_embedding"]
        if self.language_agnostic or language is not None:
            features["sentence_embedding"] = self.transform(embeddings, language)
            return features
        if "language_id" not in features:
            raise ValueError(
                "this calibration is per language: pass language=..., one of "
                f"{', '.join(self.languages)}, or batches with 'language_id'"
            )
        calibrated = torch.empty_like(embeddings)
        for identifier in features["language_id"].unique().tolist():
            if identifier not in self._index_of_id:
                raise self._unknown(_language_code(identifier))
            rows = features["language_id"] == identifier
            code = self.languages[self._index_of_id[identifier]]
            calibrated[rows] = self.transform(embeddings[rows], code)
        features["sentence_embedding"] = calibrated
        return features

    def get_embedding_dimension(self) -> int:
        """Size of an embedding, which the map does not change."""
        return self.dimension

    def save(self, output_path: str | Path, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write `calibration_config.json` and `model.safetensors` into a folder, which is created if it does not exist.

        Raises:
            ValueError: If `safe_serialization` is off.
        """
        if not safe_serialization:
            raise ValueError("a CalibrationLayer is saved as safetensors only: leave safe_serialization=True")
        os.makedirs(output_path, exist_ok=True)
        self.save_config(str(output_path))
        self.save_torch_weights(str(output_path))

    @classmethod
    def load(  # type: ignore[override]
        cls,
        model_name_or_path: str | Path,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        **kwargs: Any,
    ) -> CalibrationLayer:
        """Read what `save` wrote, from a folder or from a repository on the Hub.

        Raises:
            ValueError: If no calibration was saved there.
        """
        hub_kwargs: dict[str, Any] = {
            "subfolder": subfolder,
            "token": token,
            "cache_folder": cache_folder,
            "revision": revision,
            "local_files_only": local_files_only,
        }
        config = cls.load_config(str(model_name_or_path), **hub_kwargs)
        if "dimension" not in config:
            raise ValueError(f"no {cls.config_file_name} in {model_name_or_path}: no calibration was saved there")
        return cls.load_torch_weights(str(model_name_or_path), model=cls(**config), **hub_kwargs)

    def _unknown(self, language: str | None) -> ValueError:
        return ValueError(
            f"no calibration for language {language!r}: this layer was fitted for {', '.join(self.languages)}"
        )


def _language_id(code: str) -> int:
    """The same as `st_xlret.languages.language_to_id`, which this room may not import."""
    return int.from_bytes(code.encode("ascii"), "big")


def _language_code(identifier: int) -> str:
    if identifier <= 0:
        return str(identifier)
    return identifier.to_bytes((identifier.bit_length() + 7) // 8, "big").decode("ascii", errors="replace")
