"""Recall of judged queries, against a search of everything at once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from st_xlret import VectorCalibration
from st_xlret.commands.calibrate import main
from st_xlret.data.lines import DataError
from st_xlret.stores import open_store
from st_xlret.vectors.judged import judged_recall

CODES = ["de", "en", "fr"]
TOPICS = 70


def clouds(noise: float) -> np.ndarray:
    """A row for each topic and language; a language has a place of its own."""
    generator = np.random.default_rng(int(10 * noise))
    topics, places = np.random.default_rng(0).normal(size=(TOPICS, 1, 12)), 4 * np.eye(12)[: len(CODES)]
    return (topics + places + noise * generator.normal(size=(TOPICS, len(CODES), 12))).reshape(-1, 12)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Documents, queries and judgements: a query has an answer in each language; the last document has no vector."""
    found = {name: str(tmp_path / f"{name}.parquet") for name in ("documents", "queries")}
    for name, noise in (("documents", 0.5), ("queries", 1.5)):
        columns = {"vector": [*clouds(noise).tolist(), None], "lang": [*CODES * TOPICS, "en"]}
        parquet.write_table(pyarrow.table(columns), found[name], row_group_size=50)
    lines = [
        f"{query}\t{query // 3 * 3 + other}\t{int(query % 7 > 0)}" for query in range(3 * TOPICS) for other in range(3)
    ]
    (tmp_path / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]))
    return {**found, "qrels": str(tmp_path / "qrels.tsv")}


@pytest.mark.parametrize("queries_only", [False, True])
@pytest.mark.parametrize("steps", [("lsar",), ("shift",)])
def test_recall_is_that_of_a_search_of_everything_at_once(
    files: dict[str, str], queries_only: bool, steps: tuple[str]
) -> None:
    documents, queries, codes = clouds(0.5), clouds(1.5), np.array(CODES * TOPICS)
    maps = {
        amount: VectorCalibration.fit(documents, codes, steps=steps, strength=amount, queries_only=queries_only)
        for amount in (0.0, 0.6, 1.0)
    }
    found = judged_recall(open_store(files["documents"]), open_store(files["queries"]), files["qrels"], maps)
    judged = [query for query in range(3 * TOPICS) if query % 7]
    for amount, calibration in maps.items():
        pool = calibration.transform(documents, "document", codes)
        pool = pool / np.linalg.norm(pool, axis=1, keepdims=True)
        nearest = np.argsort(-calibration.transform(queries, "query", codes) @ pool.T, axis=1)[:, :10]
        for half in (0, 1):
            means = []
            for code in CODES:
                rows = []
                for query in judged[half::2]:
                    if codes[query] == code:
                        answers = query // 3 * 3 + np.arange(3)
                        is_found, is_own = np.isin(answers, nearest[query]), codes[answers] == code
                        rows.append([is_found.mean(), is_found[is_own].mean(), is_found[~is_own].mean()])
                means.append(np.mean(rows, axis=0))
            np.testing.assert_allclose(found[amount][half], np.mean(means, axis=0))
    assert found[1.0][0].other_languages > found[0.0][0].other_languages


def test_the_strength_is_chosen_by_one_half_and_shown_on_the_other(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--vectors", files["documents"], "--queries", files["queries"], "--qrels", files["qrels"]]
    with pytest.warns(UserWarning, match="1 row without a vector"):
        main([*given, "--output", str(tmp_path / "map")])
    rows = json.loads((tmp_path / "map" / "language_bias.json").read_text())["judged"]
    best = max(rows, key=lambda row: row["first_half"]["overall"])
    assert VectorCalibration.load(tmp_path / "map").strength == best["strength"]
    shown = [f"{100 * figure:.1f}" for figure in best["second_half"].values()]
    (line,) = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith(f"| {best['strength']:g} (used)")
    ]
    assert [cell.strip() for cell in line.split("|")[2:-1]] == shown
    with pytest.warns(UserWarning, match="1 row without a vector"):
        main([*given, "--strength", "0.35", "--output", str(tmp_path / "other")])
    assert "| 0.35 (used)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0\t210\t1", r"qrels.tsv, line 632: document '210' is not in .*documents.parquet"),  # the row has no vector
        ("lost\t0\t1", r"qrels.tsv, line 632: query 'lost' is not in .*queries.parquet"),
        ("0\t0", "found '0.*t0'"),
    ],
)
def test_judgements_of_what_is_not_there(files: dict[str, str], tmp_path: Path, line: str, message: str) -> None:
    with open(files["qrels"], "a") as file:
        file.write("\n" + line)
    maps = {1.0: VectorCalibration.fit(clouds(0.5), CODES * TOPICS)}
    with pytest.raises((ValueError, DataError), match=message):
        judged_recall(open_store(files["documents"]), open_store(files["queries"]), files["qrels"], maps)


def test_languages_without_a_map_are_left_out(files: dict[str, str], tmp_path: Path) -> None:
    both = np.isin(CODES * TOPICS, ["de", "en"])
    maps = {1.0: VectorCalibration.fit(clouds(0.5)[both], np.array(CODES * TOPICS)[both], steps=["shift"])}
    given = open_store(files["documents"]), open_store(files["queries"])
    with pytest.raises(ValueError, match=r"is not in .*documents.parquet, among the rows that have .* a map"):
        judged_recall(*given, files["qrels"], maps)
    lines = Path(files["qrels"]).read_text().splitlines()[1:]
    kept = [line for line in lines if all(int(row) % 3 < 2 for row in line.split("\t")[:2])]
    (tmp_path / "kept.tsv").write_text("\n".join(kept))
    found = judged_recall(*given, str(tmp_path / "kept.tsv"), maps)
    assert 0 < found[1.0][0].other_languages <= 1


def test_queries_that_cannot_be_measured(files: dict[str, str], tmp_path: Path) -> None:
    given, output = ["--vectors", files["documents"], "--output", str(tmp_path / "map")], str(tmp_path / "few.tsv")
    with pytest.raises(ValueError, match="--queries .* and --qrels go together"):
        main([*given, "--qrels", files["qrels"]])
    with pytest.raises(ValueError, match="--qrels are for --vectors"):
        main(["--model", "m", "--documents", "d", "--output", "o", "--qrels", files["qrels"]])
    Path(output).write_text("0\t0\t1\n1\t1\t0\n")
    source, maps = open_store(files["documents"]), {1.0: VectorCalibration.fit(clouds(0.5), CODES * TOPICS)}
    with pytest.raises(ValueError, match=r"few.tsv has 1 queries with an answer: two halves"):
        judged_recall(source, open_store(files["queries"]), output, maps)
    np.save(tmp_path / "short.npy", np.ones((5, 3), np.float32))
    with pytest.raises(ValueError, match=r"short.npy has 3 dimensions, and .*documents.parquet 12"):
        judged_recall(source, open_store(str(tmp_path / "short.npy")), files["qrels"], maps)
