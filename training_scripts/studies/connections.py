"""Which language pairs have parallel sentences: the settings of lang-contrastive, Tables 4 and 5."""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from datasets import Dataset, concatenate_datasets

from st_xlret.data.columns import column_codes, rows_by_value
from st_xlret.data.lines import DataError
from st_xlret.languages import check_language

logger = logging.getLogger(__name__)

SETTINGS = ("none", "pivot", "bridge", "islands", "single", "rest")
PIVOT = "en"
"""The language of the labelled data."""


def connect_languages(languages: Sequence[str], setting: str) -> list[tuple[str, str]]:
    """List the language pairs of a setting (section 5.3.2 of lang-contrastive, generalised to any languages).

    Args:
        languages: All languages, English (the pivot) among them; the last other one is the bridge. "The rest" are those
            beside pivot and bridge.
        setting: "none"; "pivot" with every other language (setting 1 of the paper); "bridge": pivot with bridge, bridge
            with the rest (2); "islands": pivot with bridge, each of the rest with the next (3); "single": pivot with
            bridge (4); "rest": the rest among themselves (5); or pairs like `"en-ko ja-fi"`.

    Raises:
        ValueError: If a language or the setting is unknown, or the pivot is not among the languages.

    Example:
        >>> connect_languages(["en", "ja", "fi", "ko"], "bridge")
        [('en', 'ko'), ('ko', 'ja'), ('ko', 'fi')]
    """
    codes = list(dict.fromkeys(check_language(code, where="languages") for code in languages))
    if "-" in setting:
        return list(dict.fromkeys(_named(name, codes) for name in setting.replace(",", " ").split()))
    if setting not in SETTINGS:
        raise ValueError(
            f"unknown setting {setting!r}; use one of {', '.join(SETTINGS)}, or pairs such as 'en-ko ja-fi'"
        )
    others = [code for code in codes if code != PIVOT]
    if PIVOT not in codes or not others:
        raise ValueError(f"the pivot {PIVOT!r} and a further language must be among the languages, got {codes}")
    *rest, bridge = others
    if setting in ("islands", "rest") and len(rest) < 2:
        raise ValueError(f"setting {setting!r} needs two languages beside pivot and bridge, got {rest}")
    return {
        "none": [],
        "pivot": [(PIVOT, code) for code in others],
        "bridge": [(PIVOT, bridge), *((bridge, code) for code in rest)],
        "islands": [(PIVOT, bridge), *itertools.pairwise(rest)],
        "single": [(PIVOT, bridge)],
        "rest": list(itertools.pairwise(rest)),
    }[setting]


def _named(name: str, languages: list[str]) -> tuple[str, str]:
    # "en-pt-br": the hyphen may be part of a code.
    for cut in (place for place, character in enumerate(name) if character == "-"):
        first, second = name[:cut], name[cut + 1 :]
        if first in languages and second in languages and first != second:
            return first, second
    raise ValueError(f"{name!r} is not a pair of two of the languages {', '.join(languages)}")


def keep_connections(pairs: Dataset, connections: Iterable[tuple[str, str]]) -> Dataset:
    """Keep the pairs of connected languages only, and log how many there are.

    Where a connection has no pairs in either direction, pairs are joined whose English sentences are equal.

    Raises:
        DataError: If a connection has no pairs, and none can be joined.

    Example:
        >>> rows = {"source": ["Yes.", "Yes."], "target": ["はい。", "Kyllä."]}
        >>> languages = {"source_language": ["en", "en"], "target_language": ["ja", "fi"]}
        >>> keep_connections(Dataset.from_dict({**rows, **languages}), [("ja", "fi")])["target"][:]
        ['Kyllä.']
    """
    found, names = rows_by_value(pairs, ["source_language", "target_language"])
    rows = dict(zip(names, found, strict=True))
    chosen, parts, missing = [np.empty(0, dtype=np.int64)], [], []
    for a, b in dict.fromkeys(connections):
        direct = [rows[name] for name in ((a, b), (b, a)) if name in rows]
        joined = None if direct or PIVOT in (a, b) else _join(pairs, rows, a, b)
        if direct:
            chosen += direct
            logger.info("%s-%s: %d pairs", a, b, sum(map(len, direct)))
        elif joined is not None and len(joined):
            parts.append(joined)
            logger.info("%s-%s: %d pairs joined through the pivot", a, b, len(joined))
        else:
            missing.append(f"{a}-{b}")
    if missing:
        there = ", ".join(sorted("-".join(name) for name in names))
        raise DataError(f"there are no parallel sentences of {', '.join(missing)}; the data has {there}")
    kept = pairs.select(np.sort(np.concatenate(chosen)))
    return concatenate_datasets([kept, *parts]) if parts else kept


def _join(pairs: Dataset, rows: dict[tuple[str, ...], np.ndarray], a: str, b: str) -> Dataset:
    """Pairs of the languages `a` and `b` whose pivot sentences are equal."""

    def by_pivot(code: str) -> dict[str, list[str]]:
        texts = defaultdict(list)
        for name, sides in (((PIVOT, code), ("source", "target")), ((code, PIVOT), ("target", "source"))):
            part = pairs.select(rows.get(name, []))
            for text, other in zip(*(part[side][:] for side in sides), strict=True):
                texts[text].append(other)
        return texts

    sources, targets = by_pivot(a), by_pivot(b)
    found = sorted({(s, t) for text, own in sources.items() for s in own for t in targets.get(text, ()) if s != t})
    columns = {"source": [s for s, _ in found], "target": [t for _, t in found]}
    codes = {"source_language": [a] * len(found), "target_language": [b] * len(found)}
    return Dataset.from_dict({**columns, **codes}, features=pairs.features)


def without_parallel(pairs: Dataset, languages: Iterable[str]) -> Dataset:
    """Remove every pair with one of these languages (Table 5); a DataError if none is left."""
    absent = {check_language(code, where="languages without parallel sentences") for code in languages}
    code, names = column_codes(pairs, ["source_language", "target_language"])
    kept = np.flatnonzero(np.array([absent.isdisjoint(name) for name in names], dtype=bool)[code])
    if not len(kept):
        raise DataError(f"no parallel sentences are left without {', '.join(sorted(absent))}")
    return pairs.select(kept)
