"""Texts that say the same in several languages are found by their vectors, and share them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from st_xlret.vectors import translations
from st_xlret.vectors.translations import find_translations, share_translations


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
        for i in rows:
            j = nearest(i, code)
            cosine = float(units[i] @ units[j])
            decoys[code].append((cosine, sum(float(units[j] @ units[k]) > cosine for k in rows if k != j)))
    taken = 0
    for number, (least, _, _) in enumerate(candidates, 1):
        expected = 0.0
        for a, b in combinations(rows_of, 2):
            m = min(len(rows_of[a]), len(rows_of[b]))
            near = [
                sum((1 - m / len(rows_of[code])) ** closer for cosine, closer in decoys[code] if cosine >= least)
                for code in (a, b)
            ]
            expected += m * sum(near) / (len(rows_of[a]) + len(rows_of[b]))
        taken = number if expected <= chance * number else taken
    return {(i, j) for _, i, j in candidates[:taken]}


@pytest.mark.parametrize("chance", [0.0, 0.1, 0.5, 1.0])
def test_pairs_are_those_of_the_definition(chance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translations, "_CHANCE", chance)
    vectors, languages = collection(40, 3, noise=0.7)
    chosen = np.append(np.random.default_rng(1).permutation(80)[:60], [*range(80, 93)])  # languages of several sizes
    vectors, languages = vectors[chosen], [languages[i] for i in chosen]
    found = find_translations(vectors, languages)
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


def test_chunks_of_a_document_that_share_words_do_not_hide_translations() -> None:
    generator = np.random.default_rng(2)
    documents, chunks, languages = 40, 4, 8
    shared_words = 3 * np.repeat(generator.normal(size=(documents, 32)), chunks, axis=0)
    meaning = shared_words + 0.5 * generator.normal(size=shared_words.shape)
    vectors = np.concatenate([meaning + generator.normal(size=meaning.shape) for _ in range(languages)])
    codes = [f"l{number}" for number in range(languages) for _ in meaning]
    names = [f"{code} {number % len(meaning) // chunks}" for number, code in enumerate(codes)]
    hidden, found = (find_translations(vectors, codes, given) for given in (None, names))
    assert len(hidden.first) < len(found.first) / 2
    first, second = (rows % len(meaning) // chunks for rows in (found.first, found.second))
    assert (first == second).double().mean() > 0.95
    for each_its_own in ([*map(str, range(len(vectors)))], [None] * len(vectors)):
        assert find_translations(vectors, codes, each_its_own).first.equal(hidden.first)
    with pytest.raises(ValueError, match="1280 vectors have 3 documents"):
        find_translations(vectors, codes, names[:3])


@pytest.mark.parametrize("share", [0.15, 0.5, 0.8, 0.98])
def test_chunks_of_a_large_document_are_no_sign_that_the_others_are_translations(share: float) -> None:
    vectors = np.random.default_rng(0).normal(size=(1200, 16))
    codes = ["en"] * 600 + ["fr"] * 600
    names = [f"{code} large" if row % 600 < 600 * share else str(row) for row, code in enumerate(codes)]
    assert len(find_translations(vectors, codes, names).first) <= 6


def test_a_few_documents_say_nothing_of_what_is_close_by_chance() -> None:
    vectors, languages = collection(200, 2)
    few, many = ([f"{code} {row % documents}" for row, code in enumerate(languages)] for documents in (4, 40))
    assert len(find_translations(vectors, languages, few).first) == 0
    assert len(find_translations(vectors, languages, many).first) == 200


def test_many_rows_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, languages = collection(200, 2)
    monkeypatch.setattr(translations, "_SAMPLE", 50)
    assert len(find_translations(vectors, languages).first) == 200


def test_copies_within_a_language_are_no_sign_of_chance() -> None:
    vectors, languages = collection(100, 2)
    with_copies = np.concatenate([vectors, vectors[:20]])
    assert len(find_translations(with_copies, [*languages, *languages[:20]]).first) >= 80


@pytest.mark.parametrize("copies", [2, 3])
def test_copies_within_a_language_do_not_hide_what_is_near_by_chance(copies: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(600, 32))
    languages = ["en"] * 300 + ["fr"] * 300
    assert len(find_translations(np.concatenate([vectors] * copies), languages * copies).first) <= 6


@pytest.mark.parametrize("few", [1, 5, 40])
def test_a_small_language_beside_a_large_one(few: int) -> None:
    """A large one has a row near to each of a small one by chance."""
    generator = np.random.default_rng(few)
    large, small = generator.normal(size=(3000, 32)), generator.normal(size=(few, 32))
    languages = ["en"] * 3000 + ["fr"] * few
    assert len(find_translations(np.concatenate([large, small]), languages).first) <= 1
    translated = large[:few] + 0.1 * generator.normal(size=small.shape)
    found = find_translations(np.concatenate([large, translated]), languages)
    assert sorted(found.first.tolist()) == list(range(few))


def test_one_language() -> None:
    vectors = np.eye(4, dtype=np.float32)
    np.testing.assert_array_equal(share_translations(vectors, ["en"] * 4), vectors)


def test_of_languages_of_one_row_none_is_taken() -> None:
    """Nothing says how close their rows are by chance."""
    vectors, languages = np.eye(4, dtype=np.float32) + 0.1, ["de", "en", "fr", "ru"]
    assert not len(find_translations(vectors, languages).first)
    np.testing.assert_allclose(share_translations(vectors, languages), vectors / np.linalg.norm(vectors[0]), atol=1e-6)


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
    vectors[4, 0] = np.nan
    with pytest.raises(ValueError, match="vectors row 4 holds NaN"):
        share_translations(vectors, languages)
    assert len(find_translations(np.empty((0, 4), np.float32), []).first) == 0
