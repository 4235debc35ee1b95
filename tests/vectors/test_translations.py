"""Texts that say the same in several languages are found by their vectors, and share them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from st_xlret.vectors import find_translations, share_translations, translations


def collection(topics: int, languages: int, *, noise: float = 0.3, seed: int = 0) -> tuple[np.ndarray, list[str]]:
    """Each topic in each language: rows by language, then by topic."""
    generator = np.random.default_rng(seed)
    meaning = generator.normal(size=(topics, 32))
    vectors = np.concatenate([meaning + noise * generator.normal(size=meaning.shape) for _ in range(languages)])
    return vectors.astype(np.float32), [f"l{number}" for number in range(languages) for _ in range(topics)]


def naive(vectors: np.ndarray, languages: list[str], chance: float) -> set[tuple[int, int]]:
    """The definition, row by row."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    rows_of = {code: [i for i, other in enumerate(languages) if other == code] for code in sorted(set(languages))}

    def nearest(row: int, code: str) -> int:
        return max((i for i in rows_of[code] if i != row), key=lambda i: (float(units[row] @ units[i]), -i))

    candidates = []
    for a, b in combinations(rows_of, 2):
        for i in rows_of[a]:
            j = nearest(i, b)
            if nearest(j, a) == i:
                candidates.append((float(units[i] @ units[j]), i, j))
    candidates.sort(key=lambda each: -each[0])
    decoys = {code: [] for code in rows_of}
    for code, rows in rows_of.items():
        for i in rows if len(rows) > 1 else ():
            j = nearest(i, code)
            if nearest(j, code) == i and units[i] @ units[j] < 1 - 1e-5:
                decoys[code].append(float(units[i] @ units[j]))
    taken = 0
    for number, (cosine, _, _) in enumerate(candidates, 1):
        expected = 0.0
        for a, b in combinations(rows_of, 2):
            shares = [sum(each >= cosine for each in decoys[code]) / len(rows_of[code]) for code in (a, b)]
            expected += sum(shares) / 2 * min(len(rows_of[a]), len(rows_of[b]))
        taken = number if expected <= chance * number else taken
    return {(i, j) for _, i, j in candidates[:taken]}


@pytest.mark.parametrize("chance", [0.0, 0.1, 0.5, 1.0])
def test_pairs_are_those_of_the_definition(chance: float) -> None:
    vectors, languages = collection(40, 3, noise=0.7)
    chosen = np.random.default_rng(1).permutation(len(vectors))[:90]  # languages of several sizes, mixed
    vectors, languages = vectors[chosen], [languages[i] for i in chosen]
    found = find_translations(vectors, languages, chance=chance)
    pairs = {tuple(sorted(pair)) for pair in zip(found.first.tolist(), found.second.tolist(), strict=True)}
    assert pairs == {tuple(sorted(pair)) for pair in naive(vectors, languages, chance)}
    assert found.cosines.tolist() == sorted(found.cosines.tolist(), reverse=True)


def test_a_collection_of_translations_and_one_without() -> None:
    vectors, languages = collection(200, 4)
    found = find_translations(vectors, languages)
    assert len(found.first) == 200 * 6 and (found.first % 200 == found.second % 200).all()
    apart = np.concatenate([np.arange(50) + 200 * number + 50 * number for number in range(4)])
    none = find_translations(vectors[apart], [languages[i] for i in apart])
    assert len(none.first) <= 2


def test_many_rows_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, languages = collection(200, 2)
    monkeypatch.setattr(translations, "_SAMPLE", 50)
    assert len(find_translations(vectors, languages).first) == 200


def test_copies_within_a_language_are_no_sign_of_chance() -> None:
    vectors, languages = collection(100, 2)
    with_copies = np.concatenate([vectors, vectors[:20]])
    assert len(find_translations(with_copies, [*languages, *languages[:20]]).first) >= 80


@pytest.mark.parametrize("languages", [["en"] * 4, ["de", "en", "fr", "ru"]])
def test_one_language_or_one_row_of_each(languages: list[str]) -> None:
    vectors = np.eye(4, dtype=np.float32)
    shared = share_translations(vectors, languages, chance=0)
    assert shared.shape == (4, 4) and shared.isfinite().all()
    if languages[0] == languages[1]:
        np.testing.assert_array_equal(shared, vectors)


def test_a_vector_goes_halfway_to_the_mean_of_its_translations() -> None:
    vectors, languages = collection(30, 3)
    lonely = np.random.default_rng(5).normal(size=(1, 32)).astype(np.float32)
    vectors = np.concatenate([vectors, lonely]) * 3
    found = find_translations(vectors, [*languages, "l0"])
    mates = {row: [] for row in range(91)}
    for i, j in zip(found.first.tolist(), found.second.tolist(), strict=True):
        mates[i].append(j)
        mates[j].append(i)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = np.stack([units[i] + units[mates[i]].mean(0) if mates[i] else units[i] for i in mates])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    shared = share_translations(torch.from_numpy(vectors), [*languages, "l0"])
    np.testing.assert_allclose(shared, expected, atol=1e-6)
    assert not mates[90] and len(mates[0]) == 2


def test_bad_input_is_named() -> None:
    vectors, languages = collection(3, 2)
    with pytest.raises(ValueError, match="6 vectors have 5 languages"):
        find_translations(vectors, languages[:5])
    with pytest.raises(ValueError, match="chance must not be negative, got -1"):
        find_translations(vectors, languages, chance=-1)
    vectors[4, 0] = np.nan
    with pytest.raises(ValueError, match="vectors row 4 holds NaN"):
        share_translations(vectors, languages)
    assert len(find_translations(np.empty((0, 4), np.float32), []).first) == 0
