"""Finding the Python examples of Markdown files."""

import re
import textwrap
from typing import NamedTuple

FENCE = re.compile(
    r"^(?P<marker> *<!-- not run: .+? -->\s*\n\s*)?"
    r"^(?P<indent> *)```python[^\n]*\n(?P<code>.*?)^(?P=indent)```\s*$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A Python example, its first line in the file, and whether it runs.

    It does, unless `<!-- not run: reason -->` stands before it.
    """

    line: int
    code: str
    runs: bool


def python_blocks(text: str) -> list[Block]:
    blocks = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("code")) + 1
        code = textwrap.dedent(match["code"])
        blocks.append(Block(line, code, runs=match["marker"] is None))
    return blocks
