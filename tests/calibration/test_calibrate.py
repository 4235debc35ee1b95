"""`calibrate` in one call, and what it says of its choice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router

import st_xlret
from st_xlret.calibration import (
    CalibrationOptions,
    Comparison,
    RoleCalibrations,
    compare_calibrations,
    fit_calibration,
    fit_role_calibrations,
)
from st_xlret.calibration.comparison import translate_scores, within_a_language
from tests.commands import bias_files

TEXTS = {code: bias_files.sentences(code) for code in bias_files.WORDS}
QUIET = {"show_progress_bar": False, "precision": "fp32"}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return bias_files.encoder()


def apart(model, role: str) -> float:
    """How far the means of the languages are apart."""
    encode = {"query": model.encode_query, "document": model.encode_document}[role]
    means = np.stack([encode(texts).mean(axis=0) for texts in TEXTS.values()])
    return float(np.abs(means - means.mean(axis=0)).max())


def test_one_call_gives_a_model_that_needs_no_language(model) -> None:
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    calibrated = st_xlret.calibrate(model, TEXTS, **QUIET)
    assert isinstance(list(calibrated.children())[-1], Dense)
    assert apart(calibrated, "document") < 1e-5 < apart(model, "document")
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    fitted = fit_calibration({code: torch.from_numpy(model.encode_document(texts)) for code, texts in TEXTS.items()})
    expected = fitted.transform(model.encode_document(["cat"]))
    torch.testing.assert_close(torch.from_numpy(calibrated.encode_document(["cat"])), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", [{"by_role": True}, {"queries": TEXTS}])
def test_queries_get_maps_of_their_own(model, options) -> None:
    calibrated = st_xlret.calibrate(model, TEXTS, **options, **QUIET)
    assert isinstance(list(calibrated.children())[-1], Router)
    assert max(apart(calibrated, "query"), apart(calibrated, "document")) < 1e-5


def test_queries_only_leaves_documents_as_they_are(model, tmp_path) -> None:
    found: list[Comparison] = []
    calibrated = st_xlret.calibrate(model, TEXTS, queries_only=True, report=found.append, **QUIET)
    calibrated.save(str(tmp_path / "model"))
    loaded = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    for texts in TEXTS.values():
        np.testing.assert_allclose(loaded.encode_document(texts), model.encode_document(texts), atol=1e-6)
    documents = {code: torch.from_numpy(model.encode_document(texts)) for code, texts in TEXTS.items()}
    half = fit_calibration(documents, options=CalibrationOptions(keep_mean=0.5))
    expected = half.transform(model.encode_query(["cat"]))
    torch.testing.assert_close(torch.from_numpy(loaded.encode_query(["cat"])), expected, atol=1e-5, rtol=1e-5)
    (comparison,) = found
    assert comparison.chosen == "lsar, queries only" and comparison.rows[comparison.chosen].queries_only
    recommended = comparison.rows[comparison.recommended]
    assert recommended.queries_only or comparison.recommended == "as it is"
    # What is kept within a language is what a mapped query finds among documents as they are.
    assert 0 < comparison.rows["lsar, queries only"].kept < 1


@pytest.mark.parametrize("steps", [["lsar"], ["shift"]])
def test_a_projected_query_ranks_documents_like_projected_ones(steps) -> None:
    clouds = {code: torch.randn(60, 6) + 2 * torch.randn(6) for code in ("en", "fr", "de")}
    whole = CalibrationOptions(keep_mean=1.0)
    document, query = fit_role_calibrations(clouds, steps=steps, options=whole, queries_only=True)
    both = fit_calibration(clouds, steps=steps, options=whole)
    asked, pool = query.transform(clouds["en"], "en"), clouds["fr"]
    assert torch.equal(document.transform(pool, "fr"), pool)
    if steps == ["lsar"]:
        torch.testing.assert_close(asked @ pool.T, asked @ both.transform(pool).T, atol=1e-3, rtol=1e-4)
    else:
        torch.testing.assert_close(asked, both.transform(clouds["en"], "en"))


def test_what_remains_within_a_language() -> None:
    rows = {"en": torch.randn(60, 8)}
    turned = {"en": rows["en"] @ torch.linalg.qr(torch.randn(8, 8)).Q}
    assert within_a_language((rows, rows), (turned, turned)) == pytest.approx((1, 1), abs=1e-4)
    kept, closeness = within_a_language((rows, rows), ({"en": torch.randn(60, 8)}, rows))
    assert kept < 0.5 and abs(closeness) < 0.3
    few = {"en": rows["en"][:5]}
    assert within_a_language((few, rows), (few, rows)) == pytest.approx((1, 1))


def test_a_score_is_translated_to_one_that_as_many_results_pass() -> None:
    clouds = {code: torch.randn(50, 8) + 1 for code in ("en", "fr")}
    layers = fit_role_calibrations(clouds, queries_only=True, options=CalibrationOptions(keep_mean=1.0), strength=0.0)
    assert all(before == pytest.approx(after) for before, after in translate_scores(layers, clouds, clouds, 20))
    layers = RoleCalibrations(fit_calibration(clouds))
    (low, _), (middle, _), (high, _) = translate_scores(layers, clouds, clouds, 20)
    assert low < middle < high <= 1
    few = {code: part[:5] for code, part in clouds.items()}
    assert max(before for before, _ in translate_scores(layers, few, clouds, 20)) < 0.99  # no text finds itself


def test_a_reloaded_models_passage_prompt_is_used_and_kept(model) -> None:
    model = bias_files.encoder()
    model.prompts = {"query": "ask ", "document": "", "passage": "tell "}
    calibrated = st_xlret.calibrate(model, TEXTS, **QUIET)
    assert (calibrated.prompts["query"], calibrated.prompts["document"]) == ("ask ", "tell ")
    assert apart(calibrated, "document") < 1e-5


def test_the_card_always_has_the_language_bias_before_and_after(model) -> None:
    calibrated = st_xlret.calibrate(model, TEXTS, **QUIET)
    found: list[Comparison] = []
    st_xlret.calibrate(model, TEXTS, report=found.append, **QUIET)
    before, after = (100 * each["search"].same_language_share for each in (found[0].before, found[0].after))
    assert f"{before:.1f} % before, {after:.1f} % after" in calibrated.model_card_data.sections["Calibration"]


def test_the_report_compares_and_recommends_once(model) -> None:
    found: list[Comparison] = []
    st_xlret.calibrate(model, TEXTS, strength=0.5, report=found.append, **QUIET)
    (comparison,) = found
    assert comparison.chosen == "lsar, strength 0.5" and list(comparison.rows)[0] == "as it is"
    text = str(comparison)
    assert text.count("Recommended") == 1 and "lsar, strength 0.5 (used)" in text
    assert comparison.strengths[0.5].score == pytest.approx(comparison.rows[comparison.chosen].score, abs=1e-3)
    # One that needs the language is no alternative to one that does not.
    assert not comparison.rows[comparison.recommended].needs_language


def test_an_overshoot_is_flagged_and_the_best_score_wins() -> None:
    generator = torch.Generator().manual_seed(0)
    topics = torch.randn(80, 8, generator=generator)
    clouds = {code: topics + 3 * torch.eye(8)[i] for i, code in enumerate(("en", "fr", "de"))}
    away = fit_calibration(clouds, steps=["shift"], options=CalibrationOptions(keep_mean=0))
    for i in range(3):  # every language goes where the others' queries look
        away.weight[i] = torch.linalg.qr(torch.randn(8, 8, generator=generator)).Q
    lsar = RoleCalibrations(fit_calibration(clouds))
    comparison = compare_calibrations({"lsar": lsar, "turned": RoleCalibrations(away)}, clouds)
    scores = {name: row.score for name, row in comparison.rows.items()}
    assert comparison.recommended == max(("as it is", "lsar"), key=lambda name: scores[name])
    untouched = compare_calibrations({"lsar": lsar}, clouds, chosen="as it is")
    assert "Scores change" in str(comparison) and "Scores change" not in str(untouched)
    low = comparison.rows["lsar"].biases["search"]
    low = replace(low, shares=np.full_like(low.shares, 0.5) - 0.5 * np.eye(3))
    row = replace(comparison.rows["lsar"], biases={"search": low, "documents": low})
    flagged = replace(comparison, rows={**comparison.rows, "lsar": row})
    assert row.overshoots and "0.0 (below chance)" in flagged.table()
    assert "overshoots: 0.0 % of the results" in flagged.verdict()
    even = replace(low, shares=low.expected)
    row = replace(row, biases={"search": even, "documents": even})
    assert "overshoots" not in replace(comparison, rows={**comparison.rows, "lsar": row}).verdict()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": "auto", "steps": ["rotate"]}, "'auto' fits eleven times"),
        ({"pairs": []}, "pairs are for the step 'rotate'"),
        ({"steps": ["rotate"], "by_role": True}, "'rotate' has no maps for queries"),
        ({"steps": ["shift", "coral"], "queries_only": True}, "queries_only: the step 'coral' moves documents"),
        ({"steps": ["to_pivot"], "pivot": "ja"}, "pivot language 'ja'"),
        ({"languages": ["en"]}, "one language"),
        ({"document_prompt": "passage"}, "document prompt 'passage'"),
        ({"query_prompt": "tell ", "by_role": True}, "by_role: the model embeds queries and documents alike"),
        ({"options": CalibrationOptions(min_texts=1000)}, "1000 distinct texts.*'en' has 72"),
    ],
)
def test_what_cannot_work_is_named(model, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        st_xlret.calibrate(model, TEXTS, **options, **QUIET)


def with_modules(model, *modules):
    return SentenceTransformer(modules=[*model.children(), *modules], prompts=model.prompts, device="cpu")


def test_models_that_end_with_other_modules(model) -> None:
    assert apart(st_xlret.calibrate(with_modules(model, Dense(8, 6)), TEXTS, **QUIET), "document") < 1e-5
    found = st_xlret.calibrate(with_modules(model, Normalize()), TEXTS, **QUIET).encode_query(TEXTS["fr"])
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_routes_by_task_leave_no_place_for_routes_by_language(model) -> None:
    routed = with_modules(model, Router({"query": [Dense(8, 8)], "document": [Dense(8, 8)]}, default_route="document"))
    with pytest.raises(ValueError, match="Router by task.*lsar"):
        st_xlret.calibrate(routed, TEXTS, steps=["shift"], **QUIET)
    calibrated = st_xlret.calibrate(routed, TEXTS, by_role=True, **QUIET)
    assert max(apart(calibrated, "query"), apart(calibrated, "document")) < 1e-5
    by_language = st_xlret.calibrate(model, TEXTS, steps=["shift"], **QUIET)
    with pytest.raises(ValueError, match="calibrated before"):
        st_xlret.calibrate(by_language, TEXTS, **QUIET)


def test_truncation_happens_after_the_calibration(model) -> None:
    whole = st_xlret.calibrate(model, TEXTS, **QUIET).encode_query(TEXTS["fr"])
    model.truncate_dim = 4
    cut = st_xlret.calibrate(model, TEXTS, **QUIET).encode_query(TEXTS["fr"])
    model.truncate_dim = None
    np.testing.assert_allclose(cut, whole[:, :4], atol=1e-6)
