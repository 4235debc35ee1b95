"""The pool of `st-xlret search`: stored vectors with texts, and the model that embeds queries."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from st_xlret.commands.answers import Answer, SearchResult, StoredRows
from st_xlret.commands.sources import EncoderArguments, FieldArguments
from st_xlret.languages import (
    WORDS_FOR_MISSING,
    LanguageIdentifier,
    check_language,
    find_language,
    language_identifier_or_none,
)
from st_xlret.options import check_options, option


@dataclass
class SearchArguments(FieldArguments, EncoderArguments):
    """How stored vectors are searched, and by which encoder."""

    model: str | None = option(
        None, "The encoder, where the vectors do not name it or it is elsewhere now."
    )
    group_field: str | None = option(
        None,
        "Field that versions of a text share: one result a group, in the query's language if there "
        "is one.",
    )
    language: str | None = option(
        None, "Language of the queries. By default it is identified, where it is needed."
    )
    top_k: int = option(10, "Results for a query.")


class SearchPool:
    """The vectors of an address with texts, and the model that embeds queries for them.

    A `ValueError` says that they do not fit. Vectors that are `compared` are searched by the model
    that they name, if they name one.
    """

    def __init__(
        self,
        address: str,
        options: SearchArguments,
        map: str | None = None,
        *,
        compared: bool = False,
    ) -> None:
        from st_xlret import VectorCalibration
        from st_xlret.hub.loading import load_model

        self.options = options
        self.map = map
        self.store = options.open(address, group_field=options.group_field)
        names = [options.model, self.store.model]
        if compared:
            names.reverse()
        encoder = names[0] or names[1]
        if encoder is None:
            check_options(options, "model")
        self.encoder = encoder or ""
        self.model = load_model(self.encoder, options.device)
        self.calibration = None if map is None else VectorCalibration.load(map)
        self._check_vectors()
        self.identifier = self._identifier_of_queries()

    @property
    def title(self) -> str:
        """The model and the vectors, for people."""
        store = Path(self.store.name).name
        map = self.store.origin or self.map
        if map:
            store = f"{store}, mapped by {Path(map).name}"
        return f"{Path(self.encoder).name} ({store})"

    def _check_vectors(self) -> None:
        """Refuse vectors that another model or map has made; warn of those that no map has."""
        from st_xlret.encoding import fingerprint

        store = self.store
        is_other = store.fingerprint not in (None, fingerprint(self.model))
        if is_other or self.model.get_embedding_dimension() not in (None, store.dimension):
            raise ValueError(
                f"the vectors of {store.name} are made by another model than {self.encoder} "
                f"(it names {store.model}): index again, or name its model"
            )
        if store.origin and not self._is_made_by_map(store.origin):
            raise ValueError(
                f"the vectors of {store.name} are mapped, by {store.origin}: name that map "
                "(--map); mapped vectors stand first, others in --compare"
            )
        if self.calibration is None:
            return
        self.calibration.check(
            dimension=store.dimension, metric=store.metric, model=store.model, name=store.name
        )
        if not store.origin and not self.calibration.queries_only:
            warnings.warn(
                f"{self.map} maps queries and documents, and {store.name} does not say that its "
                "vectors are mapped: map them (st-xlret apply), or calibrate with --queries_only",
                stacklevel=3,
            )

    def _is_made_by_map(self, origin: str) -> bool:
        """Whether the map that was named has made vectors of this origin."""
        from st_xlret.stores.base import Origin

        if self.calibration is None:
            return False
        return Origin.parse(origin).fingerprint == self.calibration.fingerprint

    def _identifier_of_queries(self) -> LanguageIdentifier | None:
        """What finds the language of queries, where model or map needs it; else None."""
        from st_xlret.encoding import task_languages

        if self.calibration and self.calibration.languages and self.options.language is None:
            return LanguageIdentifier(self.calibration.languages)
        of_model = set(task_languages(self.model).values())
        return language_identifier_or_none(of_model) if of_model else None

    def __len__(self) -> int:
        return len(self.store)

    def best_results(self, queries: Sequence[str]) -> list[list[SearchResult]]:
        """The best texts for each query, by the metric of the store, by default the cosine.

        A `ValueError` says that there are no texts.
        """
        for query in queries:
            if not query.strip():
                raise ValueError(f"the query {query!r} is blank")
            query.encode()  # refuses half a surrogate pair, which no tokenizer takes
        vectors = self._embed(queries)
        answers = [Answer(self.options.top_k) for _ in queries]
        languages: set[str] = set()
        for rows in self._rows_to_search():
            languages.update(rows.language)
            for answer, vector in zip(answers, vectors, strict=True):
                answer.add(rows, self._scores(rows.vectors, vector))
        if not any(answer.rows for answer in answers):
            raise ValueError(
                f"{self.store.name} has no texts that could be shown; name their field "
                "(--text_field)"
            )
        with_group = self.options.group_field is not None
        if with_group:
            wanted = self._languages_to_show(queries, sorted(languages - {""}))
            answers = self._versions_in(wanted, answers, vectors)
        return [answer.results(with_group=with_group) for answer in answers]

    @property
    def _uses_cosine(self) -> bool:
        """Whether both sides, queries and stored vectors, are divided by their lengths."""
        return self.store.metric in (None, "cosine")

    def _scores(
        self, vectors: NDArray[np.float32], query: NDArray[np.floating]
    ) -> NDArray[np.floating]:
        """Dot products, or 1 - |q - d|^2 / 2, which is the cosine of vectors of unit length."""
        products = vectors @ query
        if self.store.metric != "euclidean":
            return products
        squares = np.einsum("nd,nd->n", vectors, vectors)
        return 1 + products - (squares + query @ query) / 2

    def _embed(self, queries: Sequence[str]) -> NDArray[np.floating]:
        """Vectors of queries (n, d), mapped by the pool's calibration, if it has one."""
        from st_xlret.encoding import encode

        languages: str | list[str] | None = None
        if self.options.language is not None:
            languages = check_language(self.options.language)
        elif self.identifier is not None:
            languages = [self.identifier.identify(query) for query in queries]
        vectors: NDArray[np.floating] = encode(
            self.model,
            queries,
            languages,
            role="query",
            normalize_embeddings=self._uses_cosine,
        )
        if self.calibration is not None:
            vectors = self.calibration.transform(vectors, "query", languages)
        return vectors

    def _languages_to_show(self, queries: Sequence[str], present: Sequence[str]) -> list[list[str]]:
        """For each query, the languages present in which groups are shown, most often one."""
        wanted = self.options.language
        lacking = ""
        if wanted is not None:
            shown = _same_languages(check_language(wanted), present)
            if not shown:
                lacking = f"{wanted}: texts are in {', '.join(present) or 'none'}"
            languages = [shown] * len(queries)
        elif present:
            identifier = LanguageIdentifier(present)
            codes = [identifier.identify(query) for query in queries]
            if identifier.unknown:
                lacking = f"{', '.join(identifier.unknown)}: unless --language names it"
            languages = [_same_languages(code, present) for code in codes]
        else:
            languages = [[] for _ in queries]
        if lacking:
            warnings.warn(f"no group is shown in {lacking}", stacklevel=3)
        return languages

    def _versions_in(
        self, languages: list[list[str]], answers: list[Answer], vectors: NDArray[np.floating]
    ) -> list[Answer]:
        """Each group of an answer by its nearest text in the query's languages.

        Its score stays, and so does its text where there is no other.
        """
        versions = [Answer(self.options.top_k) for _ in answers]
        for rows in self._rows_to_search():
            for number, version in enumerate(versions):
                some = rows.versions_of_groups(answers[number].groups, languages[number])
                version.add(some, self._scores(some.vectors, vectors[number]))
        return [answer.shown_by(version) for answer, version in zip(answers, versions, strict=True)]

    def _rows_to_search(self) -> Iterator[StoredRows]:
        """The rows that have texts, with vectors as they are compared, in the order of the store.

        A text that names no group is a group of its own: its number among all rows, which each
        pass counts alike.
        """
        seen = 0
        for batch in self.store.batches(texts=True):
            vectors, is_usable, codes = self.store.examine_rows(batch, needs_language=False)
            groups = batch.column("group").to_pylist()
            for place, group in enumerate(groups):
                if not _is_named(group):
                    groups[place] = seen + place
            seen += batch.num_rows
            rows = StoredRows(
                vectors=vectors,
                group=np.array(groups, object),
                language=codes,
                text=np.array(batch.column("text").to_pylist(), object),
                key=np.array(batch.column("id").to_pylist(), object),
                source=np.array(batch.column("source").to_pylist(), object),
            )
            rows = rows.select(is_usable & rows.text.astype(bool))
            if self._uses_cosine:
                lengths = np.linalg.norm(rows.vectors, axis=1, keepdims=True)
                rows = rows._replace(vectors=rows.vectors / lengths)
            yield rows


def _is_named(group: str | None) -> bool:
    """Whether a row names its group; missing values stand as they are written."""
    return (group or "").strip().lower() not in WORDS_FOR_MISSING


def _same_languages(code: str, present: Sequence[str]) -> list[str]:
    """The languages present that are a language, or a region of it."""
    return [each for each in present if find_language(code, [each])]
