"""The commands of `st-xlret`: options in, one function of the package called, a table out."""

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

COMMANDS = {
    "report": "Measure how much an encoder's search prefers the language of the query.",
    "calibrate": "Remove the language bias from an encoder, on the corpus that is to be searched.",
    "apply": "Map stored vectors by a calibration, into something new beside them.",
    "evaluate": "Measure a model on a published benchmark and show its scores beside the papers'.",
    "index": "Encode documents of many languages, to search them.",
    "search": "Search an index by a query in any language.",
    "mine": "Mine parallel sentences from two collections of texts.",
    "export": (
        "Write a plain model: adapters merged, a calibration built in, weights in half the size."
    ),
    "train": "Run a training script; without a name, list the scripts and their option files.",
}
"""Name of each command and what it does: `main` of the module of its name."""

_NO_READER = 141  # the status of a Unix program whose output nobody reads

# NumPy's threads always wait actively; `search` has large products for them. It is set before a
# module imports NumPy.
_WITH_ONE_NUMPY_THREAD = ("calibrate", "report")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names.

    One that fails is a `SystemExit` with a line that says why.
    """
    given = sys.argv[1:] if arguments is None else arguments
    name, *rest = given or ["--help"]
    if name in ("-h", "--help"):
        _print_commands()
    elif name == "--version":
        from st_xlret import __version__

        print(f"st-xlret {__version__}")
    else:
        run_command(name, rest, prog=f"st-xlret {name}")


def _print_commands() -> None:
    width = max(len(command) for command in COMMANDS)
    print("usage: st-xlret COMMAND [OPTIONS]\n\ncommands:")
    for command, purpose in COMMANDS.items():
        print(f"  {command:{width}}  {purpose}")
    print("\nst-xlret COMMAND --help shows the options of a command.")


def run_command(name: str, arguments: Sequence[str], *, prog: str) -> None:
    """Run one of `COMMANDS`; its errors and Ctrl+C become a `SystemExit` with one line.

    How threads wait, and what the standard streams read and write, is set for the whole program.
    """
    if name not in COMMANDS:
        sys.exit(f"error: there is no command {name!r}; there are: {', '.join(COMMANDS)}")
    # PyTorch reads this on import. Beside other programs, threads that wait actively take four
    # times as much time.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if name in _WITH_ONE_NUMPY_THREAD:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from st_xlret.commands.streams import prepare_streams
    from st_xlret.secrets import without_secrets

    prepare_streams()
    try:
        with _warnings_in_a_line():
            import_module(f"st_xlret.commands.{name}").main(arguments, prog=prog)
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has what it wanted, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_NO_READER)
    except (ValueError, OSError, ImportError, ArithmeticError) as error:
        sys.exit(f"error: {without_secrets(str(error))}")
    except KeyboardInterrupt as stop:
        sys.exit(f"stopped. {stop}".removesuffix(". "))


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Show warnings without the place in the code, and without secrets."""
    from st_xlret.secrets import without_secrets

    def in_a_line(message: Warning | str, *_: object, **__: object) -> str:
        return f"warning: {without_secrets(str(message))}\n"

    before = warnings.formatwarning
    warnings.formatwarning = in_a_line
    try:
        yield
    finally:
        warnings.formatwarning = before
