"""`st-xlret calibrate` and `report`: options in, a model, a table and one recommendation out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from huggingface_hub import ModelCard
from pyarrow import parquet
from sentence_transformers import SentenceTransformer

import st_xlret
import tests.commands.bias_files as bias_files
from st_xlret import VectorCalibration
from st_xlret.calibration import compare_calibrations, usual_calibrations
from st_xlret.commands.calibrate import _recommend, main
from st_xlret.commands.report import main as report
from tests import tiny
from tests.commands.bias_files import WORDS, sentences

Calibrate = Callable[..., SentenceTransformer]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    bias_files.write_documents(tmp_path / "documents.jsonl")
    bias_files.write_questions(tmp_path / "questions.jsonl")
    bias_files.encoder().save(str(tmp_path / "encoder"))
    codes = {"source_language": "en", "target_language": "fr"}
    pairs = [{"source": a, "target": b, **codes} for a, b in zip(sentences("en"), sentences("fr"), strict=True)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return tmp_path


@pytest.fixture
def calibrate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Calibrate:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", folder / "cache")

    def run(*options: str) -> SentenceTransformer:
        given = ["--model", str(folder / "encoder"), "--output", str(folder / "out"), "--precision", "fp32"]
        given += [] if "--corpus" in options else ["--documents", str(folder / "documents.jsonl")]
        main([*given, *options])
        return SentenceTransformer(str(folder / "out"), device="cpu")

    return run


def test_by_default_the_result_needs_no_language(calibrate: Calibrate, folder: Path, capsys) -> None:
    model = calibrate()
    printed = capsys.readouterr().out
    assert "lsar (used)" in printed and printed.count("Recommended") == 1 and "encode_query" in printed
    for encode in (model.encode_query, model.encode_document):
        assert encode(["cat"]).shape == (1, 8)
    means = np.stack([model.encode_document(sentences(code)).mean(axis=0) for code in WORDS])
    np.testing.assert_allclose(means, means[:1].repeat(3, axis=0), atol=1e-5)
    text = (folder / "out" / "README.md").read_text(encoding="utf-8")
    card = ModelCard(text).data
    assert card.language == ["de", "en", "fr"] and {"st-xlret", "calibration", "lsar"} <= {*card.tags}
    assert "- texts: `documents.jsonl`" in text
    # `report` finds the same in the same texts.
    before = json.loads((folder / "out" / "language_bias.json").read_text())["before"]
    given = ["--model", str(folder / "encoder"), "--documents", str(folder / "documents.jsonl"), "--precision", "fp32"]
    report([*given, "--output", str(folder / "bias.json")])
    assert json.loads((folder / "bias.json").read_text()) == before
    assert f"{100 * before['same_language_share']:.1f}" in capsys.readouterr().out
    assert before["same_language_share"] != before["documents"]["same_language_share"]
    with pytest.raises(FileExistsError, match="--overwrite"):
        calibrate()
    assert "Router" in type(list(calibrate("--steps", "shift", "--overwrite").children())[-1]).__name__


def test_the_papers_calibration_with_pairs(calibrate: Calibrate, folder: Path, capsys) -> None:
    (folder / "test.eng").write_text("\n".join(text.upper() + "!" for text in sentences("en")[5:]))
    (folder / "few.jsonl").write_text("\n".join((folder / "pairs.jsonl").read_text().splitlines()[:5]))
    options = ["--steps", "shift", "scale", "rotate", "--rotation-start", "identity", "--rotation-prior", "1"]
    options += ["--document_prompt", "", "--query_prompt", "", "--overwrite"]
    model = calibrate("--pairs", str(folder / "pairs.jsonl"), "--exclude", str(folder / "test.eng"), *options)
    assert "| shift scale rotate (used) |" in capsys.readouterr().out
    for language in WORDS:
        np.testing.assert_allclose(model.encode(sentences(language), task=language).mean(axis=0), 0, atol=1e-5)
    expected = calibrate("--pairs", str(folder / "few.jsonl"), *options)
    np.testing.assert_array_equal(model.encode(["chat"], task="fr"), expected.encode(["chat"], task="fr"))


def test_a_corpus_in_beirs_layout(calibrate: Calibrate, folder: Path) -> None:
    (folder / "beir").mkdir()
    texts = [(code, text) for code in WORDS for text in sentences(code)]
    records = [{"_id": str(i), "title": "", "text": t, "metadata": {"language": c}} for i, (c, t) in enumerate(texts)]
    (folder / "beir" / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    from_corpus = calibrate("--corpus", str(folder / "beir")).encode(["chat chien"])
    np.testing.assert_allclose(from_corpus, calibrate("--overwrite").encode(["chat chien"]), atol=1e-5)
    del records[7]["metadata"]
    (folder / "beir" / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    pytest.importorskip("py3langid")  # the text without a language gets one of these
    found = calibrate("--corpus", str(folder / "beir"), "--languages", *WORDS, "--overwrite").encode(["chat chien"])
    np.testing.assert_allclose(from_corpus, found, atol=0.1)


def test_a_chunk_is_kept_whole(calibrate: Calibrate, folder: Path, capsys) -> None:
    calibrate("--unit", "document", "--min_texts", "12")
    assert "a pool with 12 texts of each language" in capsys.readouterr().out


def test_prompts_that_are_given_are_used_and_saved(calibrate: Calibrate, folder: Path, capsys) -> None:
    bias_files.encoder(prompts=False).save(str(folder / "encoder"))
    calibrate()
    printed = capsys.readouterr().out
    assert "names no prompts" in printed and "--query_prompt" in printed
    model = calibrate("--query_prompt", "ask ", "--document_prompt", "tell ", "--by_role", "--overwrite")
    assert (model.prompts["query"], model.prompts["document"]) == ("ask ", "tell ")
    means = np.stack([model.encode_query(sentences(code)).mean(axis=0) for code in WORDS])
    np.testing.assert_allclose(means, means[:1].repeat(3, axis=0), atol=1e-5)


def test_questions_are_counted_and_identified(calibrate: Calibrate, folder: Path, capsys) -> None:
    pytest.importorskip("py3langid")
    calibrate("--queries", str(folder / "questions.jsonl"), "--steps", "shift")
    printed = capsys.readouterr().out
    assert "questions: de 72, en 72, fr 72" in printed and 'task="query_de", prompt_name="query"' in printed
    lines = ["Where does the train to the old town leave", "D'où part le train pour la vieille ville"]
    (folder / "questions.txt").write_text("\n".join(f"{line}, {i}" for line in lines for i in range(60)))
    calibrate("--queries", str(folder / "questions.txt"), "--overwrite")
    printed = capsys.readouterr().out
    assert "questions: en 60, fr 60" in printed and "without enough questions of their own: de" in printed


def test_wrong_labels_are_reported(calibrate: Calibrate, folder: Path, capsys, monkeypatch) -> None:
    pytest.importorskip("py3langid")
    texts = {
        "en": "The train to the old town leaves at nine",
        "de": "Le train pour la vieille ville part à neuf heures",
    }
    records = [{"language": code, "sentences": [f"{text}, {i}." for i in range(60)]} for code, text in texts.items()]
    (folder / "documents.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    calibrate()
    printed = capsys.readouterr().out
    assert "50.0 % of the labels" in printed and "labelled 'de'" in printed and "'fr'" in printed
    monkeypatch.setitem(__import__("sys").modules, "py3langid", None)
    monkeypatch.delitem(__import__("sys").modules, "py3langid.langid", raising=False)
    calibrate("--overwrite")
    assert "st-xlret[langid]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--languages", "en"], "one language"),
        (["--languages", "en", "ja"], "no text is in ja"),
        (["--document_prompt", "passage"], "document prompt 'passage'.*no prompt of that name"),
        (["--by_role", "--steps", "shift", "rotate"], "rotate.*by_role"),
        (["--steps", "lsar", "--pairs", "p.jsonl"], "--pairs"),
        (["--steps", "rotate", "--pivot", "ja"], "pivot language 'ja'"),
        (["--texts_per_language", "-5"], "--texts_per_language .* -5"),
        (["--min_texts", "1000", "--model", "no-such-model"], "1000 .*min_texts.*'de' has 72"),
        (["--corpus", "x", "--documents", "y"], "either --corpus"),
        (["--queries", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--license", "MIT License"], "'MIT License'"),
    ],
)
def test_what_cannot_work_is_named_and_nothing_is_written(
    calibrate: Calibrate, folder: Path, options: list[str], named: str
) -> None:
    before = set(folder.iterdir())
    with pytest.raises(ValueError, match=named):
        calibrate(*options)
    assert set(folder.iterdir()) - {folder / "cache"} == before


def test_a_model_without_sentence_embeddings_is_named(calibrate: Calibrate, folder: Path) -> None:
    SentenceTransformer(modules=[next(iter(tiny.transformer().children()))], device="cpu").save(str(folder / "encoder"))
    given = ["--model", str(folder / "encoder"), "--documents", str(folder / "documents.jsonl")]
    for run in (calibrate, lambda: report([*given, "--output", str(folder / "bias.json")])):
        with pytest.raises(ValueError, match="no sentence embeddings.*Pooling"):
            run()
    assert not (folder / "bias.json").exists()


def test_the_options_that_save_what_is_recommended(capsys) -> None:
    clouds = {code: torch.randn(60, 4) for code in ("en", "fr")}
    comparison = compare_calibrations(usual_calibrations(clouds, clouds), clouds, chosen="shift")
    for name, options in {
        "lsar": "--steps lsar --overwrite, and without --strength, --keep_mean, --queries, --by_role",
        "lsar, queries apart": "--steps lsar --by_role --overwrite, and without --strength, --keep_mean.",
        "shift coral": "--steps shift coral --overwrite, and without",
        "shift": "",
        "as it is": "",
    }.items():
        row = replace(comparison.rows[name], kept=9.0)  # the best score
        _recommend(replace(comparison, rows={**comparison.rows, name: row}))
        printed = capsys.readouterr().out
        assert options in printed and bool(printed) == bool(options)


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """Stored vectors of three languages, each in a region of its own, and three of a fourth."""
    generator = np.random.default_rng(0)
    topics = generator.normal(size=(60, 16))
    clouds = [topics + 2 * np.eye(16)[i] + 0.3 * generator.normal(size=(60, 16)) for i in range(4)]
    clouds[3] = clouds[3][:3]
    codes = [code for code, cloud in zip(("de", "en", "fr", "sw"), clouds, strict=True) for _ in cloud]
    table = {"vector": np.concatenate(clouds).astype(np.float32).tolist(), "language": codes}
    parquet.write_table(pyarrow.table(table), tmp_path / "vectors.parquet")
    return tmp_path / "vectors.parquet"


@pytest.mark.parametrize("queries_only", [True, False])
def test_stored_vectors_get_a_map_and_the_lines_that_use_it(
    vectors: Path, tmp_path: Path, capsys, queries_only: bool
) -> None:
    output = tmp_path / "map"
    main(["--vectors", str(vectors), "--output", str(output), *["--queries_only"] * queries_only])
    printed = capsys.readouterr().out
    chosen = VectorCalibration.load(output).strength  # auto
    name = f"lsar{'' if chosen == 1 else f', strength {chosen:g}'}{', queries only' * queries_only}"
    assert f"{name} (used)" in printed and printed.count("Recommended") == 1
    assert f"Of the strengths, {chosen:g} has the highest score" in printed
    assert "left out, with fewer than 50 vectors: sw 3" in printed
    for line in ("Search over all languages", "Search within a language", "Scores change", "| en "):
        assert line in printed
    other = "Both sides" if queries_only else "Queries alone"
    assert printed.count(f"{other} mapped instead, at the best strength, ") == 1
    assert re.search(r"\| strength +\| +both sides: own .* queries only: own ", printed)
    assert (f"st-xlret apply {output}" in printed) != queries_only
    # The lines that are printed run.
    strengths = json.loads((output / "language_bias.json").read_text())["strengths"]
    assert [row["strength"] for row in strengths] == [i / 10 for i in range(11)]
    lines = [line.strip() for line in printed.partition("In the service")[2].splitlines() if line.startswith("    ")]
    found = {"st_xlret": st_xlret, "query": np.ones(16)}
    exec("\n".join(lines), found)
    assert found["query"].shape == (16,)
    assert VectorCalibration.load(output).queries_only == queries_only
    # `report` finds the same before, and compares the same calibrations.
    before = json.loads((output / "language_bias.json").read_text())["before"]
    report(["--vectors", str(vectors), "--output", str(tmp_path / "bias.json")])
    assert json.loads((tmp_path / "bias.json").read_text()) == before
    reported = capsys.readouterr().out
    assert "used" not in reported and "instead" not in reported
    assert all(f"| {name} " in reported for name in ("lsar", "lsar, queries only", "shift", "shift coral"))
    with pytest.raises(FileExistsError, match=r"map already holds files; replace it \(--overwrite"):
        main(["--vectors", str(vectors), "--output", str(output)])
    main(["--vectors", str(vectors), "--output", str(output), "--overwrite", "--strength", "0"])
    assert np.allclose(VectorCalibration.load(output).weight, np.eye(16))
    (output / "calibration.json").unlink()
    with pytest.raises(FileExistsError, match="is not empty and holds no saved model"):
        main(["--vectors", str(vectors), "--output", str(output), "--overwrite"])
    main(["--vectors", str(vectors), "--output", str(tmp_path / "other"), "--steps", "shift"])
    assert 'language="fr"' in capsys.readouterr().out
    main(["--vectors", str(vectors), "--output", str(tmp_path / "both"), "--steps", "shift", "coral"])
    assert "instead" not in capsys.readouterr().out  # coral maps documents, too


def test_stored_vectors_of_200_languages(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("st_xlret.calibration.choosing.STRENGTHS", (0.0, 1.0))  # eleven take a while
    generator = np.random.default_rng(0)
    topics = generator.normal(size=(3, 208))
    clouds = [topics + 2 * generator.normal(size=208) + 0.3 * generator.normal(size=(3, 208)) for _ in range(200)]
    codes = [f"l{i:03d}" for i in range(200) for _ in range(3)]
    table = pyarrow.table({"vector": np.concatenate(clouds).astype(np.float32).tolist(), "language": codes})
    parquet.write_table(table, tmp_path / "vectors.parquet")
    given = ["--vectors", str(tmp_path / "vectors.parquet"), "--output", str(tmp_path / "map"), "--min_texts", "3"]
    main(given)
    printed = capsys.readouterr().out
    sampled = next(line for line in printed.splitlines() if line.startswith("sampled: "))
    assert sampled.endswith("l029 3, ... (200 in all)") and len(re.findall(r"\n\| l\d{3} ", printed)) == 200
    assert VectorCalibration.load(tmp_path / "map").weight.shape == (1, 208, 208)
    assert len(json.loads((tmp_path / "map" / "language_bias.json").read_text())["after"]["languages"]) == 200


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--model", "m", "--documents", "d"], "leave --model and --documents out"),
        (["--steps", "to_pivot"], "to_pivot moves documents .* one map for both"),
        (["--steps", "rotate", "--pivot", "ja"], "no embeddings of the pivot language 'ja': there are de, en, fr"),
        (["--languages", "en"], "one language .en."),
        (["--queries_only", "--steps", "coral"], "'coral' moves documents"),
        (["--strength", "full"], "--strength full: give a number from 0 to 1, or auto"),
        (["--vectors", "nowhere.parquet"], "nowhere.parquet"),
    ],
)
def test_what_cannot_be_done_with_stored_vectors(vectors: Path, tmp_path: Path, options: list[str], named: str) -> None:
    with pytest.raises((ValueError, OSError), match=named):
        main(["--vectors", str(vectors), "--output", str(tmp_path / "map"), *options])
    assert not (tmp_path / "map").exists()


def test_a_field_that_has_no_languages(vectors: Path, tmp_path: Path) -> None:
    table = parquet.read_table(vectors)
    parquet.write_table(table.append_column("title", [[f"title {i}" for i in range(len(table))]]), vectors)
    with pytest.raises(ValueError, match=r"title 0 1, .*\.\.\. \(183 in all\)\. .*--language_field") as error:
        main(["--vectors", str(vectors), "--language_field", "title", "--output", str(tmp_path / "map")])
    assert len(str(error.value)) < 700


def test_the_report_on_stored_vectors_looks_at_as_many_neighbours_as_are_asked_for(
    vectors: Path, tmp_path: Path, capsys
) -> None:
    report(["--vectors", str(vectors), "--output", str(tmp_path / "bias.json"), "--neighbours", "7"])
    printed = capsys.readouterr().out
    assert json.loads((tmp_path / "bias.json").read_text())["neighbours"] == 7
    assert "texts of each language, and its 7 nearest" in printed
    assert "as many of the 7 nearest" in printed


def test_labels_are_checked_on_the_first_rows(vectors: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    pytest.importorskip("py3langid")
    table = parquet.read_table(vectors)
    parquet.write_table(table.append_column("text", [["The cat sleeps on the roof."] * len(table)]), vectors)
    monkeypatch.setattr("st_xlret.commands.stored_vectors._LOOKED_THROUGH", 0)
    main(["--vectors", str(vectors), "--text_field", "text", "--output", str(tmp_path / "map")])
    assert "of the labels" not in capsys.readouterr().out
    monkeypatch.setattr("st_xlret.commands.stored_vectors._LOOKED_THROUGH", 1)
    report(["--vectors", str(vectors), "--text_field", "text", "--output", str(tmp_path / "bias.json")])
    assert "66.7 % of the labels" in capsys.readouterr().out
