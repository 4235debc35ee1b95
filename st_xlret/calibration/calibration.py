"""A calibration: an affine map of vectors, or one for each language, fitted on a sample and applied by NumPy alone."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from st_xlret.calibration.steps import (
    OF_MEANS,
    STEPS,
    Floats,
    Maps,
    Moments,
    coral,
    lir,
    lsar,
    recolouring,
    scale,
    shift,
    to_pivot,
)
from st_xlret.files import atomic_directory, write_json

if TYPE_CHECKING:
    from st_xlret.modules.calibration_layer import CalibrationLayer

FILE, WEIGHTS = "calibration.json", "model.safetensors"

SEARCH_STEPS = OF_MEANS | {"coral"}
"""The steps that suit search. Where there are no others, a quarter of the mean of all languages is kept by default."""

QUERY_STEPS = ("lsar", "shift")
"""The steps that may map queries alone, while documents stay as they are."""

_KEPT_BY_DOCUMENTS, _KEPT_BY_QUERIES = 0.25, 0.5

Role = Literal["query", "document"]
Vectors = Mapping[str, ArrayLike]
Pairs = Mapping[str, tuple[ArrayLike, ArrayLike]]
"""Language -> vectors of its sentences (n, d) and of their translations into the pivot (n, d)."""

_README = """\
# A calibration of vectors

It was fitted on vectors of {dimension} dimensions{of_model}, compared by {metric}. {sides} {maps}

`model.safetensors` has float32 tensors: `basis` (d, r), and `matrix` (1 or maps, r, r) and `offset` (maps, r)
of {role}. In any programming language, for a vector x:

    x = x / length(x)
    y = x + basis · (matrix[{matrix}] · (transposed basis · x) + offset[{number}])
    y = y / length(y)

With NumPy and safetensors:

    import numpy as np
    import safetensors.numpy

    maps = safetensors.numpy.load_file("model.safetensors")
    basis, matrix, offset = maps["basis"], maps["{prefix}matrix"][{matrix}], maps["{prefix}offset"][{number}]
    unit = vector / np.linalg.norm(vector)
    mapped = unit + basis @ (matrix @ (basis.T @ unit) + offset)
    mapped /= np.linalg.norm(mapped)

