"""What an approximate index of stored vectors loses where queries alone are mapped: faiss, on XQuAD-R.

    python -m training_scripts.studies.approximate_indexes --encoder intfloat/multilingual-e5-small --data xquad_r \\
        --output runs/stored

The indexes are built for the documents as they are. Each is searched with the queries as they are, and as `lsar` maps
them (0.4 of the mean kept). A cell says how many of the ten results of the exact search are found, and in parentheses
recall@10 of the answers. The vectors are those of the study `stored_vectors`.
"""

import faiss
import numpy as np
from tabulate import tabulate

from st_xlret.calibration import VectorCalibration
from st_xlret.evaluation import macro_average, score_ranking
from st_xlret.files import write_text
from st_xlret.options import parse
from training_scripts.studies.stored_vectors import Arguments, read_vectors, vectors_file


def main(arguments: list[str] | None = None) -> dict[str, list[tuple[float, float]]]:
    """Search each index; returns its name -> (results of the exact search, recall of the answers), raw and mapped."""
    (given,) = parse([Arguments], arguments, description=__doc__)
    data, queries, documents = read_vectors(given)
    calibration = VectorCalibration.fit(
        documents, languages=data.corpus["language"][:], queries_only=True
    )
    sides = [queries.numpy(), calibration.transform(queries, "query")]
    lists, codes = (
        min(128, len(documents) // 40),
        documents.shape[1] // 8,
    )  # a byte for eight numbers
    kinds = {  # how faiss names an index -> name -> how widely it is searched
        "Flat": {"exact search": ""},
        "HNSW32,Flat": {f"HNSW, 32 links, `efSearch` {n}": f"efSearch={n}" for n in (32, 64, 128)},
        f"IVF{lists},Flat": {f"IVF, {n} of {lists} lists": f"nprobe={n}" for n in (8, 16, 32)},
        f"PQ{codes}": {f"PQ, {codes} bytes": ""},
    }
    exact: list[np.ndarray] = []
    figures: dict[str, list[tuple[float, float]]] = {}
    for factory, ways in kinds.items():
        index = faiss.index_factory(documents.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
        index.train(documents.numpy())
        index.add(documents.numpy())
        for name, options in ways.items():
            faiss.ParameterSpace().set_index_parameters(index, options)  # type: ignore[arg-type]
            rankings = [index.search(side, 10)[1] for side in sides]
            exact = exact or rankings
            figures[name] = []
            for ranking, best in zip(rankings, exact, strict=True):
                share = np.mean(
                    [
                        np.isin(expected, row).mean()
                        for expected, row in zip(best, ranking, strict=True)
                    ]
                )
                recall = macro_average(score_ranking(ranking, data, ["recall_at_10"]))[
                    "recall_at_10"
                ]
                figures[name].append((float(share), recall))
    rows = [
        [name, *(f"{100 * a:.1f} ({100 * b:.1f})" for a, b in sides)]
        for name, sides in figures.items()
    ]
    table = tabulate(rows, ["index", "queries as they are", "mapped queries"], "pipe")
    write_text(f"{vectors_file(given).with_suffix('')}-indexes.md", table + "\n")
    print(table)
    return figures


if __name__ == "__main__":
    main()
