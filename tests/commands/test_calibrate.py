"""`st-xlret calibrate` and `report` of a model: a table, one recommendation, and the result."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer

from st_xlret.commands.calibrate import main
from st_xlret.commands.report import main as report
from tests.commands import bias_files
from tests.commands.bias_files import WORDS, sentences
from tests.data.files import write_jsonl


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An encoder, and documents of six sentences."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    torch.manual_seed(0)
    bias_files.encoder().save(str(tmp_path / "encoder"))
    bias_files.write_documents(tmp_path / "documents.jsonl")
    return tmp_path


def calibrate(folder: Path, *options: str) -> SentenceTransformer:
    words = ["--model", str(folder / "encoder")]
    words += ["--corpus", str(folder / "documents.jsonl")]
    words += ["--output", str(folder / "out")]
    words += ["--precision", "fp32"]
    main([*words, *options])
    return SentenceTransformer(str(folder / "out"), device="cpu")


def write_questions(file: Path) -> Path:
    records = []
    for code in WORDS:
        for text in sentences(code):
            records.append({"text": f"{text}?", "language": code})
    return write_jsonl(file, records)


def test_by_default_the_result_needs_no_language(folder: Path, capsys: Any) -> None:
    file = write_questions(folder / "questions.jsonl")
    model = calibrate(folder, "--queries", str(file), "--strength", "1")

    printed = capsys.readouterr().out
    assert "| 1 (used) " in printed
    assert "encode_query" in printed
    counts = [f"{code} {len(set(sentences(code)))}" for code in sorted(WORDS)]
    assert f"questions: {', '.join(counts)}\n" in printed
    means = []
    for code in WORDS:
        questions = [f"{text}?" for text in sentences(code)]
        of_documents = model.encode_document(sentences(code)).mean(axis=0)
        of_queries = model.encode_query(questions).mean(axis=0)
        means.append([of_documents, of_queries])
    np.testing.assert_allclose(means, np.repeat(means[:1], 3, axis=0), atol=1e-5)

    card = ModelCard.load(folder / "out" / "README.md")
    assert card.data.language == ["de", "en", "fr"]
    assert {"calibration", "lsar"} <= set(card.data.tags)
    assert "- texts: `documents.jsonl`" in card.text
    with pytest.raises(FileExistsError, match="--overwrite"):
        calibrate(folder)


def test_a_report_finds_what_a_calibration_found_in_the_same_texts(folder: Path) -> None:
    calibrate(folder)
    before = json.loads((folder / "out" / "language_bias.json").read_text())["before"]
    words = ["--model", str(folder / "encoder")]
    words += ["--documents", str(folder / "documents.jsonl")]
    words += ["--output", str(folder / "bias.json")]
    words += ["--precision", "fp32"]
    report(words)

    assert json.loads((folder / "bias.json").read_text()) == before
    assert (folder / "bias.png").read_bytes().startswith(b"\x89PNG")
    assert before["same_language_share"] != before["documents"]["same_language_share"]


def lines_after_verdict(printed: str) -> list[str]:
    _, _, after = printed.partition("\nVerdict: ")
    return after.splitlines()


def test_the_verdict_and_its_command_come_first_and_details_if_asked(
    folder: Path, capsys: Any
) -> None:
    words = ["--model", str(folder / "encoder")]
    words += ["--documents", str(folder / "documents.jsonl")]
    words += ["--precision", "fp32"]
    report([*words, "--output", str(folder / "bias.json")])
    reported = capsys.readouterr().out
    assert "embedding 216 texts in 3 languages: a small encoder takes about 6 s" in reported
    verdict, command, *rest = lines_after_verdict(reported)
    assert verdict.startswith("calibrate by lsar at strength 0.")
    assert sum(line.startswith("| ---") or line.startswith("|:---") for line in rest) == 1
    assert "by language" not in reported
    assert any(line.startswith("It took ") for line in rest)

    # The command calibrates at the strength that the report names, and its own verdict is so.
    program, name, *options = command.removeprefix("Command: ").split()
    assert (program, name) == ("st-xlret", "calibrate")
    assert sorted(options) == sorted([*words, "--output", "calibrated"])
    strength = verdict.split()[5].rstrip(":")
    output = str(folder / "out")
    main([*options[:-1], output, "--details"])
    printed = capsys.readouterr().out
    assert f"| {strength} (used) " in printed
    assert f"Command: nothing more to run, {output} is calibrated like this" in printed
    assert "Queries alone mapped:" in printed
    assert "by language:" in printed


def test_a_strength_that_is_worse_than_another_is_told_with_the_command(
    folder: Path, capsys: Any
) -> None:
    calibrate(folder, "--strength", "1")
    _, command, *_ = lines_after_verdict(capsys.readouterr().out)
    assert "--overwrite" in command
    words = command.removeprefix("Command: st-xlret calibrate ").split()
    main(words)
    assert "Command: nothing more to run" in capsys.readouterr().out


def test_a_model_with_a_map_for_each_language_is_reported(folder: Path) -> None:
    calibrate(folder, "--steps", "shift")
    words = ["--model", str(folder / "out"), "--documents", str(folder / "documents.jsonl")]
    report([*words, "--output", str(folder / "bias.json")])
    shares = json.loads((folder / "bias.json").read_text())["documents"]
    assert shares["same_language_share"] < 0.6


def write_pairs(file: Path) -> Path:
    records = []
    for source, target in zip(sentences("en"), sentences("fr"), strict=True):
        records.append(
            {
                "source": source,
                "target": target,
                "source_language": "en",
                "target_language": "fr",
            }
        )
    return write_jsonl(file, records)


def test_the_papers_calibration_with_pairs_and_prompts(folder: Path, capsys: Any) -> None:
    bias_files.encoder(prompts=False).save(str(folder / "encoder"))
    options = ["--pairs", str(write_pairs(folder / "pairs.jsonl"))]
    options += ["--steps", "shift", "scale", "rotate"]
    options += ["--languages", "en", "fr"]
    options += ["--query_prompt", "ask ", "--document_prompt", "tell "]
    model = calibrate(folder, *options)

    printed = capsys.readouterr().out
    assert "| 1 (used) " in printed
    assert "by shift scale rotate at 1" in printed
    assert 'task="fr"' in printed
    assert model.prompts["query"] == "ask "
    assert model.prompts["document"] == "tell "
    for code in ("en", "fr"):
        rows = model.encode(sentences(code), task=code, prompt_name="document")
        np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-5)


ENGLISH = "The train to the town leaves at nine"
FRENCH = "Le train pour la vieille ville part à neuf heures"


def texts_in_french(share: float, count: int = 60) -> list[str]:
    """English sentences, but for a share of French ones."""
    texts = []
    for number in range(count):
        text = FRENCH if number < share * count else ENGLISH
        texts.append(f"{text}, {number}.")
    return texts


@pytest.mark.parametrize(
    ("share", "is_doubtful"), [(1.0, True), (0.4, True), (0.1, False), (0.0, False)]
)
def test_a_language_with_many_wrong_labels_is_named(
    share: float, is_doubtful: bool, folder: Path, capsys: Any
) -> None:
    pytest.importorskip("py3langid")
    german = "Der Zug in die alte Stadt fährt um neun Uhr ab"
    records = [
        {"language": "en", "sentences": texts_in_french(share)},
        {"language": "de", "sentences": [f"{german}, {number}." for number in range(60)]},
    ]
    write_jsonl(folder / "documents.jsonl", records)
    calibrate(folder)

    printed = capsys.readouterr().out
    warning = f"warning: {100 * share:.0f} % of the texts labelled 'en' look like 'fr'"
    assert f"{50 * share:.1f} % of the labels" in printed
    assert (warning in printed) == is_doubtful
    assert "labelled 'de'" not in printed


@pytest.mark.parametrize("prompts", [True, False])
def test_a_model_without_prompts_is_reported(prompts: bool, folder: Path, capsys: Any) -> None:
    bias_files.encoder(prompts).save(str(folder / "encoder"))
    calibrate(folder)
    assert ("names no prompts" in capsys.readouterr().out) == (not prompts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--pairs p.jsonl", "alone takes pairs"),
        ("--pairs p.jsonl --steps rotate", "p.jsonl"),
        ("--min_texts 1000 --model no-such-model", "1000 .*'de': 72"),
        ("--queries nowhere.jsonl", "nowhere.jsonl"),
        ("--qrels q.tsv", "--qrels"),
        ("--vectors v.parquet", "--documents and --model"),
        ("--strength full", "'full'"),
    ],
)
def test_what_cannot_work_is_named_and_nothing_is_written(
    options: str, message: str, folder: Path
) -> None:
    with pytest.raises((ValueError, OSError), match=message):
        calibrate(folder, *options.split())
    assert not (folder / "out").exists()


def test_documents_in_one_language_get_a_map_of_queries(folder: Path, capsys) -> None:
    model = calibrate(folder, "--languages", "en", "--queries_only")
    printed = capsys.readouterr().out
    assert "one language (en)" in printed
    assert not (folder / "out" / "language_bias.json").exists()
    original = SentenceTransformer(str(folder / "encoder"), device="cpu")
    texts = sentences("en")
    np.testing.assert_allclose(
        model.encode_document(texts), original.encode_document(texts), atol=1e-6
    )
    assert np.abs(model.encode_query(texts) - original.encode_query(texts)).max() > 0.01