To go back, leave it out.
"""


@dataclass(frozen=True, eq=False)
class VectorCalibration:
    """A calibration of vectors, whatever made them: an encoder, or a service that stored them.

    It is one affine map `x -> x + B (M B^T x + m)`, or one for each language, with an orthonormal basis B (d, r). Steps
    that means determine (`"lsar"`, `"shift"`, `"to_pivot"`) move vectors in the span of the languages' means alone: r
    is at most the number of languages then, and d for other steps. `fit` makes it, `transform` applies it with NumPy
    alone, and `save` writes it for programs in any language. [`calibrate`][st_xlret.calibrate] builds one into a model.

    Attributes:
        basis: B, (d, r).
        document: M and m of documents; None leaves documents as they are.
        query: M and m of queries, where they have maps of their own; None for those of documents.
        languages: The languages of the maps, in their order; empty for one map for all vectors.
        steps: The steps, kept as a record, as are the following.
        strength: Strength of the steps.
        pivot: The language into which others were mapped, and of texts that name none.
        normalize: Whether vectors are scaled to unit length before and after the map.
        metric: How the vectors are compared: "cosine", "dot" or "euclidean".
        model: Name of the model that made the vectors, if it is known.
        notes: What was found while it was fitted, such as the rotation that was chosen for a language.

    Example:
        >>> generator = np.random.default_rng(0)
        >>> stored = {"en": generator.normal(size=(99, 4)) + [2, 0, 0, 0], "fr": generator.normal(size=(99, 4))}
        >>> calibration = VectorCalibration.fit(stored, queries_only=True)
        >>> calibration.transform(stored["en"][0]).shape
        (4,)
    """

    basis: NDArray[Any]
    document: Maps | None
    query: Maps | None = None
    languages: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    strength: float = 1.0
    pivot: str | None = None
    normalize: bool = True
    metric: str = "cosine"
    model: str | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    _fit: _Fit | None = field(default=None, repr=False)

    @classmethod
    def fit(
        cls,
        documents: Vectors | ArrayLike,
        languages: Iterable[str] | None = None,
        *,
        queries: Vectors | None = None,
        steps: Sequence[str] = ("lsar",),
        strength: float = 1.0,
        queries_only: bool = False,
        pivot: str = "en",
        pairs: Pairs | None = None,
        keep_mean: float | None = None,
        lsar_rank: int | None = None,
        lir_components: int = 1,
        min_texts: int = 50,
        adversarial: bool = True,
        normalize: bool = True,
        metric: str | None = None,
        model: str | None = None,
        seed: int = 0,
    ) -> VectorCalibration:
        """Fit the maps that align the vectors of several languages (CCP, Wu et al. 2022, section 3.2).

        50 vectors of each language do for steps of means, and 300 lose little against all; other steps need 1 500.
        Steps run in the order given. Each is estimated on the output of the steps before it, at their strength s:

        - `"shift"` subtracts the language's mean: `x - s mean`.
        - `"scale"` divides by the language's standard deviation in each dimension: `x / std ** s`.
        - `"rotate"` applies an orthogonal map W into the pivot's space: the orthogonal matrix nearest to
          `(1 - s) I + s W`. Languages with `pairs` get the closed-form solution (Procrustes), the others the
          unsupervised search of Conneau et al. (2018). The pivot is not rotated.
        - `"lir"` subtracts the projection P on the language's top principal components (Yang et al. 2021): `x - s P x`.
        - `"lsar"` subtracts the projection on the subspace in which the languages' means differ (Xie et al. 2022), in
          the same way. It is the only step that is equal for all languages: alone, it needs no language.
        - `"coral"` gives every language the average covariance (Sun et al. 2016). Put it after `"shift"`.
        - `"to_pivot"` adds the difference of the pivot's mean and the language's ("Shift", arXiv 2606.18801), at
          strength s: `x + s (mean_pivot - mean)`. It is for documents: queries with maps of their own stay as they are.

        An encoder with prompts embeds a text differently as a query and as a document. With `queries`, each role gets
        maps of its own, but what is kept of the common mean is the documents' for both: queries keep their offset
        from documents. With `queries_only`, an index of documents need not be touched. LSAR is a projection P, and
        (Pq)·(Pd) = (Pq)·d: a mapped query ranks documents as they are like mapped ones, up to their lengths.

        Args:
            documents: Language -> (n, d), tensors or arrays; or one matrix (n, d) with `languages`.
            languages: The language of each row of a matrix.
            queries: Language -> (m, d), for maps of queries of their own, in at least two languages of the documents:
                questions without labels, or the documents' texts embedded as queries. A language that has none gets
                the map of its documents. All steps but `"rotate"`.
            steps: Any of `STEPS`, each once. `("shift", "scale", "rotate")` is the CCP paper's calibration.
            strength: From 0, which leaves vectors as they are, to 1.
            queries_only: Map queries alone. For the steps `"lsar"` and `"shift"`.
            pivot: The language into whose space others are rotated or moved. If it has no vectors and no step needs
                them, the first language takes its place.
            pairs: Row-aligned vectors of sentences and of their translations into the pivot, for `"rotate"`.
            keep_mean: Share of the mean of all languages that `"shift"` and `"lsar"` keep. Default: 0.25 where all
                steps suit search (`SEARCH_STEPS`), 0.5 where queries alone are mapped, and else what the papers keep:
                nothing with `"shift"`, all of it with `"lsar"`.
            lsar_rank: Number of dimensions that LSAR removes. Default: all in which the languages' means differ.
            lir_components: Number of principal components that LIR removes.
            min_texts: Fewest vectors of a language.
            adversarial: Whether a rotation without pairs also starts from adversarial training, a minute a language.
            normalize: Scale vectors to unit length first, and after the map. False for what a model gives, where the
                map becomes a module of it.
            metric: How a store compares the vectors: "cosine", the default, "dot" or "euclidean".
            model: Name of the model that made the vectors; `check` compares it.
            seed: Seed of a rotation.

        Raises:
            ValueError: If there are fewer than two languages, a language has too few vectors (a rotation needs as many
                as dimensions), vectors have several widths, hold NaN or zeros alone, or are not of unit length where
                the metric is not the cosine; or a step is unknown, or cannot do what is asked of it.
        """
        check_steps(steps, strength, queries_only=queries_only, apart=queries is not None, pairs=pairs is not None)
        rows = {"document": by_language(documents, languages, metric=metric, normalize=normalize)}
        if queries is not None:
            asked = by_language(queries, metric=metric, normalize=normalize)
            rows["query"] = {code: asked[code] for code in rows["document"] if code in asked}
        codes, width = list(rows["document"]), next(iter(rows["document"].values())).shape[1]
        unfit = {code: (np.shape(own), np.shape(other)) for code, (own, other) in (pairs or {}).items()}
        unfit = {code: shapes for code, shapes in unfit.items() if code not in codes or len(set(shapes)) > 1}
        asked_in, moves_to_pivot = list(rows.get("query", codes)), {"rotate", "to_pivot"} & set(steps)
        _refuse(
            (not 0 <= lir_components < width, f"lir_components must lie between 0 and {width - 1}: {lir_components}"),
            (bool(moves_to_pivot) and pivot not in codes, f"no vectors of the pivot {pivot!r}: there are {codes}"),
            (len(asked_in) < 1 + ("lsar" in steps), f"too few languages of queries, {asked_in}, are among {codes}"),
            (bool(unfit), f"pairs are row-aligned, in a language of the documents: {unfit}"),
        )
        if keep_mean is None and set(steps) <= SEARCH_STEPS:
            # Without a part of the mean search loses points. What is kept is the documents' mean for both roles.
            keep_mean = _KEPT_BY_QUERIES if queries_only else _KEPT_BY_DOCUMENTS
        of_means = set(steps) <= OF_MEANS
        moments = {
            role: Moments.of(vectors, covariances=not of_means, min_texts=min_texts) for role, vectors in rows.items()
        }
        basis, means = np.eye(width), np.concatenate([each.means for each in moments.values()])
        if of_means and len(means) < width:
            basis = np.linalg.qr(means.T)[0]
            moments = {role: each.within(basis) for role, each in moments.items()}
        fit = _Fit(
            moments,
            {role: list(vectors) for role, vectors in rows.items()},
            tuple(steps),
            width,
            keep_mean,
            lsar_rank,
            lir_components,
            pivot if pivot in codes else codes[0],
            queries_only,
            {code: (as_array(own), as_array(other)) for code, (own, other) in (pairs or {}).items()},
            rows["document"] if "rotate" in steps else {},
            adversarial,
            seed,
        )
        about: dict[str, Any] = {"pivot": fit.pivot, "normalize": normalize, "metric": metric or "cosine"}
        # One map serves all only after lsar alone: lsar and then shift needs the language.
        one = fit.steps == ("lsar",)
        unfitted = cls(basis, None, None, () if one else tuple(codes), fit.steps, model=model, **about, _fit=fit)
        return unfitted.at(strength)

    def at(self, strength: float) -> VectorCalibration:
        """The same calibration at another strength, in a moment (but a rotation is searched anew).

        Raises:
            ValueError: If it was loaded: the vectors that it was fitted on are not known.
        """
        if self._fit is None:
            raise ValueError("a calibration that was loaded has one strength: fit it on vectors")
        document, query, notes = self._fit.maps(strength)
        return replace(self, document=document, query=query, notes=notes, strength=float(strength))

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return len(self.basis)

    @property
    def queries_only(self) -> bool:
        """Whether queries alone are mapped, and documents stay as they are."""
        return self.document is None

    @property
    def fingerprint(self) -> str:
        """What tells its maps from others: 16 hexadecimal digits."""
        content = b"".join(tensor.tobytes() for tensor in self._tensors().values())
        return hashlib.sha256(content + repr((self.languages, self.normalize)).encode()).hexdigest()[:16]

    def maps_of(self, role: Role) -> Maps | None:
        """M and m of a role; None if it stays as it is."""
        return self.query if role == "query" and self.query is not None else self.document

    def change(self, inside: NDArray[Any], role: Role, number: int = 0) -> NDArray[Any]:
        """What one map adds to the coordinates `x @ basis` (n, r) of rows, in these coordinates."""
        maps = self.maps_of(role)
        if maps is None:
            return np.zeros_like(inside)
        matrix, offset = maps.of(number)
        change: NDArray[Any] = np.broadcast_to(offset.astype(inside.dtype), inside.shape)
        return change if matrix is None else change + inside @ matrix.T.astype(inside.dtype)

    def dense(self, role: Role = "document", number: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
        """W (d, d) and b (d,) of one map `y = W x + b`."""
        maps, identity = self.maps_of(role), np.eye(self.dimension)
        if maps is None:
            return identity, np.zeros(self.dimension)
        matrix, offset = maps.of(number)
        return identity if matrix is None else identity + self.basis @ matrix @ self.basis.T, self.basis @ offset

    def transform(
        self, vectors: ArrayLike, role: Role = "query", language: str | Sequence[str] | None = None
    ) -> NDArray[np.float32]:
        """Map vectors, which have unit length then. Documents of a map of queries alone are returned as they are.

        Args:
            vectors: One vector (d,) or rows (n, d), of any length and floating type.
            role: Whether they are queries or documents.
            language: The language of all rows, or of each. Not needed where one map serves all.

        Raises:
            ValueError: If the vectors have another number of dimensions, hold NaN or zeros alone, or a language is
                missing or has no map.
        """
        given = np.asarray(vectors)
        if role not in ("query", "document") or given.ndim not in (1, 2) or given.shape[-1] != self.dimension:
            raise ValueError(
                f"the calibration maps a 'query' or a 'document' of {self.dimension} dimensions, got {role!r} and "
                f"vectors of shape {given.shape}"
            )
        if self.maps_of(role) is None:
            return given.astype(np.float32, copy=False)
        rows = np.atleast_2d(given).astype(np.float32, copy=False)
        rows = unit(rows) if self.normalize else rows
        basis = self.basis.astype(np.float32)
        inside = rows @ basis
        change = np.empty_like(inside)
        numbers = self._numbers(language, len(rows))
        for number in np.unique(numbers):
            change[numbers == number] = self.change(inside[numbers == number], role, number)
        mapped = rows + change @ basis.T
        mapped = unit(mapped, "mapped vectors") if self.normalize else mapped
        return mapped[0] if given.ndim == 1 else mapped

    def layer(self, role: Role = "document") -> CalibrationLayer:
        """The maps of a role as a module of a model."""
        from st_xlret.modules.calibration_layer import CalibrationLayer

        tensors = self._tensors()
        if self.queries_only and role == "document":
            tensors |= {name: np.zeros_like(tensors[name]) for name in ("matrix", "offset")}
        elif role == "query" and self.query is not None and not self.queries_only:
            tensors |= {name: tensors[f"query_{name}"] for name in ("matrix", "offset")}
        about = self._about()
        return CalibrationLayer(about.pop("dimension"), about.pop("languages"), tensors=tensors, **about)

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
        own = {"dimensions": self.dimension, "metric": self.metric, "model": self.model}
        for (what, fitted), other in zip(own.items(), (dimension, metric, model), strict=True):
            if None not in (fitted, other) and fitted != other:
                raise ValueError(
                    f"{name or 'the vectors'}: {what} {other}, but the calibration was fitted for {what} {fitted}: "
                    "fit one on these vectors (st-xlret calibrate --vectors)"
                )

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write `calibration.json`, `model.safetensors` and a README.md that says how to use them.

        [`CalibrationLayer.load`][st_xlret.CalibrationLayer] reads them, too.

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

        with atomic_directory(folder, overwrite=overwrite) as target:
            save_file(self._tensors(), target / WEIGHTS)
            write_json(target / FILE, self._about())
            (target / "README.md").write_text(self._readme(), encoding="utf-8")
        return Path(folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> VectorCalibration:
        """Read what `save`, or that of a `CalibrationLayer`, wrote.

        Raises:
            FileNotFoundError: If there is no calibration in the folder.
            ValueError: If a file is damaged, or the files do not fit each other.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        path = Path(folder)
        if not (path / FILE).is_file():
            raise FileNotFoundError(f"{path} holds no calibration (no {FILE}): st-xlret calibrate --vectors writes one")
        try:
            about, tensors = json.loads((path / FILE).read_text(encoding="utf-8")), load_file(path / WEIGHTS)
            dimension, queries_only = about.pop("dimension"), about.pop("queries_only")
            about |= {name: tuple(about[name]) for name in ("languages", "steps")}
            rank, maps = tensors["basis"].shape[-1], max(1, len(about["languages"]))
            shapes = {"basis": (dimension, rank), "matrix": (rank, rank), "offset": (maps, rank)}
            for name, tensor in tensors.items():
                shape = shapes[name.removeprefix("query_")]
                if tensor.shape[-2:] != shape or tensor.shape[:-2] not in ((), (1,), (maps,)):
                    raise ValueError(f"{name} has the shape {tensor.shape}, for {maps} maps of {dimension} dimensions")
                if not np.isfinite(tensor).all():
                    raise ValueError(f"{name} holds NaN or infinite numbers")
            saved = Maps(tensors["matrix"], tensors["offset"])
            own = Maps(tensors["query_matrix"], tensors["query_offset"]) if "query_matrix" in tensors else None
            document, query = (None, saved) if queries_only else (saved, own)
            return cls(tensors["basis"], document, query, **about)
        except (AttributeError, KeyError, TypeError, ValueError, FileNotFoundError, SafetensorError) as error:
            raise ValueError(f"{path}: the calibration is damaged: {error}") from error

    def _tensors(self) -> dict[str, NDArray[np.float32]]:
        """The tensors of the saved format; without a prefix those of documents, or of queries alone."""
        tensors = {"basis": self.basis}
        for prefix, maps in (("", self.document or self.query), ("query_", self.document and self.query)):
            if maps is not None:
                zeros = np.zeros((1, self.basis.shape[1], self.basis.shape[1]))
                tensors[f"{prefix}matrix"] = zeros if maps.matrix is None else maps.matrix
                tensors[f"{prefix}offset"] = maps.offset
        return {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in tensors.items()}

    def _about(self) -> dict[str, Any]:
        names = ("dimension", "queries_only", "strength", "pivot", "normalize", "metric", "model")
        about = {name: getattr(self, name) for name in names}
        return about | {"languages": list(self.languages), "steps": list(self.steps), "notes": dict(self.notes)}

    def _readme(self) -> str:
        tensors, maps = self._tensors(), "One map serves all languages."
        if self.languages:
            maps = f"Maps 0 to {len(self.languages) - 1} are of vectors in {', '.join(self.languages)}."
        sides = {False: "Queries and documents are mapped.", True: "Queries and documents have maps of their own."}
        text = _README.format(
            dimension=self.dimension,
            of_model=f" of {self.model}" if self.model else "",
            metric=self.metric,
            sides="Queries alone are mapped; the stored documents stay as they are."
            if self.queries_only
            else sides["query_matrix" in tensors],
            maps=maps,
            role="documents, `query_matrix` and `query_offset` of queries" if "query_matrix" in tensors else "the maps",
            prefix="query_" if "query_matrix" in tensors else "",
            number="map" if self.languages else 0,
            matrix="map" if len(tensors["matrix"]) > 1 else 0,
        )
        scaled = ("    x = x /", "    y = y /", "    mapped /=")
        if self.normalize:
            return text
        lines = [line for line in text.splitlines() if not line.startswith(scaled)]
        return "\n".join(lines).replace("vector / np.linalg.norm(vector)", "vector") + "\n"

    def _numbers(self, language: str | Sequence[str] | None, count: int) -> NDArray[np.int64]:
        """The number of each row's map."""
        if not self.languages:
            return np.zeros(count, np.int64)
        codes = [language] * count if language is None or isinstance(language, str) else list(language)
        if (unknown := {str(code) for code in codes} - set(self.languages)) or len(codes) != count:
            raise ValueError(
                f"{count} vectors and {len(codes)} languages; no map for {', '.join(unknown) or 'none'}: there are "
                f"maps for {', '.join(self.languages)}, and the language of each vector has to be given"
            )
        number_of = {code: number for number, code in enumerate(self.languages)}
        return np.array([number_of[str(code)] for code in codes], np.int64)


