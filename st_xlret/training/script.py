"""A training script as a program: its command line as it is reported, and errors in its input."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any

from st_xlret.hub.push import PushError


def command(script: str, arguments: Sequence[str] | None) -> str:
    """The command line of a run, for `results.json` and the model card, without access tokens.

    Example:
        >>> command("train.py", ["--hub_token", "hf_abc", "--hub_token=hf_abc", "--seed", "1"])
        'python train.py --hub_token *** --hub_token=*** --seed 1'
    """
    given = ["python", *script.split(), *(sys.argv[1:] if arguments is None else arguments)]
    shown = []
    for before, word in zip(["", *given], given, strict=False):
        option, equals, _ = word.partition("=")
        if option.startswith("--") and "token" in option and equals and "tokenizer" not in option:
            word = f"{option}=***"
        elif before in ("--hub_token", "--hub-token") or word.startswith("hf_"):
            word = "***"
        shown.append(word if set(word) == {"*"} or word.endswith("=***") else shlex.quote(word))
    return " ".join(shown)


def run_script(main: Callable[[], Any]) -> None:
    """Run a script's `main`; errors in its input end it with one line instead of a traceback."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        main()
    except (ImportError, ValueError, OSError, PushError) as error:
        sys.exit(f"error: {error}")
