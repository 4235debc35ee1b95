r"""Search stored vectors that have texts, by a query in any language.

    st-xlret search runs/index.parquet --query "Where do storks spend the winter?"
    st-xlret search runs/index.parquet --map map --compare runs/index.parquet --serve

The vectors are what `st-xlret index` has written, or any others that the model can have made: a Parquet file, or a
table or collection of a database. They stay where they are, and each search reads all of them.
With --compare, other vectors answer too, such as those of the model before its calibration. With --map, queries are
mapped by what `st-xlret calibrate --vectors` has written. With --serve, a web page shows the answers side by side.
"""

import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from st_xlret.commands import check_options
from st_xlret.languages import LanguageIdentifier, check_language, find_language, language_identifier_or_none
from st_xlret.options import name_leading_words, option, parse


@dataclass
class Arguments:
    """What to search for, and where."""

    vectors: str = option(None, "The vectors: a file of `st-xlret index`, or the address of others with texts.")
    query: list[str] = option([], "Queries, each in quotes. By default lines of the terminal.", action="extend")
    language: str | None = option(None, "Language of the queries. By default it is identified, where it is needed.")
    top_k: int = option(10, "Results for a query.")
    map: str | None = option(None, "Folder of a calibration that maps the queries, but for the vectors of --compare.")
    compare: str | None = option(None, "Other vectors, whose answers are shown beside those of the first.")
    json: bool = option(False, "Print JSON lines: {query, results: [{score, language, text, id, source}]}.")
    serve: bool = option(False, "Open a web page to search with, instead of the terminal.")
    model: str | None = option(None, "The encoder, where the vectors do not name it or it is elsewhere now.")
    vector_field: str | None = option(None, "Field of the vectors, if it is not `vector`.")
    language_field: str | None = option(None, "Field of their languages, if not `language` or `lang`.")
    text_field: str | None = option(None, "Field of their texts, if it is not `text`.")
    group_field: str | None = option(
        None, "Field that versions of a text share: one result a group, in the query's language if there is one."
    )
    prefer_language: str | None = option(None, "With --group_field: the language to show instead of the query's.")
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
    (options,) = parse([Arguments], name_leading_words(arguments, "vectors"), description=__doc__, prog=prog)
    check_options(options, "vectors", *["group_field"] * bool(options.prefer_language))
    pools = [SearchPool(options.vectors, options, options.map)]
    pools += [SearchPool(options.compare, options, compared=True)] if options.compare is not None else []
    if options.serve:
        from st_xlret.commands.page import make_server

        with make_server(pools, options.host, options.port) as page:
            host = f"[{options.host}]" if ":" in options.host else options.host
            print(f"open http://{host}:{page.server_port}/ in a browser; Ctrl+C ends", flush=True)
            page.serve_forever()  # until Ctrl+C, a KeyboardInterrupt: it does not return
    for queries in [options.query] if options.query else ([query] for query in _queries_from_terminal()):
        answers = [pool.best_results(queries) for pool in pools]
        for number, query in enumerate(queries):
            for pool, results in zip(pools, answers, strict=True):
                _print_results(query, results[number], pool if len(pools) > 1 else None, as_json=options.json)
        sys.stdout.flush()