def fit_calibration(embeddings: Vectors, **how: Any) -> CalibrationLayer:
    """Fit a calibration to the embeddings of a model, as a module that can stand behind it.

    Args:
        embeddings: Language -> (n, d) tensor or array of texts in that language, parallel or not. Pass what the
            calibration will be applied to: the output of `model.encode`, with its final normalisation if it has one.
        **how: As in [`VectorCalibration.fit`][st_xlret.VectorCalibration]: `steps`, `pivot`, `pairs`, `strength`,
            `keep_mean`, `min_texts`, `seed` and so on.

    Returns:
        The layer in float32 on the CPU. It is computed in float64.

    Raises:
        ValueError: As in `VectorCalibration.fit`.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> clouds = {"en": torch.randn(100, 4) + 3, "fr": torch.randn(100, 4) - 5}
        >>> layer = fit_calibration(clouds)
        >>> means = [layer.transform(rows).mean(dim=0) for rows in clouds.values()]
        >>> round(float((means[0] - means[1]).norm()), 4)
        0.0
    """
    return VectorCalibration.fit(embeddings, normalize=False, **how).layer()


def by_language(
    vectors: Vectors | ArrayLike,
    languages: Iterable[str] | None = None,
    *,
    metric: str | None = None,
    normalize: bool = True,
) -> dict[str, NDArray[Any]]:
    """Language -> its vectors (n, d), of unit length unless not `normalize`.

    The arguments and errors are those of `VectorCalibration.fit`.
    """
    if isinstance(vectors, Mapping):
        clouds = {str(code): as_array(rows) for code, rows in vectors.items()}
    else:
        matrix, codes = as_array(vectors), np.array([str(code) for code in (() if languages is None else languages)])
        if len(codes) != len(matrix):
            raise ValueError(f"{len(matrix)} vectors need as many languages, one for each row; got {len(codes)}")
        clouds = {code: matrix[codes == code] for code in sorted(set(codes.tolist()))}
    shapes = {code: rows.shape for code, rows in clouds.items()}
    if len(shapes) < 2 or {len(shape) for shape in shapes.values()} != {2} or len({s[1] for s in shapes.values()}) > 1:
        raise ValueError(f"a calibration needs matrices of one width, in two languages at least, got {shapes}")
    if not normalize:
        return clouds
    for code, rows in clouds.items():
        clouds[code] = unit(rows, f"vectors of {code!r}")
        if metric not in (None, "cosine") and not np.allclose(np.linalg.norm(rows, axis=1), 1, atol=0.02):
            raise ValueError(
                f"the metric is {metric}, and vectors of {code!r} are not of unit length: a calibration maps "
                "directions. Store vectors of unit length, or search by cosine"
            )
    return clouds


