"""How much the neighbours of a text share its language, before and after calibrations, without labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from st_xlret.calibration.calibration import Role, VectorCalibration, as_array, named_as

AS_IT_IS = "as it is"
TEXTS, NEIGHBOURS, WITHIN = 300, 20, 10


@dataclass(frozen=True)
class LanguageBias:
    """The languages of the nearest neighbours in a pool with as many texts of each language.

    Attributes:
        languages: The languages, in the order of the rows and columns of `shares`.
        shares: Shape (L, L). Row i holds the languages of the neighbours of texts in language i; rows sum to 1.
        expected: The same for an encoder that does not see languages; not quite even, because texts from the same
            document are no neighbours.
        texts: Texts of each language.
        neighbours: Neighbours of each text.
    """

    languages: list[str]
    shares: NDArray[np.float64]
    expected: NDArray[np.float64]
    texts: int
    neighbours: int

    @property
    def same_language_share(self) -> float:
        """Mean over languages of the share of neighbours in the text's own language."""
        return float(np.diag(self.shares).mean())

    @property
    def chance(self) -> float:
        """The share of same-language neighbours for an encoder that does not see languages."""
        return float(np.diag(self.expected).mean())

    @property
    def lift(self) -> float:
        """How many times more often than by chance neighbours are in the text's language."""
        return self.same_language_share / (self.chance or np.nan)

    @property
    def imbalance(self) -> float:
        """Mean distance (total variation) of the neighbours' languages from the expected mixture, from 0 to 1."""
        return float(np.abs(self.shares - self.expected).sum(axis=1).mean() / 2)

    def as_json(self) -> dict[str, Any]:
        """Everything in JSON's types."""
        languages = {
            code: {
                "same_language_share": float(self.shares[i, i]),
                "chance": float(self.expected[i, i]),
                "neighbours": dict(zip(self.languages, self.shares[i].tolist(), strict=True)),
            }
            for i, code in enumerate(self.languages)
        }
        whole = {"languages": languages, "same_language_share": self.same_language_share, "chance": self.chance}
        return whole | {"texts_per_language": self.texts, "neighbours": self.neighbours}


@dataclass(frozen=True)
class BiasFigures:
    """What a calibration does to a search over all languages, and to one within a language.

    Attributes:
        search: The languages that a text finds as a query.
        documents: The same between documents, as in mining.
        neighbours_kept: Share of the ten nearest neighbours within a language that stay.
        queries_only: Whether documents stay as they are.
        needs_language: Whether the language of a text has to be known.
    """

    search: LanguageBias
    documents: LanguageBias
    neighbours_kept: float = 1.0
    queries_only: bool = False
    needs_language: bool = False

    def score(self, queries_only: bool | None = None) -> float:
        """The criterion without labels, from 0 to 1: the root of the share kept times the evenness of the languages.

        Evenness is 1 minus the imbalance, averaged over the search and the neighbours between documents; of the search
        alone where documents stay as they are, or as `queries_only` says.
        """
        of_search_alone = self.queries_only if queries_only is None else queries_only
        biases = [self.search] if of_search_alone else [self.search, self.documents]
        return float(self.neighbours_kept**0.5 * (1 - np.mean([bias.imbalance for bias in biases])))

    def as_json(self) -> dict[str, Any]:
        """What `st-xlret report` writes: the bias of the search, and under `"documents"` that between documents."""
        return {**self.search.as_json(), "documents": self.documents.as_json()}


def measure_language_bias(
    embeddings: Mapping[str, ArrayLike],
    documents: Mapping[str, ArrayLike] | None = None,
    *,
    queries: Mapping[str, ArrayLike] | None = None,
    neighbours: int = NEIGHBOURS,
) -> LanguageBias:
    """Search each text's nearest neighbours, by cosine, among equally many texts of every language.

    `embeddings` are language -> (n, d); languages with more texts than the smallest one give only their first ones.
    `documents` (n,) are ids of the documents that texts are from: neighbours from a text's own document are left out.
    `queries` (m, d) are embeddings of the first m texts as queries, if they differ.

    Example:
        >>> apart = {"en": torch.eye(4)[:2].repeat(9, 1), "fr": torch.eye(4)[2:].repeat(9, 1)}
        >>> round(measure_language_bias(apart, neighbours=5).same_language_share, 2)
        1.0
    """
    embeddings = named_as((), embeddings)
    documents, queries = (each and named_as([*embeddings], each) for each in (documents, queries))
    size = min((len(as_array(rows)) for rows in embeddings.values()), default=0)
    if len(embeddings) < 2 or size * len(embeddings) <= neighbours + 1:
        raise ValueError(f"{size} texts in each of {list(embeddings)} are too few for {neighbours} neighbours")
    return measure_calibrations(embeddings, {}, queries, documents, texts=size, neighbours=neighbours)[AS_IT_IS].search


