r"""Search stored vectors that have texts, by a query in any language.

    st-xlret search runs/index.parquet --query "Where do storks spend the winter?"
    st-xlret search runs/index.parquet --map map --compare runs/index.parquet --serve

The vectors are what `st-xlret index` has written, or any others that the model can have made: a
Parquet file, or a table or collection of a database. They stay where they are, and each search
reads all of them. With --compare, other vectors answer too, such as those of the model before its
calibration. With --map, queries are mapped by what `st-xlret calibrate --vectors` has written. With
--serve, a web page shows the answers side by side.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from st_xlret.commands.answers import SearchResult, shown_language, shown_place
from st_xlret.commands.search_pool import SearchArguments, SearchPool
from st_xlret.commands.streams import input_lines, print_json
from st_xlret.options import check_options, name_leading_words, option, parse
from st_xlret.ranges import check_range


@dataclass
class Arguments(SearchArguments):
    """What to search for, and where."""

    vectors: str = option(
        None, "The vectors: a file of `st-xlret index`, or the address of others with texts."
    )
    query: list[str] = option(
        [], "Queries, each in quotes. By default lines of the terminal.", action="extend"
    )
    map: str | None = option(
        None, "Folder of a calibration that maps the queries, but for the vectors of --compare."
    )
    compare: str | None = option(
        None, "Other vectors, whose answers are shown beside those of the first."
    )
    json: bool = option(
        False,
        "Print JSON lines: {query, results: [{score, language, text, id, source}]}, and the group "
        "with --group_field.",
    )
    serve: bool = option(False, "Open a web page to search with, instead of the terminal.")
    host: str = option("127.0.0.1", "Address of the page; 0.0.0.0 opens it to the network.")
    port: int = option(7860, "Port of the page.")


def main(arguments: Sequence[str], *, prog: str = "st-xlret search") -> None:
    """Run the command `search`."""
    words = name_leading_words(arguments, "vectors")
    (options,) = parse([Arguments], words, description=__doc__, prog=prog)
    check_options(options, "vectors")
    check_range(1, top_k=options.top_k)
    pools = [SearchPool(options.vectors, options, options.map)]
    if options.compare is not None:
        pools.append(SearchPool(options.compare, options, compared=True))
    if options.serve:
        _serve(pools, options)
    elif options.query:
        _print_answers(pools, options.query, options)
    else:
        for query in _queries_from_terminal():
            _print_answers(pools, [query], options)


def _serve(pools: Sequence[SearchPool], options: Arguments) -> None:
    """Show a web page until Ctrl+C, a `KeyboardInterrupt`: it does not return."""
    from st_xlret.commands.page import make_server

    with make_server(pools, options.host, options.port) as page:
        host = f"[{options.host}]" if ":" in options.host else options.host
        print(f"open http://{host}:{page.server_port}/ in a browser; Ctrl+C ends", flush=True)
        page.serve_forever()


def _print_answers(pools: Sequence[SearchPool], queries: Sequence[str], options: Arguments) -> None:
    """Print the answers to some queries: those of all pools to the first one, and so on."""
    answers = [pool.best_results(queries) for pool in pools]
    for number, query in enumerate(queries):
        for pool, results in zip(pools, answers, strict=True):
            named_pool = pool if len(pools) > 1 else None
            if options.json:
                _print_json(query, results[number], named_pool)
            else:
                _print_for_people(query, results[number], named_pool)
    sys.stdout.flush()


def _print_json(query: str, results: Sequence[SearchResult], pool: SearchPool | None) -> None:
    """Print the results of a query as a line of JSON, which names the pool if it is given."""
    line: dict[str, Any] = {"query": query}
    if pool is not None:
        line["vectors"] = pool.store.name
        line["map"] = pool.map
    line["results"] = results
    print_json(line)


def _print_for_people(query: str, results: Sequence[SearchResult], pool: SearchPool | None) -> None:
    """Print the results of a query for people."""
    title = "" if pool is None else f"  [{pool.title}]"
    print(f"\n{_printable_text(query)}{title}")
    for result in results:
        beginning = f"{result['score']:.3f}  {shown_language(result):<3}"
        line = f"{beginning}  {result['text']}  [{shown_place(result)}]"
        print(f"  {_printable_text(line)}")


def _printable_text(text: str) -> str:
    """The text without terminal escapes; joiners of Persian and Indic letters (ZWNJ, ZWJ) stay."""
    letters = []
    for letter in text:
        is_shown = letter.isprintable() or letter in "\u200c\u200d"
        letters.append(letter if is_shown else " ")
    return "".join(letters)


def _queries_from_terminal() -> Iterator[str]:
    """Lines of the terminal until an empty one, or all lines of a file."""
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        print("query (an empty line ends):", flush=True)
    for query in input_lines():
        if query:
            yield query
        elif is_terminal:
            return
