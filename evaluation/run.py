r"""Measure a model on a published benchmark: the command `st-xlret evaluate`, from a checkout.

python evaluation/run.py --model MODEL --benchmark tatoeba --data LASER/data/tatoeba/v1 \
    --output scores.json
"""

from __future__ import annotations

import sys

from st_xlret.commands import run_command

if __name__ == "__main__":
    run_command("evaluate", sys.argv[1:], prog="python evaluation/run.py")