def unit(rows: NDArray[Any], what: str = "vectors") -> NDArray[Any]:
    """Rows of unit length; those of NaN or of zeros have none, which is a `ValueError`."""
    squares = np.einsum("nd,nd->n", rows, rows)
    usable = np.isfinite(squares) & (squares >= np.finfo(np.float32).tiny)
    if not usable.all():
        raise ValueError(
            f"{int((~usable).sum())} of {len(rows)} {what} hold NaN, infinite numbers or zeros alone, first row "
            f"{int(np.argmin(usable))}: leave them out, or embed their texts again"
        )
    scaled: NDArray[Any] = rows / np.sqrt(squares)[:, None]
    return scaled


def as_array(rows: Any) -> NDArray[Any]:
    """A tensor or array in float32 or float64."""
    array = np.asarray(rows.detach().cpu() if hasattr(rows, "detach") else rows)
    return array if array.dtype == np.float64 else array.astype(np.float32, copy=False)


@dataclass(frozen=True)
class _Fit:
    """What the maps are computed from at any strength: the moments of each role in the coordinates of the basis."""

    moments: dict[str, Moments]
    codes: dict[str, list[str]]
    steps: tuple[str, ...]
    width: int
    keep_mean: float | None
    lsar_rank: int | None
    lir_components: int
    pivot: str
    queries_only: bool
    pairs: dict[str, tuple[NDArray[Any], NDArray[Any]]]
    rows: dict[str, NDArray[Any]]
    adversarial: bool
    seed: int
    recoloured: dict[str, Floats] = field(default_factory=dict)

    def maps(self, strength: float) -> tuple[Maps | None, Maps | None, dict[str, str]]:
        """The maps of documents and of queries, and notes on rotations."""
        moments, notes = dict(self.moments), {}
        total = {role: Maps(None, np.zeros_like(each.means)) for role, each in moments.items()}
        for number, step in enumerate(self.steps):
            common = moments["document"].means.mean(axis=0)
            for role, own in dict(moments).items():
                if step == "rotate":
                    from st_xlret.calibration.rotation import rotations

                    how: Any = {"adversarial": self.adversarial, "seed": self.seed}
                    maps, notes = rotations(self.rows, total[role], self.pivot, self.pairs, strength, **how)
                else:
                    maps = self._step(step, self.steps[:number], role, own, strength, common)
                total[role], moments[role] = total[role].then(maps), own.after(maps)
        if self.steps == ("lsar",):
            total = {role: Maps(maps.matrix, maps.offset[:1]) for role, maps in total.items()}
        query = self._filled(total["document"], total["query"]) if "query" in total else None
        if self.queries_only:
            return None, query or total["document"], notes
        return total["document"], query, notes

    def _step(
        self, step: str, before: Sequence[str], role: str, moments: Moments, strength: float, common: Floats
    ) -> Maps:
        if step == "shift":
            return shift(moments, strength, common, self.keep_mean or 0.0)
        if step == "lsar":
            kept = 1.0 if self.keep_mean is None else self.keep_mean
            return lsar(moments, strength, common, kept, self.lsar_rank, self.width)
        if step == "to_pivot":
            if role == "query":
                return Maps(None, np.zeros_like(moments.means))
            return to_pivot(moments, strength, self.codes[role].index(self.pivot))
        if step == "scale":
            return scale(moments, strength)
        if step == "lir":
            return lir(moments, strength, self.lir_components)
        if not OF_MEANS - {"lsar"} >= set(before):
            return coral(moments, strength)
        if role not in self.recoloured:  # after translations alone, it does not depend on the strength
            self.recoloured[role] = recolouring(moments.spreads)
        return coral(moments, strength, self.recoloured[role])

    def _filled(self, documents: Maps, queries: Maps) -> Maps:
        """The maps of queries; a language that has none gets the map of its documents."""
        codes, asked = self.codes["document"], self.codes["query"]
        if codes == asked or len(queries.offset) < len(asked):
            return queries
        zeros = np.zeros((documents.offset.shape[1],) * 2)
        chosen = [queries.of(asked.index(code)) if code in asked else documents.of(i) for i, code in enumerate(codes)]
        return Maps(
            np.stack([zeros if maps.matrix is None else maps.matrix for maps in chosen]),
            np.stack([maps.offset for maps in chosen]),
        )


