"""`calibrate` in one call, and the texts that it draws."""

import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router
from sentence_transformers.sentence_transformer.modules import BoW

import st_xlret
from st_xlret.calibration import (
    Comparison,
    embed_pairs,
    fit_calibration,
    sample_questions,
    sample_texts,
)
from st_xlret.calibration.bias import AS_IT_IS
from st_xlret.calibration.embedding import RoleEncoder, embed_by_language
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
    reports: list[Comparison] = []
    how |= {"show_progress_bar": False, "precision": "fp32", "report": reports.append}
    return st_xlret.calibrate(model, TEXTS, **how), reports[0]


def apart(model: SentenceTransformer, role: str = "document") -> float:
    """How far the means of the languages are apart."""
    encode = {"query": model.encode_query, "document": model.encode_document}[role]
    means = np.stack([encode(texts).mean(axis=0) for texts in TEXTS.values()])
    return float(np.abs(means - means.mean(axis=0)).max())


@pytest.mark.parametrize("queries_only", [False, True])
def test_one_call_gives_a_model_that_needs_no_language(
    queries_only: bool, model: SentenceTransformer, tmp_path: Path
) -> None:
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    calibrated, comparison = calibrate(model, queries_only=queries_only, phrases=False)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert isinstance(list(calibrated.children())[-1], Router if queries_only else Dense)
    assert comparison.after.queries_only == queries_only
    calibrated.save(str(tmp_path / "model"))
    loaded = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    rows = {code: model.encode_document(texts) for code, texts in TEXTS.items()}
    layer = fit_calibration(rows, keep_mean=0.4 if queries_only else 0.05)
    for texts, vectors in zip(TEXTS.values(), rows.values(), strict=True):
        queries, documents = (
            layer.transform(each).numpy() for each in (model.encode_query(texts), vectors)
        )
        np.testing.assert_allclose(loaded.encode_query(texts), queries, atol=1e-5)
        np.testing.assert_allclose(
            loaded.encode_document(texts), vectors if queries_only else documents, atol=1e-5
        )


def test_phrases_of_weak_languages_and_a_few_questions_join_the_fit_by_default(
    model: SentenceTransformer,
) -> None:
    phrases = [text for part in weak_language_phrases().values() for text in part]
    assert len(phrases) == 105 and all(text.endswith("?") for text in phrases)
    questions = {"sw": [f"paka {word}?" for word in ("a", "b", "c", "d", "e")], "xh": ["inja?"]}
    calibrated, comparison = calibrate(model, queries=questions, queries_only=True)
    means = [calibrated.encode_query(texts).mean(axis=0) for texts in (phrases, questions["sw"])]
    np.testing.assert_allclose(*means, atol=1e-5)
    chosen = "lsar, with phrases and questions, queries only"
    assert comparison.chosen == chosen
    assert [*comparison.reached] == [AS_IT_IS, "without phrases and questions", chosen]
    assert f"{comparison.reached[chosen]} {chosen}" in str(comparison)


def test_prompts_are_used_and_kept_and_the_card_has_the_bias() -> None:
    model = bias_files.encoder()
    model.prompts = {"query": "ask ", "document": "", "passage": "tell "}
    calibrated, comparison = calibrate(model)
    assert (calibrated.prompts["query"], calibrated.prompts["document"]) == ("ask ", "tell ")
    assert apart(calibrated) < 1e-5
    shares = [
        100 * each.search.same_language_share for each in (comparison.before, comparison.after)
    ]
    assert (
        f"{shares[0]:.1f} % before, {shares[1]:.1f} % after"
        in calibrated.model_card_data.sections["Calibration"]
    )


def with_modules(model: SentenceTransformer, *modules: torch.nn.Module) -> SentenceTransformer:
    return SentenceTransformer(
        modules=[*model.children(), *modules], prompts=dict(model.prompts), device="cpu"
    )  # type: ignore[arg-type]


def test_models_that_end_with_other_modules(model: SentenceTransformer) -> None:
    assert apart(calibrate(with_modules(model, Dense(8, 6)))[0]) < 1e-5
    scaled = calibrate(with_modules(model, Normalize()))[0].encode_query(TEXTS["fr"])
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), 1, atol=1e-5)
    routed = with_modules(
        model, Router({"query": [Dense(8, 8)], "document": [Dense(8, 8)]}, default_route="document")
    )
    with pytest.raises(ValueError, match="lsar"):
        calibrate(routed, steps=["shift"])
    calibrated, _ = calibrate(routed, queries=TEXTS)
    assert max(apart(calibrated, "query"), apart(calibrated)) < 1e-5


