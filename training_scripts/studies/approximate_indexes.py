"""What an approximate index of stored vectors loses where queries alone are mapped: faiss, on XQuAD-R.

    python -m training_scripts.studies.approximate_indexes --encoder intfloat/multilingual-e5-small --data xquad_r \\
        --output runs/stored

The indexes are built for the documents as they are. Each is searched with the queries as they are, and as `lsar` maps
them (0.4 of the mean kept). A cell says how many of the ten results of the exact search are found, and in parentheses
recall@10 of the answers. The vectors are those of the study `stored_vectors`.
"""

from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from st_xlret.calibration import VectorCalibration
from st_xlret.evaluation.base import macro_average
from st_xlret.evaluation.retrieval import score_ranking
from st_xlret.files import write_text
from st_xlret.options import parse
from training_scripts.studies.stored_vectors import Arguments, read_vectors, vectors_file

RESULTS = 10
LISTS, LINKS = 128, 32


def kinds(dimension: int, lists: int) -> dict[str, tuple[str, str]]:
    """Name -> how faiss names an index, and how widely it is searched; a product quantiser has a byte for eight."""
    return {
        "exact search": ("Flat", ""),
        **{f"HNSW, {LINKS} links, `efSearch` {n}": (f"HNSW{LINKS},Flat", f"efSearch={n}") for n in (32, 64, 128)},
        **{f"IVF, {n} of {lists} lists": (f"IVF{lists},Flat", f"nprobe={n}") for n in (8, 16, 32)},
        f"PQ, {dimension // 8} bytes": (f"PQ{dimension // 8}", ""),
    }


def main(arguments: list[str] | None = None) -> dict[str, list[tuple[float, float]]]:
    """Search each index; returns its name -> (results of the exact search, recall of the answers), raw and mapped."""
    (given,) = parse([Arguments], arguments, description=__doc__)
    data, queries, documents = read_vectors(given)
    calibration = VectorCalibration.fit(documents, languages=data.corpus["language"][:], queries_only=True)
    sides = [queries.numpy(), calibration.transform(queries, "query")]
    exact: list[NDArray[np.int64]] = []
    figures: dict[str, list[tuple[float, float]]] = {}
    built: dict[str, faiss.Index] = {}
    for name, (factory, options) in kinds(documents.shape[1], min(LISTS, len(documents) // 40)).items():
        if factory not in built:
            index = faiss.index_factory(documents.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
            index.train(documents.numpy())
            index.add(documents.numpy())
            built = {factory: index}
        space: Any = faiss.ParameterSpace()  # its types know of numbers alone
        space.set_index_parameters(built[factory], options)
        rankings = [built[factory].search(side, RESULTS)[1] for side in sides]
        exact = exact or rankings
        figures[name] = []
        for ranking, best in zip(rankings, exact, strict=True):
            share = np.mean([np.isin(expected, row).mean() for expected, row in zip(best, ranking, strict=True)])
            recall = macro_average(score_ranking(ranking, data, ["recall_at_10"]))["recall_at_10"]
            figures[name].append((float(share), recall))
    rows = [[name, *(f"{100 * a:.1f} ({100 * b:.1f})" for a, b in sides)] for name, sides in figures.items()]
    table = tabulate(rows, ["index", "queries as they are", "mapped queries"], "pipe")
    file = vectors_file(given)
    write_text(file.with_name(f"{file.stem}-indexes.md"), table + "\n")
    print(table)
    return figures


if __name__ == "__main__":
    main()