def check_steps(
    steps: Sequence[str],
    strength: float | Literal["auto"] = 1.0,
    *,
    queries_only: bool = False,
    apart: bool = False,
    pairs: bool = False,
) -> None:
    """Refuse steps that cannot be fitted whatever the vectors, before long work; the arguments are those of `fit`.

    Raises:
        ValueError: If a step is unknown or named twice, the strength is beyond [0, 1], a step cannot map queries alone,
            or, `apart`, by maps of their own, or there are `pairs` for no rotation.
    """
    others = [step for step in steps if step not in QUERY_STEPS]
    known = not isinstance(steps, str) and 0 < len(steps) == len(set(steps) & set(STEPS))
    rotates = "rotate" in steps
    _refuse(
        (not known, f"steps are a sequence out of {', '.join(STEPS)}, each once; got {steps!r}"),
        (strength != "auto" and not 0 <= strength <= 1, f"strength must lie between 0 and 1, got {strength}"),
        (
            strength == "auto" and rotates,
            "the strength 'auto' fits eleven times, too long with 'rotate': give a number",
        ),
        (
            queries_only and bool(others),
            f"queries_only: {', '.join(others)} would move documents; {' and '.join(QUERY_STEPS)} map queries alone",
        ),
        (apart and rotates, "the step 'rotate' has no maps for queries of their own"),
        (pairs and not rotates, "pairs are for the step 'rotate': add it to the steps, or leave the pairs out"),
    )


def _refuse(*reasons: tuple[bool, str]) -> None:
    """Raise a `ValueError` for the first reason that holds."""
    for holds, reason in reasons:
        if holds:
            raise ValueError(reason)
