from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from st_xlret.calibration import (
    AdversarialOptions,
    CalibrationOptions,
    RotationOptions,
    fit_calibration,
    fit_calibration_stages,
    procrustes,
)

QUICK = CalibrationOptions(
    rotation=RotationOptions(refinements=2, adversarial=AdversarialOptions(epochs=1, steps_per_epoch=3, hidden=8))
)
PAPER = ["shift", "scale", "rotate"]
STEP_LISTS = [
    ["shift"],
    ["shift", "scale"],
    ["shift", "scale", "rotate"],
    ["lir"],
    ["lsar"],
    ["rotate", "lsar"],
]


@pytest.fixture
def clouds() -> dict[str, Tensor]:
    spread = torch.tensor([3.0, 2.0, 1.0, 1.0, 0.5])
    return {
        "en": torch.randn(200, 5) * spread,
        "fr": torch.randn(150, 5) * spread.flip(0) + 2,
        "sw": torch.randn(60, 5) - 1,
    }


def test_stages_equal_the_steps_one_by_one(clouds: dict[str, Tensor]) -> None:
    stages = fit_calibration_stages(clouds, options=QUICK)
    assert list(stages) == ["shift", "scale", "rotate"]
    for language, rows in clouds.items():
        shifted = rows - rows.mean(dim=0)
        scaled = shifted / rows.std(dim=0, correction=0)
        torch.testing.assert_close(stages["shift"].transform(rows, language), shifted, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(stages["scale"].transform(rows, language), scaled, atol=1e-5, rtol=1e-5)
        turned = stages["rotate"].transform(rows, language)
        rotation = torch.linalg.lstsq(scaled.double(), turned.double()).solution.T
        torch.testing.assert_close(rotation @ rotation.T, torch.eye(5, dtype=torch.float64), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        stages["rotate"].transform(clouds["en"], "en"), stages["scale"].transform(clouds["en"], "en")
    )


def test_the_last_stage_is_the_fit(clouds: dict[str, Tensor]) -> None:
    last = fit_calibration_stages(clouds, options=QUICK)["rotate"]
    fitted = fit_calibration(clouds, steps=PAPER, options=QUICK)
    assert torch.equal(last.weight, fitted.weight) and torch.equal(last.bias, fitted.bias)
    assert fitted.weight.dtype == torch.float32
    assert set(fitted.notes) == {"rotate fr", "rotate sw"}


@pytest.mark.parametrize("steps", STEP_LISTS)
def test_strength_0_is_the_identity(clouds: dict[str, Tensor], steps: list[str]) -> None:
    layer = fit_calibration(clouds, steps=steps, strength=0.0, options=QUICK)
    for language, rows in clouds.items():
        torch.testing.assert_close(layer.transform(rows, language), rows, atol=1e-6, rtol=1e-6)


def test_strength_goes_into_each_step(clouds: dict[str, Tensor]) -> None:
    layer = fit_calibration(clouds, steps=["shift", "scale"], strength=0.5)
    rows = clouds["fr"]
    expected = (rows - 0.5 * rows.mean(dim=0)) / rows.std(dim=0, correction=0) ** 0.5
    torch.testing.assert_close(layer.transform(rows, "fr"), expected, atol=1e-5, rtol=1e-5)
    assert layer.strength == 0.5


@pytest.mark.parametrize("steps", [["rotate"], ["lsar"], ["rotate", "lsar"]])
def test_one_language_is_not_changed(clouds: dict[str, Tensor], steps: list[str]) -> None:
    layer = fit_calibration({"en": clouds["en"]}, steps=steps, options=CalibrationOptions(keep_mean=1))
    torch.testing.assert_close(layer.transform(clouds["en"], "en"), clouds["en"], atol=1e-6, rtol=1e-6)


def test_lir_without_components_is_the_identity(clouds: dict[str, Tensor]) -> None:
    layer = fit_calibration(clouds, steps=["lir"], options=CalibrationOptions(lir_components=0))
    torch.testing.assert_close(layer.transform(clouds["fr"], "fr"), clouds["fr"], atol=1e-6, rtol=1e-6)


def test_only_lsar_alone_needs_no_language(clouds: dict[str, Tensor]) -> None:
    alone = fit_calibration(clouds, steps=["lsar"])
    assert alone.language_agnostic and alone.languages == []
    means = torch.stack([alone.transform(rows).mean(dim=0) for rows in clouds.values()])
    torch.testing.assert_close(means, means[:1].expand_as(means), atol=1e-5, rtol=1e-5)
    stages = fit_calibration_stages(clouds, steps=["lsar", "shift"])
    assert stages["lsar"].language_agnostic and not stages["shift"].language_agnostic
    assert not fit_calibration(clouds, steps=["scale", "lsar"]).language_agnostic


def test_pairs_give_procrustes_on_shifted_and_scaled_rows(clouds: dict[str, Tensor]) -> None:
    own, other = torch.randn(40, 5), torch.randn(40, 5)
    stages = fit_calibration_stages(clouds, pairs={"fr": (own, other)}, options=QUICK)
    before = stages["scale"]
    expected = procrustes(before.transform(own.double(), "fr"), before.transform(other.double(), "en"))
    turned = before.transform(clouds["fr"].double(), "fr") @ expected.T
    torch.testing.assert_close(stages["rotate"].transform(clouds["fr"].double(), "fr"), turned, atol=1e-4, rtol=1e-4)
    assert stages["rotate"].notes["rotate fr"] == "Procrustes on 40 pairs"
    assert "criterion" in stages["rotate"].notes["rotate sw"]


def test_a_planted_map_is_undone_with_pairs() -> None:
    english = torch.randn(500, 6) * torch.linspace(2, 0.5, 6)
    planted = torch.linalg.qr(torch.randn(6, 6)).Q
    clouds = {"en": english, "fr": english @ planted + 3}
    pairs = {"fr": (clouds["fr"][:100], clouds["en"][:100])}
    layer = fit_calibration(clouds, steps=["shift", "rotate"], pairs=pairs)
    torch.testing.assert_close(
        layer.transform(clouds["fr"], "fr"), layer.transform(english, "en"), atol=1e-4, rtol=1e-4
    )


def test_a_rotation_needs_as_many_texts_as_dimensions() -> None:
    clouds = {
        "en": torch.randn(90, 64),
        "fr": torch.randn(60, 64),
        "sw": torch.randn(55, 64),
        "de": torch.randn(70, 64),
    }
    pairs = {"de": (torch.randn(10, 64), torch.randn(10, 64))}
    with pytest.raises(ValueError, match="64 dimensions.*'fr' has 60 texts, 'sw' has 55.*'de' has 10 pairs"):
        fit_calibration(clouds, steps=PAPER, pairs=pairs, options=QUICK)
    drawn = RotationOptions(max_texts=50)
    with pytest.raises(ValueError, match="'en' has 50 texts"):
        fit_calibration(clouds, steps=["rotate"], options=CalibrationOptions(rotation=drawn))
    # Neither a prior, nor other steps, nor a language with enough pairs is a reason to stop.
    near = RotationOptions(initial="identity", refinements=1, prior=1.0)
    fit_calibration(clouds, steps=PAPER, pairs=pairs, options=CalibrationOptions(rotation=near))
    fit_calibration(clouds, steps=["shift", "scale"])
    fit_calibration(clouds, steps=PAPER, strength=0.0, options=QUICK)
    enough = {"fr": (torch.randn(80, 64), torch.randn(80, 64))}
    fit_calibration({"en": clouds["en"][:50], "fr": clouds["fr"]}, steps=["shift", "rotate"], pairs=enough)


def test_a_quarter_of_the_common_mean_is_kept_for_search(clouds: dict[str, Tensor]) -> None:
    for steps in (["lsar"], ["shift"]):
        quarter = fit_calibration(clouds, steps=steps, options=CalibrationOptions(keep_mean=0.25))
        assert torch.equal(fit_calibration(clouds, steps=steps).bias, quarter.bias)
    paper = fit_calibration_stages(clouds, steps=["shift", "scale"])["shift"]
    assert torch.equal(
        paper.bias, fit_calibration(clouds, steps=["shift"], options=CalibrationOptions(keep_mean=0)).bias
    )


def test_without_the_pivot_another_language_takes_its_place(clouds: dict[str, Tensor]) -> None:
    del clouds["en"]
    assert fit_calibration(clouds).pivot == "fr"


def test_seed_and_numpy(clouds: dict[str, Tensor]) -> None:
    arrays = {language: rows.numpy() for language, rows in clouds.items()}
    first = fit_calibration(clouds, steps=PAPER, seed=4, options=QUICK)
    second = fit_calibration(arrays, steps=PAPER, seed=4, options=QUICK)  # type: ignore[arg-type]
    assert torch.equal(first.weight, second.weight)


def errors() -> Iterator[tuple[dict, str]]:
    good = {"en": torch.randn(60, 3), "fr": torch.randn(60, 3)}
    yield {"embeddings": {**good, "sw": torch.randn(7, 3)}}, "'sw' has 7 texts"
    yield {"embeddings": {**good, "sw": torch.randn(60, 4)}}, "one dimension.*'sw': 4"
    yield {"embeddings": good, "pivot": "de", "steps": ["to_pivot"]}, "pivot language 'de': there are en, fr"
    yield {"embeddings": good, "steps": ["shift", "twist"]}, "'twist': choose from shift, scale"
    yield {"embeddings": good, "steps": "shift"}, "got 'shift'"
    yield {"embeddings": good, "steps": []}, "sequence out of"
    yield {"embeddings": good, "steps": ["shift", "shift"]}, "once"
    yield {"embeddings": good, "strength": 1.5}, "got 1.5"
    yield {"embeddings": good, "pairs": {"sw": (torch.ones(2, 3), torch.ones(2, 3))}}, "'sw'"
    yield (
        {"embeddings": good, "pairs": {"fr": (torch.ones(2, 3), torch.ones(3, 3))}},
        r"\(2, 3\) and \(3, 3\)",
    )


@pytest.mark.parametrize(("arguments", "message"), list(errors()))
def test_bad_input_is_named(arguments: dict, message: str) -> None:
    embeddings = arguments.pop("embeddings")
    with pytest.raises(ValueError, match=message):
        fit_calibration(embeddings, **arguments)
