"""Every Python example of the documentation runs, on tiny models and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import pages_with_blocks, python_blocks

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = {str(page.relative_to(REPOSITORY)): page for page in pages_with_blocks(REPOSITORY)}


def test_few_blocks_are_not_run() -> None:
    blocks = [block for page in PAGES.values() for block in python_blocks(page.read_text(encoding="utf-8"))]
    assert sum(not block.runs for block in blocks) <= 6 < len(blocks)


@pytest.mark.parametrize("name", PAGES)
def test_the_examples_of_a_page_run(name: str, workspace: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in python_blocks(PAGES[name].read_text(encoding="utf-8")):
        if block.runs:
            # Empty lines put the code where it is in the page, so that errors name the right line.
            exec(compile("\n" * (block.line - 1) + block.code, str(PAGES[name]), "exec"), namespace)
    if "trainer" in namespace:
        assert namespace["trainer"].state.global_step == namespace["trainer"].args.max_steps
