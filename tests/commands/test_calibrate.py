from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer

from st_xlret.commands.calibrate import calls, main
from st_xlret.modules.from_scratch import static_encoder, train_tokenizer

WORDS = {
    "en": ["cat", "dog", "sun", "rain", "book", "house"],
    "fr": ["chat", "chien", "soleil", "pluie", "livre", "maison"],
}


def sentences(language: str) -> list[str]:
    words = WORDS[language]
    return [f"{first} {second} {third}" for first in words for second in words for third in words[:2]]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    with (tmp_path / "documents.jsonl").open("w") as file:
        for language in WORDS:
            record = {"id": language, "language": language, "title": "", "sentences": sentences(language)}
            file.write(json.dumps(record) + "\n")
    with (tmp_path / "pairs.jsonl").open("w") as file:
        for english, french in zip(sentences("en"), sentences("fr"), strict=True):
            record = {"source": english, "target": french, "source_language": "en", "target_language": "fr"}
            file.write(json.dumps(record) + "\n")
    tokenizer = train_tokenizer([text for language in WORDS for text in sentences(language)], vocabulary=60)
    static_encoder(tokenizer, features=8).save(str(tmp_path / "encoder"))
    return tmp_path


@pytest.fixture
def calibrate(files: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SentenceTransformer]:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", files / "cache")

    def run(*arguments: str) -> SentenceTransformer:
        given = ["--model", str(files / "encoder")]
        if "--corpus" not in arguments:
            given += ["--documents", str(files / "documents.jsonl")]
        main([*given, "--output", str(files / "out"), *arguments])
        return SentenceTransformer(str(files / "out"), device="cpu")

    return run


def test_documents_give_a_model_with_a_route_by_language(
    calibrate: Callable[..., SentenceTransformer], files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # More sentences than dimensions are a rotation's due: the encoder has 8.
    model = calibrate("--steps", "shift", "scale", "rotate", "--rotation-start", "identity")
    printed = capsys.readouterr().out
    text = (files / "out" / "README.md").read_text(encoding="utf-8")
    card = ModelCard(text).data
    assert card.language == ["en", "fr"] and {"st-xlret", "calibration", "rotate"} <= {*card.tags}
    assert "## Calibration" in text and 'task="fr"' in text and "wu2022ccp" in text
    assert "| documents.jsonl | not stated | texts |" in re.sub(" +", " ", text)
    assert re.search(r"before .*\n\+ shift .*\n\+ scale .*\n\+ rotate ", printed)
    assert "shift scale rotate (saved)" in printed
    for language in WORDS:
        found = model.encode(sentences(language), task=language)
        np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-5)
    raw = SentenceTransformer(str(files / "encoder"), device="cpu").encode(sentences("en"))
    np.testing.assert_allclose(
        model.encode_query(sentences("en")), (raw - raw.mean(axis=0)) / raw.std(axis=0), atol=1e-4
    )


def test_pairs_are_used(calibrate: Callable[..., SentenceTransformer], files: Path) -> None:
    model = calibrate("--pairs", str(files / "pairs.jsonl"), "--steps", "shift", "rotate")
    english, french = (model.encode(sentences(language), task=language) for language in WORDS)
    before = SentenceTransformer(str(files / "encoder"), device="cpu")
    raw_english, raw_french = (before.encode(sentences(language)) for language in WORDS)
    assert np.linalg.norm(english - french) < 0.8 * np.linalg.norm(
        raw_english - raw_english.mean(axis=0) - raw_french + raw_french.mean(axis=0)
    )


def test_pairs_of_a_test_set_are_left_out(calibrate: Callable[..., SentenceTransformer], files: Path) -> None:
    (files / "test.eng").write_text("\n".join(text.upper() + "!" for text in sentences("en")[5:]))
    few = files / "few.jsonl"
    few.write_text("\n".join((files / "pairs.jsonl").read_text().splitlines()[:5]))
    options = ["--steps", "shift", "rotate", "--rotation-prior", "1", "--overwrite"]
    left = calibrate("--pairs", str(files / "pairs.jsonl"), "--exclude", str(files / "test.eng"), *options)
    expected = calibrate("--pairs", str(few), *options)
    np.testing.assert_array_equal(left.encode(["chat"], task="fr"), expected.encode(["chat"], task="fr"))


def test_a_model_is_not_overwritten_unless_asked(calibrate: Callable[..., SentenceTransformer], files: Path) -> None:
    calibrate("--steps", "lsar")
    before = (files / "out" / "modules.json").read_bytes()
    with pytest.raises(FileExistsError, match="--overwrite"):
        calibrate("--steps", "shift")
    assert (files / "out" / "modules.json").read_bytes() == before
    model = calibrate("--steps", "shift", "--overwrite")
    assert "Router" in type(list(model.children())[-1]).__name__


