"""MkDocs hook: the pages of the API reference, one for each part of the package, made from its `__all__`."""

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
    "calibration": ["VectorCalibration", "encode"],
    "hub": ["export", "save_portable", "hub.export.check_finite", "hub.card.set_card_data"],
}
"""Names that a page has beside those in the `__all__` of its room."""


def assigned(file: Path, name: str) -> Any:
    """The literal value that a module assigns to a name; `()` without one."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in node.targets
        ):
            return ast.literal_eval(node.value)
    return ()


def lazy_names(file: Path) -> list[str]:
    """The names of a module that load on first use."""
    return sorted(dict(assigned(file, "_MODULES")))


def names_of(package: Path, room: str) -> list[str]:
    """What the page of a room documents, under the shortest name that it can be imported by."""
    public = lazy_names(package / "__init__.py")
    folder = package / room
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    of_room = lazy_names(file) or assigned(file, "__all__")
    names = [name if name in public else f"{room}.{name}" for name in of_room]
    return [*names, *(name for name in MORE.get(room, []) if name not in names)]


def page(package: Path, room: str) -> str:
    """The Markdown of a page."""
    introduction = ["show_root_heading: false", "show_root_toc_entry: false", "members: false"]
    parts = [
        f"# {PAGES[room]}",
        "\n      ".join([f"::: st_xlret.{room}\n    options:", *introduction]),
    ]
    parts += [f"::: st_xlret.{name}" for name in names_of(package, room)]
    return "\n\n".join(parts) + "\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to the site."""
    package = Path(config.config_file_path).parent / "st_xlret"
    for room in PAGES:
        files.append(File.generated(config, f"api/{room}.md", content=page(package, room)))
    return files
