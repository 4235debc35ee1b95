"""`st-xlret index`: texts, languages and vectors in a file, which is written whole or not."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.commands import index, main


@pytest.fixture
def command(model: Path, documents: Path, tmp_path: Path) -> list[str]:
    return [
        "index",
        str(documents),
        "--model",
        str(model),
        "--output",
        str(tmp_path / "index.parquet"),
    ]


def test_an_index_names_its_model_and_is_replaced_if_asked(
    command: list[str], model: Path, documents: Path
) -> None:
    file = Path(command[-1])
    main(command)
    table = pq.read_table(file)
    assert Counter(table["language"].to_pylist()) == {"en": 24, "fr": 24}
    encoder = SentenceTransformer(str(model), device="cpu")
    expected = encoder.encode(table["text"].to_pylist(), normalize_embeddings=True)
    np.testing.assert_allclose(np.stack(table["vector"].to_numpy()), expected, atol=1e-3)
    assert set(table["source"].to_pylist()) == {str(documents)} and table["document"][
        :3
    ].to_pylist() == ["1", "1", "2"]
    about = json.loads(table.schema.metadata[b"st_xlret"])
    assert (about["model"], about["metric"], about["prompts"]) == (
        str(model),
        "cosine",
        {"query": "", "document": ""},
    )
    assert {*file.parent.glob("[!.]*")} == {documents, file}
    with pytest.raises(SystemExit, match=f"{file}.*--overwrite"):
        main(command)
    documents.write_text('{"language": "en", "sentences": ["sun", "", "moon star"]}\n{\n')
    with pytest.raises(SystemExit, match=r"documents\.jsonl, line 2"):
        main([*command, "--overwrite"])
    main([*command, "--overwrite", "--skip_bad_lines"])
    assert pq.read_table(file)["text"].to_pylist() == ["sun", "moon star"]


@pytest.mark.parametrize("similarity", ["dot", "euclidean"])
def test_vectors_whose_length_counts_keep_it(
    command: list[str], model: Path, tmp_path: Path, similarity: str
) -> None:
    encoder = SentenceTransformer(str(model), device="cpu")
    encoder.similarity_fn_name = similarity
    encoder.save(str(tmp_path / "other"))
    main([*command, "--model", str(tmp_path / "other")])
    table = pq.read_table(command[-1])
    assert json.loads(table.schema.metadata[b"st_xlret"])["metric"] == similarity
    expected = encoder.encode(table["text"].to_pylist())
    np.testing.assert_allclose(np.stack(table["vector"].to_numpy()), expected, atol=1e-3)


def test_an_index_has_a_metric_that_search_knows(
    command: list[str], model: Path, tmp_path: Path
) -> None:
    encoder = SentenceTransformer(str(model), device="cpu")
    encoder.similarity_fn_name = "manhattan"
    encoder.save(str(tmp_path / "other"))
    with pytest.raises(SystemExit, match="manhattan"):
        main([*command, "--model", str(tmp_path / "other")])
    assert not Path(command[-1]).exists()


@pytest.mark.parametrize("call", [2, 3])
def test_indexing_continues_where_it_stopped(command: list[str], monkeypatch, call: int) -> None:
    file = Path(command[-1])
    encode, calls = SentenceTransformer.encode, []

    def counted(self: SentenceTransformer, texts: Any, **options: Any) -> Any:
        calls.append(len(texts))
        if len(calls) == call:
            raise OSError("a bad disk")
        return encode(self, texts, **options)

    monkeypatch.setattr(index, "TEXTS_AT_ONCE", 20)
    monkeypatch.setattr(SentenceTransformer, "encode", counted)
    with pytest.raises(SystemExit, match="a bad disk"):
        main(command)
    assert not file.exists()
    main(command)
    assert sum(calls) == 48 + calls[call - 1], "what was encoded is not encoded again"
    assert (
        pq.ParquetFile(file).metadata.num_row_groups == 3
        and len(list(file.parent.glob("[!.]*"))) == 2
    )


def test_only_an_index_is_replaced(command: list[str]) -> None:
    """Not vectors that were mapped or made elsewhere, though their metadata name this package."""
    file = Path(command[-1])
    table = pa.table({"vector": [[1.0, 2.0]]}, metadata={"st_xlret": json.dumps({"map": "mine"})})
    pq.write_table(table, file)
    with pytest.raises(SystemExit, match=r"index\.parquet"):
        main([*command, "--overwrite"])
    assert pq.read_table(file).num_rows == 1


def test_documents_of_one_title_stay_apart(
    command: list[str], documents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": str(row), "title": "Home", "text": "sun.", "language": "en"} for row in range(4)]
    documents.write_text("\n".join(map(json.dumps, rows)))
    main(command)
    capsys.readouterr()
    main(["search", command[-1], "--query", "sun", "--group_field", "document", "--json"])
    (result,) = capsys.readouterr().out.splitlines()
    assert len(json.loads(result)["results"]) == 4
