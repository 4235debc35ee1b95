"""Every Python example of the documentation runs, on tiny models and files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import REPOSITORY
from tests.docs.blocks import python_blocks

FILES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
EXAMPLES = {
    str(file.relative_to(REPOSITORY)): python_blocks(file.read_text(encoding="utf-8"))
    for file in FILES
}
PAGES = {name: blocks for name, blocks in EXAMPLES.items() if blocks}


def embed(text: str) -> np.ndarray:
    """What a reader has: a function that embeds a query, here into as many numbers as `map`."""
    return np.random.default_rng(len(text)).normal(size=32)


def test_few_blocks_are_not_run() -> None:
    runs = [block.runs for blocks in PAGES.values() for block in blocks]
    assert runs.count(False) <= 6 < len(runs)


@pytest.mark.parametrize("name", PAGES)
def test_the_examples_of_a_page_run(name: str, workspace: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__", "embed": embed}
    for block in PAGES[name]:
        if block.runs:
            # Empty lines put the code where it is in the page, so that errors name the right line.
            exec(
                compile("\n" * (block.line - 1) + block.code, str(REPOSITORY / name), "exec"),
                namespace,
            )
    if "trainer" in namespace:
        assert namespace["trainer"].state.global_step == namespace["trainer"].args.max_steps
