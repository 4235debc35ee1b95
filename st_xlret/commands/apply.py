r"""Map stored vectors by a calibration, into something new beside them.

    st-xlret apply map/ --vectors vectors.parquet --into mapped.parquet
    st-xlret apply map/ --vectors chunks.parquet --into shared.parquet --share_translations --document_field source
    st-xlret apply map/ --vectors "qdrant:http://localhost:6333?collection=docs&vector=dense" --into shared
    st-xlret apply map/ --vectors "postgresql://me@host/database?table=docs&column=embedding" --into shared

The map is what `st-xlret calibrate --vectors` has written. Nothing is overwritten: the mapped vectors go into a new
file, named vector, column, table or collection, and the line of your query code that searches them, and the way back,
are printed. In a database, the same command continues what was interrupted, and maps rows that were added since. A map
of queries alone (--queries_only) needs no `apply`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from st_xlret.commands.stored_vectors import Stored
from st_xlret.options import name_leading_words, option, parse


@dataclass
class StoredChunks(Stored):
    """Vectors that are stored already, which may be of chunks of documents."""

    document_field: str | None = option(
        None,
        "For --share_translations: field of the document that a row is a chunk of. Chunks of one document that overlap "
        "hide translations, unless it is named.",
    )


@dataclass
class Arguments:
    """Which map, and where its results go."""

    map: str = option(None, "Folder of the calibration.")
    into: str = option(None, "Name of the new file, named vector, column, table or collection.")
    share_translations: bool = option(
        False,
        "Let texts that say the same in several languages share their vectors, so that a query finds them all. It "
        "needs the language of the rows, all vectors in memory, and time with the square of the rows: seconds for ten "
        "thousand, minutes for a hundred thousand, hours for a million.",
    )
    dry_run: bool = option(False, "Write nothing: say what would be written, and how long it takes.")

    def __post_init__(self) -> None:
        for name in ("map", "into"):
            if not getattr(self, name):
                raise ValueError(f"--{name} is missing: st-xlret apply MAP --vectors SOURCE --into NAME")


def main(arguments: Sequence[str], *, prog: str = "st-xlret apply") -> None:
    """Run the command `apply`."""
    stored: StoredChunks
    given = name_leading_words(arguments, "map")
    options, stored = parse([Arguments, StoredChunks], given, description=__doc__, prog=prog)
    from st_xlret.vectors import VectorCalibration, apply_calibration

    if stored.document_field and not options.share_translations:
        raise ValueError(f"--document_field {stored.document_field} is for --share_translations, which is not there")
    calibration = VectorCalibration.load(options.map)
    with stored.open() as source:
        rows = f"{len(source)} rows of {source.dimension} dimensions"
        done = apply_calibration(
            calibration, source, options.into, share_translations=options.share_translations, dry_run=options.dry_run
        )
        target = done.target
    if done.left_out.counts:
        print(f"{'not to be mapped' if options.dry_run else 'not mapped'}: {done.left_out}")
    if options.dry_run:
        there = f", {target.already} of which are there already" if target.already else ""
        print(
            f"{rows} would go into {target.name}{there}. Reading and mapping them takes about {done.seconds:,.0f} s, "
            "measured on the first rows; writing is not measured"
            f"{', nor is finding translations' if options.share_translations else ''}. Nothing was written."
        )
        return
    rate = f"{done.written / max(done.seconds, 1e-9):,.0f} rows a second"
    there = f"; {target.already} were there already" if target.already else ""
    print(f"{done.written} rows written to {target.name} in {done.seconds:,.0f} s, {rate}{there}")
    if options.share_translations:
        each = f", {2 * done.pairs / done.translated:.1f} each" if done.translated else ""
        chunks = f"; rows are chunks of {done.documents} documents" if done.documents else ""
        print(f"{done.translated} rows share their vectors with translations{each}{chunks}")
    if done.added:
        print(f"{done.added} rows were added to {source.name} meanwhile: run the same command again")
    language = ', language="..."' if calibration.languages else ""
    print(
        f"\nYour query code, with queries mapped by VectorCalibration.load({options.map!r}):\n\n"
        f"    query = calibration.transform(query{language})\n    {target.switch}\n\n"
        f"The way back, with queries as they are:\n\n    {target.back}"
    )