def measure_calibrations(
    documents: Mapping[str, ArrayLike],
    calibrations: Mapping[Any, VectorCalibration],
    queries: Mapping[str, ArrayLike] | None = None,
    ids: Mapping[str, ArrayLike] | None = None,
    *,
    texts: int = TEXTS,
    neighbours: int = NEIGHBOURS,
) -> dict[Any, BiasFigures]:
    """The figures of vectors as they are (`AS_IT_IS`), and after each calibration, in one pass over the sample.

    `documents` are language -> (n, d), `calibrations` go by any keys, and `queries` are vectors (m, d) of the first m
    texts as queries, if they differ. `ids` (n,) are numbers of the documents that texts are from: neighbours from a
    text's own document do not count. The first `texts` of each language are looked at.

    Example:
        >>> clouds = {"en": np.random.normal(1, 1, (60, 8)), "fr": np.random.normal(-1, 1, (60, 8))}
        >>> figures = measure_calibrations(clouds, {"lsar": VectorCalibration.fit(clouds)})
        >>> figures["as it is"].search.same_language_share > figures["lsar"].search.same_language_share
        True
    """
    sample = _BalancedPool(documents, calibrations, queries, ids, texts, neighbours)
    apart = queries is not None or any(c.query is not None and not c.queries_only for c in calibrations.values())
    search = sample.biases_and_shares_kept("query", calibrations)
    between = sample.biases_and_shares_kept("document", calibrations) if apart else search
    figures = {AS_IT_IS: BiasFigures(search[AS_IT_IS][0], between[AS_IT_IS][0])}
    for name, each in calibrations.items():
        documents_of, kept_of = (AS_IT_IS, search) if each.queries_only else (name, between)
        properties = (kept_of[name][1], each.queries_only, bool(each.languages))
        figures[name] = BiasFigures(search[name][0], between[documents_of][0], *properties)
    return figures


