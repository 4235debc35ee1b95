"""MkDocs hook: the pages of the API reference, made from the `__all__` of each part."""

from __future__ import annotations

from importlib import import_module

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from st_xlret.tables import markdown_table

PAGES = {
    "calibration": "Calibration",
    "stores": "Stored vectors",
    "training": "Training",
    "losses": "Losses",
    "batches": "Batches",
    "columns": "Columns",
    "data": "Data",
    "functional": "Equations",
    "modules": "Modules",
    "evaluation": "Evaluation",
    "search": "Search and mining",
    "hub": "Export and publishing",
}
"""Room of the package -> title of its page."""

MORE = {
    "batches": ["languages.language_to_id"],
    "calibration": ["VectorCalibration", "encode"],
    "columns": ["columns.Layout", "columns.Declared", "columns.rename"],
    "evaluation": ["encoding.cut_at_layer"],
    "hub": ["export", "save_portable", "hub.loading.check_finite", "hub.card.set_card_data"],
}
"""Names that a page has beside those in the `__all__` of its room."""

ABOUT = (
    "Public names can be imported from `st_xlret`, where they load on first use, or from the part "
    "that they belong to."
)

INTRODUCTION = """\
::: st_xlret.{room}
    options:
      show_root_heading: false
      show_root_toc_entry: false
      members: false"""
"""The docstring of a room, without its heading."""


def names_of(room: str) -> list[str]:
    """What the page of a room documents, under the shortest name that it can be imported by."""
    public = import_module("st_xlret").__all__
    module = import_module(f"st_xlret.{room}")
    names = []
    for name in getattr(module, "__all__", []):
        names.append(name if name in public else f"{room}.{name}")
    for name in MORE.get(room, []):
        if name not in names:
            names.append(name)
    return names


def page(room: str) -> str:
    """The Markdown of a page."""
    parts = [
        f"# {PAGES[room]} {{ #st_xlret.{room} }}",
        INTRODUCTION.format(room=room),
    ]
    for name in names_of(room):
        parts.append(f"::: st_xlret.{name}")
    return "\n\n".join(parts) + "\n"


def index() -> str:
    """The Markdown of the page that lists the others."""
    rows = []
    for room, title in PAGES.items():
        about, _, _ = str(import_module(f"st_xlret.{room}").__doc__).partition("\n")
        rows.append([f"[{title}]({room}.md)", about])
    return "\n\n".join(
        ["# API reference", ABOUT, markdown_table(["part", "what it has"], rows, left=2)]
    )


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to the site."""
    files.append(File.generated(config, "api/index.md", content=index()))
    for room in PAGES:
        files.append(File.generated(config, f"api/{room}.md", content=page(room)))
    return files
