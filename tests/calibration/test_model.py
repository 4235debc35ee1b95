"""`calibrate` in one call, and how it embeds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router
from sentence_transformers.sentence_transformer.modules import BoW

import st_xlret
from st_xlret.calibration import Comparison, VectorCalibration, embed_by_language, embed_pairs
from st_xlret.calibration.embedding import RoleEncoder
from st_xlret.calibration.panels import weak_language_phrases
from st_xlret.data import DataError
from st_xlret.hub.lengths import pooled_rows
from tests.commands import bias_files

TEXTS = {code: bias_files.sentences(code) for code in bias_files.WORDS}


@pytest.fixture(scope="module")
def model() -> SentenceTransformer:
    torch.manual_seed(0)
    return bias_files.encoder()


def calibrate(model: SentenceTransformer, **how: Any) -> tuple[SentenceTransformer, Comparison]:
    """The whole calibration, whose maps the tests compute too, unless a strength is given."""
    reports: list[Comparison] = []
    how.setdefault("strength", 1.0)
    calibrated = st_xlret.calibrate(
        model,
        TEXTS,
        show_progress_bar=False,
        precision="fp32",
        report=reports.append,
        **how,
    )
    return calibrated, reports[0]


def apart(model: SentenceTransformer, role: str = "document") -> float:
    """How far the means of the languages are apart."""
    encode = model.encode_query if role == "query" else model.encode_document
    means = np.stack([encode(texts).mean(axis=0) for texts in TEXTS.values()])
    return float(np.abs(means - means.mean(axis=0)).max())


@pytest.mark.parametrize(
    ("queries_only", "keep_mean", "last_module"), [(False, 0.05, Dense), (True, 0.4, Router)]
)
def test_one_call_gives_a_model_that_needs_no_language(
    queries_only: bool,
    keep_mean: float,
    last_module: type,
    model: SentenceTransformer,
    tmp_path: Path,
) -> None:
    calibrated, comparison = calibrate(model, queries_only=queries_only, phrases=False)
    assert isinstance(list(calibrated.children())[-1], last_module)
    assert comparison.queries_only == queries_only
    calibrated.save(str(tmp_path / "model"))
    loaded = SentenceTransformer(str(tmp_path / "model"), device="cpu")

    rows = {code: model.encode_document(texts) for code, texts in TEXTS.items()}
    layer = VectorCalibration.fit(rows, keep_mean=keep_mean, normalize=False).layer()
    for code, texts in TEXTS.items():
        expected_queries = layer.transform(model.encode_query(texts))
        expected_documents = rows[code]
        if not queries_only:
            expected_documents = layer.transform(rows[code])
        np.testing.assert_allclose(loaded.encode_query(texts), expected_queries, atol=1e-5)
        np.testing.assert_allclose(loaded.encode_document(texts), expected_documents, atol=1e-5)


def test_the_model_that_is_given_is_not_changed(model: SentenceTransformer) -> None:
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    calibrate(model)
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)


def test_phrases_of_weak_languages_are_questions() -> None:
    phrases = [text for part in weak_language_phrases().values() for text in part]
    assert len(phrases) == 105
    assert [text for text in phrases if not text.endswith("?")] == []


def test_phrases_of_weak_languages_and_a_few_questions_join_the_fit_by_default(
    model: SentenceTransformer,
) -> None:
    phrases = [text for part in weak_language_phrases().values() for text in part]
    swahili = [f"paka {word}?" for word in ("a", "b", "c", "d", "e")]
    questions = {"sw": swahili, "xh": ["inja?"]}
    calibrated, comparison = calibrate(model, queries=questions, queries_only=True)
    mean_of_phrases = calibrated.encode_query(phrases).mean(axis=0)
    mean_of_questions = calibrated.encode_query(swahili).mean(axis=0)
    np.testing.assert_allclose(mean_of_phrases, mean_of_questions, atol=1e-5)

    assert comparison.reached is not None
    before, after = comparison.reached
    assert f"reach {after} different texts, {before} before: more is better" in str(comparison)


@pytest.mark.parametrize("queries_only", [True, False])
def test_by_default_the_strength_has_the_highest_score_and_no_text_is_embedded_for_it(
    queries_only: bool, model: SentenceTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    encode = SentenceTransformer.encode

    def count_and_encode(self: SentenceTransformer, texts: list[str], **options: Any) -> Any:
        counts[-1] += len(texts)
        return encode(self, texts, **options)

    monkeypatch.setattr(SentenceTransformer, "encode", count_and_encode)
    strengths = []
    for strength in ("auto", 1.0):
        counts.append(0)
        _, comparison = calibrate(model, queries_only=queries_only, strength=strength)
        strengths.append(comparison.strength)
    assert strengths == [comparison.best, 1.0]
    assert strengths[0] < 1
    assert counts[0] == counts[1]


def test_prompts_are_used_and_kept_and_the_card_has_the_bias() -> None:
    model = bias_files.encoder()
    model.prompts = {"query": "ask ", "document": "", "passage": "tell "}
    calibrated, comparison = calibrate(model)
    assert calibrated.prompts["query"] == "ask "
    assert calibrated.prompts["document"] == "tell "
    assert apart(calibrated) < 1e-5
    before = 100 * comparison.before.search.same_language_share
    after = 100 * comparison.after.search.same_language_share
    card = calibrated.model_card_data.sections["Calibration"]
    assert f"{before:.1f} % before, {after:.1f} % after" in card


def with_modules(model: SentenceTransformer, *modules: torch.nn.Module) -> SentenceTransformer:
    every: Any = [*model.children(), *modules]
    return SentenceTransformer(modules=every, prompts=dict(model.prompts), device="cpu")


def test_a_model_that_ends_in_another_width(model: SentenceTransformer) -> None:
    calibrated, _ = calibrate(with_modules(model, Dense(8, 6)))
    assert apart(calibrated) < 1e-5


def test_a_model_that_ends_in_unit_length(model: SentenceTransformer) -> None:
    calibrated, _ = calibrate(with_modules(model, Normalize()))
    lengths = np.linalg.norm(calibrated.encode_query(TEXTS["fr"]), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=1e-5)


def test_a_model_with_routes_of_roles_takes_one_map_alone(model: SentenceTransformer) -> None:
    router = Router({"query": [Dense(8, 8)], "document": [Dense(8, 8)]}, default_route="document")
    routed = with_modules(model, router)
    with pytest.raises(ValueError, match="lsar"):
        calibrate(routed, steps=["shift"])
    calibrated, _ = calibrate(routed, queries=TEXTS)
    assert apart(calibrated, "query") < 1e-5
    assert apart(calibrated, "document") < 1e-5


def test_documents_in_one_language_get_a_map_of_queries(model: SentenceTransformer) -> None:
    reports: list[Comparison] = []

    calibrated = st_xlret.calibrate(
        model,
        {"en": TEXTS["en"]},
        queries_only=True,
        precision="fp32",
        report=reports.append,
        show_progress_bar=False,
    )

    assert reports == []  # such documents cannot show what questions gain
    expected = bias_files.map_of_english(model, normalize=False)
    queries = expected.transform(model.encode_query(TEXTS["fr"]))
    np.testing.assert_allclose(calibrated.encode_query(TEXTS["fr"]), queries, atol=1e-5)
    documents = model.encode_document(TEXTS["en"])
    np.testing.assert_allclose(calibrated.encode_document(TEXTS["en"]), documents, atol=1e-6)


def test_both_sides_of_documents_in_one_language_have_nothing_to_remove(
    model: SentenceTransformer,
) -> None:
    with pytest.raises(DataError, match="2 languages"):
        st_xlret.calibrate(model, {"en": TEXTS["en"]})


def test_no_text_is_embedded_twice(
    model: SentenceTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[str] = []
    encode = SentenceTransformer.encode

    def count_and_encode(self: SentenceTransformer, texts: list[str], **options: Any) -> Any:
        embedded.extend(texts)
        return encode(self, texts, **options)

    monkeypatch.setattr(SentenceTransformer, "encode", count_and_encode)
    calibrate(with_modules(model, Normalize()))
    count = sum(len(texts) for texts in TEXTS.values())
    assert len(embedded) == 2 * count + 105  # as documents, as queries, and the phrases


def test_the_pooled_rows_and_the_vectors_are_those_of_the_model(model: SentenceTransformer) -> None:
    normalizing = with_modules(model, Normalize())
    prompts: dict[Any, str] = {"query": "ask ", "document": "tell "}
    encoder = RoleEncoder(normalizing, prompts, precision="fp32", show_progress_bar=False)
    vectors = encoder.embed_sample_and_pooled(TEXTS)
    assert vectors.pooled is not None
    assert vectors.as_queries is not None
    every_text = [text for texts in TEXTS.values() for text in texts]
    torch.testing.assert_close(vectors.pooled, pooled_rows(normalizing, every_text))
    for code, texts in TEXTS.items():
        as_documents = torch.from_numpy(normalizing.encode_document(texts))
        as_queries = torch.from_numpy(normalizing.encode_query(texts))
        torch.testing.assert_close(vectors.documents[code], as_documents)
        torch.testing.assert_close(vectors.as_queries[code], as_queries)


def bag_of_words() -> SentenceTransformer:
    vocabulary = ["cat", "dog", "chat", "chien", "hund"]
    return SentenceTransformer(modules=[BoW(vocab=vocabulary)], device="cpu")


def test_texts_are_embedded_by_language_at_full_width() -> None:
    model = bag_of_words()
    model.truncate_dim = 2
    texts = {"fr": ["chat", "chien"], "en": ["cat", "dog"]}
    rows = embed_by_language(model, texts, role="query", prompt="hund ")
    assert list(rows) == ["fr", "en"]
    assert model.truncate_dim == 2
    assert rows["fr"].tolist() == [[0, 0, 1, 0, 1], [0, 0, 0, 1, 1]]


PAIRS = [
    ("chat", "cat", "fr", "en"),
    ("dog", "chien", "en", "fr"),
    ("dog", "hund", "en", "de"),
    ("chien", "hund", "fr", "de"),
    ("cat", "dog", "en", "en"),
]


def test_pairs_with_the_pivot_are_embedded_row_by_row() -> None:
    model = bag_of_words()
    columns = zip(*PAIRS, strict=True)
    names = ("source", "target", "source_language", "target_language")
    parallel = Dataset.from_dict(dict(zip(names, columns, strict=True)))
    french, english = embed_pairs(model, parallel, pivot="en", languages=["fr"])["fr"]
    assert french.argmax(dim=1).tolist() == [2, 3]
    assert english.argmax(dim=1).tolist() == [0, 1]
    assert sorted(embed_pairs(model, parallel, pivot="en")) == ["de", "fr"]
    with pytest.raises(ValueError, match="'en'.*sw"):
        embed_pairs(model, parallel, pivot="en", languages=["sw"])
