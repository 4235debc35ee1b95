r"""Search stored vectors that have texts, by a query in any language.

    st-xlret search runs/index.parquet --query "Where do storks spend the winter?"

The vectors are what `st-xlret index` has written, or any others that the model can have made: a Parquet file, a table
of LanceDB or PostgreSQL, a collection of Qdrant or Chroma. They stay where they are, and each search reads all of them.
Without --query, queries are read from the terminal, one a line. A result has a score, a language and its text. With
--compare, other vectors answer too, such as those of the model before its calibration. With --map, queries are mapped
by what `st-xlret calibrate --vectors` has written. With --serve, a web page on this
machine shows the answers of both side by side, with the languages that they are in:

    st-xlret search runs/index.parquet --map map --compare runs/index.parquet --serve
"""

from __future__ import annotations

import ipaddress
import json
import socket
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import parse_qs, urlsplit

from st_xlret.options import name_leading_words, option, parse

if TYPE_CHECKING:
    from st_xlret.stores import Store
    from st_xlret.vectors.calibration import VectorCalibration

_CANDIDATES = 20  # results among which a preferred language is looked for
_LONGEST_QUERY = 2_000
_EXAMPLE = "Where do storks spend the winter?"


@dataclass
class Arguments:
    """What to search for, and where."""

    vectors: str = option(None, "The vectors: a file of `st-xlret index`, or the address of others with texts.")
    query: list[str] = option([], "Queries, each in quotes. By default they are read from the terminal.")
    language: str | None = option(
        None,
        "Language of the queries, for --prefer_language or a model with a map per language. By default it is "
        "identified, with the extra langid.",
    )
    top_k: int = option(10, "Results for a query.")
    prefer_language: float = option(
        0.0,
        "Of results that say the same in several languages, put the one in the query's language first: how different "
        "they may be, from 0 (not at all) to 1. With 0.6, most translations are found to be the same.",
    )
    map: str | None = option(
        None, "Folder of a calibration of the vectors: queries are mapped by it. Not for those of --compare."
    )
    compare: str | None = option(None, "Other vectors, whose answers are shown beside those of the first.")
    json: bool = option(False, "Print JSON lines: {query, results: [{score, language, text}]}.")
    serve: bool = option(False, "Open a web page to search with, instead of the terminal.")
    model: str | None = option(None, "The encoder, where the vectors do not name it or it is elsewhere now.")
    vector_field: str | None = option(None, "Field of the vectors, if it is not `vector`.")
    language_field: str | None = option(None, "Field of their languages, if not `language` or `lang`.")
    text_field: str | None = option(None, "Field of their texts, if it is not `text`.")
    host: str = option(
        "127.0.0.1",
        "Address of the page. This machine alone reaches the default; 0.0.0.0 opens it to the network.",
    )
    port: int = option(7860, "Port of the page.")
    device: str | None = option(None, "cpu, cuda, cuda:1, mps. By default the best there is.")

    def __post_init__(self) -> None:
        if not self.vectors:
            raise ValueError('--vectors is missing: st-xlret search VECTORS --query "..."')
        if self.serve and (self.query or self.json):
            raise ValueError("--serve opens a page to type queries in: leave out --query and --json")


class Result(TypedDict):
    """A text that was found; its language is None where it is not known."""

    score: float
    language: str | None
    text: str


def main(arguments: Sequence[str], *, prog: str = "st-xlret search") -> None:
    """Run the command `search`."""
    (options,) = parse([Arguments], name_leading_words(arguments, "vectors"), description=__doc__, prog=prog)
    pools = [Pool(options.vectors, options, options.map)]
    if options.compare is not None:
        pools.append(Pool(options.compare, options, compared=True))
    if options.serve:
        with server(pools, options.host, options.port) as page:
            host = f"[{options.host}]" if ":" in options.host else options.host
            print(f"open http://{host}:{page.server_port}/ in a browser; Ctrl+C ends", flush=True)
            page.serve_forever()
    for queries in [options.query] if options.query else ([query] for query in _asked()):
        answers = [pool.search(queries) for pool in pools]
        for number, query in enumerate(queries):
            for pool, found in zip(pools, answers, strict=True):
                _show(query, found[number], pool.name if len(pools) > 1 else None, as_json=options.json)
        sys.stdout.flush()


