"""A calibration, fitted in thin factors: what its steps leave, and what cannot be fitted."""

from typing import Any

import numpy as np
import pytest
import torch

from st_xlret import VectorCalibration
from st_xlret.calibration import FitOptions
from st_xlret.calibration.rows import strict_unit_rows
from tests.calibration.clouds import CODES, apply, clouds, maps_of, mean_of

DOCUMENTS = clouds()
QUERIES = clouds(1, offset=3.0)
UNIT = {code: strict_unit_rows(rows) for code, rows in DOCUMENTS.items()}
NARROW = {code: rows[:, :3] for code, rows in DOCUMENTS.items()}


def fit(documents: Any = DOCUMENTS, *steps: str, **how: Any) -> VectorCalibration:
    """A calibration of vectors as they are, whatever their lengths."""
    return VectorCalibration.fit(documents, steps=steps or ("lsar",), normalize=False, **how)


@pytest.mark.parametrize("queries", [None, QUERIES])
@pytest.mark.parametrize(
    ("steps", "rank", "rank_with_queries"),
    [
        ("lsar", 4, 8),
        ("shift", 4, 8),
        ("lsar shift", 4, 8),
        ("to_pivot lsar", 4, 8),
        ("shift coral", 12, 12),
        ("scale lir", 12, 12),
    ],
)
def test_thin_factors_at_any_strength_equal_a_fit_in_full_width(
    steps: str,
    rank: int,
    rank_with_queries: int,
    queries: dict | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thin = fit(DOCUMENTS, *steps.split(), queries=queries, keep_mean=0.3)
    expected_rank = rank_with_queries if queries else rank
    assert thin.basis.shape == (12, expected_rank)

    monkeypatch.setattr("st_xlret.calibration.fit.OF_MEANS", frozenset())
    full = fit(DOCUMENTS, *steps.split(), queries=queries, keep_mean=0.3, strength=0.4)
    assert full.basis.shape == (12, 12)
    for role in ("document", "query"):
        np.testing.assert_allclose(maps_of(thin.at(0.4), role), maps_of(full, role), atol=1e-12)
        for weight_and_bias in maps_of(thin.at(0), role):
            np.testing.assert_allclose(weight_and_bias, np.eye(12, 13))


def test_labels_of_rows_have_one_spelling_and_may_be_missing() -> None:
    parts: Any = {"ENG ": DOCUMENTS["en"], "fra_Latn": DOCUMENTS["fr"], None: QUERIES["fr"]}
    labels = []
    for label, part in parts.items():
        labels += [label] * len(part)
    spelt = fit(np.concatenate(list(parts.values())), "shift", languages=labels)
    plain = fit({"en": DOCUMENTS["en"], "fr": DOCUMENTS["fr"]}, "shift")
    assert spelt.languages == ("en", "fr")
    assert spelt.fingerprint == plain.fingerprint

    french = DOCUMENTS["fr"]
    mapped = spelt.transform(french, "document", ["fra_Latn"] * len(french))
    expected = plain.transform(french, "document", ["fr"] * len(french))
    np.testing.assert_array_equal(mapped, expected)


def respelled(by_language: dict[str, Any]) -> dict[str, Any]:
    return {f"{code.upper()}_Latn": part for code, part in by_language.items()}


@pytest.mark.parametrize("documents", [DOCUMENTS, respelled(DOCUMENTS)])
@pytest.mark.parametrize("queries", [QUERIES, respelled(QUERIES)])
def test_languages_are_kept_in_normal_form(documents: dict, queries: dict) -> None:
    spelt = fit(documents, "shift", queries=queries, pivot="ENG")
    plain = fit(DOCUMENTS, "shift", queries=QUERIES)
    assert spelt.languages == plain.languages
    assert spelt.pivot == "en"
    assert spelt.fingerprint == plain.fingerprint
    mapped = [spelt.layer().transform(QUERIES["fr"], code) for code in ("fr", "FRA")]
    assert torch.equal(*mapped)


def test_queries_of_a_region_are_those_of_its_language() -> None:
    parts = {"en": QUERIES["en"][:40], "en-US": QUERIES["en"][40:]}
    spelt = fit(DOCUMENTS, "shift", queries={**QUERIES, **parts})
    plain = fit(DOCUMENTS, "shift", queries=QUERIES)
    assert spelt.fingerprint == plain.fingerprint


def test_a_language_that_stands_twice_is_refused() -> None:
    twice = {"en": DOCUMENTS["en"], "EN": DOCUMENTS["fr"]}
    with pytest.raises(ValueError, match="stands twice among en, EN"):
        fit(twice, "shift")
    with pytest.raises(ValueError, match="stands twice among en, EN"):
        fit(DOCUMENTS, "shift", queries=twice)


@pytest.mark.parametrize("step", ["lsar", "shift"])
def test_mapped_queries_rank_documents_as_they_are_like_mapped_ones(step: str) -> None:
    both = fit(DOCUMENTS, step, keep_mean=1)
    alone = fit(DOCUMENTS, step, keep_mean=1, queries_only=True)
    assert alone.document is None
    assert alone.queries_only
    pool = DOCUMENTS["fr"]
    asked = apply(alone, QUERIES["en"], "query", "en")
    np.testing.assert_allclose(asked, apply(both, QUERIES["en"], "query", "en"))
    np.testing.assert_allclose(apply(alone, pool, "document", "fr"), pool)
    if step == "lsar":
        of_mapped = asked @ apply(both, pool, "document").T
        np.testing.assert_allclose(asked @ pool.T, of_mapped, atol=1e-10)


@pytest.mark.parametrize("queries_only", [True, False])
def test_phrases_join_lsar_as_one_language_more(queries_only: bool) -> None:
    phrases = {"qu": clouds(5)["sw"][:7]}
    fitted = fit(phrases=phrases, keep_mean=1, queries_only=queries_only)
    all_languages = {**DOCUMENTS, **phrases}
    more = fit(all_languages, keep_mean=1, queries_only=queries_only, min_texts=7)
    np.testing.assert_allclose(maps_of(fitted, "query"), maps_of(more, "query"), atol=1e-12)
    means = [apply(fitted, rows, "query").mean(axis=0) for rows in all_languages.values()]
    np.testing.assert_allclose(means, np.tile(means[0], (5, 1)), atol=1e-10)

    # The mean of which a part is kept stays the documents'.
    half = fit(phrases=phrases, keep_mean=0.5)
    common = mean_of(DOCUMENTS).mean(axis=0)
    expected = apply(fitted, QUERIES["en"] - common / 2, "query")
    np.testing.assert_allclose(apply(half, QUERIES["en"], "query"), expected, atol=1e-10)


def test_questions_in_any_language_join_a_map_of_queries_alone() -> None:
    phrases = {"qu": clouds(5)["sw"][:7]}
    joined = fit(queries_only=True, phrases=phrases)
    log = fit(queries_only=True, queries=phrases)
    np.testing.assert_array_equal(maps_of(log, "query"), maps_of(joined, "query"))
    assert log.document is None
    assert not log.languages


@pytest.mark.parametrize(
    ("steps", "queries_only", "joins"),
    [
        (("lsar",), True, True),
        (("lsar",), False, False),
        (("shift",), True, False),
        (("lsar", "shift"), True, False),
    ],
)
def test_few_queries_and_documents_in_one_language_do_where_queries_join_the_fit(
    steps: tuple[str, ...], queries_only: bool, joins: bool
) -> None:
    options = FitOptions(steps=steps, queries_only=queries_only)
    assert options.joins_queries == joins
    assert options.min_languages == (1 if joins else 2)
    assert options.min_queries == (5 if joins else 20)


def test_phrases_and_queries_in_one_language_both_join() -> None:
    phrases = {"qu": clouds(5)["sw"][:7]}
    asked = {"qu": clouds(6)["en"][:9]}
    both = fit(queries_only=True, phrases=phrases, queries=asked)
    apart = fit(queries_only=True, phrases={**phrases, "rw": asked["qu"]})
    np.testing.assert_array_equal(maps_of(both, "query"), maps_of(apart, "query"))


def test_queries_lose_their_languages_and_keep_their_offset_from_documents() -> None:
    calibration = fit(DOCUMENTS, "shift", queries=QUERIES)  # which keeps a quarter of the mean
    of_documents = maps_of(fit(DOCUMENTS, "shift"))
    np.testing.assert_allclose(maps_of(calibration), of_documents, atol=1e-12)
    expected = mean_of(QUERIES).mean(axis=0) - 0.75 * mean_of(DOCUMENTS).mean(axis=0)
    for code in CODES:
        mean = apply(calibration, QUERIES[code], "query", code).mean(axis=0)
        np.testing.assert_allclose(mean, expected, atol=1e-10)


def test_documents_move_to_the_pivot_and_queries_stay() -> None:
    to_pivot = fit(DOCUMENTS, "to_pivot", queries=QUERIES, pivot="fr", strength=0.5)
    mean_of_pivot = DOCUMENTS["fr"].mean(axis=0)
    for code, rows in DOCUMENTS.items():
        moved = rows + 0.5 * (mean_of_pivot - rows.mean(axis=0))
        np.testing.assert_allclose(apply(to_pivot, rows, "document", code), moved)
        np.testing.assert_allclose(apply(to_pivot, QUERIES[code], "query", code), QUERIES[code])


@pytest.mark.parametrize("steps", [("shift",), ("shift", "coral")])
def test_a_language_without_queries_gets_the_map_of_its_documents(steps: tuple) -> None:
    asked = {"fr": QUERIES["fr"], "de": QUERIES["de"]}
    calibration = fit(DOCUMENTS, *steps, queries=asked)
    of_documents = maps_of(calibration)
    of_queries = maps_of(calibration, "query")
    for number, code in enumerate(CODES):
        is_same = np.array_equal(of_documents[number], of_queries[number])
        assert is_same == (code in ("en", "sw"))


def test_rotations_are_found_on_what_the_steps_before_leave() -> None:
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 12)))[0]
    rows = {"en": DOCUMENTS["en"], "fr": DOCUMENTS["en"] @ turn.T + 3}
    pairs = {"fr": (torch.from_numpy(rows["fr"]), torch.from_numpy(rows["en"]))}
    # Of the mean it keeps what the papers keep: nothing.
    fitted = fit(rows, "shift", "rotate", pairs=pairs)
    english = apply(fitted, rows["en"], "document", "en")
    french = apply(fitted, rows["fr"], "document", "fr")
    np.testing.assert_allclose(english, french, atol=1e-10)
    assert "80 pairs" in fitted.notes["rotate fr"]
    with pytest.raises(ValueError, match="12 dimensions.*'fr': 5"):
        fit({**rows, "fr": rows["fr"][:5]}, "rotate", min_texts=2)


