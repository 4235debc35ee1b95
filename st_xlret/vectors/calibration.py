"""A calibration of stored vectors: fitted on a sample of them, applied with NumPy alone, saved for any language."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from st_xlret.files import atomic_directory, write_json

if TYPE_CHECKING:
    from torch import Tensor

    from st_xlret.calibration import CalibrationOptions, RoleCalibrations

FILE, WEIGHTS = "calibration.json", "calibration.safetensors"

_ABOUT: dict[str, Any] = {
    "dimension": int, "languages": list, "queries_only": bool, "metric": str, "model": str | None, "steps": list,
    "strength": float | int,
}  # fmt: skip

_USE = """\
# A calibration of vectors

It was fitted on vectors of {dimension} dimensions{of_model}, compared by {metric}. {sides}

`calibration.safetensors` has float32 tensors: `weight` (maps, {dimension}, {dimension}) and `bias` (maps, {dimension}).
{maps} In any programming language, for a vector x:

    x = x / length(x)
    y = weight[map] · x + bias[map]
    y = y / length(y)

With NumPy and safetensors:

    import numpy as np
    import safetensors.numpy

    tensors = safetensors.numpy.load_file("calibration.safetensors")
    weight, bias = tensors["weight"][{number}], tensors["bias"][{number}]
    mapped = weight @ (vector / np.linalg.norm(vector)) + bias
    mapped /= np.linalg.norm(mapped)

