"""The commands of `st-xlret`: a module each, with `main(arguments, prog=...)`."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

COMMANDS = {
    "report": "Measure how much an encoder's search prefers the language of the query.",
    "calibrate": "Remove the language bias from an encoder, on the corpus that is to be searched.",
    "apply": "Map stored vectors by a calibration, into something new beside them.",
    "evaluate": "Measure a model on a published benchmark and show its scores beside the papers'.",
    "index": "Encode documents of many languages, to search them.",
    "search": "Search an index by a query in any language.",
    "mine": "Mine parallel sentences from two collections of texts.",
    "export": "Write a plain model: adapters merged, a calibration built in, weights in half the size.",
    "train": "Run a training script; without a name, list the scripts and their recipes.",
}
"""Name of each command, which is also its module here, and what it does."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names.

    Args:
        arguments: The command line after the program's name. Default: that of the process.

    Raises:
        SystemExit: With a line that says what is wrong, if the command fails or there is no such command.

    Example:
        >>> main(["--version"])
        st-xlret 0.1.0
    """
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        print("usage: st-xlret COMMAND [OPTIONS]\n\ncommands:")
        print("\n".join(f"  {command:{width}}  {purpose}" for command, purpose in COMMANDS.items()))
        print("\nst-xlret COMMAND --help shows the options of a command.")
    elif name == "--version":
        from st_xlret import __version__

        print(f"st-xlret {__version__}")
    else:
        run(name, rest, prog=f"st-xlret {name}")


def run(name: str, arguments: Sequence[str], *, prog: str) -> None:
    """Run one command, and turn its errors and Ctrl+C into one line and the exit status 1.

    Args:
        name: One of `COMMANDS`.
        arguments: The options of the command.
        prog: The program's name in its help.

    Raises:
        SystemExit: If there is no such command, or it fails on its input.
    """
    if name not in COMMANDS:
        sys.exit(f"error: there is no command {name!r}; there are: {', '.join(COMMANDS)}")
    # PyTorch reads this on import. Beside other programs, threads that wait actively take four times as much time.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        with _warnings_in_one_line():
            import_module(f"st_xlret.commands.{name}").main(arguments, prog=prog)
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt as stop:
        sys.exit(f"stopped. {stop}".removesuffix(". "))


@contextmanager
def working_folder(folder: Path, *, keep: bool = False) -> Iterator[Path]:
    """A folder of what an interrupted command continues from: one program uses it at a time, and its end removes it."""
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / "lock", timeout=0):
            try:
                yield folder
            except ValueError:
                if not keep and not any(folder.rglob("*.npy")):
                    shutil.rmtree(folder, ignore_errors=True)
                raise
            if not keep:
                shutil.rmtree(folder, ignore_errors=True)
    except Timeout as error:
        raise OSError(f"another program uses {folder}: wait for it, or name another output") from error


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Show warnings as the errors are shown, without the place in the code."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.formatwarning = before
