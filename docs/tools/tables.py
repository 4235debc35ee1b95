"""Writes the tables of what the package has, made from what its classes say, into the pages.

    python -m docs.tools.tables

A table stands between `<!-- table: benchmarks -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from st_xlret import losses as all_losses
from st_xlret.columns import Layout
from st_xlret.evaluation import BENCHMARKS
from st_xlret.losses import CrossLingualLoss
from st_xlret.stores.registry import STORES
from st_xlret.tables import markdown_table

PAGES = sorted(Path(__file__).resolve().parents[1].rglob("*.md"))
END = "<!-- end of table -->"
_PLACE = re.compile(rf"<!-- table: (.+?) -->\n.*?{END}", flags=re.DOTALL)


def benchmarks() -> str:
    """The benchmarks, by their names on the command line."""
    rows = []
    for name, evaluator in BENCHMARKS.items():
        rows.append([f"`{name}`", f"`{evaluator.__name__}`", evaluator.layout])
    return markdown_table(["`--benchmark`", "evaluator", "files"], rows, left=3)


def loss_classes() -> dict[str, type[CrossLingualLoss]]:
    """The losses, by their names."""
    classes = {}
    for name in all_losses.__all__:
        if name != "CrossLingualLoss":
            classes[name] = getattr(all_losses, name)
    return classes


def columns() -> str:
    """What each loss reads, in each of the ways in which it takes texts."""
    rows = []
    for name, loss in loss_classes().items():
        ways = "; or ".join(columns_of(layout) for layout in loss.layouts)
        rows.append([f"`{name}`", loss.data, ways, loss.paper])
    header = ["loss", "trained on", "columns, optional ones in brackets", "equation"]
    return markdown_table(header, rows, left=4)


def columns_of(layout: Layout) -> str:
    """What a loss reads in one of its ways, in words."""
    optional = [kind for kind in layout.reads if kind not in layout.needs]
    parts = [texts_of(layout)]
    if layout.needs:
        parts.append(code_list(layout.needs))
    if optional:
        parts.append(f"({code_list(optional)})")
    return ", ".join(parts)


def texts_of(layout: Layout) -> str:
    """The columns of texts in words."""
    if layout.texts == 0:
        return "`sentence_0`, `sentence_1`, ..."
    number = {1: "one text", 2: "two texts"}[layout.texts]
    if layout.further is None:
        return number
    if layout.most_further == 1:
        return f"{number}, (`{layout.further}`)"
    return f"{number}, (`{layout.further}_1`, ...)"


def code_list(names: Sequence[str]) -> str:
    """Names as code, with commas between them."""
    return ", ".join(f"`{name}`" for name in names)


def stores() -> str:
    """The kinds of stores, by how their vectors are named."""
    rows = []
    for kind in STORES:
        extra = "" if kind.extra is None else f"`{kind.extra}`"
        rows.append([f"`{kind.example}`", kind.what, kind.languages, extra])
    return markdown_table(["source", "what it is", "languages are in", "extra"], rows, left=4)


TABLES = {
    "benchmarks": benchmarks,
    "columns": columns,
    "stores": stores,
}
"""Name of a table on a page -> what makes it."""


def with_tables(markdown: str) -> str:
    """A page with its tables; a `KeyError` names one that there is not."""
    return _PLACE.sub(lambda place: between_markers(place[1]), markdown)


def between_markers(name: str) -> str:
    """A table as it stands in a page."""
    return f"<!-- table: {name} -->\n\n{TABLES[name]()}\n\n{END}"


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
