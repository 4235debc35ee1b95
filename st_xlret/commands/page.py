"""The page of `st-xlret search --serve`: HTML without scripts, from the standard library's server.

A query is in the address, nothing is uploaded, and a request that names another host than the
page's own is refused.
"""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from string import Template
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from st_xlret.commands.answers import SearchResult, shown_language, shown_place

if TYPE_CHECKING:
    from st_xlret.commands.search_pool import SearchPool

_LONGEST_QUERY = 2_000
_ADDRESS = re.compile(r"[\d.]+|[\da-f.]*:[\da-f:.]*")  # not a name, as DNS rebinding uses
_COLOURS = (
    "#4269d0", "#b37700", "#d1495b", "#2d8a40", "#a463f2", "#20807a",
    "#9c6b4e", "#3f7fbf", "#c2488a", "#5d8a2f", "#c2577a", "#6a6f76",
)  # fmt: skip
_PAGE = Template((Path(__file__).parent / "page.html").read_text(encoding="utf-8"))


def _page_html(pools: Sequence[SearchPool], query: str) -> str:
    """The whole page: a column of results for each pool, a colour for each language.

    An empty query has no results. All that is put into `page.html` is escaped here.
    """
    answers = []
    codes: set[str] = set()
    for pool in pools:
        results = pool.best_results([query])[0] if query else []
        answers.append(results)
        codes.update(shown_language(result) for result in results)
    colours = {}
    for number, code in enumerate(sorted(codes)):
        colours[code] = _COLOURS[number % len(_COLOURS)]
    columns = []
    for pool, results in zip(pools, answers, strict=True):
        columns.append(_column_html(pool, results, colours))
    return _PAGE.substitute(columns="".join(columns), query=escape(query), longest=_LONGEST_QUERY)


def _column_html(
    pool: SearchPool, results: Sequence[SearchResult], colours: Mapping[str, str]
) -> str:
    """A column of the page: a bar of the languages of its results, and the results, all escaped."""
    counts = Counter(shown_language(result) for result in results)
    bar = []
    for code, count in counts.most_common():
        style = f"flex: {count}; background: {colours[code]}"
        bar.append(f'<span style="{style}">{escape(code)} {count}</span>')
    rows = [_result_html(result, colours) for result in results]
    return (
        f"<section><h2>{escape(pool.title)}</h2>"
        f'<p class="note">{len(pool):,} texts</p>'
        f'<div class="bar">{"".join(bar)}</div>{"".join(rows)}</section>'
    )


def _result_html(result: SearchResult, colours: Mapping[str, str]) -> str:
    """A result, all escaped; `colours` has its language as it is shown."""
    code = shown_language(result)
    return (
        f'<div class="result"><span class="tag" style="background: {colours[code]}">'
        f"{escape(code)}</span>"
        f'<span class="text" dir="auto">{escape(result["text"])}'
        f'<br><span class="note">{escape(shown_place(result))}</span></span>'
        f'<span class="score">{result["score"]:.3f}</span></div>'
    )


def _status_and_page(
    pools: Sequence[SearchPool], host: str, asked_host: str, path: str
) -> tuple[HTTPStatus, str]:
    """What to answer to a request for a path: a status, and a page or a sentence.

    Another host name than that of the page is refused: so no page on the web can read answers
    through the browser.
    """
    if asked_host not in ("localhost", host) and not _ADDRESS.fullmatch(asked_host):
        return HTTPStatus.FORBIDDEN, "this page does not answer for another host"
    address = urlsplit(path)
    if address.path != "/":
        return HTTPStatus.NOT_FOUND, "there is no such page"
    query = parse_qs(address.query).get("q", [""])[0].strip()
    if len(query) > _LONGEST_QUERY:
        return HTTPStatus.BAD_REQUEST, f"a query has at most {_LONGEST_QUERY} characters"
    return HTTPStatus.OK, _page_html(pools, query)


def make_server(pools: Sequence[SearchPool], host: str, port: int) -> HTTPServer:
    """A server of the page; `serve_forever` starts it, and leaving its context closes it.

    A query that a pool refuses, by a `ValueError` or an `OSError`, is a bad request.
    """
    one_at_a_time = Lock()  # tokenizers and connections are not for several threads

    class Handler(BaseHTTPRequestHandler):
        timeout = 60  # seconds for a request to arrive

        def do_GET(self) -> None:
            try:
                asked_host = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
                with one_at_a_time:
                    status, text = _status_and_page(pools, host, asked_host, self.path)
            except (ValueError, OSError) as error:
                status = HTTPStatus.BAD_REQUEST
                text = escape(str(error))
            content = text.encode("utf-8", "replace")
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header(
                "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"
            )
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing: queries are nobody's business."""

    class Page(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    return Page((host, port), Handler)
