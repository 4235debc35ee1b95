"""The demo of an encoder that exists: its pool, and the whole of it with a tiny encoder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret.modules import train_tokenizer, transformer_encoder
from training_scripts.demo import encoder


def test_the_sample_is_500_sentences_in_11_languages_with_its_notice() -> None:
    rows = encoder.read_sentences(500)
    assert len(rows) == 500 and {len(row) for row in rows} == {11}
    assert all(text and text == " ".join(text.split()) for row in rows for text in row.values())
    for language in rows[0]:
        assert len({row[language] for row in rows}) == 500
    assert "CC0" in encoder.SENTENCES.with_name("NOTICE.txt").read_text()


def test_the_pool_holds_the_translations_and_not_the_question(tmp_path: Path) -> None:
    rows = encoder.read_sentences(22)
    folder = encoder.write_pool(rows, tmp_path / "pool")
    read = {
        name: [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("corpus", "queries")
    }
    assert len(read["corpus"]) == 220 and len(read["queries"]) == 22
    texts = {row["_id"]: row["text"] for row in read["corpus"]}
    assert not {row["text"] for row in read["queries"]} & set(texts.values())
    judgements = [line.split("\t") for line in (folder / "qrels/test.tsv").read_text().splitlines()[1:]]
    for query, name, score in judgements:
        asked, number = query.split("-")
        language, same = name.split("-")
        assert same == number and language != asked and score == "1" and texts[name] == rows[int(number)][language]
    assert len(judgements) == 220
    assert {row["metadata"]["language"] for row in read["queries"]} == set(rows[0])


@pytest.mark.slow
def test_the_whole_demo(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    texts = [text for row in encoder.read_sentences(60) for text in row.values()]
    model = transformer_encoder(train_tokenizer(texts, vocabulary=3000), "tiny", max_seq_length=32)
    model.save_pretrained(str(tmp_path / "tiny"))
    results = encoder.main(["--model", str(tmp_path / "tiny"), "--output", str(tmp_path / "out"), "--sentences", "60"])
    assert set(results["scores"]) == {"before", "after"}
    printed = capfd.readouterr().out
    assert "after calibration" in printed and "$ st-xlret calibrate" in printed
    for name in ("before.png", "after.png", "results.json", "model/modules.json"):
        assert (tmp_path / "out" / name).is_file(), name
    assert SentenceTransformer(str(tmp_path / "out" / "model"), device="cpu").encode_query("virus").shape == (32,)


def test_a_command_that_fails_ends_the_demo(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="report failed"):
        encoder.run("report", "--model", tmp_path / "nowhere", "--documents", tmp_path, "--output", tmp_path / "o.json")
