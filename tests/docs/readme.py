"""Runs README's commands with the package that is installed: python -m tests.docs.readme FOLDER.

They run in FOLDER, which gets the small encoder and texts of the documentation's tests. Commands
that need a server or never end are left out.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.docs.test_commands import commands_of
from tests.docs.workspace import write_data, write_models

LEFT_OUT = ("qdrant:", "--serve")


def is_left_out(words: list[str]) -> bool:
    line = " ".join(words)
    return any(part in line for part in LEFT_OUT)


def main(folder: Path) -> None:
    write_data(folder)
    write_models(folder)
    shutil.rmtree(folder / "runs")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    for words in commands_of(REPOSITORY / "README.md"):
        if words[0] == "st-xlret" and not is_left_out(words):
            print("$", *words, flush=True)
            command = [sys.executable, "-m", "st_xlret", *words[1:]]
            subprocess.run(command, cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
