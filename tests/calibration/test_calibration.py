"""A calibration: fitted in thin factors, applied by NumPy alone, saved for any language."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from numpy.typing import NDArray

from st_xlret import CalibrationLayer, VectorCalibration, fit_calibration
from st_xlret.calibration.rows import strict_unit_rows
from st_xlret.calibration.saved import metadata_of
from st_xlret.calibration.steps import Maps
from tests.calibration.clouds import CODES, apply, clouds, mean_of

DOCUMENTS, QUERIES = clouds(), clouds(1, offset=3.0)
UNIT = {code: strict_unit_rows(rows) for code, rows in DOCUMENTS.items()}


def fit(documents: Any = DOCUMENTS, *steps: str, **how: Any) -> VectorCalibration:
    """A calibration of vectors as they are, whatever their lengths."""
    return VectorCalibration.fit(documents, steps=steps or ("lsar",), normalize=False, **how)


def maps_of(calibration: VectorCalibration, role: str = "document") -> list[NDArray]:
    count = max(1, len(calibration.languages))
    return [np.column_stack(calibration.dense(role, number)) for number in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize("queries", [None, QUERIES])
@pytest.mark.parametrize(
    "steps", ["lsar", "shift", "lsar shift", "to_pivot lsar", "shift coral", "scale lir"]
)
def test_thin_factors_at_any_strength_equal_a_fit_in_full_width(
    steps: str, queries: dict | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    thin = fit(DOCUMENTS, *steps.split(), queries=queries, keep_mean=0.3)
    means = 8 if queries else 4
    assert thin.basis.shape == (12, 12 if steps in ("shift coral", "scale lir") else means)
    monkeypatch.setattr("st_xlret.calibration.fit.OF_MEANS", frozenset())
    full = fit(DOCUMENTS, *steps.split(), queries=queries, keep_mean=0.3, strength=0.4)
    assert full.basis.shape == (12, 12)
    for role in ("document", "query"):
        np.testing.assert_allclose(maps_of(thin.at(0.4), role), maps_of(full, role), atol=1e-12)
        for weight_and_bias in maps_of(thin.at(0), role):
            np.testing.assert_allclose(weight_and_bias, np.eye(12, 13))


def test_labels_of_rows_have_one_spelling_and_may_be_missing() -> None:
    parts: Any = {"ENG ": DOCUMENTS["en"], "fra_Latn": DOCUMENTS["fr"], None: QUERIES["fr"]}
    labels = [label for label, part in parts.items() for _ in part]
    spelt = fit(np.concatenate([*parts.values()]), "shift", languages=labels)
    plain = fit({"en": DOCUMENTS["en"], "fr": DOCUMENTS["fr"]}, "shift")
    assert spelt.languages == ("en", "fr") and spelt.fingerprint == plain.fingerprint
    as_labels, as_codes = ([code] * len(parts["fra_Latn"]) for code in ("fra_Latn", "fr"))
    mapped = spelt.transform(parts["fra_Latn"], "document", as_labels)
    np.testing.assert_array_equal(mapped, plain.transform(parts["fra_Latn"], "document", as_codes))
    asked = {f"{code}_Latn" if code == "en" else code: rows for code, rows in QUERIES.items()}
    assert (
        fit(DOCUMENTS, "shift", queries=asked).fingerprint
        == fit(DOCUMENTS, "shift", queries=QUERIES).fingerprint
    )
    twice = {"en": DOCUMENTS["en"], "EN": DOCUMENTS["fr"]}
    for documents, queries in ((twice, None), (DOCUMENTS, twice)):
        with pytest.raises(ValueError, match="stands twice among en, EN"):
            fit(documents, "shift", queries=queries)


@pytest.mark.parametrize("step", ["lsar", "shift"])
def test_mapped_queries_rank_documents_as_they_are_like_mapped_ones(step: str) -> None:
    both, alone = (fit(DOCUMENTS, step, keep_mean=1, queries_only=only) for only in (False, True))
    assert alone.document is None and alone.queries_only
    asked, pool = apply(alone, QUERIES["en"], "query", "en"), DOCUMENTS["fr"]
    np.testing.assert_allclose(asked, apply(both, QUERIES["en"], "query", "en"))
    np.testing.assert_allclose(apply(alone, pool, "document", "fr"), pool)
    if step == "lsar":
        np.testing.assert_allclose(
            asked @ pool.T, asked @ apply(both, pool, "document").T, atol=1e-10
        )


@pytest.mark.parametrize("queries_only", [True, False])
def test_phrases_join_lsar_as_one_language_more(queries_only: bool) -> None:
    phrases = {"qu": clouds(5)["sw"][:7]}
    fitted = fit(phrases=phrases, keep_mean=1, queries_only=queries_only)
    more = fit({**DOCUMENTS, **phrases}, keep_mean=1, queries_only=queries_only, min_texts=7)
    np.testing.assert_allclose(maps_of(fitted, "query"), maps_of(more, "query"), atol=1e-12)
    means = [
        apply(fitted, rows, "query").mean(axis=0) for rows in (*DOCUMENTS.values(), phrases["qu"])
    ]
    np.testing.assert_allclose(means, np.tile(means[0], (5, 1)), atol=1e-10)
    # The mean of which a part is kept stays the documents'.
    half, common = fit(phrases=phrases, keep_mean=0.5), mean_of(DOCUMENTS).mean(axis=0)
    expected = apply(fitted, QUERIES["en"] - common / 2, "query")
    np.testing.assert_allclose(apply(half, QUERIES["en"], "query"), expected, atol=1e-10)
    # A log of questions, in any languages, joins a map of queries alone likewise.
    joined, log = (fit(queries_only=True, **{name: phrases}) for name in ("phrases", "queries"))
    np.testing.assert_array_equal(maps_of(log, "query"), maps_of(joined, "query"))
    assert log.document is None and not log.languages


def test_queries_lose_their_languages_and_keep_their_offset_from_documents() -> None:
    calibration = fit(DOCUMENTS, "shift", queries=QUERIES)  # which keeps a quarter of the mean
    np.testing.assert_allclose(maps_of(calibration), maps_of(fit(DOCUMENTS, "shift")), atol=1e-12)
    expected = mean_of(QUERIES).mean(axis=0) - 0.75 * mean_of(DOCUMENTS).mean(axis=0)
    to_pivot = fit(DOCUMENTS, "to_pivot", queries=QUERIES, pivot="fr", strength=0.5)
    for code in CODES:
        np.testing.assert_allclose(
            apply(calibration, QUERIES[code], "query", code).mean(axis=0), expected, atol=1e-10
        )
        np.testing.assert_allclose(apply(to_pivot, QUERIES[code], "query", code), QUERIES[code])
        moved = DOCUMENTS[code] + 0.5 * (
            DOCUMENTS["fr"].mean(axis=0) - DOCUMENTS[code].mean(axis=0)
        )
        np.testing.assert_allclose(apply(to_pivot, DOCUMENTS[code], "document", code), moved)


@pytest.mark.parametrize("steps", [("shift",), ("shift", "coral")])
def test_a_language_without_queries_gets_the_map_of_its_documents(steps: tuple) -> None:
    calibration = fit(DOCUMENTS, *steps, queries={code: QUERIES[code] for code in ("fr", "de")})
    for code, of_documents, of_queries in zip(
        CODES, maps_of(calibration), maps_of(calibration, "query"), strict=True
    ):
        assert np.array_equal(of_documents, of_queries) == (code in ("en", "sw"))


def test_rotations_are_found_on_what_the_steps_before_leave() -> None:
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 12)))[0]
    rows = {"en": DOCUMENTS["en"], "fr": DOCUMENTS["en"] @ turn.T + 3}
    pairs = {"fr": (torch.from_numpy(rows["fr"]), torch.from_numpy(rows["en"]))}
    fitted = fit(
        rows, "shift", "rotate", pairs=pairs
    )  # what the papers keep of the mean: nothing, or with lsar all
    np.testing.assert_array_equal(
        maps_of(fit(rows, "lsar", "lir")), maps_of(fit(rows, "lsar", "lir", keep_mean=1))
    )
    english, french = (apply(fitted, part, "document", code) for code, part in rows.items())
    np.testing.assert_allclose(english, french, atol=1e-10)
    assert "80 pairs" in fitted.notes["rotate fr"]
    with pytest.raises(ValueError, match="12 dimensions.*'fr': 5"):
        fit({**rows, "fr": rows["fr"][:5]}, "rotate", min_texts=2)


@pytest.mark.parametrize("queries", [None, QUERIES])
@pytest.mark.parametrize(
    "how", [{}, {"steps": ["shift"]}, {"queries_only": True}, {"steps": ["coral"]}]
)
def test_what_is_saved_is_used_by_its_own_description(
    queries: dict | None, how: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibration = VectorCalibration.fit(
        DOCUMENTS, queries=queries, model="me/encoder", metric="cosine", **how
    )
    loaded = VectorCalibration.load(calibration.save(tmp_path / "map"))
    names = (
        "queries_only",
        "metric",
        "model",
        "steps",
        "strength",
        "languages",
        "pivot",
        "fingerprint",
    )
    assert [getattr(loaded, name) for name in names] == [
        getattr(calibration, name) for name in names
    ]
    rows, codes = np.concatenate([*DOCUMENTS.values()]), np.repeat(CODES, 80).tolist()
    of_rows = VectorCalibration.fit(rows, codes, queries=queries, **how)
    for role in ("document", "query"):
        parts = [calibration.transform(part, role, code) for code, part in DOCUMENTS.items()]  # type: ignore[arg-type]
        mapped = np.concatenate(parts)
        for each in (loaded, of_rows):
            tensor: Any = torch.from_numpy(
                rows
            ).requires_grad_()  # as a model of any device gives it
            for vectors in (rows, tensor):
                np.testing.assert_allclose(each.transform(vectors, role, codes), mapped, atol=1e-6)  # type: ignore[arg-type]
    np.testing.assert_allclose(np.linalg.norm(mapped, axis=1), 1, atol=1e-5)
    text = (tmp_path / "map" / "README.md").read_text(encoding="utf-8")
    program = "\n".join(line.strip() for line in text.splitlines() if line.startswith("    "))
    monkeypatch.chdir(tmp_path / "map")
    by_hand: dict = {
        "x": 7 * DOCUMENTS["en"][3],
        "map": 1,
        "safetensors": safetensors,
    }  # of any length
    exec(program, by_hand)
    for x in (by_hand["x"], loaded.transform(7 * DOCUMENTS["en"][3], "query", "en")):
        np.testing.assert_allclose(x, mapped[83], atol=1e-6)
    with pytest.raises(FileExistsError, match="map"):
        calibration.save(tmp_path / "map")


def test_a_saved_map_is_a_layer_and_a_saved_layer_a_map(tmp_path: Path) -> None:
    calibration = fit(DOCUMENTS, "shift", queries=QUERIES, strength=0.5, model="me/encoder")
    layer = CalibrationLayer.load(calibration.save(tmp_path / "map"))
    layer.save(tmp_path / "layer")
    again = VectorCalibration.load(tmp_path / "layer")
    assert metadata_of(again) == metadata_of(calibration)
    rows = DOCUMENTS["fr"].astype(np.float32)
    expected = calibration.transform(rows, "document", "fr")
    for mapped in (layer.transform(rows, "fr"), calibration.layer().transform(rows, "fr")):
        np.testing.assert_allclose(mapped, expected, atol=1e-6)
    np.testing.assert_array_equal(again.transform(rows, "document", "fr"), expected)
    asked = calibration.layer("query").transform(rows, "fr")
    np.testing.assert_allclose(asked, calibration.transform(rows, "query", "fr"), atol=1e-6)
    assert not fit_calibration(DOCUMENTS).languages
    assert torch.equal(fit(queries_only=True).layer().transform(torch.ones(12)), torch.ones(12))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"documents": {**DOCUMENTS, "fr": np.vstack([DOCUMENTS["fr"], [np.nan] * 12])}},
            "'fr'.*row 80",
        ),
        (
            {"documents": {**DOCUMENTS, "fr": np.vstack([DOCUMENTS["fr"], [1e-25] * 12])}},
            "'fr'.*row 80",
        ),
        ({"documents": {"en": DOCUMENTS["en"]}}, "two languages"),
        ({"documents": {**DOCUMENTS, "ja": DOCUMENTS["en"][:3]}}, r"'ja': \(3, 12\)"),
        ({"documents": {**DOCUMENTS, "ja": DOCUMENTS["en"][:, :8]}}, r"'ja': \(80, 8\)"),
        (
            {"documents": {code: rows[:, :3] for code, rows in DOCUMENTS.items()}},
            "3 of 3 dimensions",
        ),
        ({"metric": "dot"}, "unit length, not for dot"),
        ({"metric": "manhattan", "documents": UNIT}, "not for manhattan"),
        ({"steps": ["coral"], "queries_only": True}, "coral"),
        ({"steps": ["shift", "shift"]}, "once"),
        ({"strength": 1.5}, "1.5"),
        ({"keep_mean": 7}, "keep_mean.* 7"),
        ({"steps": ["lir"], "lir_components": 12}, "lir_components.* 12"),
        ({"steps": ["to_pivot"], "pivot": "ja"}, "'ja'"),
        ({"queries": {"en": QUERIES["en"]}}, "'en'"),
        ({"queries": QUERIES, "steps": ["rotate"]}, "'rotate'"),
        ({"pairs": {"fr": (DOCUMENTS["fr"], DOCUMENTS["en"])}}, "'rotate'"),
        ({"pairs": {"ja": (DOCUMENTS["fr"], DOCUMENTS["en"])}, "steps": ["rotate"]}, "'ja'"),
    ],
)
def test_what_cannot_be_fitted_is_named(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VectorCalibration.fit(**{"documents": DOCUMENTS, **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vectors": np.ones(7)}, r"\(7,\)"),
        ({"vectors": np.full((2, 12), np.nan), "language": "en"}, "2 of 2"),
        ({"vectors": np.ones(12)}, "None.*de, en, fr, sw"),
        ({"vectors": np.ones(12), "language": "ja"}, "ja.*de, en, fr, sw"),
        ({"vectors": np.ones((2, 12)), "language": ["en"]}, "1 languages"),
        ({"vectors": np.ones(12), "role": "passage"}, "'passage'"),
    ],
)
def test_vectors_that_cannot_be_mapped_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VectorCalibration.fit(DOCUMENTS, steps=["shift"]).transform(**arguments)


@pytest.mark.parametrize(
    "content",
    ["{", "[7]", {"dimension": 5}, {"languages": ["en", "fr"]}, {"more": 1}, None, b"no", np.nan],
)
def test_a_damaged_map_is_named(content: object, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        VectorCalibration.load(tmp_path)
    folder = fit().save(tmp_path / "map")
    about, weights = folder / "calibration.json", folder / "model.safetensors"
    if isinstance(content, str):
        about.write_text(content)
    elif isinstance(content, dict):
        about.write_text(json.dumps(json.loads(about.read_text()) | content))
    elif isinstance(content, bytes):
        weights.write_bytes(content)
    elif content is None:
        weights.unlink()
    else:
        VectorCalibration(np.eye(12), Maps(None, np.full((1, 12), content))).save(
            folder, overwrite=True
        )
    with pytest.raises(ValueError, match=f"{tmp_path}/map"):
        VectorCalibration.load(folder)