def test_pairs_of_any_lengths_give_the_rotation_of_unit_vectors() -> None:
    lengths = np.random.default_rng(0).uniform(0.1, 100, size=(80, 1))
    longer = {"fr": (DOCUMENTS["fr"] * lengths, DOCUMENTS["en"])}
    of_unit_length = {"fr": (UNIT["fr"], UNIT["en"])}
    rows = {code: DOCUMENTS[code] for code in ("en", "fr")}
    steps = ["shift", "rotate"]
    fitted = VectorCalibration.fit(rows, steps=steps, pairs=longer)
    expected = VectorCalibration.fit(rows, steps=steps, pairs=of_unit_length)
    np.testing.assert_allclose(maps_of(fitted), maps_of(expected), atol=1e-9)


def test_lsar_beside_a_step_that_does_not_suit_search_keeps_all_of_the_mean() -> None:
    by_default = maps_of(fit(DOCUMENTS, "lsar", "lir"))
    np.testing.assert_array_equal(by_default, maps_of(fit(DOCUMENTS, "lsar", "lir", keep_mean=1)))


def with_row(number: float) -> dict[str, Any]:
    """The documents with a French row of one number more."""
    return {**DOCUMENTS, "fr": np.vstack([DOCUMENTS["fr"], [number] * 12])}


