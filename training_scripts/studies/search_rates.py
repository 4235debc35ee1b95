"""Learning rates that the study of search tries: those that are given, and further ones beyond the end of the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence


def trials(
    rates: Sequence[float], score_of: Callable[[float], float | None], *, further: int
) -> dict[float, float | None]:
    """Learning rate -> its score, None if it is to be tried still.

    A rate beyond an end of those that were tried is added while the best is at that end. It is as far from the best as
    the best is from the next one, rounded to one digit: 3e-05 and 0.0001 are followed by 0.0003.

    Args:
        rates: Rates to try in any case.
        score_of: Rate -> its score, None if it was not tried yet; -inf if its training failed.
        further: How many rates are added at most.

    >>> trials([3e-5, 1e-4], {3e-5: 0.4, 1e-4: 0.5}.get, further=2)
    {3e-05: 0.4, 0.0001: 0.5, 0.0003: None}
    """
    scores = {rate: score_of(rate) for rate in rates}
    for _ in range(further if len(scores) > 1 else 0):
        best = best_of(scores)
        ascending = sorted(scores)
        if best is None or best not in (ascending[0], ascending[-1]):
            break
        inner = ascending[1] if best == ascending[0] else ascending[-2]
        beyond = float(f"{best * best / inner:.0e}")
        # Rates that are close to each other may have no round one between themselves and the next.
        if not (beyond < ascending[0] if best == ascending[0] else beyond > ascending[-1]):
            break
        scores[beyond] = score_of(beyond)
    return scores


def best_of(scores: dict[float, float | None]) -> float | None:
    """The rate of the highest score; None if one is to be tried still, or all have failed."""
    known = {rate: score for rate, score in scores.items() if score is not None}
    if len(known) < len(scores):
        return None
    best = max(known, key=lambda rate: known[rate])
    return None if known[best] == -math.inf else best