class Pool:
    """Vectors with texts, and the model that embeds queries for them.

    Args:
        name: Path or address of the vectors.
        options: The fields of the vectors, the model, and how to search.
        map: Folder of the calibration by which queries are mapped.
        compared: Whether the vectors are those of `--compare`: the model is the one that they name, if they name one.

    Raises:
        ValueError: If the vectors have no texts, or do not fit the model or the map.
    """

    def __init__(self, name: str, options: Arguments, map: str | None = None, *, compared: bool = False) -> None:
        from st_xlret.commands.index import identifier_for
        from st_xlret.evaluation.embedding_cache import fingerprint
        from st_xlret.hub.loading import load_model
        from st_xlret.languages import LanguageIdentifier
        from st_xlret.stores import open_store

        fields = {field: getattr(options, field) for field in ("vector_field", "language_field", "text_field")}
        self.options, self.source = options, open_store(name, **fields)
        self.name = name = self.source.name  # without passwords and keys
        if not any(any(rows.column("text").to_pylist()) for rows in islice(self.source.batches(texts=True), 1)):
            raise ValueError(f"{name} has no texts that could be shown; name their field (--text_field)")
        models = [options.model, self.source.model]
        encoder = next(filter(None, reversed(models) if compared else models), None)
        if encoder is None:
            raise ValueError(f"{name} does not say which model has made its vectors: name it (--model)")
        self.model = load_model(encoder, options.device)
        self.title = f"{Path(encoder).name} ({Path(name).name})"
        is_other = self.source.fingerprint not in (None, fingerprint(self.model))
        if is_other or self.model.get_embedding_dimension() not in (None, self.source.dimension):
            raise ValueError(
                f"{name} was made by another model than {encoder} is now (it names {self.source.model}): the vectors "
                "do not fit. Build the index again, or name the model that made it"
            )
        self.calibration = None if map is None else _fitting_map(map, self.source)
        if map is None and self.source.mark:
            way = "name the map of queries (--map)"
            if compared:
                way = "name them first, with the map of queries (--map), and the others by --compare"
            raise ValueError(f"{name}: these vectors are mapped, by {self.source.mark}: {way}")
        self._identify = identifier_for(self.model)
        if self.calibration and self.calibration.languages and options.language is None:
            self._identify = LanguageIdentifier(self.calibration.languages).identify
        self._language_of = self._identify
        if options.prefer_language and options.language is None and self._identify is None:
            self._language_of = LanguageIdentifier().identify

    def search(self, queries: Sequence[str]) -> list[list[Result]]:
        """The best texts for each query, in one pass over the vectors.

        They are compared by cosine, which for vectors of unit length is the order of their distances, too; by dot
        product where the store does so.
        """
        import numpy as np
        import torch

        from st_xlret.encoding import encode
        from st_xlret.search import merge_top_k, top_k, unit_rows

        if any("\ud800" <= letter <= "\udfff" for query in queries for letter in query):
            raise ValueError(f"the query {ascii(' '.join(queries))} is not UTF-8")
        languages: Any = self.options.language
        if languages is None and self._identify is not None:
            languages = [self._identify(query) for query in queries]
        by_dot, wanted = self.source.metric == "dot", self._wanted()
        asked = encode(self.model, list(queries), languages, role="query", normalize_embeddings=not by_dot)
        if self.calibration is not None:
            asked = self.calibration.transform(asked, "query", languages)
        scores, best = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64)
        found: dict[int, tuple[str | None, Any, Any]] = {}
        first = 0
        for rows in self.source.batches(texts=True):
            stored, is_usable, codes = self.source.usable(rows, Counter(), needs_language=False)
            texts = rows.column("text").to_pylist()
            kept = np.flatnonzero(is_usable & np.array([bool(text) for text in texts]))
            if len(kept):
                vectors = stored[kept] if by_dot else unit_rows(stored[kept])
                more, places = top_k(asked, vectors, min(wanted, len(kept)))
                scores, best = torch.cat([scores, more.cpu()], 1), torch.cat([best, first + places.cpu()], 1)
                scores, best = merge_top_k(scores, best, min(wanted, best.shape[1]))
                for row in (chosen := set(best.unique().tolist())) - set(found):
                    own = kept[row - first]
                    found[row] = codes[own] or None, texts[own], stored[own].copy()
                found = {row: found[row] for row in chosen}
            first += len(kept)
        results: list[list[Result]] = [
            [{"score": round(score, 4), "language": found[row][0], "text": found[row][1]} for score, row in pairs]
            for pairs in map(zip, scores.tolist(), best.tolist())
        ]
        of_results = [np.array([found[row][2] for row in rows]) for rows in best.tolist()]
        return [self._preferred(*each)[: self.options.top_k] for each in zip(queries, results, of_results, strict=True)]

    def _wanted(self) -> int:
        return max(self.options.top_k, _CANDIDATES) if self.options.prefer_language else self.options.top_k

    def _preferred(self, query: str, results: list[Result], vectors: Any) -> list[Result]:
        """The results with those in the query's language before their translations; scores stay."""
        if not (self.options.prefer_language and results):
            return results
        import torch

        from st_xlret.languages import find_language
        from st_xlret.search import prefer

        own = self.options.language or (self._language_of(query) if self._language_of else "")
        is_own = [
            found["language"] is not None and find_language(own, [found["language"]]) is not None for found in results
        ]
        scores = torch.tensor([found["score"] for found in results])
        order = prefer(scores, torch.tensor(is_own), vectors, self.options.prefer_language)
        return [results[place] for place in order.tolist()]


