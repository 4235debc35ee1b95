from __future__ import annotations

import pytest
import torch
from torch import Tensor

from st_xlret.calibration import STEPS, CalibrationOptions, fit_calibration, fit_role_calibrations

CODES = ["en", "fr", "de", "sw"]


def clouds(seed: int, offset: float) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    common = offset + torch.randn(8, generator=generator)
    return {
        code: common + torch.randn(8, generator=generator) + torch.randn(80, 8, generator=generator) for code in CODES
    }


DOCUMENTS, QUERIES = clouds(0, 3.0), clouds(1, 5.0)
OPTIONS = CalibrationOptions(keep_mean=0.25)


def common(rows: dict[str, Tensor]) -> Tensor:
    return torch.stack([cloud.mean(dim=0) for cloud in rows.values()]).mean(dim=0)


@pytest.mark.parametrize("steps", [["lsar"], ["shift"], ["shift", "coral"], ["scale", "lir"], ["to_pivot"]])
def test_documents_get_the_maps_that_they_get_alone(steps: list[str]) -> None:
    alone = fit_calibration(DOCUMENTS, steps=steps, options=OPTIONS)
    together = fit_role_calibrations(DOCUMENTS, QUERIES, steps=steps, options=OPTIONS).document
    assert torch.equal(alone.weight, together.weight) and torch.equal(alone.bias, together.bias)


@pytest.mark.parametrize("steps", [["lsar"], ["shift"], ["shift", "coral"]])
def test_equal_embeddings_give_equal_maps(steps: list[str]) -> None:
    document, query = fit_role_calibrations(DOCUMENTS, DOCUMENTS, steps=steps, options=OPTIONS)
    torch.testing.assert_close(document.weight, query.weight)
    torch.testing.assert_close(document.bias, query.bias)


def test_shift_takes_the_languages_out_of_queries_and_keeps_their_offset() -> None:
    document, query = fit_role_calibrations(DOCUMENTS, QUERIES, steps=["shift"], options=OPTIONS)
    for code in CODES:
        kept = 0.25 * common(DOCUMENTS)
        torch.testing.assert_close(document.transform(DOCUMENTS[code], code).mean(dim=0), kept, atol=1e-4, rtol=0)
        offset = common(QUERIES) - common(DOCUMENTS)
        torch.testing.assert_close(query.transform(QUERIES[code], code).mean(dim=0), kept + offset, atol=1e-4, rtol=0)


def test_lsar_projects_the_queries_own_directions_out() -> None:
    query = fit_role_calibrations(DOCUMENTS, QUERIES, options=OPTIONS).query
    assert query.language_agnostic
    means = torch.stack([query.transform(QUERIES[code]).mean(dim=0) for code in CODES])
    torch.testing.assert_close(means, means[:1].expand_as(means), atol=1e-4, rtol=0)


def test_documents_move_to_the_pivot_and_queries_stay() -> None:
    document, query = fit_role_calibrations(DOCUMENTS, QUERIES, steps=["to_pivot"], pivot="fr", strength=0.5)
    for code in CODES:
        assert torch.equal(query.transform(QUERIES[code], code), QUERIES[code])
        expected = DOCUMENTS[code] + 0.5 * (DOCUMENTS["fr"].mean(dim=0) - DOCUMENTS[code].mean(dim=0))
        torch.testing.assert_close(document.transform(DOCUMENTS[code], code), expected)


def test_a_language_without_queries_gets_the_map_of_its_documents() -> None:
    some = {code: QUERIES[code] for code in ("fr", "de")}
    document, query = fit_role_calibrations(DOCUMENTS, some, steps=["shift"])
    for code in CODES:
        same = torch.equal(document.map_of(code)[1], query.map_of(code)[1])
        assert same == (code not in some)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="'rotate'"):
        fit_role_calibrations(DOCUMENTS, QUERIES, steps=["shift", "rotate"])
    with pytest.raises(ValueError, match="queries are in ja, the documents in en, fr, de, sw"):
        fit_role_calibrations(DOCUMENTS, {"ja": QUERIES["en"]}, steps=["shift"])
    with pytest.raises(ValueError, match="'fr' has 3"):
        fit_role_calibrations(DOCUMENTS, {**QUERIES, "fr": QUERIES["fr"][:3]})
    with pytest.raises(ValueError, match="pivot language 'ja'"):
        fit_role_calibrations(DOCUMENTS, QUERIES, steps=["to_pivot"], pivot="ja")
    assert "to_pivot" in STEPS
