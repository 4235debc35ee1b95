r"""Search an index that `st-xlret index` has built, by a query in any language.

    st-xlret search runs/index --query "Where do storks spend the winter?"

Without --query, queries are read from the terminal, one a line. A result has a score, a language and its text. With
--compare, a second index answers too, such as that of the model before its calibration. With --serve, a web page on
this machine shows the answers of both side by side, with the languages that they are in:

    st-xlret search runs/index --compare runs/index-raw --serve
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from st_xlret.options import name_leading_words, option, parse

if TYPE_CHECKING:
    from st_xlret.commands.search_index import SearchIndex


@dataclass
class Arguments:
    """What to search for, and where."""

    index: str = option(None, "Folder of the index.")
    query: list[str] = option([], "Queries, each in quotes. By default they are read from the terminal.")
    language: str | None = option(None, "Language of the queries, for a model with a map per language.")
    top_k: int = option(10, "Results for a query.", minimum=1)
    compare: str | None = option(None, "Folder of a second index, whose answers are shown beside those of the first.")
    json: bool = option(False, "Print JSON lines: {query, results: [{score, language, text}]}.")
    serve: bool = option(False, "Open a web page to search with, instead of the terminal.")
    host: str = option(
        "127.0.0.1",
        "Address of the page. This machine alone reaches the default; 0.0.0.0 opens it to the network.",
        expert=True,
    )
    port: int = option(7860, "Port of the page.", minimum=0, maximum=65_535, expert=True)
    model: str | None = option(None, "The encoder, where it is not where it was when the index was built.", expert=True)
    device: str | None = option(None, "cpu, cuda, cuda:1, mps. By default the best there is.", expert=True)

    def __post_init__(self) -> None:
        if not self.index:
            raise ValueError('--index is missing: st-xlret search FOLDER --query "..."')
        if self.serve and (self.query or self.json):
            raise ValueError("--serve opens a page to type queries in: leave out --query and --json")


def main(arguments: Sequence[str], *, prog: str = "st-xlret search") -> None:
    """Run the command `search`."""
    (options,) = parse([Arguments], name_leading_words(arguments, "index"), description=__doc__, prog=prog)
    from st_xlret.commands.search_index import SearchIndex

    indexes = [SearchIndex(options.index, options.model, options.device)]
    if options.compare is not None:
        indexes.append(SearchIndex(options.compare, None, options.device))
    if options.serve:
        from st_xlret.commands.search_page import server

        with server(
            indexes, top_k=options.top_k, language=options.language, host=options.host, port=options.port
        ) as page:
            print(f"open http://{options.host}:{page.server_port}/ in a browser; Ctrl+C ends", flush=True)
            page.serve_forever()
    for query in options.query or _asked():
        for index in indexes:
            _show(query, index, options, name_index=len(indexes) > 1)
        sys.stdout.flush()


def _show(query: str, index: SearchIndex, options: Arguments, *, name_index: bool) -> None:
    (results,) = index.search([query], options.top_k, language=options.language)
    where = {"index": index.folder} if name_index else {}
    if options.json:
        print(json.dumps({"query": query, **where, "results": results}, ensure_ascii=False))
        return
    print(f"\n{query}" + (f"  [{index.folder}]" if name_index else ""))
    for result in results:
        text = "".join(letter if letter.isprintable() else " " for letter in result["text"])  # no terminal escapes
        print(f"  {result['score']:.3f}  {result['language']:<3}  {text}")


def _asked() -> Iterable[str]:
    typed = sys.stdin.isatty()
    if typed:
        print("query (an empty line ends):", flush=True)
    for line in sys.stdin:
        if line.strip():
            yield line.strip()
        elif typed:
            return