class SearchPool:
    """The vectors of an address with texts, and the model that embeds queries for them; a ValueError if they don't fit.

    Vectors that are `compared` are searched by the model that they name, if they name one.
    """

    def __init__(self, address: str, options: Arguments, map: str | None = None, *, compared: bool = False) -> None:
        from st_xlret import VectorCalibration
        from st_xlret.encoding import fingerprint, task_languages
        from st_xlret.hub.export import load_model
        from st_xlret.stores import open_store

        fields = ("vector_field", "language_field", "text_field", "group_field")
        store = open_store(address, **{field: getattr(options, field) for field in fields})
        encoder = store.model or options.model if compared else options.model or store.model
        if encoder is None:
            check_options(options, "model")
        self.options, self.store, self.model = options, store, load_model(encoder or "", options.device)
        mapped = f", mapped by {Path(store.mark or map or '').name}" if store.mark or map else ""
        self.title = f"{Path(encoder or '').name} ({Path(store.name).name}{mapped})"
        self.map, self.calibration = map, None if map is None else VectorCalibration.load(map)
        is_other, problem = store.fingerprint not in (None, fingerprint(self.model)), None
        if is_other or self.model.get_embedding_dimension() not in (None, store.dimension):
            problem = f"made by another model than {encoder} (it names {store.model}): index again, or name its model"
        elif store.mark and not (self.calibration and store.mark.startswith(self.calibration.fingerprint)):
            problem = f"mapped, by {store.mark}: name that map (--map); mapped vectors stand first, others in --compare"
        if problem:
            raise ValueError(f"the vectors of {store.name} are {problem}")
        if self.calibration is not None:
            self.calibration.check(dimension=store.dimension, metric=store.metric, model=store.model, name=store.name)
            if not (store.mark or self.calibration.queries_only):
                problem = f"{map} maps queries and documents, and {store.name} does not say that its vectors are mapped"
                way_out = "map them (st-xlret apply), or calibrate with --queries_only"
                warnings.warn(f"{problem}: {way_out}", stacklevel=2)
        of_model = set(task_languages(self.model).values())
        self.identifier = language_identifier_or_none(of_model) if of_model else None
        if self.calibration and self.calibration.languages and options.language is None:
            self.identifier = LanguageIdentifier(self.calibration.languages)

    def best_results(self, queries: Sequence[str]) -> list[list[SearchResult]]:
        """The best texts for each query, by cosine or, as the store, by dot product; a ValueError without texts."""
        from st_xlret.encoding import encode

        for query in queries:
            query.encode()  # refuses half a surrogate pair, which no tokenizer takes
        options, codes = self.options, set[str]()
        languages: Any = options.language and check_language(options.language)
        if languages is None and self.identifier is not None:
            languages = [self.identifier.identify(query) for query in queries]
        asked = encode(self.model, queries, languages, role="query", normalize_embeddings=self.store.metric != "dot")
        if self.calibration is not None:
            asked = self.calibration.transform(asked, "query", languages)
        answers = [dict[Any, SearchResult]() for _ in queries]
        for vectors, rows in self._rows_with_text():
            codes.update(rows["language"])
            for answer, scores in zip(answers, asked @ vectors.T, strict=True):
                _keep_best_rows(answer, scores, rows, options.top_k)
        if not any(answers):
            problem = "has no texts that could be shown; name their field (--text_field), and --top_k of 1 or more"
            raise ValueError(f"{self.store.name} {problem}")
        if options.group_field is not None:
            present, wanted = sorted(codes - {""}), options.prefer_language or options.language
            identifier = LanguageIdentifier(present) if present and not wanted else None
            wanted_of = identifier.identify if identifier else lambda _: check_language(wanted or "en")
            alike = [[each for each in present if find_language(code, [each])] for code in map(wanted_of, queries)]
            lacking = identifier.unknown if identifier else [wanted] if wanted and not any(alike) else []
            if lacking:
                why = "unless --language names it" if identifier else f"texts are in {', '.join(present) or 'none'}"
                warnings.warn(f"no group is shown in {', '.join(lacking)}: {why}", stacklevel=2)
            self._show_versions_in(alike, answers, asked)
        ranked = [sorted(answer.values(), key=lambda result: -result["score"]) for answer in answers]
        return [[{**result, "score": round(result["score"], 4)} for result in answer] for answer in ranked]

    def _show_versions_in(self, languages: list[list[str]], answers: list[dict[Any, SearchResult]], asked: Any) -> None:
        """Show, in place, each group of an answer by its nearest text in the query's languages; its score stays."""
        versions = [dict[Any, SearchResult]() for _ in answers]
        for vectors, rows in self._rows_with_text():
            for answer, version, codes, scores in zip(answers, versions, languages, asked @ vectors.T, strict=True):
                is_version = np.isin(rows["group"], np.array(list(answer), object)) & np.isin(rows["language"], codes)
                version_rows = {name: column[is_version] for name, column in rows.items()}
                _keep_best_rows(version, scores[is_version], version_rows, self.options.top_k)
        for answer, version in zip(answers, versions, strict=True):
            for group, shown in version.items():
                answer[group] = {**shown, "score": answer[group]["score"]}

    def _rows_with_text(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Vectors that have texts, as they are compared, and columns beside them; a row without a group is its own."""
        seen = 0
        for batch in self.store.batches(texts=True):
            vectors, is_usable, codes = self.store.check_rows(batch, Counter(), needs_language=False)
            beside = {name: batch.column(name).to_pylist() for name in ("id", "text", "source", "group")}
            # Missing values as they are written.
            named = [(group or "").strip().lower() not in ("", "nan", "none", "null") for group in beside["group"]]
            beside["group"] = [beside["group"][row] if is_named else seen + row for row, is_named in enumerate(named)]
            columns = {name: np.array(values, object) for name, values in {**beside, "language": codes}.items()}
            rows = is_usable & columns["text"].astype(bool)
            lengths = 1 if self.store.metric == "dot" else np.linalg.norm(vectors[rows], axis=1, keepdims=True)
            yield vectors[rows] / lengths, {name: column[rows] for name, column in columns.items()}
            seen += batch.num_rows


def _keep_best_rows(answer: dict[Any, SearchResult], scores: Any, rows: dict[str, Any], count: int) -> None:
    """Take the best rows of a batch into the best results, one a group; of equal scores, the first stays."""
    for row in np.argsort(-scores, kind="stable").tolist():
        group, score = rows["group"][row], float(scores[row])
        if len(answer) == count and score <= min((each["score"] for each in answer.values()), default=score):
            return
        if group not in answer or score > answer[group]["score"]:
            code, text, key, source = (rows[name][row] for name in ("language", "text", "id", "source"))
            answer[group] = SearchResult(score=score, language=code or None, text=text, id=key, source=source)
        if len(answer) > count:
            del answer[min(reversed(answer), key=lambda group: answer[group]["score"])]


def _print_results(query: str, results: Sequence[SearchResult], pool: SearchPool | None, *, as_json: bool) -> None:
    if as_json:
        where = {} if pool is None else {"vectors": pool.store.name, "map": pool.map}
        print(json.dumps({"query": query, **where, "results": results}, ensure_ascii=False))
        return
    print(f"\n{_printable_text(query)}" + (f"  [{pool.title}]" if pool else ""))
    for result in results:
        place = ", ".join(filter(None, (result["id"], result["source"])))
        code = _printable_text(result["language"] or "?")
        print(f"  {result['score']:.3f}  {code:<3}  {_printable_text(result['text'])}  [{_printable_text(place)}]")


def _printable_text(text: str) -> str:
    """The text without terminal escapes; the joiners of Persian and Indic letters (ZWNJ, ZWJ) stay."""
    return "".join(letter if letter.isprintable() or letter in "\u200c\u200d" else " " for letter in text)


def _queries_from_terminal() -> Iterator[str]:
    """Lines of the terminal until an empty one, or all lines of a file."""
    lines = map(str.strip, sys.stdin)
    if not sys.stdin.isatty():
        return filter(None, lines)
    print("query (an empty line ends):", flush=True)
    return takewhile(bool, lines)
