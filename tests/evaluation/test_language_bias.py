from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from st_xlret.evaluation.language_bias import (
    bias_as_json,
    measure_both,
    measure_language_bias,
)


def mixed(texts: int = 40, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {code: torch.randn(texts, 6, generator=generator) for code in ("en", "fr", "de")}


def naive(pool: dict[str, Tensor], ids: dict[str, Tensor], queries: dict[str, Tensor], k: int) -> np.ndarray:
    codes = sorted(pool)
    entries = [(code, int(ids[code][i]), pool[code][i]) for code in codes for i in range(len(pool[code]))]
    shares = np.zeros((len(codes), len(codes)))
    for row, code in enumerate(codes):
        for i, query in enumerate(queries[code]):
            left = [entry for entry in entries if (entry[0], entry[1]) != (code, int(ids[code][i]))]
            left.sort(key=lambda entry: -float(torch.cosine_similarity(query, entry[2], dim=0)))
            for other, _, _ in left[:k]:
                shares[row, codes.index(other)] += 1
    return shares / shares.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("asked", [12, 7])
def test_it_agrees_with_a_loop(asked: int) -> None:
    rows, queries = mixed(12), mixed(asked, seed=1)
    ids = {code: torch.arange(12) // 4 for code in rows}
    found = measure_language_bias(rows, ids, queries=queries, neighbours=5)
    np.testing.assert_allclose(found.shares, naive(rows, ids, queries, 5))


def test_an_encoder_that_sees_no_language_has_no_imbalance_beyond_chance() -> None:
    # All texts of a language are from two documents, so that half of its texts are never found.
    rows = {code: part.repeat(1, 1) for code, part in mixed(400).items()}
    ids = {code: torch.arange(400) // 200 for code in rows}
    found = measure_language_bias(rows, ids, neighbours=20)
    assert found.chance == pytest.approx(200 / 1000)
    np.testing.assert_allclose(found.expected.sum(axis=1), 1)
    np.testing.assert_allclose(found.expected[0], [0.2, 0.4, 0.4])
    assert found.imbalance < 0.05


def test_an_encoder_that_sees_nothing_else_is_as_far_from_chance_as_can_be() -> None:
    eye = torch.eye(3)
    rows = {code: eye[i].repeat(30, 1) + 0.01 * torch.randn(30, 3) for i, code in enumerate(("de", "en", "fr"))}
    found = measure_language_bias(rows, neighbours=5)
    assert found.same_language_share == 1
    assert found.imbalance == pytest.approx(1 - found.chance)
    assert found.distances[0, 0] == pytest.approx(0, abs=1e-5) and found.distances[0, 1] > 0.9


def test_search_and_documents_are_measured_apart() -> None:
    rows, queries = mixed(), mixed(seed=1)
    both = measure_both(rows, queries, neighbours=5)
    np.testing.assert_array_equal(
        both["search"].shares, measure_language_bias(rows, queries=queries, neighbours=5).shares
    )
    np.testing.assert_array_equal(both["documents"].shares, measure_language_bias(rows, neighbours=5).shares)
    written = bias_as_json(both)
    assert written["same_language_share"] == both["search"].same_language_share
    assert set(written["languages"]) == {"de", "en", "fr"} and "chance" in written["languages"]["en"]  # type: ignore
    assert written["documents"]["chance"] == both["documents"].chance  # type: ignore[index]
    alike = measure_both(rows, neighbours=5)
    assert alike["search"] is alike["documents"]


def test_too_few_languages_or_texts_are_named() -> None:
    with pytest.raises(ValueError, match="two languages at least, got en"):
        measure_language_bias({"en": torch.eye(4)})
    with pytest.raises(ValueError, match="2 texts a language are too few for 20 neighbours"):
        measure_language_bias({"en": torch.eye(2), "fr": torch.eye(2)})