To go back, leave it out.
"""


@dataclass(frozen=True, eq=False)
class VectorCalibration:
    """A calibration of vectors that are stored already, whatever made them: an encoder, or a service.

    It is one affine map, or one for each language, between vectors of unit length. `fit` makes it, `transform` applies
    it with NumPy alone, and `save` writes it for programs in any language. The maps are those of
    [`fit_calibration`][st_xlret.fit_calibration]; a model that has them built in is made by
    [`calibrate`][st_xlret.calibrate].

    Attributes:
        weight: W, (L, d, d) float32; L is 1 without languages.
        bias: b, (L, d) float32.
        languages: The languages of the maps, in their order; empty for one map for all vectors.
        queries_only: Whether queries alone are mapped, and documents stay as they are.
        metric: How the vectors are compared: "cosine", "dot" or "euclidean".
        model: Name of the model that made the vectors, if it is known.
        steps: The steps, kept as a record.
        strength: Strength of the steps, kept as a record.

    Example:
        >>> generator = np.random.default_rng(0)
        >>> stored = {"en": generator.normal(size=(99, 4)) + [2, 0, 0, 0], "fr": generator.normal(size=(99, 4))}
        >>> calibration = VectorCalibration.fit(stored, queries_only=True)
        >>> calibration.transform(stored["en"][0]).shape
        (4,)
    """

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    languages: Sequence[str] = ()
    queries_only: bool = False
    metric: str = "cosine"
    model: str | None = None
    steps: Sequence[str] = ()
    strength: float = 1.0

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return self.weight.shape[-1]

    @property
    def fingerprint(self) -> str:
        """What tells its maps from others: 16 hexadecimal digits."""
        content = self.weight.tobytes() + self.bias.tobytes() + repr(tuple(self.languages)).encode()
        return hashlib.sha256(content).hexdigest()[:16]

    @classmethod
    def fit(
        cls,
        vectors: Mapping[str, ArrayLike] | ArrayLike,
        languages: Iterable[str] | None = None,
        *,
        steps: Sequence[str] = ("lsar",),
        queries_only: bool = False,
        strength: float = 1.0,
        pivot: str = "en",
        metric: str | None = None,
        model: str | None = None,
        options: CalibrationOptions | None = None,
    ) -> VectorCalibration:
        """Fit a calibration to a sample of vectors; 50 of each language do, and 300 lose little against all.

        Args:
            vectors: Language -> (n, d); or one matrix (n, d) with `languages`. Of any length: they are scaled to unit
                length first.
            languages: The language of each row of a matrix.
            steps: The steps, see [`fit_calibration`][st_xlret.fit_calibration]; all but `"to_pivot"`. With the default,
                `"lsar"`, nobody has to know the language of a vector.
            queries_only: Fit a map of queries alone: the stored documents stay as they are. For the steps `"lsar"` and
                `"shift"`.
            strength: From 0, which leaves the directions of vectors as they are, to 1.
            pivot: Language of the step `"rotate"`.
            metric: How the store compares vectors: "cosine", the default, "dot" or "euclidean".
            model: Name of the model that made the vectors; `check` compares it.
            options: Further options of the steps.

        Raises:
            ValueError: If there are fewer than two languages, a language has too few vectors, vectors have several
                lengths, hold NaN or zeros alone, or are not of unit length where the metric is not the cosine; or if
                vectors have no map of a step.
        """
        from st_xlret.calibration import fit_role_calibrations

        check_steps(steps)
        units = unit_vectors(vectors, languages, metric=metric)
        fitted = fit_role_calibrations(
            units, steps=steps, strength=strength, pivot=pivot, options=options, queries_only=queries_only
        )
        return cls.of_layers(fitted, metric=metric, model=model)

    def transform(
        self,
        vectors: ArrayLike,
        role: Literal["query", "document"] = "query",
        language: str | Sequence[str] | None = None,
    ) -> NDArray[np.float32]:
        """Map vectors; the result has unit length. Documents of a map of queries alone are returned as they are.

        Args:
            vectors: One vector (d,) or rows (n, d), of any length and floating type.
            role: Whether they are queries or documents.
            language: The language of all rows, or of each. Not needed where one map serves all.

        Raises:
            ValueError: If the vectors have another number of dimensions, hold NaN or zeros alone, or a language is
                missing or has no map.
        """
        if role not in ("query", "document"):
            raise ValueError(f"role must be 'query' or 'document', got {role!r}")
        given = np.asarray(vectors)
        if given.ndim not in (1, 2) or given.shape[-1] != self.dimension:
            raise ValueError(
                f"vectors have the shape {given.shape}, and the calibration {self.dimension} dimensions: "
                "map vectors of the model that it was fitted for"
            )
        if role == "document" and self.queries_only:
            return given.astype(np.float32, copy=False)
        rows = np.atleast_2d(given).astype(np.float32, copy=False)
        lengths = _lengths(rows, "vectors")[:, None]
        if not self.languages:
            mapped = self._mapped(rows, lengths, 0)
        else:
            codes = [language] * len(rows) if language is None or isinstance(language, str) else list(language)
            if len(codes) != len(rows):
                raise ValueError(f"{len(codes)} languages are given for {len(rows)} vectors")
            if unknown := sorted({str(code) for code in codes if code not in self.languages}):
                raise ValueError(
                    f"no map for the language {', '.join(unknown)}: there are maps for {', '.join(self.languages)}, "
                    "and the language of each vector has to be given"
                )
            mapped = np.empty_like(rows)
            of_row = np.array([self.languages.index(str(code)) for code in codes])
            for number in np.unique(of_row):
                own = of_row == number
                mapped[own] = self._mapped(rows[own], lengths[own], number)
        return mapped[0] if given.ndim == 1 else mapped

    def check(self, *, dimension: int, metric: str | None = None, model: str | None = None, name: str = "") -> None:
        """Refuse vectors of another kind than those that the map was fitted for.

        Args:
            dimension: Numbers in a vector.
            metric: How they are compared; None where nobody says, as in a file.
            model: Name of the model that made them; None where nobody says.
            name: What they are, for the message.

        Raises:
            ValueError: If one differs; the message names both.
        """
        found: dict[str, tuple[Any, Any]] = {
            "dimensions": (self.dimension, dimension), "metric": (self.metric, metric), "model": (self.model, model)
        }  # fmt: skip
        for what, (own, other) in found.items():
            if own is not None and other is not None and own != other:
                raise ValueError(
                    f"{name or 'the vectors'}: {what} {other}, but the calibration was fitted for {what} {own}: "
                    "fit one on these vectors (st-xlret calibrate --vectors)"
                )

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write `calibration.safetensors`, `calibration.json` and a README.md that says how to use them.

        Args:
            folder: A new folder.
            overwrite: Replace a calibration that is there.

        Returns:
            The folder.

        Raises:
            FileExistsError: If something is there already, or something else with `overwrite`.
            OSError: If it cannot be written.
        """
        from safetensors.numpy import save_file

        about = {
            "dimension": self.dimension,
            "languages": list(self.languages),
            "queries_only": self.queries_only,
            "metric": self.metric,
            "model": self.model,
            "steps": list(self.steps),
            "strength": self.strength,
        }
        with atomic_directory(folder, overwrite=overwrite) as target:
            save_file({"weight": self.weight, "bias": self.bias}, target / WEIGHTS)
            write_json(target / FILE, about)
            (target / "README.md").write_text(self._use(), encoding="utf-8")
        return Path(folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> VectorCalibration:
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: If there is no calibration in the folder.
            ValueError: If a file is damaged, or the files do not fit each other.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        path = Path(folder)
        if not (path / FILE).is_file():
            raise FileNotFoundError(
                f"{path} holds no calibration of vectors (no {FILE}): st-xlret calibrate --vectors writes one"
            )
        try:
            about = json.loads((path / FILE).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path / FILE} is damaged: {error}") from error
        found = about if isinstance(about, dict) else {}
        wrong = [name for name, kind in _ABOUT.items() if not isinstance(found.get(name, ...), kind)]
        if wrong := [*wrong, *(found.keys() - _ABOUT)]:
            raise ValueError(f"{path / FILE} is damaged: {wrong[0]!r} is missing, of another type, or unknown")
        try:
            tensors, dimension = load_file(path / WEIGHTS), about.pop("dimension")
        except (SafetensorError, FileNotFoundError) as error:
            raise ValueError(f"{path / WEIGHTS} is damaged or missing: {error}") from error
        maps = max(1, len(about["languages"]))
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        if shapes != {"weight": (maps, dimension, dimension), "bias": (maps, dimension)}:
            raise ValueError(f"{path}: {WEIGHTS} has {shapes}, and {FILE} says {maps} maps of {dimension} dimensions")
        if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
            raise ValueError(f"{path / WEIGHTS} is damaged: it holds NaN or infinite numbers")
        return cls(tensors["weight"], tensors["bias"], **about)

    @classmethod
    def of_layers(
        cls, layers: RoleCalibrations, *, metric: str | None = None, model: str | None = None
    ) -> VectorCalibration:
        """The maps of layers that were fitted on vectors of unit length; see `fit` for the arguments."""
        layer = layers.query or layers.document
        return cls(
            layer.weight.numpy().copy(),
            layer.bias.numpy().copy(),
            tuple(layer.languages),
            layers.queries_only,
            metric or "cosine",
            model,
            tuple(layer.steps),
            layer.strength,
        )

    def _mapped(self, rows: NDArray[np.float32], lengths: NDArray[np.float32], number: int) -> NDArray[np.float32]:
        """W x + b in the direction of x / |x|: with |x| b instead of b, rows are not divided twice."""
        mapped: NDArray[np.float32] = rows @ self.weight[number].T
        mapped += lengths * self.bias[number]
        mapped /= _lengths(mapped, "mapped vectors")[:, None]
        return mapped

    def _use(self) -> str:
        sides = "Queries and documents are mapped."
        if self.queries_only:
            sides = "Queries alone are mapped; the stored documents stay as they are."
        maps = "One map serves all languages."
        if self.languages:
            maps = f"Maps 0 to {len(self.languages) - 1} are of vectors in {', '.join(self.languages)}."
        return _USE.format(
            dimension=self.dimension,
            of_model=f" of {self.model}" if self.model else "",
            metric=self.metric,
            sides=sides,
            maps=maps,
            number="map" if self.languages else 0,
        )


def check_steps(steps: Sequence[str]) -> None:
    """Refuse steps of which stored vectors have no map, with a `ValueError`."""
    if "to_pivot" in steps:
        raise ValueError(
            "to_pivot moves documents and leaves queries in the pivot as they are, and stored vectors have one map for "
            "both: take lsar or shift, or calibrate the model (--model)"
        )


def unit_vectors(
    vectors: Mapping[str, ArrayLike] | ArrayLike, languages: Iterable[str] | None = None, *, metric: str | None = None
) -> dict[str, Tensor]:
    """Language -> its vectors, of unit length; the arguments and errors are those of `VectorCalibration.fit`."""
    import torch

    if isinstance(vectors, Mapping):
        if languages is not None:
            raise ValueError("the vectors are by language already: leave languages out")
        clouds = {str(code): np.asarray(rows, dtype=np.float32) for code, rows in vectors.items()}
    else:
        matrix = np.asarray(vectors, dtype=np.float32)
        codes = np.array([] if languages is None else [str(code) for code in languages])
        if len(codes) != len(matrix):
            raise ValueError(f"{len(matrix)} vectors need as many languages, one for each row; got {len(codes)}")
        clouds = {code: matrix[codes == code] for code in sorted(set(codes.tolist()))}
    if len(clouds) < 2:
        there = ", ".join(clouds) or "none"
        raise ValueError(f"all vectors are in one language ({there}): there is no language bias to remove")
    shapes = {code: rows.shape for code, rows in clouds.items()}
    if any(len(shape) != 2 for shape in shapes.values()) or len({shape[-1] for shape in shapes.values()}) > 1:
        raise ValueError(
            f"vectors are matrices (rows, dimension) of one dimension, got {shapes}: are they of one model?"
        )
    units = {}
    for code, rows in clouds.items():
        lengths = _lengths(rows, f"vectors of {code!r}")
        if metric not in (None, "cosine") and not np.allclose(lengths, 1, atol=0.02):
            raise ValueError(
                f"the metric is {metric}, and the vectors of {code!r} have lengths from {lengths.min():.3g} to "
                f"{lengths.max():.3g}: a calibration maps directions. Store vectors of unit length, or search by cosine"
            )
        units[code] = torch.from_numpy(rows / lengths[:, None])
    return units


def _lengths(rows: NDArray[np.float32], what: str) -> NDArray[np.float32]:
    """The length of each row, (n,); rows of NaN or of zeros have none."""
    squares = np.einsum("nd,nd->n", rows, rows)
    usable = np.isfinite(squares) & (squares >= np.finfo(np.float32).tiny)
    if not usable.all():
        bad = np.flatnonzero(~usable)
        reason = "NaN or infinite numbers" if not np.isfinite(squares[bad[0]]) else "zeros alone, or nearly"
        raise ValueError(
            f"{len(bad)} of {len(rows)} {what} cannot be mapped, first row {bad[0]}, which holds {reason}: leave them "
            "out, or embed their texts again"
        )
    lengths: NDArray[np.float32] = np.sqrt(squares)
    return lengths
