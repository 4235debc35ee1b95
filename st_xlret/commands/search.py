r"""Search stored vectors that have texts, by a query in any language.

    st-xlret search runs/index.parquet --query "Where do storks spend the winter?"
    st-xlret search runs/index.parquet --map map --compare runs/index.parquet --serve

The vectors are what `st-xlret index` has written, or any others that the model can have made: a Parquet file, or a
table or collection of a database. They stay where they are, and each search reads all of them.
With --compare, other vectors answer too, such as those of the model before its calibration. With --map, queries are
mapped by what `st-xlret calibrate --vectors` has written. With --serve, a web page shows the answers side by side.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np

from st_xlret.commands import check_options
from st_xlret.languages import (
    LanguageIdentifier,
    check_language,
    find_language,
    language_identifier_or_none,
)
from st_xlret.options import name_leading_words, option, parse


@dataclass
class Arguments:
    """What to search for, and where."""

    vectors: str = option(
        None, "The vectors: a file of `st-xlret index`, or the address of others with texts."
    )
    query: list[str] = option(
        [], "Queries, each in quotes. By default lines of the terminal.", action="extend"
    )
    language: str | None = option(
        None, "Language of the queries. By default it is identified, where it is needed."
    )
    top_k: int = option(10, "Results for a query.")
    map: str | None = option(
        None, "Folder of a calibration that maps the queries, but for the vectors of --compare."
    )
    compare: str | None = option(
        None, "Other vectors, whose answers are shown beside those of the first."
    )
    json: bool = option(
        False, "Print JSON lines: {query, results: [{score, language, text, id, source}]}."
    )
    serve: bool = option(False, "Open a web page to search with, instead of the terminal.")
    model: str | None = option(
        None, "The encoder, where the vectors do not name it or it is elsewhere now."
    )
    vector_field: str | None = option(None, "Field of the vectors, if it is not `vector`.")
    language_field: str | None = option(
        None, "Field of their languages, if not `language` or `lang`."
    )
    text_field: str | None = option(None, "Field of their texts, if it is not `text`.")
    group_field: str | None = option(
        None,
        "Field that versions of a text share: one result a group, in the query's language if there is one.",
    )
    prefer_language: str | None = option(
        None, "With --group_field: the language to show instead of the query's."
    )
    host: str = option("127.0.0.1", "Address of the page; 0.0.0.0 opens it to the network.")
    port: int = option(7860, "Port of the page.")
    device: str | None = option(None, "cpu, cuda, cuda:1, mps. By default the best there is.")


class SearchResult(TypedDict):
    """A text that answers, its key in the store, and what this says of its language and of where it is from."""

    score: float
    language: str | None
    text: str
    id: str
    source: str | None


def main(arguments: Sequence[str], *, prog: str = "st-xlret search") -> None:
    """Run the command `search`."""
    (options,) = parse(
        [Arguments], name_leading_words(arguments, "vectors"), description=__doc__, prog=prog
    )
    check_options(options, "vectors", *["group_field"] * bool(options.prefer_language))
    pools = [SearchPool(options.vectors, options, options.map)]
    pools += (
        [SearchPool(options.compare, options, compared=True)] if options.compare is not None else []
    )
    if options.serve:
        from st_xlret.commands.page import make_server

        with make_server(pools, options.host, options.port) as page:
            host = f"[{options.host}]" if ":" in options.host else options.host
            print(f"open http://{host}:{page.server_port}/ in a browser; Ctrl+C ends", flush=True)
            page.serve_forever()  # until Ctrl+C, a KeyboardInterrupt: it does not return
    for queries in (
        [options.query] if options.query else ([query] for query in _queries_from_terminal())
    ):
        answers = [pool.best_results(queries) for pool in pools]
        for number, query in enumerate(queries):
            for pool, results in zip(pools, answers, strict=True):
                _print_results(
                    query, results[number], pool if len(pools) > 1 else None, as_json=options.json
                )
        sys.stdout.flush()


class SearchPool:
    """The vectors of an address with texts, and the model that embeds queries for them; a ValueError if they don't fit.

    Vectors that are `compared` are searched by the model that they name, if they name one.
    """

    def __init__(
        self, address: str, options: Arguments, map: str | None = None, *, compared: bool = False
    ) -> None:
        from st_xlret import VectorCalibration
        from st_xlret.encoding import fingerprint, task_languages
        from st_xlret.hub.export import load_model
        from st_xlret.stores import open_store

        fields = ("vector_field", "language_field", "text_field", "group_field")
        store = open_store(address, **{field: getattr(options, field) for field in fields})
        encoder = store.model or options.model if compared else options.model or store.model
        if encoder is None:
            check_options(options, "model")
        self.options, self.store, self.model = (
            options,
            store,
            load_model(encoder or "", options.device),
        )
        mapped = f", mapped by {Path(store.mark or map or '').name}" if store.mark or map else ""
        self.title = f"{Path(encoder or '').name} ({Path(store.name).name}{mapped})"
        self.map, self.calibration = map, None if map is None else VectorCalibration.load(map)
        is_other, problem = store.fingerprint not in (None, fingerprint(self.model)), None
        if is_other or self.model.get_embedding_dimension() not in (None, store.dimension):
            problem = f"made by another model than {encoder} (it names {store.model}): index again, or name its model"
        elif store.mark and not (
            self.calibration and store.mark.startswith(self.calibration.fingerprint)
        ):
            problem = f"mapped, by {store.mark}: name that map (--map); mapped vectors stand first, others in --compare"
        if problem:
            raise ValueError(f"the vectors of {store.name} are {problem}")
        if self.calibration is not None:
            self.calibration.check(
                dimension=store.dimension, metric=store.metric, model=store.model, name=store.name
            )
            if not (store.mark or self.calibration.queries_only):
                problem = f"{map} maps queries and documents, and {store.name} does not say that its vectors are mapped"
                way_out = "map them (st-xlret apply), or calibrate with --queries_only"
                warnings.warn(f"{problem}: {way_out}", stacklevel=2)
        of_model = set(task_languages(self.model).values())
        self.identifier = language_identifier_or_none(of_model) if of_model else None
        if self.calibration and self.calibration.languages and options.language is None:
            self.identifier = LanguageIdentifier(self.calibration.languages)

    def best_results(self, queries: Sequence[str]) -> list[list[SearchResult]]:
        """The best texts for each query, by cosine or, as the store, by dot product.

        A `ValueError` says that there are no texts.
        """
        for query in queries:
            query.encode()  # refuses half a surrogate pair, which no tokenizer takes
        vectors = self._embed(queries)
        answers = [_Answer(self.options.top_k) for _ in queries]
        languages: set[str] = set()
        for rows in self._rows_with_text():
            languages.update(rows.language)
            for answer, vector in zip(answers, vectors, strict=True):
                answer.add(rows, rows.vectors @ vector)
        if not any(answer.rows for answer in answers):
            raise ValueError(
                f"{self.store.name} has no texts that could be shown; name their field "
                "(--text_field), and --top_k of 1 or more"
            )
        if self.options.group_field is not None:
            wanted = self._languages_to_show(queries, sorted(languages - {""}))
            answers = self._versions_in(wanted, answers, vectors)
        return [answer.results() for answer in answers]

    def _embed(self, queries: Sequence[str]) -> Any:
        """Vectors of queries, mapped if the stored ones are searched by mapped ones."""
        from st_xlret.encoding import encode

        languages: str | list[str] | None = None
        if self.options.language is not None:
            languages = check_language(self.options.language)
        elif self.identifier is not None:
            languages = [self.identifier.identify(query) for query in queries]
        vectors = encode(
            self.model,
            queries,
            languages,
            role="query",
            normalize_embeddings=self.store.metric != "dot",
        )
        if self.calibration is not None:
            vectors = self.calibration.transform(vectors, "query", languages)
        return vectors

    def _languages_to_show(self, queries: Sequence[str], present: Sequence[str]) -> list[list[str]]:
        """For each query, the languages present in which groups are shown, most often one."""
        wanted = self.options.prefer_language or self.options.language
        lacking: list[str] = []
        if wanted is not None or not present:
            codes = [check_language(wanted or "en")] * len(queries)
            shown = [_same_languages(code, present) for code in codes]
            why = f"texts are in {', '.join(present) or 'none'}"
            if wanted is not None and not any(shown):
                lacking = [wanted]
        else:
            identifier = LanguageIdentifier(present)
            codes = [identifier.identify(query) for query in queries]
            shown = [_same_languages(code, present) for code in codes]
            why = "unless --language names it"
            lacking = list(identifier.unknown)
        if lacking:
            names = ", ".join(lacking)
            warnings.warn(f"no group is shown in {names}: {why}", stacklevel=3)
        return shown

    def _versions_in(
        self, languages: list[list[str]], answers: list[_Answer], vectors: Any
    ) -> list[_Answer]:
        """Each group of an answer by its nearest text in the query's languages.

        Its score stays, and so does its text where there is no other.
        """
        versions = [_Answer(self.options.top_k) for _ in answers]
        for rows in self._rows_with_text():
            for number, version in enumerate(versions):
                shown = [row.group for row in answers[number].rows]
                some = rows.versions(shown, languages[number])
                version.add(some, some.vectors @ vectors[number])
        return [answer.shown_by(version) for answer, version in zip(answers, versions, strict=True)]

    def _rows_with_text(self) -> Iterator[_Rows]:
        """Rows that have texts, with vectors as they are compared."""
        seen = 0
        for batch in self.store.batches(texts=True):
            vectors, is_usable, codes = self.store.check_rows(
                batch, Counter(), needs_language=False
            )
            groups = batch.column("group").to_pylist()
            for place, group in enumerate(groups):
                if not _is_named(group):
                    groups[place] = seen + place
            seen += batch.num_rows
            rows = _Rows(
                vectors=vectors,
                group=np.array(groups, object),
                language=codes,
                text=np.array(batch.column("text").to_pylist(), object),
                key=np.array(batch.column("id").to_pylist(), object),
                source=np.array(batch.column("source").to_pylist(), object),
            )
            rows = rows.select(is_usable & rows.text.astype(bool))
            if self.store.metric != "dot":
                lengths = np.linalg.norm(rows.vectors, axis=1, keepdims=True)
                rows = rows._replace(vectors=rows.vectors / lengths)
            yield rows


class _Row(NamedTuple):
    """What stands beside a vector. A row without a group is its own: its number."""

    group: str | int
    language: str
    text: str
    key: str
    source: str | None


class _Rows(NamedTuple):
    """Vectors (n, d), and what stands beside them, (n,) each; see `_Row`."""

    vectors: Any
    group: Any
    language: Any
    text: Any
    key: Any
    source: Any

    def row(self, place: int) -> _Row:
        """What stands beside one vector."""
        return _Row(
            self.group[place],
            self.language[place],
            self.text[place],
            self.key[place],
            self.source[place],
        )

    def select(self, is_chosen: Any) -> _Rows:
        """Some of the rows."""
        return _Rows(*(column[is_chosen] for column in self))

    def versions(self, groups: list[str | int], languages: list[str]) -> _Rows:
        """The rows of some groups that are in one of some languages."""
        is_of_group = np.isin(self.group, np.array(groups, object))
        is_in_language = np.isin(self.language, languages)
        return self.select(is_of_group & is_in_language)


class _Answer:
    """The best rows for a query, one for each group, best first."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.scores: list[float] = []
        self.rows: list[_Row] = []

    def add(self, batch: _Rows, scores: Any) -> None:
        """Take the rows of a batch into account; of equal scores, the first stays."""
        from st_xlret.search import best_of_groups  # which loads PyTorch: not for --help

        best = best_of_groups(scores, batch.group, self.count)
        rows = self.rows + [batch.row(place) for place in best]
        every_score = self.scores + [float(scores[place]) for place in best]
        groups = [row.group for row in rows]
        kept = best_of_groups(np.array(every_score), groups, self.count)
        self.rows = [rows[place] for place in kept]
        self.scores = [every_score[place] for place in kept]

    def shown_by(self, version: _Answer) -> _Answer:
        """The same groups and scores, with the rows of a version where it has some."""
        row_of = {row.group: row for row in version.rows}
        shown = _Answer(self.count)
        shown.scores = self.scores
        shown.rows = [row_of.get(row.group, row) for row in self.rows]
        return shown

    def results(self) -> list[SearchResult]:
        """What is shown of each row."""
        results = []
        for score, row in zip(self.scores, self.rows, strict=True):
            results.append(
                SearchResult(
                    score=round(score, 4),
                    language=row.language or None,
                    text=row.text,
                    id=row.key,
                    source=row.source,
                )
            )
        return results


