"""The command that builds the documentation refuses what would be broken on the site."""

import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.data.files import write_text

SITE = """\
site_name: one page
docs_dir: pages
site_dir: site
plugins: [mkdocstrings]
"""


def test_a_link_to_what_is_not_documented_stops_the_build(tmp_path: Path) -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    (options,) = re.findall(r"-m mkdocs build (.*)", makefile)
    write_text(tmp_path / "mkdocs.yml", SITE)
    write_text(tmp_path / "pages" / "index.md", "# Page\n\nSee [this][st_xlret.nowhere].\n")

    command = [sys.executable, "-m", "mkdocs", "build", *options.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode != 0
    assert "st_xlret.nowhere" in done.stderr
