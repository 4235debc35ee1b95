"""What an approximate index of faiss loses where queries alone are mapped, on XQuAD-R.

    python -m training_scripts.studies.approximate_indexes --data xquad_r \\
        --encoder intfloat/multilingual-e5-small --output runs/stored

The indexes are built for the documents as they are. Each is searched with the queries as they are,
and as `lsar` maps them (0.4 of the mean kept). A cell says how many of the ten results of the exact
search are found, and in parentheses recall@10 of the answers. The vectors are those of the study
`stored_vectors`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import faiss
import numpy as np

from st_xlret.calibration import VectorCalibration
from st_xlret.evaluation import RetrievalData, macro_average, score_ranking
from st_xlret.files import write_text
from st_xlret.options import parse
from st_xlret.tables import markdown_table, percent
from training_scripts.studies.stored_vectors import Arguments, read_vectors, vectors_file

Rankings = list[np.ndarray]
"""The results of the queries as they are, and of the mapped ones."""


class Figures(NamedTuple):
    """Of one index and one kind of queries: results of the exact search, and recall@10."""

    share_found: float
    recall: float


@dataclass(frozen=True)
class Index:
    """An index of faiss.

    Attributes:
        factory: How faiss names it.
        ways: Name of a way to search it -> how widely it is searched.
    """

    factory: str
    ways: dict[str, str]

    def built(self, documents: np.ndarray) -> Any:
        """The index of some documents."""
        features = documents.shape[1]
        index = faiss.index_factory(features, self.factory, faiss.METRIC_INNER_PRODUCT)
        index.train(documents)
        index.add(documents)
        return index


def main(arguments: list[str] | None = None) -> dict[str, list[Figures]]:
    """Search each index, with the queries as they are and mapped."""
    (given,) = parse([Arguments], arguments, description=__doc__)
    data, queries, documents = read_vectors(given)
    languages = data.corpus["language"][:]
    calibration = VectorCalibration.fit(documents, languages=languages, queries_only=True)
    as_they_are = queries.numpy()
    mapped = calibration.transform(queries, "query")
    figures = figures_of_indexes(documents.numpy(), [as_they_are, mapped], data)
    table = table_of(figures)
    vectors = vectors_file(given).with_suffix("")
    write_text(f"{vectors}-indexes.md", table + "\n")
    print(table)
    return figures


def figures_of_indexes(
    documents: np.ndarray, sides: Rankings, data: RetrievalData
) -> dict[str, list[Figures]]:
    """The figures of each way to search, for the queries as they are and the mapped ones."""
    exact: Rankings = []
    figures: dict[str, list[Figures]] = {}
    for name, rankings in searches(documents, sides):
        exact = exact or rankings
        figures[name] = []
        for expected, found in zip(exact, rankings, strict=True):
            share = share_found(expected, found)
            recall = recall_of(found, data)
            figures[name].append(Figures(share, recall))
    return figures


def searches(documents: np.ndarray, sides: Rankings) -> Iterator[tuple[str, Rankings]]:
    """Search each index in its ways, the exact one first; name and rankings."""
    space = faiss.ParameterSpace()
    for index in indexes(*documents.shape):
        built = index.built(documents)
        for name, options in index.ways.items():
            space.set_index_parameters(built, options)  # type: ignore[arg-type]
            rankings = []
            for side in sides:
                _, ranking = built.search(side, 10)
                rankings.append(ranking)
            yield name, rankings


def indexes(rows: int, features: int) -> list[Index]:
    """The indexes that are compared, the exact one first."""
    links = {}
    for width in (32, 64, 128):
        links[f"HNSW, 32 links, `efSearch` {width}"] = f"efSearch={width}"
    lists = min(128, rows // 40)
    probes = {}
    for count in (8, 16, 32):
        probes[f"IVF, {count} of {lists} lists"] = f"nprobe={count}"
    codes = features // 8  # a byte for eight numbers
    return [
        Index("Flat", {"exact search": ""}),
        Index("HNSW32,Flat", links),
        Index(f"IVF{lists},Flat", probes),
        Index(f"PQ{codes}", {f"PQ, {codes} bytes": ""}),
    ]


def share_found(expected: np.ndarray, found: np.ndarray) -> float:
    """The share of the expected results that are among those found, averaged over queries."""
    shares = []
    for of_query, row in zip(expected, found, strict=True):
        shares.append(np.isin(of_query, row).mean())
    return float(np.mean(shares))


def recall_of(ranking: np.ndarray, data: RetrievalData) -> float:
    """recall@10 of the answers, averaged over the languages of questions."""
    scores = score_ranking(ranking, data, ["recall_at_10"])
    average = macro_average(scores)
    return average["recall_at_10"]


def table_of(figures: dict[str, list[Figures]]) -> str:
    """The figures in per cent."""
    header = ["index", "queries as they are", "mapped queries"]
    rows = []
    for name, sides in figures.items():
        row = [name]
        for share, recall in sides:
            row.append(f"{percent(share)} ({percent(recall)})")
        rows.append(row)
    return markdown_table(header, rows)


if __name__ == "__main__":
    main()
