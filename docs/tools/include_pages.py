"""MkDocs hook: pages of the site that are files elsewhere in the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = {
    "benchmarks.md": "benchmarks/README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
}
"""Page -> file."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to the site. Links to files of the documentation are made relative to it."""
    repository = Path(config.config_file_path).parent
    for page, file in PAGES.items():
        text = (repository / file).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Links of guides to these files, as the repository needs them, lead to the pages."""
    for page, file in PAGES.items():
        markdown = markdown.replace(f"](../../{file}", f"](../{page}")
    return markdown
