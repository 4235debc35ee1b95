"""Finding the Python examples of Markdown files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(
    r"^(?P<marker> *<!-- not run: .+? -->\s*\n\s*)?^(?P<indent> *)```python[^\n]*\n(?P<code>.*?)^(?P=indent)```\s*$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A Python example.

    Attributes:
        line: Line of its first statement in the file, from 1.
        code: The example, without the indentation of its fence.
        runs: Whether it is run: a comment `<!-- not run: reason -->` before the fence says that it is not.
    """

    line: int
    code: str
    runs: bool


def python_blocks(text: str) -> list[Block]:
    """The Python examples of a Markdown text, in their order."""
    found = []
    for match in FENCE.finditer(text):
        indent = len(match["indent"])
        code = "".join(line[indent:] if line.strip() else line for line in match["code"].splitlines(keepends=True))
        found.append(Block(text.count("\n", 0, match.start("code")) + 1, code, match["marker"] is None))
    return found


def pages_with_blocks(repository: Path) -> list[Path]:
    """The pages that have Python examples, README.md among them."""
    pages = [repository / "README.md", *sorted((repository / "docs").rglob("*.md"))]
    return [page for page in pages if python_blocks(page.read_text(encoding="utf-8"))]
