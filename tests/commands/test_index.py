from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import ParquetWriter
from sentence_transformers import SentenceTransformer

from st_xlret import encode
from st_xlret.calibration import sample_texts
from st_xlret.commands import index, main
from tests.commands.conftest import PROSE


def test_an_index_has_texts_languages_and_vectors_and_names_its_model(
    tmp_path: Path, model: Path, documents: Path
) -> None:
    file = tmp_path / "index.parquet"
    main(["index", str(documents), "--model", str(model), "--output", str(file)])
    table = pq.read_table(file)
    assert table.column("language").value_counts().to_pylist() == [
        {"values": "en", "counts": 24}, {"values": "fr", "counts": 24}
    ]  # fmt: skip
    expected = SentenceTransformer(str(model), device="cpu").encode(
        table["text"].to_pylist(), normalize_embeddings=True
    )
    np.testing.assert_allclose(np.stack(table["vector"].to_numpy()), expected, atol=1e-3)
    assert set(table["source"].to_pylist()) == {str(documents)} and table["document"][:3].to_pylist() == ["1", "1", "2"]
    about = json.loads(table.schema.metadata[b"st_xlret"])
    assert (about["model"], about["metric"], about["prompts"]) == (str(model), "cosine", {"query": "", "document": ""})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["documents.jsonl", "index.parquet"]


def test_an_index_is_replaced_only_if_asked(
    tmp_path: Path, model: Path, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "i.parquet"
    options = ["index", str(documents), "--model", str(model), "--output", str(file), "--unit", "document"]
    main(options)
    with pytest.raises(SystemExit, match=f"{file}.*--overwrite"):
        main(options)
    main([*options, "--overwrite"])
    file.unlink()
    close = ParquetWriter.close

    def meanwhile(writer: ParquetWriter) -> None:
        close(writer)
        file.write_text("theirs")

    monkeypatch.setattr(ParquetWriter, "close", meanwhile)
    with pytest.raises(SystemExit, match=f"{file}"):
        main(options)
    assert file.read_text() == "theirs"
    monkeypatch.setattr(ParquetWriter, "close", close)
    with pytest.raises(SystemExit, match=r"\.parquet"):
        main([*options[:5], str(tmp_path / "index")])


@pytest.mark.parametrize("call", [2, 3])
def test_indexing_continues_where_it_stopped(
    tmp_path: Path, model: Path, documents: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    encode, calls = SentenceTransformer.encode, []

    def counted(self: SentenceTransformer, texts: Any, **options: Any) -> Any:
        calls.append(len(texts))
        if len(calls) == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return encode(self, texts, **options)

    monkeypatch.setattr(index, "_AT_A_TIME", 20)
    monkeypatch.setattr(SentenceTransformer, "encode", counted)
    options = ["index", str(documents), "--model", str(model), "--output", str(tmp_path / "i.parquet")]
    with pytest.raises(SystemExit, match="No space left"):
        main(options)
    assert not (tmp_path / "i.parquet").exists()
    main(options)
    assert sum(calls) == 48 + calls[call - 1], "what was encoded is not encoded again"
    assert pq.ParquetFile(tmp_path / "i.parquet").metadata.num_row_groups == 3
    assert len(list(tmp_path.iterdir())) == 2


def test_bad_lines_are_named_or_skipped(tmp_path: Path, model: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"language": "en", "sentences": ["sun", "", "moon star"]}\n{\n')
    options = ["index", str(tmp_path / "d.jsonl"), "--model", str(model), "--output", str(tmp_path / "i.parquet")]
    with pytest.raises(SystemExit, match=r"d\.jsonl, line 2"):
        main(options)
    main([*options, "--skip_bad_lines"])
    assert pq.read_table(tmp_path / "i.parquet")["text"].to_pylist() == ["sun", "moon star"]


def test_languages_of_texts_are_identified_for_any_model(tmp_path: Path, model: Path, per_language: Path) -> None:
    pytest.importorskip("py3langid")
    (tmp_path / "texts.txt").write_text("\n".join([PROSE["en"], PROSE["fr"]]))
    for folder in (model, per_language):
        file = tmp_path / f"{folder.name}.parquet"
        main(["index", str(tmp_path / "texts.txt"), "--model", str(folder), "--output", str(file)])
        table = pq.read_table(file)
        assert table["language"].to_pylist() == ["en", "fr"]
    encoder = SentenceTransformer(str(per_language), device="cpu")
    texts = [PROSE["en"], PROSE["fr"]]
    expected = encode(encoder, texts, ["en", "fr"], role="document", normalize_embeddings=True)
    np.testing.assert_allclose(np.stack(table["vector"].to_numpy()), expected, atol=1e-3)


def test_an_index_has_the_texts_that_a_report_samples(tmp_path: Path, model: Path) -> None:
    records = [{"_id": code, "text": f"{text} {text}", "language": code} for code, text in PROSE.items()]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, records)))
    file = tmp_path / "index.parquet"
    main(["index", str(tmp_path / "corpus.jsonl"), "--model", str(model), "--output", str(file)])
    table = pq.read_table(file)
    texts = dict(zip(table["language"].to_pylist(), table["text"].to_pylist(), strict=True))
    assert texts == {record["language"]: record["text"] for record in records}
    assert {code: part.texts for code, part in sample_texts([str(tmp_path)]).items()} == {
        code: [text] for code, text in texts.items()
    }
