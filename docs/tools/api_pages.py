"""MkDocs hook: the pages of the API reference, made from the `__all__` of each part."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = {
    "losses": "Losses",
    "functional": "Equations",
    "modules": "Modules",
    "batches": "Batches",
    "columns": "Columns",
    "data": "Data",
    "training": "Training",
    "calibration": "Calibration",
    "stores": "Stored vectors",
    "evaluation": "Evaluation",
    "search": "Search and mining",
    "hub": "Export and publishing",
}
"""Room of the package -> title of its page."""

MORE = {
    "batches": ["languages.language_to_id"],
    "calibration": ["VectorCalibration", "encode"],
    "columns": ["columns.Layout", "columns.Declared", "columns.rename"],
    "evaluation": ["evaluation.evaluator_class", "encoding.cut_at_layer"],
    "hub": ["export", "save_portable", "hub.export.check_finite", "hub.card.set_card_data"],
}
"""Names that a page has beside those in the `__all__` of its room."""

INTRODUCTION = """\
::: st_xlret.{room}
    options:
      show_root_heading: false
      show_root_toc_entry: false
      members: false"""
"""The docstring of a room, without its heading."""


def assigned(file: Path, name: str) -> Any:
    """The literal value that a module assigns to a name; `()` without one."""
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        if not isinstance(statement, ast.Assign):
            continue
        for target in statement.targets:
            if isinstance(target, ast.Name) and target.id == name:
                return ast.literal_eval(statement.value)
    return ()


def lazy_names(file: Path) -> list[str]:
    """The names of a module that load on first use."""
    return sorted(dict(assigned(file, "_MODULES")))


def names_of(package: Path, room: str) -> list[str]:
    """What the page of a room documents, under the shortest name that it can be imported by."""
    public = lazy_names(package / "__init__.py")
    file = package / f"{room}.py"
    if not file.is_file():
        file = package / room / "__init__.py"
    names = []
    for name in lazy_names(file) or assigned(file, "__all__"):
        names.append(name if name in public else f"{room}.{name}")
    for name in MORE.get(room, []):
        if name not in names:
            names.append(name)
    return names


def page(package: Path, room: str) -> str:
    """The Markdown of a page."""
    parts = [
        f"# {PAGES[room]} {{ #st_xlret.{room} }}",
        INTRODUCTION.format(room=room),
    ]
    for name in names_of(package, room):
        parts.append(f"::: st_xlret.{name}")
    return "\n\n".join(parts) + "\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to the site."""
    package = Path(config.config_file_path).parent / "st_xlret"
    for room in PAGES:
        files.append(File.generated(config, f"api/{room}.md", content=page(package, room)))
    return files
