"""What `calibrate` refuses, or says, before anything is written."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Router

import tests.commands.bias_files as bias_files
import tests.tiny as tiny
from st_xlret.commands.calibrate import main as calibrate
from st_xlret.commands.report import main as report
from tests.commands.bias_files import WORDS, sentences


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bias_files.write_documents(tmp_path / "documents.jsonl")
    bias_files.encoder().save(str(tmp_path / "encoder"))
    return tmp_path


def run(folder: Path, *options: str) -> SentenceTransformer:
    given = ["--model", str(folder / "encoder"), "--documents", str(folder / "documents.jsonl")]
    calibrate([*given, "--output", str(folder / "out"), "--precision", "fp32", *options])
    return SentenceTransformer(str(folder / "out"), device="cpu")


def refused(folder: Path, named: str, *options: str) -> None:
    before = {name for name in os.listdir(folder) if name != "out"}
    with pytest.raises(ValueError, match=named):
        run(folder, *options)
    assert set(os.listdir(folder)) - {"out"} == before
    assert not (folder / "out").exists() or "--overwrite" in options or not any((folder / "out").iterdir())


def test_a_checkpoint_without_prompts_works(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bias_files.encoder(prompts=False).save(str(folder / "encoder"))
    model = run(folder)
    printed = capsys.readouterr().out
    assert "names no prompts" in printed and "--query_prompt" in printed
    np.testing.assert_array_equal(model.encode_query(["cat"]), model.encode_document(["cat"]))


def test_a_checkpoint_without_a_pooling_layer_is_named(folder: Path) -> None:
    transformer = next(iter(tiny.transformer().children()))
    SentenceTransformer(modules=[transformer], device="cpu").save(str(folder / "encoder"))
    refused(folder, "no sentence embeddings.*Pooling")
    with pytest.raises(ValueError, match="no sentence embeddings.*Pooling"):
        report(
            ["--model", str(folder / "encoder"), "--documents", str(folder / "documents.jsonl")]
            + ["--output", str(folder / "bias.json")]
        )
    assert not (folder / "bias.json").exists()


def test_a_checkpoint_that_ends_with_a_dense_layer_works(folder: Path) -> None:
    raw = SentenceTransformer(str(folder / "encoder"), device="cpu")
    with_dense = SentenceTransformer(modules=[*raw.children(), Dense(8, 6)], device="cpu", prompts=raw.prompts)
    with_dense.save(str(folder / "encoder"))
    means = np.stack([run(folder, "--overwrite").encode_document(sentences(code)).mean(axis=0) for code in WORDS])
    np.testing.assert_allclose(means, means[:1].repeat(3, axis=0), atol=1e-5)


def test_a_checkpoint_with_routes_by_task_can_be_calibrated_without_languages(folder: Path) -> None:
    raw = SentenceTransformer(str(folder / "encoder"), device="cpu")
    router = Router({"query": [Dense(8, 8)], "document": [Dense(8, 8)]}, default_route="document")
    SentenceTransformer(modules=[*raw.children(), router], device="cpu").save(str(folder / "encoder"))
    refused(folder, "Router by task.*lsar", "--steps", "shift")
    model = run(folder, "--by_role")
    for encode in (model.encode_query, model.encode_document):
        means = np.stack([encode(sentences(code)).mean(axis=0) for code in WORDS])
        np.testing.assert_allclose(means, means[:1].repeat(3, axis=0), atol=1e-5)


def test_a_model_that_was_calibrated_by_language_is_refused(folder: Path) -> None:
    run(folder, "--steps", "shift").save(str(folder / "encoder"))
    refused(folder, "calibrated before", "--overwrite")


def test_a_language_with_few_texts_is_named_before_the_model_is_loaded(folder: Path) -> None:
    with (folder / "documents.jsonl").open("a") as file:
        file.write('{"id": "sw", "language": "sw", "sentences": ["paka na mbwa", "jua na mvua"]}\n')
    refused(folder, "50 .*'sw' has 2.*--languages", "--model", "no-such-model")
    run(folder, "--languages", *WORDS)


def test_a_corpus_of_one_language_has_nothing_to_calibrate(folder: Path) -> None:
    bias_files.write_documents(folder / "documents.jsonl", {"en": "en"})
    refused(folder, r"one language \(en\)")
    given = ["--model", "no-such-model", "--documents", str(folder / "documents.jsonl")]
    with pytest.raises(ValueError, match=r"one language \(en\)"):
        report([*given, "--output", str(folder / "bias.json")])


def test_wrong_labels_are_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("py3langid")
    text = {"en": "The train to the old town leaves at nine", "fr": "Le train pour la vieille ville part à neuf heures"}
    for labels, doubtful in (({"en": "en", "fr": "fr"}, False), ({"en": "en", "fr": "de"}, True)):
        with (folder / "documents.jsonl").open("w") as file:
            for code, label in labels.items():
                quoted = ", ".join(f'"{text[code]}, {i}."' for i in range(60))
                file.write(f'{{"language": "{label}", "sentences": [{quoted}]}}\n')
        run(folder, "--overwrite")
        printed = capsys.readouterr().out
        assert ("50.0 % of the labels" in printed) == doubtful
        assert ("labelled 'de'" in printed and "'fr'" in printed) == doubtful


def test_without_the_identifier_the_labels_are_not_checked(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "py3langid", None)
    monkeypatch.delitem(__import__("sys").modules, "py3langid.langid", raising=False)
    run(folder)
    assert "st-xlret[langid]" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options, named",
    [
        (["--query_prompt", "question"], "--query_prompt question: .*query, document"),
        (["--document_prompt", "passage"], "--document_prompt passage"),
        (["--queries", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--steps", "to_pivot", "--pivot", "ja"], "--pivot ja"),
    ],
)
def test_what_does_not_exist_is_named(folder: Path, options: list[str], named: str) -> None:
    refused(folder, named, *options)


def test_questions_in_no_language_of_the_documents_are_named(folder: Path) -> None:
    (folder / "questions.ja.txt").write_text("犬はどこですか\n")
    refused(folder, "--queries .*encoder", "--queries", str(folder / "encoder"))
    refused(folder, "no question is in de, en, fr", "--queries", str(folder / "questions.ja.txt"))
    (folder / "questions.jsonl").write_text('{"language": "en", "words": "cat"}\n')
    refused(folder, "questions.jsonl, line 1.*question", "--queries", str(folder / "questions.jsonl"))