def _fitting_map(folder: str, source: Store) -> VectorCalibration:
    """The calibration in a folder, if queries that it maps can search the vectors."""
    from st_xlret.vectors.calibration import VectorCalibration

    found = VectorCalibration.load(folder)
    found.check(dimension=source.dimension, metric=source.metric, model=source.model, name=source.name)
    if source.mark and not source.mark.startswith(found.fingerprint):
        raise ValueError(f"{source.name}: these vectors are mapped by another calibration than {folder}: {source.mark}")
    if not (source.mark or found.queries_only):
        warnings.warn(
            f"{folder} maps queries and documents, and {source.name} does not say that its vectors are mapped: map "
            "them (st-xlret apply), or calibrate with --queries_only",
            stacklevel=2,
        )
    return found


def _show(query: str, results: Sequence[Result], name: str | None, *, as_json: bool) -> None:
    if as_json:
        where = {} if name is None else {"vectors": name}
        print(json.dumps({"query": query, **where, "results": results}, ensure_ascii=False))
        return
    print(f"\n{_plain(query)}" + (f"  [{name}]" if name else ""))
    for result in results:
        print(f"  {result['score']:.3f}  {_plain(result['language'] or '?'):<3}  {_plain(result['text'])}")


def _plain(text: str) -> str:
    """The text without terminal escapes."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _asked() -> Iterable[str]:
    typed = sys.stdin.isatty()
    if typed:
        print("query (an empty line ends):", flush=True)
    for line in sys.stdin:
        if line.strip():
            yield line.strip()
        elif typed:
            return


# The page: HTML without scripts, from the standard library's server. A query is in the address, nothing is uploaded,
# and a request that names another host than the page's own is refused.

_COLOURS = (
    "#4269d0", "#b37700", "#d1495b", "#2d8a40", "#a463f2", "#20807a",
    "#9c6b4e", "#3f7fbf", "#c2488a", "#5d8a2f", "#c2577a", "#6a6f76",
)  # fmt: skip

_STYLE = """
body {font: 16px system-ui, sans-serif; margin: 1.5rem auto; max-width: 80rem; padding: 0 1rem; color: #1d2129}
form {display: flex; flex-wrap: wrap; gap: .5rem} input {font: inherit; padding: .5rem; flex: 1 1 20rem}
button {font: inherit; padding: .5rem}
main {display: flex; flex-wrap: wrap; gap: 2rem} section {flex: 1; min-width: 20rem}
.note {color: #666; font-size: .85rem; overflow-wrap: anywhere}
.bar {display: flex; height: 1.6rem; border-radius: .4rem; overflow: hidden; gap: 2px}
.bar span, .tag {color: #fff; font-size: .75rem; font-weight: 600; text-align: center; line-height: 1.6rem}
.result {display: flex; gap: .7rem; padding: .55rem 0; border-bottom: 1px solid #ddd}
.tag {flex: none; width: 2.9rem; border-radius: .35rem; align-self: flex-start}
.text {flex: 1; overflow-wrap: anywhere} .score {color: #666; font-size: .85rem}
"""


def answer(title: str, note: str, results: Sequence[Result], colours: dict[str, str]) -> str:
    """One column of the page: what answers, a bar of the languages of its answers, and the answers.

    Everything from outside is escaped: texts, names of files, and language codes.
    """
    codes = [result["language"] or "?" for result in results]
    bar = "".join(
        f'<span style="flex: {count}; background: {colours[code]}">{escape(code)} {count}</span>'
        for code, count in Counter(codes).most_common()
    )
    rows = "".join(
        f'<div class="result"><span class="tag" style="background: {colours[code]}">{escape(code)}</span>'
        f'<span class="text" dir="auto">{escape(result["text"])}</span>'
        f'<span class="score">{result["score"]:.3f}</span></div>'
        for code, result in zip(codes, results, strict=True)
    )
    return f'<h2>{escape(title)}</h2><p class="note">{escape(note)}</p><div class="bar">{bar}</div>{rows}'


def page(pools: Sequence[Pool], query: str) -> str:
    """The page with the answers to a query, or with the field alone."""
    answers = [pool.search([query])[0] if query else [] for pool in pools]
    codes = sorted({result["language"] or "?" for found in answers for result in found})
    colours = {code: _COLOURS[i % len(_COLOURS)] for i, code in enumerate(codes)}
    columns = "".join(
        f"<section>{answer(pool.title, f'{len(pool.source):,} texts', found, colours)}</section>"
        for pool, found in zip(pools, answers, strict=True)
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>st-xlret search</title>'
        f"<style>{_STYLE}</style>"
        '<h1>Search across languages</h1><form><input name="q" aria-label="Query in any language" autofocus '
        f'maxlength="{_LONGEST_QUERY}" placeholder="{_EXAMPLE}" value="{escape(query)}"><button>Search</button></form>'
        '<p class="note">Scores of different models cannot be compared: a calibration removes what all texts have in '
        f"common, and all scores fall.</p><main>{columns}</main></html>"
    )


def server(pools: Sequence[Pool], host: str, port: int) -> HTTPServer:
    """A server of the page; `serve_forever` starts it, and leaving its context closes it.

    Raises:
        OSError: If the address cannot be used.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                self._send(*self._answered())
            except (ValueError, OSError) as error:
                self._send(HTTPStatus.BAD_REQUEST, escape(str(error)))

        def _answered(self) -> tuple[HTTPStatus, str]:
            named = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
            address = urlsplit(self.path)
            query = parse_qs(address.query).get("q", [""])[0].strip()
            if not (named in ("localhost", host) or _is_address(named)):
                return HTTPStatus.FORBIDDEN, "this page does not answer for another host"
            if address.path != "/":
                return HTTPStatus.NOT_FOUND, "there is no such page"
            if len(query) > _LONGEST_QUERY:
                return HTTPStatus.BAD_REQUEST, f"a query has at most {_LONGEST_QUERY} characters"
            return HTTPStatus.OK, page(pools, query)

        def _send(self, status: HTTPStatus, text: str) -> None:
            content = text.encode("utf-8", "replace")
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: queries are nobody's business."""

    class Page(HTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    return Page((host, port), Handler)


def _is_address(host: str) -> bool:
    """Whether a host is an address and not a name: names are what DNS rebinding uses."""
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False