@pytest.mark.parametrize(
    ("documents", "how", "message"),
    [
        (with_row(np.nan), {}, "'fr'.*row 80"),
        (with_row(1e-25), {}, "'fr'.*row 80"),
        ({"en": DOCUMENTS["en"]}, {}, "languages: 2 at least"),
        ({**DOCUMENTS, "ja": DOCUMENTS["en"][:3]}, {}, r"'ja': \(3, 12\)"),
        ({**DOCUMENTS, "ja": DOCUMENTS["en"][:, :8]}, {}, r"'ja': \(80, 8\)"),
        (NARROW, {}, "3 of 3 dimensions"),
        (DOCUMENTS, {"metric": "dot"}, "unit length, not for dot"),
        (UNIT, {"metric": "manhattan"}, "not for manhattan"),
        (DOCUMENTS, {"steps": ["coral"], "queries_only": True}, "coral"),
        (DOCUMENTS, {"steps": ["shift", "shift"]}, "once"),
        (DOCUMENTS, {"strength": 1.5}, "1.5"),
        (DOCUMENTS, {"keep_mean": 7}, "keep_mean.* 7"),
        (DOCUMENTS, {"steps": ["lir"], "lir_components": 12}, "lir_components.* 12"),
        (DOCUMENTS, {"steps": ["to_pivot"], "pivot": "ja"}, "'ja'"),
        (DOCUMENTS, {"queries": {"en": QUERIES["en"]}}, "'en'"),
        (DOCUMENTS, {"queries": QUERIES, "steps": ["rotate"]}, "'rotate'"),
        (DOCUMENTS, {"pairs": {"fr": (DOCUMENTS["fr"], DOCUMENTS["en"])}}, "'rotate'"),
        (
            DOCUMENTS,
            {"pairs": {"ja": (DOCUMENTS["fr"], DOCUMENTS["en"])}, "steps": ["rotate"]},
            "'ja'",
        ),
        (
            DOCUMENTS,
            {"pairs": {"fr": (DOCUMENTS["fr"][:60], DOCUMENTS["en"])}, "steps": ["rotate"]},
            r"'fr'.*\(60, 12\) and \(80, 12\)",
        ),
        (
            DOCUMENTS,
            {"pairs": {"fr": (NARROW["fr"], NARROW["en"])}, "steps": ["rotate"]},
            "'fr' are vectors of 12 numbers",
        ),
        (
            DOCUMENTS,
            {"pairs": {"fr": (with_row(0)["fr"], with_row(0)["fr"])}, "steps": ["rotate"]},
            "pairs in 'fr'",
        ),
    ],
)
def test_what_cannot_be_fitted_is_named(documents: Any, how: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VectorCalibration.fit(documents, **how)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_vectors_that_are_rounded_to_bytes_are_refused(as_tensor: bool) -> None:
    rounded: Any = (20 * QUERIES["en"]).astype(np.int8)
    if as_tensor:
        rounded = torch.from_numpy(rounded)
    with pytest.raises(ValueError, match="int8 have other directions"):
        fit().transform(rounded)
    with pytest.raises(ValueError, match="int8 have other directions"):
        fit({"en": rounded, "fr": rounded})