def test_a_push_is_shown_before_it_is_made(
    calibrate: Callable[..., SentenceTransformer], files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about = ["--license", "mit", "--base-model", "me/encoder"]
    calibrate(*about, "--push-to-hub", "me/calibrated", "--push-dry-run")
    printed = capsys.readouterr().out
    assert re.search(r"[\d,]+  model.safetensors\n", printed) and "files for me/calibrated" in printed
    assert "license: mit\n" in printed and "base_model: me/encoder\n" in printed and "does not state" not in printed
    assert 'SentenceTransformer("me/calibrated")' in printed
    with pytest.raises(ValueError, match="'MIT License'"):
        calibrate("--license", "MIT License")


def test_bad_input_is_named_and_nothing_is_written(calibrate: Callable[..., SentenceTransformer], files: Path) -> None:
    with pytest.raises(SystemExit):
        calibrate("--steps", "twist")
    with pytest.raises(ValueError, match="1000 .*'en' has 72, 'fr' has 72.*--min_texts"):
        calibrate("--steps", "shift", "--min_texts", "1000")
    with pytest.raises(ValueError, match="not a repository"):
        calibrate("--steps", "shift", "--push-to-hub", "no/such/thing")
    assert not (files / "out").exists() or not any((files / "out").iterdir())


def test_by_default_the_result_needs_no_language(
    calibrate: Callable[..., SentenceTransformer], files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = calibrate()
    printed = capsys.readouterr().out
    assert "lsar (saved)" in printed and "encode_query" in printed
    assert "does not state --base_model and --license" in printed
    raw = SentenceTransformer(str(files / "encoder"), device="cpu")
    means = [raw.encode(sorted(sentences(code))).mean(axis=0) for code in WORDS]
    direction = (means[0] - means[1]) / np.linalg.norm(means[0] - means[1])
    for encode in (model.encode, model.encode_query, model.encode_document):
        both = encode([*sentences("en"), *sentences("fr")])
        np.testing.assert_allclose(both @ direction, 0, atol=1e-5)
    # A quarter of the common mean stays.
    kept = np.mean([model.encode(sentences(code)).mean(axis=0) for code in WORDS], axis=0)
    common = np.mean(means, axis=0)
    np.testing.assert_allclose(kept, 0.25 * (common - (common @ direction) * direction), atol=1e-5)
    report = json.loads((files / "out" / "language_bias.json").read_text())
    assert set(report) == {"before", "after"} and set(report["after"]["languages"]) == {"en", "fr"}


def test_a_corpus_in_beirs_layout(calibrate: Callable[..., SentenceTransformer], files: Path) -> None:
    folder = files / "beir"
    folder.mkdir()
    records = [
        {"_id": f"{code}{i}", "title": "", "text": text, "metadata": {"language": code}}
        for code in WORDS
        for i, text in enumerate(sentences(code))
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    from_corpus = calibrate("--corpus", str(folder)).encode(["chat chien"])
    from_documents = calibrate("--overwrite").encode(["chat chien"])
    np.testing.assert_allclose(from_corpus, from_documents, atol=1e-5)
    del records[7]["metadata"]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(ValueError, match=r"corpus.jsonl, line 8.*'en7' names no language"):
        calibrate("--corpus", str(folder), "--overwrite")
    # The languages to tell apart being named, it is identified.
    calibrate("--corpus", str(folder), "--overwrite", "--languages", "en", "fr")


@pytest.mark.parametrize(
    "options, named",
    [
        (["--languages", "en"], "one language"),
        (["--document_prompt", "passage"], "--document_prompt passage.*no prompt of that name"),
        (["--by_role"], "--by_role"),
        (["--by_role", "--steps", "shift", "rotate"], "--by_role.*rotate"),
        (["--languages", "en", "de"], "no text is in de"),
        (["--steps", "lsar", "--pairs", "p.jsonl"], "--pairs"),
        (["--steps", "rotate", "--pivot", "de"], "--pivot de"),
        (["--texts_per_language", "-5"], "--texts_per_language .* -5"),
        (["--corpus", "x", "--documents", "y"], "either --corpus"),
    ],
)
def test_what_cannot_work_is_named(
    calibrate: Callable[..., SentenceTransformer], files: Path, options: list[str], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        calibrate(*options)
    assert not (files / "out").exists() or not any((files / "out").iterdir())


def test_the_call_that_is_shown_names_a_language_and_the_prompts(files: Path) -> None:
    model = SentenceTransformer(str(files / "encoder"), device="cpu")
    assert calls(model, None) == ["queries = model.encode_query(texts)", "documents = model.encode_document(texts)"]
    assert all('task="fr")' in line for line in calls(model, "fr"))
    model.prompts = {"query": "query: ", "passage": "passage: "}
    queries, documents = calls(model, "fr")
    assert 'prompt_name="query"' in queries and 'prompt_name="passage"' in documents