def _is_named(group: str | None) -> bool:
    """Whether a row names its group; missing values stand as they are written."""
    return (group or "").strip().lower() not in ("", "nan", "none", "null")


def _same_languages(code: str, present: Sequence[str]) -> list[str]:
    return [each for each in present if find_language(code, [each])]


def _print_results(
    query: str, results: Sequence[SearchResult], pool: SearchPool | None, *, as_json: bool
) -> None:
    if as_json:
        where = {} if pool is None else {"vectors": pool.store.name, "map": pool.map}
        print(json.dumps({"query": query, **where, "results": results}, ensure_ascii=False))
        return
    print(f"\n{_printable_text(query)}" + (f"  [{pool.title}]" if pool else ""))
    for result in results:
        place = ", ".join(filter(None, (result["id"], result["source"])))
        code = _printable_text(result["language"] or "?")
        print(
            f"  {result['score']:.3f}  {code:<3}  {_printable_text(result['text'])}  [{_printable_text(place)}]"
        )


def _printable_text(text: str) -> str:
    """The text without terminal escapes; the joiners of Persian and Indic letters (ZWNJ, ZWJ) stay."""
    return "".join(
        letter if letter.isprintable() or letter in "\u200c\u200d" else " " for letter in text
    )


def _queries_from_terminal() -> Iterator[str]:
    """Lines of the terminal until an empty one, or all lines of a file."""
    lines = map(str.strip, sys.stdin)
    if not sys.stdin.isatty():
        return filter(None, lines)
    print("query (an empty line ends):", flush=True)
    return takewhile(bool, lines)
