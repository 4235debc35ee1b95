"""`calibrate` in one call, and the texts that it draws."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router
from sentence_transformers.sentence_transformer.modules import BoW

import st_xlret
from st_xlret.calibration import Comparison, embed_pairs, embed_texts, fit_calibration, sample_questions, sample_texts
from st_xlret.calibration.bias import AS_IT_IS
from st_xlret.calibration.model import weak_phrases
from st_xlret.data import DataError
from tests.commands import bias_files

TEXTS = {code: bias_files.sentences(code) for code in bias_files.WORDS}
QUIET = {"show_progress_bar": False, "precision": "fp32"}


@pytest.fixture(scope="module")
def model() -> SentenceTransformer:
    torch.manual_seed(0)
    return bias_files.encoder()


def apart(model: SentenceTransformer, role: str) -> float:
    """How far the means of the languages are apart."""
    encode = {"query": model.encode_query, "document": model.encode_document}[role]
    means = np.stack([encode(texts).mean(axis=0) for texts in TEXTS.values()])
    return float(np.abs(means - means.mean(axis=0)).max())


def test_one_call_gives_a_model_that_needs_no_language(model: SentenceTransformer) -> None:
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    calibrated = st_xlret.calibrate(model, TEXTS, phrases=False, **QUIET)
    assert isinstance(list(calibrated.children())[-1], Dense)
    assert apart(calibrated, "document") < 1e-5 < apart(model, "document")
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    fitted = fit_calibration({code: model.encode_document(texts) for code, texts in TEXTS.items()})
    expected = fitted.transform(model.encode_document(["cat"]))
    torch.testing.assert_close(torch.from_numpy(calibrated.encode_document(["cat"])), expected, atol=1e-5, rtol=1e-5)


def test_queries_get_maps_of_their_own(model: SentenceTransformer) -> None:
    calibrated = st_xlret.calibrate(model, TEXTS, queries=TEXTS, **QUIET)
    assert isinstance(list(calibrated.children())[-1], Router)
    assert max(apart(calibrated, "query"), apart(calibrated, "document")) < 1e-5


def test_queries_only_leaves_documents_as_they_are(model: SentenceTransformer, tmp_path: Path) -> None:
    reports: list[Comparison] = []
    calibrated = st_xlret.calibrate(model, TEXTS, queries_only=True, phrases=False, report=reports.append, **QUIET)
    calibrated.save(str(tmp_path / "model"))
    loaded = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    for texts in TEXTS.values():
        np.testing.assert_allclose(loaded.encode_document(texts), model.encode_document(texts), atol=1e-6)
    half = fit_calibration({code: model.encode_document(texts) for code, texts in TEXTS.items()}, keep_mean=0.4)
    expected = half.transform(model.encode_query(["cat"]))
    torch.testing.assert_close(torch.from_numpy(loaded.encode_query(["cat"])), expected, atol=1e-5, rtol=1e-5)
    (comparison,) = reports
    assert comparison.chosen == "lsar, queries only" and comparison.after.queries_only


def test_phrases_of_weak_languages_and_a_few_questions_join_the_fit_by_default(model: SentenceTransformer) -> None:
    phrases = [text for part in weak_phrases().values() for text in part]
    assert len(phrases) == 105 and all(text.endswith("?") for text in phrases)
    reports: list[Comparison] = []
    questions = {"sw": [f"paka {word}?" for word in ("a", "b", "c", "d", "e")], "xh": ["inja?"]}
    calibrated = st_xlret.calibrate(model, TEXTS, queries=questions, queries_only=True, report=reports.append, **QUIET)
    means = [calibrated.encode_query(texts).mean(axis=0) for texts in (phrases, questions["sw"])]
    np.testing.assert_allclose(*means, atol=1e-5)
    chosen = "lsar, with phrases and questions, queries only"
    assert reports[0].chosen == chosen
    assert [*reports[0].reached] == [AS_IT_IS, "without phrases and questions", chosen]
    assert f"{reports[0].reached[chosen]} {chosen}" in str(reports[0])


def test_prompts_are_used_and_kept_and_the_card_has_the_bias(model: SentenceTransformer) -> None:
    model = bias_files.encoder()
    model.prompts = {"query": "ask ", "document": "", "passage": "tell "}
    reports: list[Comparison] = []
    calibrated = st_xlret.calibrate(model, TEXTS, report=reports.append, **QUIET)
    assert (calibrated.prompts["query"], calibrated.prompts["document"]) == ("ask ", "tell ")
    assert apart(calibrated, "document") < 1e-5
    shares = [100 * each.search.same_language_share for each in (reports[0].before, reports[0].after)]
    assert f"{shares[0]:.1f} % before, {shares[1]:.1f} % after" in calibrated.model_card_data.sections["Calibration"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": "auto", "steps": ["rotate"]}, "'auto'"),
        ({"languages": ["en"]}, "two languages"),
        ({"document_prompt": "passage"}, "'passage'"),
        ({"min_texts": 1000}, "1000.*'en': 72"),
    ],
)
def test_what_cannot_work_is_named(model: SentenceTransformer, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        st_xlret.calibrate(model, TEXTS, **options, **QUIET)


def with_modules(model: SentenceTransformer, *modules: torch.nn.Module) -> SentenceTransformer:
    return SentenceTransformer(modules=[*model.children(), *modules], prompts=dict(model.prompts), device="cpu")  # type: ignore[arg-type]


def test_models_that_end_with_other_modules(model: SentenceTransformer) -> None:
    assert apart(st_xlret.calibrate(with_modules(model, Dense(8, 6)), TEXTS, **QUIET), "document") < 1e-5
    scaled = st_xlret.calibrate(with_modules(model, Normalize()), TEXTS, **QUIET).encode_query(TEXTS["fr"])
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), 1, atol=1e-5)
    routed = with_modules(model, Router({"query": [Dense(8, 8)], "document": [Dense(8, 8)]}, default_route="document"))
    with pytest.raises(ValueError, match="lsar"):
        st_xlret.calibrate(routed, TEXTS, steps=["shift"], **QUIET)
    calibrated = st_xlret.calibrate(routed, TEXTS, queries=TEXTS, **QUIET)
    assert max(apart(calibrated, "query"), apart(calibrated, "document")) < 1e-5


def test_texts_and_pairs_are_embedded_by_language_at_full_width() -> None:
    model = SentenceTransformer(modules=[BoW(vocab=["cat", "dog", "chat", "chien", "hund"])], device="cpu")
    model.truncate_dim = 2
    rows = embed_texts(model, {"fr": ["chat", "chien"], "en": ["cat", "dog"]}, role="query", prompt="hund ")
    assert list(rows) == ["fr", "en"] and model.truncate_dim == 2
    assert rows["fr"].tolist() == [[0, 0, 1, 0, 1], [0, 0, 0, 1, 1]]
    sides = ("source", "target", "source_language", "target_language")
    pairs = datasets.Dataset.from_list(
        [
            dict(zip(sides, pair, strict=True))
            for pair in (
                ("chat", "cat", "fr", "en"),
                ("dog", "chien", "en", "fr"),
                ("dog", "hund", "en", "de"),
                ("chien", "hund", "fr", "de"),
            )
        ]
    )
    own, other = embed_pairs(model, pairs, pivot="en", languages=["fr"])["fr"]
    assert own.argmax(dim=1).tolist() == [2, 3] and other.argmax(dim=1).tolist() == [0, 1]
    assert sorted(embed_pairs(model, pairs, pivot="en")) == ["de", "fr"]
    with pytest.raises(ValueError, match="'en'.*sw"):
        embed_pairs(model, pairs, pivot="en", languages=["sw"])


def test_a_draw_is_distinct_seeded_and_the_beginning_of_a_larger_one(tmp_path: Path) -> None:
    texts = {code: [f"{code} {i % 30}" for i in range(40)] for code in ("en", "fr")}
    drawn = sample_texts(texts, texts_per_language=20, seed=3)
    assert all(len(set(sample.texts)) == 20 for sample in drawn.values())
    assert sample_texts(texts, texts_per_language=20, seed=4)["fr"].texts != drawn["fr"].texts
    assert sample_texts(texts, texts_per_language=5, seed=3)["fr"].texts == drawn["fr"].texts[:5]
    rows = [{"text": text, "language": code} for code, part in texts.items() for text in part]
    of_rows = sample_texts(datasets.Dataset.from_list(rows), texts_per_language=20, seed=3)
    assert of_rows["fr"].texts == drawn["fr"].texts == sample_texts(drawn)["fr"].texts
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert {*sample_texts(tmp_path / "texts.jsonl", unit="text")["fr"].texts} == {*texts["fr"]}


def test_every_document_gives_a_text_before_one_gives_two() -> None:
    rows = [
        {"text": f"{code} {i}", "language": code, "document": min(i, 4)} for code in ("en", "fr") for i in range(40)
    ]
    drawn = sample_texts(datasets.Dataset.from_list(rows), texts_per_language=5)
    assert all(len(set(sample.documents.tolist())) == 5 for sample in drawn.values())


def test_bad_lines_are_named_or_skipped(tmp_path: Path) -> None:
    good = [json.dumps({"_id": code, "text": code, "metadata": {"language": code}}) for code in ("en", "fr")]
    (tmp_path / "corpus.jsonl").write_text("\n".join([good[0], "{", good[1]]))
    (tmp_path / "queries.jsonl").write_text("")
    with pytest.raises(DataError, match="corpus.jsonl, line 2"):
        sample_texts(tmp_path)
    assert sample_texts(tmp_path, skip_bad_lines=True)["fr"].texts == ["fr"]


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ({"en": ["a", "b"], "fr": ["c"]}, {"min_texts": 2}, "2 distinct.*'fr': 1"),
        ({"en": ["a"], "fr": ["c"]}, {"languages": ["en", "de"]}, "'de': 0"),
        ({"english": ["a"], "fr": ["c"]}, {}, "'english'"),
        ("nowhere", {}, "nowhere"),
    ],
)
def test_texts_that_cannot_be_used_are_named(texts: object, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sample_texts(texts, **options)


def test_questions_are_read_from_everywhere_and_in_the_languages_of_the_documents(tmp_path: Path) -> None:
    questions = {"en": ["a?", "b?", "b?"], "fr": ["c?", "d?"], "de": ["e?"], "ja": ["f?", "g?"]}
    expected = {"en": ["a?", "b?"], "fr": ["c?", "d?"]}
    rows = [{"_id": text, "text": text, "language": code} for code, part in questions.items() for text in part]
    for name, field in (("beir/queries.jsonl", "text"), ("questions.jsonl", "question"), ("others.jsonl", "query")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        lines = [json.dumps({"_id": row["_id"], field: row["text"], "language": row["language"]}) for row in rows]
        (tmp_path / name).write_text("\n".join(lines))
    for code, part in questions.items():
        (tmp_path / f"questions.{code}.txt").write_text("\n".join(part))
    for source in (
        questions,
        datasets.Dataset.from_list(rows),
        str(tmp_path / "beir"),
        tmp_path / "questions.jsonl",
        [tmp_path / "others.jsonl"],
        [tmp_path / f"questions.{code}.txt" for code in questions],
    ):
        drawn = sample_questions(source, ["en", "fr", "de"], min_texts=2)
        assert {code: sorted(texts) for code, texts in drawn.items()} == expected
    with pytest.raises(DataError, match="3 distinct.*'de': 1, 'en': 2, 'fr': 2"):
        sample_questions(questions, ["en", "fr", "de"], min_texts=3)
    with pytest.raises(DataError, match="'sw'|{}"):
        sample_questions(questions, ["sw"])


def test_questions_without_a_language_are_identified_one_by_one(tmp_path: Path) -> None:
    pytest.importorskip("py3langid")
    lines = ["Where does the train to the old town leave", "D'où part le train pour la vieille ville"]
    (tmp_path / "questions.txt").write_text("\n".join(f"{line}, {i}" for line in lines for i in range(6)))
    drawn = sample_questions(tmp_path / "questions.txt", ["en", "fr"])
    assert {code: len(texts) for code, texts in drawn.items()} == {"en": 6, "fr": 6}
