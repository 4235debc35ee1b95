"""Finding the Python examples of Markdown files."""

import re
import textwrap
from typing import NamedTuple

FENCE = re.compile(
    r"^(?P<marker> *<!-- not run: .+? -->\s*\n\s*)?^(?P<indent> *)```python[^\n]*\n(?P<code>.*?)^(?P=indent)```\s*$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A Python example: its first line in the file, and whether no `<!-- not run: reason -->` stands before it."""

    line: int
    code: str
    runs: bool


def python_blocks(text: str) -> list[Block]:
    return [
        Block(
            text.count("\n", 0, match.start("code")) + 1,
            textwrap.dedent(match["code"]),
            match["marker"] is None,
        )
        for match in FENCE.finditer(text)
    ]