def test_no_text_is_embedded_twice_and_the_pooled_lengths_are_those_of_the_model(
    model: SentenceTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[tuple[str, str]] = []
    encode = SentenceTransformer.encode

    def count_and_encode(self: SentenceTransformer, texts: list[str], **options: Any) -> Any:
        for text in texts:
            embedded.append((options["prompt"], text))
        return encode(self, texts, **options)

    monkeypatch.setattr(SentenceTransformer, "encode", count_and_encode)
    normalizing = with_modules(model, Normalize())
    calibrated, _ = calibrate(normalizing)
    count = sum(len(texts) for texts in TEXTS.values())
    assert len(embedded) == 2 * count + 105  # as documents, as queries, and the phrases
    monkeypatch.undo()

    prompts: dict[Any, str] = {"query": "ask ", "document": "tell "}
    encoder = RoleEncoder(normalizing, prompts, precision="fp32", show_progress_bar=False)
    vectors = encoder.embed_sample_and_pooled(TEXTS)
    assert vectors.pooled is not None
    assert vectors.queries is not None
    few = [text for texts in TEXTS.values() for text in texts[: 500 // 3 + 1]]
    expected = pooled_rows(normalizing, few, prompts)
    torch.testing.assert_close(vectors.pooled, expected)
    for code, texts in TEXTS.items():
        as_documents = torch.from_numpy(normalizing.encode_document(texts))
        as_queries = torch.from_numpy(normalizing.encode_query(texts))
        torch.testing.assert_close(vectors.documents[code], as_documents)
        torch.testing.assert_close(vectors.queries[code], as_queries)


def test_texts_and_pairs_are_embedded_by_language_at_full_width() -> None:
    model = SentenceTransformer(
        modules=[BoW(vocab=["cat", "dog", "chat", "chien", "hund"])], device="cpu"
    )
    model.truncate_dim = 2
    rows = embed_by_language(
        model, {"fr": ["chat", "chien"], "en": ["cat", "dog"]}, role="query", prompt="hund "
    )
    assert list(rows) == ["fr", "en"] and model.truncate_dim == 2
    assert rows["fr"].tolist() == [[0, 0, 1, 0, 1], [0, 0, 0, 1, 1]]
    pairs = [("chat", "cat", "fr", "en"), ("dog", "chien", "en", "fr"), ("dog", "hund", "en", "de")]
    pairs += [("chien", "hund", "fr", "de"), ("cat", "dog", "en", "en")]
    names = ("source", "target", "source_language", "target_language")
    parallel = datasets.Dataset.from_list([dict(zip(names, pair, strict=True)) for pair in pairs])
    french, english = embed_pairs(model, parallel, pivot="en", languages=["fr"])["fr"]
    assert french.argmax(dim=1).tolist() == [2, 3] and english.argmax(dim=1).tolist() == [0, 1]
    assert sorted(embed_pairs(model, parallel, pivot="en")) == ["de", "fr"]
    with pytest.raises(ValueError, match="'en'.*sw"):
        embed_pairs(model, parallel, pivot="en", languages=["sw"])


def test_a_draw_is_distinct_seeded_and_the_beginning_of_a_larger_one(tmp_path: Path) -> None:
    texts = {code: [f"{code} {i % 30}" for i in range(40)] for code in ("en", "fr")}
    drawn = sample_texts(texts, texts_per_language=20, seed=3)
    assert all(len(set(sample.texts)) == 20 for sample in drawn.values())
    assert sample_texts(texts, texts_per_language=20, seed=4)["fr"].texts != drawn["fr"].texts
    assert sample_texts(texts, texts_per_language=5, seed=3)["fr"].texts == drawn["fr"].texts[:5]
    rows = [{"text": text, "language": code} for code, part in texts.items() for text in part]
    of_rows = sample_texts(datasets.Dataset.from_list(rows), texts_per_language=20, seed=3)
    assert of_rows["fr"].texts == drawn["fr"].texts == sample_texts(drawn)["fr"].texts
    (tmp_path / "queries.jsonl").write_text("")
    (tmp_path / "corpus.jsonl").write_text(
        "\n".join([*(json.dumps({"_id": row["text"], **row}) for row in rows), "{"])
    )
    for source, how in ((tmp_path, {}), (tmp_path / "corpus.jsonl", {"unit": "text"})):
        assert {*sample_texts(source, skip_bad_lines=True, **how)["fr"].texts} == {*texts["fr"]}
    # Every document gives a text before one gives two.
    rows = [row | {"document": min(i % 40, 4), "text": f"{i}"} for i, row in enumerate(rows)]
    of_documents = sample_texts(datasets.Dataset.from_list(rows), texts_per_language=5)
    assert all(len(set(sample.documents.tolist())) == 5 for sample in of_documents.values())


def test_texts_that_cannot_be_drawn_are_named(tmp_path: Path) -> None:
    for name in ("queries.jsonl", "corpus.jsonl"):
        (tmp_path / name).write_text("{")
    texts = {"en": [f"{i}" for i in range(40)], "fr": [f"{i % 30}" for i in range(40)]}
    for source, how, wrong in (
        (tmp_path, {}, "corpus.jsonl, line 1"),
        (texts, {"languages": ["en", "de"]}, "'de': 0"),
        (texts, {"min_texts": 31}, "31 distinct.*'fr': 30"),
        ({"english": ["a"], "fr": ["c"]}, {}, "'english'"),
    ):
        with pytest.raises(ValueError, match=wrong):
            sample_texts(source, **how)


def test_questions_are_read_from_everywhere_and_in_the_languages_of_the_documents(
    tmp_path: Path,
) -> None:
    questions = {"en": ["a?", "b?", "b?"], "fr": ["c?", "d?"], "de": ["e?"], "ja": ["f?", "g?"]}
    rows = [
        {"_id": text, "text": text, "language": code}
        for code, part in questions.items()
        for text in part
    ]
    (tmp_path / "beir").mkdir()
    for name, field in (
        ("beir/queries.jsonl", "text"),
        ("questions.jsonl", "question"),
        ("others.jsonl", "query"),
    ):
        lines = [
            json.dumps({"_id": row["_id"], field: row["text"], "language": row["language"]})
            for row in rows
        ]
        (tmp_path / name).write_text("\n".join(lines))
    for code, part in questions.items():
        (tmp_path / f"questions.{code}.txt").write_text("\n".join(part))
    files = [tmp_path / f"questions.{code}.txt" for code in questions]
    paths = (str(tmp_path / "beir"), tmp_path / "questions.jsonl", [tmp_path / "others.jsonl"])
    for source in (questions, datasets.Dataset.from_list(rows), *paths, files, iter(files)):
        drawn = sample_questions(source, ["en", "fr", "de"], min_texts=2)
        assert {code: sorted(texts) for code, texts in drawn.items()} == {
            "en": ["a?", "b?"],
            "fr": ["c?", "d?"],
        }
    with pytest.raises(DataError, match="3 distinct.*'de': 1, 'en': 2, 'fr': 2"):
        sample_questions(questions, ["en", "fr", "de"], min_texts=3)
    for source, wrong in ((questions, "{}"), ("", "no name")):
        with pytest.raises(DataError, match=wrong):
            sample_questions(source, ["sw"])


def test_questions_without_a_language_are_identified_one_by_one(tmp_path: Path) -> None:
    pytest.importorskip("py3langid")
    lines = [
        "Where does the train to the old town leave",
        "D'où part le train pour la vieille ville",
    ]
    (tmp_path / "questions.txt").write_text(
        "\n".join(f"{line}, {i}" for line in lines for i in range(6))
    )
    drawn = sample_questions(tmp_path / "questions.txt", ["en", "fr"])
    assert {code: len(texts) for code, texts in drawn.items()} == {"en": 6, "fr": 6}


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
    np.testing.assert_allclose(
        calibrated.encode_document(TEXTS["en"]), model.encode_document(TEXTS["en"]), atol=1e-6
    )


def test_both_sides_of_documents_in_one_language_have_nothing_to_remove(
    model: SentenceTransformer,
) -> None:
    with pytest.raises(DataError, match="2 languages"):
        st_xlret.calibrate(model, {"en": TEXTS["en"]})


def test_a_language_with_few_texts_is_left_out_and_named(caplog: Any) -> None:
    texts = {"en": list("abc"), "fr": list("def"), "sw": ["g"]}
    assert list(sample_texts(texts, min_texts=2)) == ["en", "fr"]
    assert "'sw': 1" in caplog.text
    with pytest.raises(DataError, match="'sw': 1"):
        sample_texts({"en": list("abc"), "sw": ["g"]}, min_texts=2)
    with pytest.raises(DataError, match="'de': 0"):
        sample_texts(texts, languages=["en", "fr", "de"])