class _BalancedPool:
    """Equally many vectors of each language, and their coordinates `inside` a common basis B of calibrations of means.

    A dot product x·y is rest + inside, where inside = (B^T x)·(B^T y). These calibrations change the r coordinates
    B^T x alone: the rest is computed once for all of them, and each costs r multiplications for a pair instead of d.
    """

    def __init__(
        self,
        documents: Mapping[str, ArrayLike],
        calibrations: Mapping[Any, VectorCalibration],
        queries: Mapping[str, ArrayLike] | None,
        ids: Mapping[str, ArrayLike] | None,
        texts: int,
        neighbours: int,
    ) -> None:
        clouds = {code: as_array(documents[code]) for code in sorted(documents)}
        self.codes, size = list(clouds), min(texts, *map(len, clouds.values()))
        pool = np.concatenate([rows[:size] for rows in clouds.values()])
        self.sides: dict[Role, NDArray[Any]] = {"query": pool, "document": pool}
        if queries is not None:
            as_queries = [as_array(queries[code])[:size] for code in self.codes]
            self.sides["query"] = np.concatenate([rows[: min(map(len, as_queries))] for rows in as_queries])
        self.document_of = np.arange(len(pool))
        if ids is not None:
            names = [[f"{code} {name}" for name in np.asarray(ids[code])[:size].tolist()] for code in self.codes]
            self.document_of = np.unique(np.concatenate(names), return_inverse=True)[1]
        self.basis = _common_basis(calibrations, pool.shape[1]).astype(pool.dtype)
        self.inside = {role: rows @ self.basis for role, rows in self.sides.items()}
        if (nearest := min(neighbours, len(pool) - 2)) < 1:
            raise ValueError(f"of {len(pool)} texts, {neighbours} neighbours cannot be looked at")
        self.neighbours = nearest

    def biases_and_shares_kept(
        self, role: Role, calibrations: Mapping[Any, VectorCalibration]
    ) -> dict[Any, tuple[LanguageBias, float]]:
        """Name -> the bias of searches by the texts of a role, and the share of a language's neighbours that stay."""
        size, count = (len(self.sides[side]) // len(self.codes) for side in ("document", role))
        mapped = {name: self._mapped_sides(each, role) for name, each in {AS_IT_IS: None, **calibrations}.items()}
        shares, kept = (dict[Any, list[Any]]((name, []) for name in mapped) for _ in range(2))
        language_of, expected = np.repeat(np.arange(len(self.codes)), size), np.empty((len(self.codes),) * 2)
        buffer = torch.empty(count, len(language_of), dtype=torch.from_numpy(self.basis).dtype)
        for i in range(len(self.codes)):
            rows, same_language = slice(i * count, (i + 1) * count), slice(i * size, (i + 1) * size)
            rest = _dot_products(self.sides[role][rows], self.sides["document"])
            rest -= _dot_products(self.inside[role][rows], self.inside["document"])
            # The text's own document has no neighbours of it; the text itself is none either.
            same_document = self.document_of[i * size : i * size + count, None] == self.document_of
            left = len(language_of) - same_document.sum(axis=1)
            expected[i], expected[i, i] = (size / left).mean(), ((size - same_document.sum(axis=1)) / left).mean()
            before = None
            for name, (asked, pool, lengths) in mapped.items():
                scores = _dot_products(asked[rows], pool, buffer)
                if _moves_coordinates_alone(calibrations.get(name)):
                    scores += rest
                scores /= lengths
                near = _nearest_mask(scores[:, same_language])
                before = near if before is None else before
                kept[name].append((near & before).sum() / before.sum())
                scores[same_document] = -np.inf
                top = np.argpartition(scores, -self.neighbours, axis=1)[:, -self.neighbours :]
                nearest = language_of[top[np.take_along_axis(scores, top, axis=1) > -np.inf]]
                shares[name].append(np.bincount(nearest, minlength=len(self.codes)) / len(nearest))
        common = (expected, size, self.neighbours)
        biases = {name: LanguageBias(self.codes, np.stack(each), *common) for name, each in shares.items()}
        return {name: (bias, float(np.mean(kept[name]))) for name, bias in biases.items()}

    def _mapped_sides(self, calibration: VectorCalibration | None, role: Role) -> tuple[NDArray[Any], ...]:
        """The `_mapped_factors` of a role (m, r or d) and of documents (n, r or d), and whole lengths of these (n,)."""
        asked, pool = (self._mapped_factors(calibration, side) for side in (role, "document"))
        squares = _squared_lengths(pool)
        if _moves_coordinates_alone(calibration):  # the rest is added; it may round below zero
            squares += (_squared_lengths(self.sides["document"]) - _squared_lengths(self.inside["document"])).clip(0)
        return asked, pool, np.where(squares > 0, np.sqrt(squares), 1).astype(pool.dtype)

    def _mapped_factors(self, calibration: VectorCalibration | None, role: Role) -> NDArray[Any]:
        """Factors of dot products: mapped coordinates of a role for a calibration of means, else whole vectors."""
        if calibration is None:
            return self.inside[role]
        basis, languages = calibration.basis.astype(self.basis.dtype), calibration.languages
        parts = np.split(self.sides[role] @ basis, len(self.codes))
        numbers = [languages.index(code) if languages else 0 for code in self.codes]
        added = [calibration.added_coordinates(*each) for each in zip(parts, [role] * len(parts), numbers, strict=True)]
        if not _moves_coordinates_alone(calibration):
            return self.sides[role] + np.concatenate(added)
        return self.inside[role] + np.concatenate(added) @ (basis.T @ self.basis)


def _moves_coordinates_alone(calibration: VectorCalibration | None) -> bool:
    """Whether a calibration is one of means, which changes coordinates in its basis alone; None changes nothing."""
    return calibration is None or calibration.basis.shape[1] < calibration.dimension


def _common_basis(calibrations: Mapping[Any, VectorCalibration], width: int) -> NDArray[Any]:
    """An orthonormal basis of what the calibrations of means change: their own, or one that holds them all."""
    bases = {each.basis.tobytes(): each.basis for each in calibrations.values() if _moves_coordinates_alone(each)}
    if not bases:
        return np.empty((width, 0))
    basis, *others = bases.values()
    return np.linalg.qr(np.concatenate([basis, *others], axis=1))[0] if others else basis


def _nearest_mask(scores: NDArray[Any]) -> NDArray[np.bool_]:
    """Which texts of the same language are among the ten nearest of each text, which is none itself."""
    scores, places = scores.copy(), np.arange(len(scores))
    scores[places, places] = -np.inf
    nearest = min(WITHIN, scores.shape[1] // 2)
    near = np.zeros(scores.shape, bool)
    np.put_along_axis(near, np.argpartition(scores, -nearest, axis=1)[:, -nearest:], True, axis=1)
    return near


def _squared_lengths(rows: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.einsum("nd,nd->n", rows, rows))


def _dot_products(left: NDArray[Any], right: NDArray[Any], into: torch.Tensor | None = None) -> NDArray[Any]:
    """`left @ right.T` by PyTorch, whose threads sleep where NumPy's wait actively: 0.4 ms for 13 on a busy machine."""
    return np.asarray(torch.mm(torch.from_numpy(left), torch.from_numpy(right).T, out=into).numpy())
