"""What quantised vectors lose in a search, as they are and mapped by `lsar`.

    python -m training_scripts.studies.quantised_vectors --encoder MODEL --data apart \\
        --output runs/stored

A cell is mAP@20 of an exact search in the codes: of vectors as they are, of mapped queries on
documents as they are, and of both sides mapped before they are quantised. The vectors are those of
the study `stored_vectors`.
"""

from collections.abc import Callable

from torch import Tensor

from st_xlret.calibration import VectorCalibration
from st_xlret.evaluation import RetrievalData
from st_xlret.files import write_text
from st_xlret.options import parse
from st_xlret.tables import markdown_table, percent
from training_scripts.studies.measure_search import mapped, measure_pool
from training_scripts.studies.stored_vectors import Arguments, read_vectors, vectors_file

Quantise = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
SIDES = {"as it is": None, "queries mapped": True, "both sides, then quantised": False}
"""Column of the table -> whether queries alone are mapped."""


def as_they_are(queries: Tensor, documents: Tensor) -> tuple[Tensor, Tensor]:
    """Both sides in float32."""
    return queries, documents


def int8(queries: Tensor, documents: Tensor) -> tuple[Tensor, Tensor]:
    """Documents in one range for all numbers."""
    return queries, (127 * documents / documents.abs().max()).round()


def bits(queries: Tensor, documents: Tensor) -> tuple[Tensor, Tensor]:
    """Documents by their signs."""
    return queries, documents.sign()


def bits_of_both(queries: Tensor, documents: Tensor) -> tuple[Tensor, Tensor]:
    """Both sides by their signs."""
    return queries.sign(), documents.sign()


CODES: dict[str, tuple[float, Quantise]] = {
    "float32": (1, as_they_are),
    "int8": (1, int8),
    "bits, the query as it is": (1, bits),
    "bits, the query in bits too": (1, bits_of_both),
    "the first two thirds of the numbers": (2 / 3, as_they_are),
    "the first third of the numbers": (1 / 3, as_they_are),
}
"""Row of the table -> share of the numbers that is kept, and what becomes of them."""


def main(arguments: list[str] | None = None) -> dict[str, list[float]]:
    """Measure each row; returns its name -> mAP@20 in each column."""
    (given,) = parse([Arguments], arguments, description=__doc__)
    data, queries, documents = read_vectors(given)
    figures: dict[str, list[float]] = {}
    for name, (share, quantise) in CODES.items():
        width = round(share * queries.shape[1])
        asked = queries[:, :width]
        stored = documents[:, :width]
        figures[name] = figures_of_sides(asked, stored, data, quantise)
    table = table_of(figures)
    vectors = vectors_file(given).with_suffix("")
    write_text(f"{vectors}-quantised.md", table + "\n")
    print(table)
    return figures


def figures_of_sides(
    queries: Tensor, documents: Tensor, data: RetrievalData, quantise: Quantise
) -> list[float]:
    """The mAP@20 of each of `SIDES`, in codes."""
    languages = data.corpus["language"][:]
    figures = []
    for queries_only in SIDES.values():
        asked = queries
        stored = documents
        if queries_only is not None:
            calibration = VectorCalibration.fit(
                documents,
                languages,
                queries_only=queries_only,
                min_texts=20,
            )
            asked = mapped(calibration, queries, "query")
            stored = mapped(calibration, documents, "document")
        query_codes, document_codes = quantise(asked, stored)
        metrics = measure_pool(query_codes, document_codes, data)
        figures.append(metrics["map_at_20"])
    return figures


def table_of(figures: dict[str, list[float]]) -> str:
    """The figures in per cent."""
    rows = []
    for name, of_sides in figures.items():
        row = [name]
        row += map(percent, of_sides)
        rows.append(row)
    return markdown_table(["codes", *SIDES], rows)


if __name__ == "__main__":
    main()
