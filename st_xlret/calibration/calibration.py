"""A calibration: an affine map of vectors, or one for each language, fitted on a sample and applied by NumPy alone."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from st_xlret.calibration import steps as step_maps
from st_xlret.calibration.steps import OF_MEANS, STEPS, Floats, Maps, Moments
from st_xlret.files import atomic_directory, write_json
from st_xlret.languages import languages_of_labels, normal_form

if TYPE_CHECKING:
    from st_xlret.modules.calibration_layer import CalibrationLayer

FILE, WEIGHTS = "calibration.json", "model.safetensors"
SEARCH_STEPS = OF_MEANS | {"coral"}
"""The steps that suit search. Where there are no others, a part of the mean of all languages is kept by default.

With lsar on both sides it is small: where most documents are in one language, a quarter costs up to four points.
"""
QUERY_STEPS = ("lsar", "shift")  # that may map queries alone, while documents stay as they are
_KEPT_BY_LSAR, _KEPT_BY_OTHERS, _KEPT_BY_QUERIES = 0.05, 0.25, 0.4

Role = Literal["query", "document"]
Vectors = Mapping[str, ArrayLike]
Pairs = Mapping[str, tuple[ArrayLike, ArrayLike]]
"""Language -> vectors of its sentences (n, d) and of their translations into the pivot (n, d)."""

_README = Path(__file__).parent / "map.md"  # of a saved map, for other programs and languages


@dataclass(frozen=True, eq=False)
class VectorCalibration:
    """A calibration of vectors, whatever made them; [`calibrate`][st_xlret.calibrate] builds one into a model.

    It is one affine map `x -> x + B (M B^T x + m)`, or one for each language, with an orthonormal basis B (d, r) of the
    languages' means where these determine the steps (`"lsar"`, `"shift"`, `"to_pivot"`), else of the whole space.

    Attributes:
        basis: B, (d, r).
        document: M and m of documents; None leaves documents as they are.
        query: M and m of queries, where they have maps of their own.
        languages: The languages of the maps, in their order; empty for one map for all vectors.
        steps: A record of the fit, like `strength`, `pivot` and `notes` (which rotation was chosen).

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
    _recipe: _MapRecipe | None = field(default=None, repr=False)

    @classmethod
    def fit(
        cls,
        documents: Vectors | ArrayLike,
        languages: Iterable[str] | None = None,
        *,
        queries: Vectors | None = None,
        phrases: Vectors | None = None,
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

        Steps run in the order given. Each is estimated on the output of the steps before it, at their strength s:

        - `"shift"` subtracts the language's mean: `x - s mean`.
        - `"scale"` divides by the language's standard deviation in each dimension: `x / std ** s`.
        - `"rotate"` applies an orthogonal map W into the pivot's space: the orthogonal matrix nearest to
          `(1 - s) I + s W`, by `pairs` in closed form (Procrustes), else as Conneau et al. (2018) without any.
        - `"lir"` subtracts the projection P on the language's top principal components (Yang et al. 2021): `x - s P x`.
        - `"lsar"` subtracts, likewise, the projection on the subspace in which the languages' means differ (Xie et al.
          2022). It is equal for all languages: alone, it needs no language.
        - `"coral"` gives every language the average covariance (Sun et al. 2016). Put it after `"shift"`.
        - `"to_pivot"` moves documents by `s (mean_pivot - mean)` ("Shift", arXiv 2606.18801). Queries with maps of
          their own stay.

        With `queries_only`, an index of documents need not be touched. LSAR is a projection P, and (Pq)·(Pd) = (Pq)·d:
        a mapped query ranks documents as they are like mapped ones, up to their lengths.

        Args:
            documents: Language -> (n, d), tensors or arrays; or one matrix (n, d) with `languages`. 300 vectors of each
                language do for steps of means, and 1 500 for others.
            languages: The language of each row of a matrix, in any spelling. Rows that name none are left out.
            queries: Language -> (m, d) of questions without labels, in two of the languages at least, for maps of
                queries of their own, which keep their offset from documents. A language without queries gets the map of
                its documents. Not with `"rotate"`. With `"lsar"` and `queries_only` they join the fit, as `phrases`.
            phrases: Language -> (k, d) of short texts in any languages, embedded as queries, for `"lsar"` alone: each
                group joins the fit as one language more. What queries in weak languages share is in no mean of
                documents.
            steps: Any of `STEPS`, each once. `("shift", "scale", "rotate")` is the CCP paper's calibration.
            strength: From 0, which leaves vectors as they are, to 1.
            queries_only: Map queries alone, by the steps `"lsar"` and `"shift"`.
            pivot: The language into whose space others are rotated or moved.
            pairs: Row-aligned vectors of sentences and of their translations into the pivot, for `"rotate"`.
            keep_mean: Share of the mean of all languages that `"shift"` and `"lsar"` keep. Default: 0.4 where queries
                alone are mapped, 0.05 with `"lsar"` alone, 0.25 where all steps suit search (`SEARCH_STEPS`), and else
                what the papers keep: nothing with `"shift"`, all of it with `"lsar"`.
            lsar_rank: Dimensions that LSAR removes. Default: all in which the languages' means differ.
            lir_components: Principal components that LIR removes.
            min_texts: Fewest vectors of a language. A rotation without pairs needs as many as dimensions.
            adversarial: Whether a rotation without pairs also starts from adversarial training, a minute a language.
            normalize: Scale vectors to unit length first, and after the map. False for what a model gives.
            metric: How a store compares the vectors: "cosine", the default, or "dot" or "euclidean" at unit length.
            model: Name of the model that made the vectors; `check` compares it.
            seed: Seed of a rotation.
        """
        check_steps(steps, strength, queries_only=queries_only, apart=queries is not None, pairs=pairs is not None)
        is_lsar = tuple(steps) == ("lsar",)
        joining: Vectors = phrases if is_lsar and phrases else {}  # the fit, each as one language more
        if queries_only and is_lsar and queries is not None:
            joining, queries = {**joining, **queries}, None
        limits: Any = {"metric": metric, "normalize": normalize, "min_texts": min_texts}
        if languages is not None:
            matrix, codes_of = as_array(documents), np.array(languages_of_labels(languages))
            documents = {code: matrix[codes_of == code] for code in sorted({*codes_of.tolist()} - {""})}
        rows = {"document": checked_vectors(cast(Vectors, documents), **limits)}
        codes, width = list(rows["document"]), next(iter(rows["document"].values())).shape[1]
        if queries is not None:
            asked = named_as(codes, queries)
            in_both = {code: asked[code] for code in codes if code in asked}
            rows["query"] = checked_vectors(in_both, min_languages=1 + ("lsar" in steps), **limits)
        if joining:
            rows = {"joining": checked_vectors(joining, **limits | {"min_texts": 1}, min_languages=1), **rows}
        pivot = next(iter(named_as(codes, {pivot: None})))
        has_pivot = pivot in codes or not {"rotate", "to_pivot"} & set(steps)
        if not has_pivot or not 0 <= lir_components < width or not 0 <= (keep_mean or 0) <= 1:
            got = f"{pivot!r}, {lir_components} and {keep_mean}"
            raise ValueError(f"the pivot is one of {codes}, lir_components below {width}, keep_mean a share: got {got}")
        pivot = pivot if pivot in codes else codes[0]
        if keep_mean is None and set(steps) <= SEARCH_STEPS:  # without a part of the mean search loses points
            keep_mean = _KEPT_BY_QUERIES if queries_only else _KEPT_BY_LSAR if is_lsar else _KEPT_BY_OTHERS
        basis, moments = _basis_and_moments(rows, of_means_alone=set(steps) <= OF_MEANS)
        joining_means = [moments.pop("joining").means] if joining else []
        kept = 1.0 if keep_mean is None else keep_mean
        formulas: dict[str, Callable[..., Maps]] = {
            "shift": partial(step_maps.shift, keep_mean=keep_mean or 0.0),
            "lsar": partial(step_maps.lsar, keep_mean=kept, rank=lsar_rank, width=width, joining_means=joining_means),
            "to_pivot": partial(step_maps.to_pivot, pivot=codes.index(pivot)),
            "scale": step_maps.scale,
            "lir": partial(step_maps.lir, components=lir_components),
        }
        recoloured: dict[str, Floats] = {}  # after translations alone, it does not depend on the strength
        if "coral" in steps and {*steps[: steps.index("coral")]} <= {"shift", "to_pivot"}:
            recoloured = {role: step_maps.recolouring_matrices(each.covariances) for role, each in moments.items()}
        rotate = None
        if "rotate" in steps:
            from st_xlret.calibration.rotation import rotate_into_pivot

            named = named_as(codes, pairs or {})
            parallel = {code: (as_array(source), as_array(target)) for code, (source, target) in named.items()}
            rotate = partial(rotate_into_pivot, rows["document"], pivot, parallel, adversarial=adversarial, seed=seed)
        of_queries = list(rows.get("query", codes))
        recipe = _MapRecipe(moments, codes, of_queries, tuple(steps), queries_only, formulas, recoloured, rotate)
        mapped = () if is_lsar else tuple(codes)  # lsar and then shift needs the language
        metadata: Any = {"pivot": pivot, "normalize": normalize, "metric": metric or "cosine", "model": model}
        return cls(basis, None, None, mapped, recipe.steps, **metadata, _recipe=recipe).at(strength)

    def at(self, strength: float) -> VectorCalibration:
        """The same calibration at another strength, in a moment; but a rotation is searched anew."""
        assert self._recipe is not None, "a calibration that was loaded has one strength"
        document, query, notes = self._recipe.maps_at(strength)
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

    def added_coordinates(self, inside: NDArray[Any], role: Role, number: int = 0) -> NDArray[Any]:
        """What one map adds to the coordinates `inside = x @ basis` (n, r) of rows: (n, r), to be added to `inside`."""
        maps = self.maps_of(role)
        if maps is None:
            return np.zeros_like(inside)
        matrix, offset = maps.of_language(number)
        added: NDArray[Any] = np.broadcast_to(offset.astype(inside.dtype), inside.shape)
        return added if matrix is None else added + inside @ matrix.T.astype(inside.dtype)

    def dense(self, role: Role = "document", number: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
        """W (d, d) and b (d,) of one map `y = W x + b`."""
        inside = np.vstack([self.basis, np.zeros(self.basis.shape[1])])  # of the unit vectors, and of the origin
        *columns, bias = self.added_coordinates(inside, role, number) @ self.basis.T
        return np.eye(self.dimension) + (np.stack(columns) - bias).T, bias

    def transform(
        self, vectors: ArrayLike, role: Role = "query", language: str | Sequence[str] | None = None
    ) -> NDArray[np.float32]:
        """Map one vector (d,) or rows (n, d), of any length and floating type; the result has unit length.

        Documents of a map of queries alone stay. Maps by language need the `language` of all rows, or of each row.
        """
        unmapped = as_array(vectors)
        rows = np.atleast_2d(unmapped).astype(np.float32, copy=False)
        codes = [language] * len(rows) if language is None or isinstance(language, str) else language
        codes = [code and (normal_form(str(code)) or code) for code in codes]
        number_of = {normal_form(code) or code: number for number, code in enumerate(self.languages)}
        known = not number_of or (len(codes) == len(rows) and number_of.keys() >= {*codes})
        if not known or role not in ("query", "document") or rows.shape[1:] != (self.dimension,):
            got = f"vectors {unmapped.shape} in {len(codes)} languages, {sorted({*map(str, codes)})}, as a {role!r}"
            maps = f"{self.dimension} dimensions, of a 'query' or 'document', in {', '.join(self.languages)}"
            raise ValueError(f"{got}: the maps are of {maps}")
        if self.maps_of(role) is None:
            return unmapped.astype(np.float32, copy=False)
        rows, basis = strict_unit_rows(rows) if self.normalize else rows, self.basis.astype(np.float32)
        inside, numbers = rows @ basis, np.array([number_of.get(code or "", 0) for code in codes])
        added = np.empty_like(inside)
        for number in np.unique(numbers):
            added[numbers == number] = self.added_coordinates(inside[numbers == number], role, number)
        mapped: NDArray[Any] = rows + added @ basis.T
        return (strict_unit_rows(mapped) if self.normalize else mapped).reshape(unmapped.shape)

    def layer(self, role: Role = "document") -> CalibrationLayer:
        """The maps of a role as a module of a model; the identity for documents that stay as they are."""
        from st_xlret.modules.calibration_layer import CalibrationLayer

        maps = self.maps_of(role) or Maps(None, np.zeros((max(1, len(self.languages)), self.basis.shape[1])))
        metadata = self._metadata() | {"queries_only": False}
        tensors = replace(self, document=maps, query=None)._tensors()
        return CalibrationLayer(metadata.pop("dimension"), metadata.pop("languages"), tensors=tensors, **metadata)

    def check(self, *, dimension: int, metric: str | None = None, model: str | None = None, name: str = "") -> None:
        """Refuse the vectors `name` if they are of another kind than the map was fitted for; None is unknown."""
        fitted_for = {"dimensions": self.dimension, "metric": self.metric, "model": self.model}
        for (what, fitted), other in zip(fitted_for.items(), (dimension, metric, model), strict=True):
            if None not in (fitted, other) and fitted != other:
                problem = f"{what} {other}, but the calibration was fitted for {what} {fitted}"
                way_out = "fit one on these vectors (st-xlret calibrate --vectors)"
                raise ValueError(f"{name or 'the vectors'}: {problem}: {way_out}")

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write `calibration.json`, `model.safetensors` and a README.md that says how to use them; returns the folder.

        What is there already is a `FileExistsError`, but for a calibration with `overwrite`.
        """
        from safetensors.numpy import save_file

        with atomic_directory(folder, overwrite=overwrite) as target:
            save_file(self._tensors(), target / WEIGHTS)
            write_json(target / FILE, self._metadata())
            (target / "README.md").write_text(self._readme(), encoding="utf-8")
        return Path(folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> VectorCalibration:
        """Read what `save`, or that of a `CalibrationLayer`, wrote; what is damaged is a `ValueError`."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        text, file = (Path(folder) / FILE).read_text(encoding="utf-8"), Path(folder) / WEIGHTS
        try:
            fields, tensors = json.loads(text), {name: np.asarray_chkfinite(t) for name, t in load_file(file).items()}
            dimension, queries_only = fields.pop("dimension"), fields.pop("queries_only")
            fields |= {name: tuple(fields[name]) for name in ("languages", "steps")}
            rank, maps = tensors["basis"].shape[-1], max(1, len(fields["languages"]))
            shapes = {"basis": (dimension, rank), "matrix": (maps, rank, rank), "offset": (maps, rank)}
            for name, tensor in tensors.items():
                fits = np.broadcast_to if name.endswith("matrix") else np.reshape  # one matrix may serve all languages
                fits(tensor, shapes[name.removeprefix("query_")])
            saved = Maps(tensors["matrix"], tensors["offset"])
            apart = Maps(tensors["query_matrix"], tensors["query_offset"]) if "query_matrix" in tensors else None
            document, query = (None, saved) if queries_only else (saved, apart)
            return cls(tensors["basis"], document, query, **fields)
        except (AttributeError, KeyError, TypeError, ValueError, FileNotFoundError, SafetensorError) as error:
            raise ValueError(f"{folder}: the calibration is damaged: {error}") from error

    def _tensors(self) -> dict[str, NDArray[np.float32]]:
        """The tensors of the saved format; without a prefix those of documents, or of queries alone."""
        tensors = {"basis": self.basis}
        for prefix, maps in (("", self.document or self.query), ("query_", self.document and self.query)):
            if maps is not None:
                zeros = np.zeros((1, self.basis.shape[1], self.basis.shape[1]))
                tensors[f"{prefix}matrix"] = zeros if maps.matrix is None else maps.matrix
                tensors[f"{prefix}offset"] = maps.offset
        return {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in tensors.items()}

    def _metadata(self) -> dict[str, Any]:
        names = ("dimension", "queries_only", "strength", "pivot", "normalize", "metric", "model")
        metadata = {name: getattr(self, name) for name in names}
        return metadata | {"languages": list(self.languages), "steps": list(self.steps), "notes": dict(self.notes)}

    def _readme(self) -> str:
        tensors, apart, last = self._tensors(), self.document and self.query, len(self.languages) - 1
        sides = f"Queries{' (tensors `query_...`)' if apart else ''} and documents are mapped."
        if self.queries_only:
            sides = "Queries alone are mapped; the stored documents stay as they are."
        return _README.read_text(encoding="utf-8").format(
            dimension=self.dimension,
            of_model=f" of `{self.model}`" if self.model else "",
            metric=self.metric,
            sides=sides,
            maps=f"Maps 0 to {last}: {', '.join(self.languages)}." if self.languages else "One map serves all.",
            prefix="query_" if apart else "",
            number="map" if self.languages else 0,
            matrix="map" if len(tensors["matrix"]) > 1 else 0,
            scale="x = x / (x @ x) ** 0.5  # unit length" if self.normalize else "",
        )


def fit_calibration(embeddings: Vectors, **fit_options: Any) -> CalibrationLayer:
    """Fit a calibration to the embeddings of a model, as a module (float32, on the CPU) that can stand behind it.

    `embeddings` are language -> (n, d), as `model.encode` gives them; `fit_options` are those of
    [`VectorCalibration.fit`][st_xlret.VectorCalibration].

    Example:
        >>> clouds = {"en": np.random.normal(3, 1, (100, 4)), "fr": np.random.normal(-5, 1, (100, 4))}
        >>> layer = fit_calibration(clouds)
        >>> means = [layer.transform(rows).mean(dim=0) for rows in clouds.values()]
        >>> round(float((means[0] - means[1]).norm()), 4)
        0.0
    """
    return VectorCalibration.fit(embeddings, normalize=False, **fit_options).layer()


def check_steps(
    steps: Sequence[str],
    strength: float | Literal["auto"] = 1.0,
    *,
    queries_only: bool = False,
    apart: bool = False,
    pairs: bool = False,
) -> None:
    """Refuse what cannot be fitted whatever the vectors, before long work; the arguments are those of `fit`."""
    if isinstance(steps, str) or not 0 < len(steps) == len({*steps} & {*STEPS}):
        problem = f"take a sequence out of {', '.join(STEPS)}, each once"
    elif strength != "auto" and not 0 <= strength <= 1:
        problem = "a strength lies between 0 and 1"
    elif queries_only and not {*steps} <= {*QUERY_STEPS}:
        problem = f"queries_only: they would move documents; take {' or '.join(QUERY_STEPS)}"
    elif (apart or strength == "auto") if "rotate" in steps else pairs:
        problem = "'rotate' alone takes pairs; it has no maps of queries, nor 'auto', which would fit it eleven times"
    else:
        return
    raise ValueError(f"steps {steps!r} at strength {strength!r}: {problem}")


def checked_vectors(
    vectors: Vectors, *, metric: str | None = None, normalize: bool = True, min_texts: int = 1, min_languages: int = 2
) -> dict[str, NDArray[Any]]:
    """Language -> its vectors (n, d), of unit length if `normalize`; what `fit` cannot take is a `ValueError`."""
    clouds = {code: as_array(rows) for code, rows in named_as((), vectors).items()}
    shapes = {code: rows.shape for code, rows in clouds.items()}
    widths = {shape[1:] for shape in shapes.values()}
    fits = len(widths) == 1 and len(next(iter(widths))) == 1 and len(shapes) >= min_languages
    problem = None
    if not fits or min(map(len, clouds.values())) < min_texts:
        problem = (
            f"a calibration needs matrices of one width, in two languages at least, with {min_texts} vectors of each "
            f"(min_texts), got {shapes}"
        )
    elif normalize and metric not in (None, "cosine"):
        lengths = np.concatenate([np.linalg.norm(rows, axis=1) for rows in clouds.values()])
        if metric not in ("dot", "euclidean") or not np.allclose(lengths, 1, atol=0.02):
            problem = (
                "a map is of directions: for the cosine, or for dot and euclidean between vectors of unit length, not "
                f"for {metric} between these, which have lengths from {lengths.min():.3g} to {lengths.max():.3g}"
            )
    if problem:
        raise ValueError(problem)
    return {code: strict_unit_rows(x, f"vectors of {code!r}") for code, x in clouds.items()} if normalize else clouds


def named_as(codes: Sequence[str], by_language: Mapping[str, Any]) -> dict[str, Any]:
    """The entries under the spelling of `codes`, where their language is there; one that stands twice is refused."""
    forms = {normal_form(str(code)) or str(code): str(code) for code in by_language}
    if len(forms) < len(by_language):
        raise ValueError(f"a language stands twice among {', '.join(map(str, by_language))}")
    spelling = forms | {form: code for code in codes if (form := normal_form(code) or code) in forms}
    return {spelling[form]: entry for form, entry in zip(forms, by_language.values(), strict=True)}


def strict_unit_rows(rows: NDArray[Any], what: str = "vectors") -> NDArray[Any]:
    """Rows of unit length, where each needs a direction: NaN is refused, and so are zeros, which `unit_rows` keeps."""
    squares = np.einsum("nd,nd->n", rows, rows)
    usable = np.isfinite(squares) & (squares >= np.finfo(np.float32).tiny)
    if not usable.all():
        problem = f"hold NaN, infinite numbers or zeros alone, first row {int(np.argmin(usable))}"
        raise ValueError(f"{int((~usable).sum())} of {len(rows)} {what} {problem}: leave them out, or embed again")
    return np.asarray(rows / np.sqrt(squares)[:, None])


def as_array(rows: Any) -> NDArray[Any]:
    """A tensor or array in float32 or float64."""
    array = np.asarray(rows.detach().cpu() if hasattr(rows, "detach") else rows)
    return array if array.dtype == np.float64 else array.astype(np.float32, copy=False)


def _basis_and_moments(rows: Mapping[str, Any], *, of_means_alone: bool) -> tuple[NDArray[Any], dict[str, Moments]]:
    """A basis (d, r), that of the means where these determine the steps, and each role's moments in its coordinates."""
    moments = {role: Moments.of_rows(vectors, covariances=not of_means_alone) for role, vectors in rows.items()}
    means = np.concatenate([each.means for each in moments.values()])
    if not of_means_alone or len(means) >= means.shape[1]:
        return np.eye(means.shape[1]), moments
    basis = np.linalg.qr(means.T)[0]
    return basis, {role: Moments(each.means @ basis) for role, each in moments.items()}


@dataclass(frozen=True)
class _MapRecipe:
    """What the maps are computed from at any strength: the moments of each role in the coordinates of the basis."""

    moments: dict[str, Moments]
    codes: list[str]
    query_codes: list[str]
    steps: tuple[str, ...]
    queries_only: bool
    formulas: dict[str, Callable[..., Maps]]
    recoloured: dict[str, Floats]
    rotate: Callable[..., tuple[Maps, dict[str, str]]] | None

    def maps_at(self, strength: float) -> tuple[Maps | None, Maps | None, dict[str, str]]:
        """The maps of documents and of queries, each step's on what the steps before it leave; notes on rotations."""
        moments, notes = dict(self.moments), dict[str, str]()
        total = {role: Maps(None, np.zeros((1, each.means.shape[1]))) for role, each in moments.items()}
        for step in self.steps:
            common = {"common": moments["document"].means.mean(axis=0)} if step in ("shift", "lsar") else {}
            for role, before in list(moments.items()):
                if step == "rotate" and self.rotate is not None:
                    maps, notes = self.rotate(total[role], strength)
                elif step == "coral":
                    maps = step_maps.coral(before, strength, self.recoloured.get(role))
                elif step == "to_pivot" and role == "query":
                    maps = Maps(None, np.zeros_like(before.means))
                else:
                    maps = self.formulas[step](before, strength, **common)
                total[role], moments[role] = total[role].then(maps), before.after(maps)
        document, query = total["document"], total.get("query")
        if query is not None and self.query_codes != self.codes and self.steps != ("lsar",):
            # In the order of `codes`: a language without queries gets the map of its documents.
            of_queries = {code: query.of_language(number) for number, code in enumerate(self.query_codes)}
            parts = [of_queries.get(code, document.of_language(number)) for number, code in enumerate(self.codes)]
            zeros = np.zeros((document.offset.shape[1],) * 2)
            matrices = [zeros if part.matrix is None else part.matrix for part in parts]
            query = Maps(np.stack(matrices), np.stack([part.offset for part in parts]))
        return (None, query or document, notes) if self.queries_only else (document, query, notes)
