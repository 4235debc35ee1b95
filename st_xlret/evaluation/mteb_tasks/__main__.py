"""The command of mteb, with the tasks of this library: `python -m st_xlret.evaluation.mteb_tasks run -m M -t T`."""

from __future__ import annotations

from mteb.cli import main

if __name__ == "__main__":
    main()
