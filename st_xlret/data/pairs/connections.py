"""Which language pairs have parallel sentences: the settings of lang-contrastive, Tables 4 and 5."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from datasets import Dataset, concatenate_datasets

from st_xlret.data.batches.sampling import column_codes, rows_by_code
from st_xlret.data.languages import check_language
from st_xlret.data.reading.jsonl import DataError

Connection = tuple[str, str]

SETTINGS = {
    "none": "no parallel sentences (the paper's basic setting)",
    "pivot": "the pivot with every other language (setting 1)",
    "bridge": "the pivot with the bridge, the bridge with the rest (setting 2)",
    "islands": "the pivot with the bridge, the rest among themselves (setting 3)",
    "single": "the pivot with the bridge alone (setting 4)",
    "rest": "the rest among themselves alone (setting 5)",
}


def connect_languages(
    languages: Sequence[str], setting: str, *, pivot: str = "en", bridge: str | None = None
) -> list[Connection]:
    """List the language pairs of a setting (section 5.3.2 of lang-contrastive, generalised to any languages).

    The languages of the paper are En, Fi, Ja and Ko, its pivot is En and its bridge is Ko. "The rest" are all other
    languages, of which each is connected with the next one.

    Args:
        languages: All languages, the pivot among them.
        setting: A name in `SETTINGS`, or pairs like `"en-ko ja-fi"`.
        pivot: The language of the labelled data.
        bridge: The language that connects the rest with the pivot. By default the last one.

    Returns:
        Language pairs, each once.

    Raises:
        ValueError: If a language or the setting is unknown, or the pivot or bridge is not among the languages.

    Example:
        >>> connect_languages(["en", "ja", "fi", "ko"], "bridge")
        [('en', 'ko'), ('ko', 'ja'), ('ko', 'fi')]
        >>> connect_languages(["en", "ja", "fi", "ko"], "islands")
        [('en', 'ko'), ('ja', 'fi')]
    """
    codes = list(dict.fromkeys(check_language(code, where="languages") for code in languages))
    pivot = check_language(pivot, where="pivot")
    if "-" in setting and setting not in SETTINGS:
        return _named(setting, codes)
    if setting not in SETTINGS:
        raise ValueError(
            f"unknown setting {setting!r}; use one of {', '.join(SETTINGS)}, or pairs such as 'en-ko ja-fi'"
        )
    others = [code for code in codes if code != pivot]
    if pivot not in codes or not others:
        raise ValueError(f"the pivot {pivot!r} and a further language must be among the languages, got {codes}")
    bridge = others[-1] if bridge is None else check_language(bridge, where="bridge")
    if bridge not in others:
        raise ValueError(f"the bridge {bridge!r} must be among the languages and not be the pivot, got {codes}")
    rest = [code for code in others if code != bridge]
    among_rest = list(itertools.pairwise(rest))
    if setting in ("islands", "rest") and not among_rest:
        raise ValueError(f"setting {setting!r} needs two languages beside pivot and bridge, got {rest}")
    return {
        "none": [],
        "pivot": [(pivot, code) for code in others],
        "bridge": [(pivot, bridge), *((bridge, code) for code in rest)],
        "islands": [(pivot, bridge), *among_rest],
        "single": [(pivot, bridge)],
        "rest": among_rest,
    }[setting]


@dataclass
class ConnectionReport:
    """Number of pairs of each connection, and their origin.

    Attributes:
        direct: Pairs that are in the data, by `"en-ko"`.
        joined: Pairs that were made of two pairs with the same pivot sentence, by `"ja-fi"`.
        left_out: Pairs of language pairs that are not connected.
    """

    direct: dict[str, int] = field(default_factory=dict)
    joined: dict[str, int] = field(default_factory=dict)
    left_out: int = 0

    def __str__(self) -> str:
        lines = [f"{name}: {count:,} pairs" for name, count in self.direct.items()]
        lines += [f"{name}: {count:,} pairs joined through the pivot" for name, count in self.joined.items()]
        return "\n".join([*lines, f"left out, not connected: {self.left_out:,} pairs"])


def keep_connections(
    pairs: Dataset, connections: Iterable[Connection], *, pivot: str | None = "en"
) -> tuple[Dataset, ConnectionReport]:
    """Keep the pairs of connected languages only.

    If a connection has no pairs in the data, pairs are joined through the pivot: a Japanese and a Finnish sentence with
    the same English translation are a pair.

    Args:
        pairs: Rows as [`load_pairs`][st_xlret.load_pairs] gives them, of either direction.
        connections: Language pairs, as [`connect_languages`][st_xlret.data.connect_languages] gives them.
        pivot: The language to join through; None to join no pairs.

    Returns:
        The pairs left, and a report.

    Raises:
        DataError: If a connection has no pairs, and none can be joined.

    Example:
        >>> rows = {"source": ["Yes.", "Yes."], "target": ["はい。", "Kyllä."]}
        >>> languages = {"source_language": ["en", "en"], "target_language": ["ja", "fi"]}
        >>> kept, report = keep_connections(Dataset.from_dict({**rows, **languages}), [("ja", "fi")])
        >>> kept[0]["source"], kept[0]["target"], report.joined
        ('はい。', 'Kyllä.', {'ja-fi': 1})
    """
    code, names = column_codes(pairs, ["source_language", "target_language"])
    rows = {name: group for name, group in zip(names, rows_by_code(code, len(names)), strict=True)}
    report, chosen, parts = ConnectionReport(), [np.empty(0, dtype=np.int64)], []
    missing = []
    for a, b in dict.fromkeys(connections):
        direct = [rows[name] for name in ((a, b), (b, a)) if name in rows]
        joined = None if direct or pivot in (None, a, b) else _join(pairs, rows, a, b, str(pivot))
        if direct:
            chosen += direct
            report.direct[f"{a}-{b}"] = sum(map(len, direct))
        elif joined is not None and len(joined):
            parts.append(joined)
            report.joined[f"{a}-{b}"] = len(joined)
        else:
            missing.append(f"{a}-{b}")
    if missing:
        there = ", ".join(sorted("-".join(name) for name in names))
        raise DataError(f"there are no parallel sentences of {', '.join(missing)}; the data has {there}")
    kept = np.sort(np.concatenate(chosen))
    report.left_out = len(pairs) - len(kept)
    return concatenate_datasets([pairs.select(kept), *parts]) if parts else pairs.select(kept), report


def without_parallel(pairs: Dataset, languages: Iterable[str]) -> tuple[Dataset, int]:
    """Remove every pair with one of these languages (the setting of Table 5).

    Args:
        pairs: Rows as [`load_pairs`][st_xlret.load_pairs] gives them.
        languages: Languages to leave without parallel sentences.

    Returns:
        The pairs left, and the number of pairs removed.

    Raises:
        DataError: If no pair is left.
    """
    absent = {check_language(code, where="languages without parallel sentences") for code in languages}
    code, names = column_codes(pairs, ["source_language", "target_language"])
    kept = np.flatnonzero(np.array([absent.isdisjoint(name) for name in names], dtype=bool)[code])
    if not len(kept):
        raise DataError(f"no parallel sentences are left without {', '.join(sorted(absent))}")
    return pairs.select(kept), len(pairs) - len(kept)


def _named(setting: str, languages: list[str]) -> list[Connection]:
    connections = []
    for name in setting.replace(",", " ").split():
        # "en-pt-br": the hyphen may be part of a code.
        cuts = [(name[:i], name[i + 1 :]) for i, character in enumerate(name) if character == "-"]
        found = next(((a, b) for a, b in cuts if a in languages and b in languages and a != b), None)
        if found is None:
            raise ValueError(f"{name!r} is not a pair of two of the languages {', '.join(languages)}")
        connections.append(found)
    return list(dict.fromkeys(connections))


def _join(pairs: Dataset, rows: dict[tuple[str, ...], np.ndarray], a: str, b: str, pivot: str) -> Dataset | None:
    """Make pairs of the languages `a` and `b` whose pivot sentences are equal."""
    sides = [_with_pivot(pairs, rows, code, pivot) for code in (a, b)]
    if sides[0] is None or sides[1] is None:
        return None
    table = (
        sides[0]
        .rename_columns(["pivot", "source"])
        .join(sides[1].rename_columns(["pivot", "target"]), keys="pivot", join_type="inner")
    )
    table = table.select(["source", "target"]).group_by(["source", "target"]).aggregate([])
    table = table.filter(pa.compute.not_equal(table["source"], table["target"])).sort_by(
        [("source", "ascending"), ("target", "ascending")]
    )
    for name, code in (("source_language", a), ("target_language", b)):
        table = table.append_column(name, pa.array([code] * len(table), pa.string()))
    return Dataset(table).cast(pairs.features)


def _with_pivot(pairs: Dataset, rows: dict[tuple[str, ...], np.ndarray], code: str, pivot: str) -> pa.Table | None:
    parts = []
    for name, columns in (((pivot, code), ["source", "target"]), ((code, pivot), ["target", "source"])):
        if name in rows:
            table = pairs.select(rows[name]).with_format("arrow", columns=["source", "target"])[:]
            parts.append(table.select(columns).rename_columns(["pivot", "text"]))
    return pa.concat_tables(parts) if parts else None
