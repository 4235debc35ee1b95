r"""Map stored vectors by a calibration, into something new beside them.

    st-xlret apply map/ --vectors vectors.parquet --into mapped.parquet
    st-xlret apply map/ --vectors "qdrant:http://localhost:6333?collection=docs&vector=dense" \
        --into mapped
    st-xlret apply map/ --vectors "postgresql://me@host/database?table=docs&column=embedding" \
        --into mapped

The map is what `st-xlret calibrate --vectors` has written. Nothing is overwritten. A map of queries
alone (--queries_only) needs no `apply`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import st_xlret
from st_xlret.commands.sources import StoreArguments
from st_xlret.options import name_leading_words, parse, required_option
from st_xlret.stores.apply import apply_calibration
from st_xlret.stores.left_out import counts_in_words
from st_xlret.stores.registry import STORES


@dataclass
class Arguments:
    """Which map, and where its results go."""

    map: str = required_option("Folder of the calibration.")
    into: str = required_option("Name of the new file, named vector, column, table or collection.")


def main(arguments: Sequence[str], *, prog: str = "st-xlret apply") -> None:
    """Run the command `apply`."""
    words = name_leading_words(arguments, "map")
    options, stored = parse(
        [Arguments, StoreArguments], words, description=_description(), prog=prog
    )
    calibration = st_xlret.VectorCalibration.load(options.map)
    with stored.open_store() as store:
        applied = apply_calibration(calibration, store, options.into, show_progress_bar=True)
    if applied.left_out:
        print(f"not mapped: {counts_in_words(applied.left_out)}")
    again = ""
    if applied.changed:
        again = f", {applied.changed} of them again, as their vector has changed"
    print(f"{applied.written} rows written to {options.into}{again}")


def _description() -> str:
    """What the command does, and in which kinds of stores it goes on."""
    continued = ", ".join(kind.name for kind in STORES if kind.is_continued)
    return (
        f"{__doc__}\nIn {continued}, the same command continues what was interrupted,\n"
        "maps rows that were added since, and maps those again whose vector has changed.\n"
    )
