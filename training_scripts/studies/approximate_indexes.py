"""What an approximate index of faiss loses where queries alone are mapped, on XQuAD-R.

    python -m training_scripts.studies.approximate_indexes --data xquad_r \\
        --encoder intfloat/multilingual-e5-small --output runs/stored

The indexes are built for the documents as they are. Each is searched with the queries as they are,
and as `lsar` maps them (0.4 of the mean kept). A cell says how many of the ten results of the exact
search are found, and in parentheses recall@10 of the answers. The vectors are those of the study
`stored_vectors`.
"""

from collections.abc import Iterator

import faiss
import numpy as np
from tabulate import tabulate

from st_xlret.calibration import VectorCalibration
from st_xlret.evaluation import RetrievalData, macro_average, score_ranking
from st_xlret.files import write_text
from st_xlret.options import parse
from training_scripts.studies.stored_vectors import Arguments, read_vectors, vectors_file

Rankings = list[np.ndarray]
"""The results of the queries as they are, and of the mapped ones."""


def main(arguments: list[str] | None = None) -> dict[str, list[tuple[float, float]]]:
    """Search each index, with the queries as they are and mapped.

    Returns its name -> for both, the share of results of the exact search, and the recall.
    """
    (given,) = parse([Arguments], arguments, description=__doc__)
    data, queries, documents = read_vectors(given)
    calibration = VectorCalibration.fit(
        documents, languages=data.corpus["language"][:], queries_only=True
    )
    sides = [queries.numpy(), calibration.transform(queries, "query")]
    exact: Rankings = []
    figures: dict[str, list[tuple[float, float]]] = {}
    for name, rankings in searches(documents.numpy(), sides):
        exact = exact or rankings
        figures[name] = []
        for expected, found in zip(exact, rankings, strict=True):
            figures[name].append((share_found(expected, found), recall_of(found, data)))
    table = table_of(figures)
    write_text(f"{vectors_file(given).with_suffix('')}-indexes.md", table + "\n")
    print(table)
    return figures


def searches(documents: np.ndarray, sides: Rankings) -> Iterator[tuple[str, Rankings]]:
    """Search each index in its ways, the exact one first; name and rankings."""
    features = documents.shape[1]
    for factory, ways in kinds(len(documents), features).items():
        index = faiss.index_factory(features, factory, faiss.METRIC_INNER_PRODUCT)
        index.train(documents)
        index.add(documents)
        for name, options in ways.items():
            faiss.ParameterSpace().set_index_parameters(index, options)  # type: ignore[arg-type]
            yield name, [index.search(side, 10)[1] for side in sides]


def kinds(rows: int, features: int) -> dict[str, dict[str, str]]:
    """How faiss names an index -> name of a way to search it -> how widely it is searched."""
    lists = min(128, rows // 40)
    codes = features // 8  # a byte for eight numbers
    return {
        "Flat": {"exact search": ""},
        "HNSW32,Flat": {f"HNSW, 32 links, `efSearch` {n}": f"efSearch={n}" for n in (32, 64, 128)},
        f"IVF{lists},Flat": {f"IVF, {n} of {lists} lists": f"nprobe={n}" for n in (8, 16, 32)},
        f"PQ{codes}": {f"PQ, {codes} bytes": ""},
    }


def share_found(expected: np.ndarray, found: np.ndarray) -> float:
    """The share of the expected results that are among those found, averaged over queries."""
    shares = []
    for of_query, row in zip(expected, found, strict=True):
        shares.append(np.isin(of_query, row).mean())
    return float(np.mean(shares))


def recall_of(ranking: np.ndarray, data: RetrievalData) -> float:
    """recall@10 of the answers, averaged over the languages of questions."""
    return macro_average(score_ranking(ranking, data, ["recall_at_10"]))["recall_at_10"]


def table_of(figures: dict[str, list[tuple[float, float]]]) -> str:
    """The figures in per cent."""
    rows = []
    for name, sides in figures.items():
        cells = [f"{100 * share:.1f} ({100 * recall:.1f})" for share, recall in sides]
        rows.append([name, *cells])
    return tabulate(rows, ["index", "queries as they are", "mapped queries"], "pipe")


if __name__ == "__main__":
    main()
