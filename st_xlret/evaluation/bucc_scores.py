"""Mined pairs of sentences against gold ones: the best threshold, and what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class MinedPair(NamedTuple):
    """A pair of sentence ids, and its margin score."""

    score: float
    source: str
    target: str


def best_threshold(candidates: Sequence[MinedPair], gold: set[tuple[str, str]]) -> float:
    """The score from which on candidates are taken so that their F1 against the gold pairs is highest.

    It lies halfway between the last candidate that is taken and the first that is not. Among equal F1 the
    fewest candidates are taken; where none of them is right, all are (-inf).

    Args:
        candidates: Best first.
        gold: Pairs (source id, target id).

    Example:
        >>> ranked = [MinedPair(1.4, "a", "x"), MinedPair(1.2, "b", "y"), MinedPair(1.0, "c", "z")]
        >>> round(best_threshold(ranked, {("a", "x"), ("b", "y")}), 6)
        1.1
    """
    best, threshold, right = 0.0, float("-inf"), 0
    for taken, pair in enumerate(candidates, start=1):
        right += (pair.source, pair.target) in gold
        following = candidates[taken].score if taken < len(candidates) else None
        if following == pair.score:
            continue  # no threshold parts equal scores
        f1 = 2 * right / (taken + len(gold))
        if f1 > best:
            best = f1
            threshold = pair.score if following is None else (pair.score + following) / 2
    return threshold


def mining_scores(pairs: Sequence[MinedPair], gold: set[tuple[str, str]]) -> dict[str, float]:
    """Precision, recall and F1 of mined pairs; all 0 where none is right.

    Example:
        >>> mining_scores([MinedPair(1.0, "a", "x"), MinedPair(0.9, "b", "z")], {("a", "x"), ("b", "y")})
        {'precision': 0.5, 'recall': 0.5, 'f1': 0.5}
    """
    right = sum((pair.source, pair.target) in gold for pair in pairs)
    return {
        "precision": right / len(pairs) if pairs else 0.0,
        "recall": right / len(gold),
        "f1": 2 * right / (len(pairs) + len(gold)),
    }
