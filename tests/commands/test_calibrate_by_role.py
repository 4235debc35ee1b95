"""Maps of queries apart from those of documents, and what `report` and `calibrate` measure."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router

import tests.commands.bias_files as bias_files
from st_xlret.commands.calibrate import main as calibrate
from st_xlret.commands.report import main as report
from tests.commands.bias_files import WORDS, sentences


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bias_files.write_documents(tmp_path / "documents.jsonl")
    bias_files.write_questions(tmp_path / "questions.jsonl")
    torch.manual_seed(0)
    bias_files.encoder().save(str(tmp_path / "encoder"))
    return tmp_path


def run(folder: Path, *options: str) -> SentenceTransformer:
    given = ["--model", str(folder / "encoder"), "--documents", str(folder / "documents.jsonl")]
    calibrate([*given, "--output", str(folder / "out"), "--overwrite", "--precision", "fp32", *options])
    return SentenceTransformer(str(folder / "out"), device="cpu")


def test_by_default_one_map_serves_both_roles(folder: Path) -> None:
    model = run(folder)
    assert isinstance(list(model.children())[-1], Dense)


@pytest.mark.parametrize("option", ["--by_role", "--queries"])
def test_queries_and_documents_are_routed_to_their_maps(folder: Path, option: str) -> None:
    texts = {code: sentences(code) for code in WORDS}
    given = [option]
    if option == "--queries":
        given.append(str(folder / "questions.jsonl"))
        texts = {code: [f"{text}?" for text in found] for code, found in texts.items()}
    model = run(folder, *given)
    assert isinstance(list(model.children())[-1], Router)
    means = np.stack([model.encode_query(found).mean(axis=0) for found in texts.values()])
    np.testing.assert_allclose(means, means[:1].repeat(3, axis=0), atol=1e-5)
    means = np.stack([model.encode_document(sentences(code)).mean(axis=0) for code in WORDS])
    np.testing.assert_allclose(means, means[:1].repeat(3, axis=0), atol=1e-5)
    np.testing.assert_array_equal(model.encode(["cat"], prompt="tell "), model.encode_document(["cat"]))


def test_maps_per_language_and_role_take_the_language_as_their_task(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = run(folder, "--by_role", "--steps", "shift")
    assert 'task="query_de", prompt_name="query"' in capsys.readouterr().out
    raw = SentenceTransformer(str(folder / "encoder"), device="cpu")
    offset = raw.encode_query(sentences("fr")).mean(axis=0) - raw.encode_query(sentences("de")).mean(axis=0)
    assert np.linalg.norm(offset) > 0.1
    by_language = {code: model.encode(sentences(code), task=f"query_{code}", prompt_name="query") for code in WORDS}
    np.testing.assert_allclose(by_language["fr"].mean(axis=0), by_language["de"].mean(axis=0), atol=1e-5)
    np.testing.assert_array_equal(model.encode_query(sentences("en")), by_language["en"])
    np.testing.assert_array_equal(
        model.encode_document(sentences("en")), model.encode(sentences("en"), task="en", prompt_name="document")
    )


def test_prompts_that_are_given_are_used_and_saved(folder: Path) -> None:
    plain = SentenceTransformer(str(folder / "encoder"), device="cpu")
    plain.prompts = {}
    plain.save(str(folder / "encoder"))
    model = run(folder, "--query_prompt", "ask ", "--document_prompt", "tell ", "--by_role")
    assert (model.prompts["query"], model.prompts["document"]) == ("ask ", "tell ")
    means = np.stack([model.encode_query(sentences(code)).mean(axis=0) for code in WORDS])
    np.testing.assert_allclose(means, means[:1].repeat(3, axis=0), atol=1e-5)


def test_questions_without_a_language_are_identified(folder: Path) -> None:
    pytest.importorskip("py3langid")
    lines = {
        "en": "Where does the train to the old town leave in the morning, number",
        "fr": "D'où part le train pour la vieille ville le matin, numéro",
        "de": "Wo fährt der Zug in die alte Stadt am Morgen ab, Nummer",
    }
    named = [f"{text} {i}" for text in lines.values() for i in range(60)]
    (folder / "questions.txt").write_text("\n".join(named))
    (folder / "questions.de.txt").write_text("\n".join(named[-60:]))
    model = run(folder, "--queries", str(folder / "questions.txt"))
    assert isinstance(list(model.children())[-1], Router)
    with pytest.raises(ValueError, match="de 60"):  # its name says that all of it is German
        run(folder, "--queries", str(folder / "questions.de.txt"))


def test_report_and_calibrate_find_the_same_in_the_same_texts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(folder)
    before = json.loads((folder / "out" / "language_bias.json").read_text())["before"]
    capsys.readouterr()
    documents, output = str(folder / "documents.jsonl"), str(folder / "bias.json")
    report(["--model", str(folder / "encoder"), "--documents", documents, "--output", output, "--precision", "fp32"])
    printed = capsys.readouterr().out
    assert json.loads(Path(output).read_text()) == before
    assert before["same_language_share"] != before["documents"]["same_language_share"]
    for share in (before["same_language_share"], before["documents"]["same_language_share"], before["chance"]):
        assert f"{100 * share:.1f}" in printed
    # A calibrated model can be reported on too, also one that has to be told the languages.
    run(folder, "--by_role", "--steps", "shift")
    report(["--model", str(folder / "out"), "--documents", documents, "--output", output])
    after = json.loads((folder / "out" / "language_bias.json").read_text())["after"]
    found = json.loads(Path(output).read_text())
    assert found["same_language_share"] == pytest.approx(after["same_language_share"], abs=0.01)


def test_truncation_happens_after_the_calibration(folder: Path) -> None:
    model = SentenceTransformer(str(folder / "encoder"), device="cpu", truncate_dim=4)
    from st_xlret.commands.encoders import Embedder

    found = Embedder(model).embed({"document": ("document", {"en": ["cat"]})})["document"]["en"]
    assert found.shape == (1, 8) and model.truncate_dim == 4
    cut = SentenceTransformer(str(folder / "encoder"), device="cpu")
    whole = run(folder).encode_query(sentences("fr"))
    cut = SentenceTransformer(str(folder / "out"), device="cpu", truncate_dim=4)
    np.testing.assert_allclose(cut.encode_query(sentences("fr")), whole[:, :4], atol=1e-6)


def test_a_normalised_and_a_quantised_model(folder: Path) -> None:
    raw = SentenceTransformer(str(folder / "encoder"), device="cpu")
    normalised = SentenceTransformer(modules=[*raw.children(), Normalize()], device="cpu", prompts=raw.prompts)
    normalised.save(str(folder / "encoder"))
    model = run(folder)
    assert isinstance(list(model.children())[-1], Normalize)
    found = model.encode_query(sentences("fr"))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    binary = model.encode_query(sentences("fr"), precision="ubinary")
    np.testing.assert_array_equal(np.unpackbits(binary, axis=1), found > 0)
