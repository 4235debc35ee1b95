"""A web page on which one or two indexes answer queries side by side, with the languages of their answers.

It is one page of HTML without scripts, from the standard library's server: a query is in the address, nothing is
uploaded, and a request that names another host than the page's own is refused.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Sequence
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from st_xlret.commands.search_index import SearchIndex

EXAMPLE = "Where do storks spend the winter?"
_LONGEST_QUERY = 2_000
_COLOURS = (
    "#4269d0", "#b37700", "#d1495b", "#2d8a40", "#a463f2", "#20807a",
    "#9c6b4e", "#3f7fbf", "#c2488a", "#5d8a2f", "#c2577a", "#6a6f76",
)  # fmt: skip

_STYLE = """
body {font: 16px system-ui, sans-serif; margin: 1.5rem auto; max-width: 80rem; padding: 0 1rem; color: #1d2129}
form {display: flex; gap: .5rem} input {font: inherit; padding: .5rem; flex: 1} button {font: inherit; padding: .5rem}
main {display: flex; flex-wrap: wrap; gap: 2rem} section {flex: 1; min-width: 20rem}
.note {color: #666; font-size: .85rem; overflow-wrap: anywhere}
.bar {display: flex; height: 1.6rem; border-radius: .4rem; overflow: hidden; gap: 2px}
.bar span, .tag {color: #fff; font-size: .75rem; font-weight: 600; text-align: center; line-height: 1.6rem}
.result {display: flex; gap: .7rem; padding: .55rem 0; border-bottom: 1px solid #ddd}
.tag {flex: none; width: 2.9rem; border-radius: .35rem; align-self: flex-start}
.text {flex: 1; overflow-wrap: anywhere} .score {color: #666; font-size: .85rem}
"""


def language_name(code: str) -> str:
    """The English name of a language where the library `language_data` is installed, else its code."""
    import langcodes

    if code == "und":
        return "unknown language"
    try:
        return str(langcodes.Language.get(code).display_name())
    except ImportError:
        return code


def colours_of(languages: Sequence[str]) -> dict[str, str]:
    """A colour for each language; there are twelve of them."""
    return {code: _COLOURS[i % len(_COLOURS)] for i, code in enumerate(sorted(set(languages)))}


def answer(title: str, note: str, results: Sequence[dict[str, Any]], colours: dict[str, str]) -> str:
    """One column of the page: what answers, a bar of the languages of its answers, and the answers.

    Everything from outside is escaped: texts, names of folders, and language codes.
    """
    counts = Counter(result["language"] for result in results)
    bar = "".join(
        f'<span style="flex: {count}; background: {colours[code]}" title="{escape(language_name(code))}: {count} of '
        f'{len(results)}">{escape(code)} {count}</span>'
        for code, count in counts.most_common()
    )
    rows = "".join(
        f'<div class="result"><span class="tag" style="background: {colours[result["language"]]}" '
        f'title="{escape(language_name(result["language"]))}">{escape(result["language"])}</span>'
        f'<span class="text" dir="auto">{escape(result["text"])}</span>'
        f'<span class="score">{result["score"]:.3f}</span></div>'
        for result in results
    )
    return f'<h2>{escape(title)}</h2><p class="note">{escape(note)}</p><div class="bar">{bar}</div>{rows}'


def page(indexes: Sequence[SearchIndex], query: str, *, top_k: int, language: str | None) -> str:
    """The page with the answers to a query, or with the field alone."""
    colours = colours_of([code for index in indexes for code in index.about["languages"]])
    columns = []
    for index in indexes:
        results = index.search([query], top_k, language=language)[0] if query else []
        note = f"{len(index.entries):,} texts in {', '.join(map(language_name, index.about['languages']))}"
        title = f"{Path(index.about['model']).name} ({Path(index.folder).name})"
        columns.append(f"<section>{answer(title, note, results, colours)}</section>")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>st-xlret search</title><style>{_STYLE}</style>'
        '<h1>Search across languages</h1><form><input name="q" aria-label="Query in any language" autofocus '
        f'maxlength="{_LONGEST_QUERY}" placeholder="{EXAMPLE}" value="{escape(query)}"><button>Search</button></form>'
        '<p class="note">Scores of different models cannot be compared: a calibration removes what all texts have in '
        f"common, and all scores fall.</p><main>{''.join(columns)}</main></html>"
    )


def server(indexes: Sequence[SearchIndex], *, top_k: int, language: str | None, host: str, port: int) -> HTTPServer:
    """A server of the page; `serve_forever` starts it, and leaving its context closes it.

    Raises:
        OSError: If the address cannot be used.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            named = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
            address = urlsplit(self.path)
            query = parse_qs(address.query).get("q", [""])[0].strip()
            if not (named in ("localhost", host) or _is_address(named)):
                self._send(HTTPStatus.FORBIDDEN, "this page does not answer for another host")
            elif address.path != "/":
                self._send(HTTPStatus.NOT_FOUND, "there is no such page")
            elif len(query) > _LONGEST_QUERY:
                self._send(HTTPStatus.BAD_REQUEST, f"a query has at most {_LONGEST_QUERY} characters")
            else:
                try:
                    self._send(HTTPStatus.OK, page(indexes, query, top_k=top_k, language=language))
                except ValueError as error:
                    self._send(HTTPStatus.BAD_REQUEST, escape(str(error)))

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

    return HTTPServer((host, port), Handler)


def _is_address(host: str) -> bool:
    """Whether a host is an address and not a name: names are what DNS rebinding uses."""
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False
