"""What `calibrate` and `report` do with vectors that are stored already, instead of a model and texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from st_xlret.options import option

if TYPE_CHECKING:
    from st_xlret.calibration import Comparison
    from st_xlret.stores import Store

_LABELLED = 300  # texts of each language whose label is checked
_LOOKED_THROUGH = 12  # batches of 8 192 rows in which they are looked for
_SHOWN, _LONGEST = 30, 20  # languages that a line names, and their characters


@dataclass
class Stored:
    """Vectors that are stored already."""

    _argument_group_name = "stored vectors"

    vectors: str | None = option(
        None,
        "Instead of --model and texts: vectors.parquet, vectors.npy, vectors.faiss, qdrant:..., postgresql://..., "
        "lance:..., chroma:...; see the guide.",
    )
    vector_field: str | None = option(None, "Field of the vectors. By default 'vector'.")
    language_field: str | None = option(None, "Field of the languages. By default 'language' or 'lang'.")
    text_field: str | None = option(
        None, "Field of the texts: their languages are identified, or checked (extra langid)."
    )
    languages_file: str | None = option(
        None, "For .npy and .faiss: a file with a language code a line, in the order of the vectors."
    )

    def open(self) -> Store:
        """The source; without --vectors a `ValueError`."""
        from st_xlret.stores import open_store

        if self.vectors is None:
            raise ValueError("--vectors is missing")
        fields = {name: value for name, value in vars(self).items() if name != "vectors"}
        return open_store(self.vectors, **fields)


def sample_vectors(
    source: Store, per_language: int, *, languages: Sequence[str], min_texts: int, seed: int
) -> dict[str, np.ndarray]:
    """Vectors of each language; languages with fewer than `min_texts` are left out, and named."""
    mapped = f", mapped by the calibration {source.mark}" if source.mark else ""
    print(f"{source.name}: {len(source)} vectors of {source.dimension} dimensions{mapped}")
    found = source.sample(per_language, seed=seed, languages=languages or None, show_progress_bar=True)
    kept = {code: rows for code, rows in found.items() if len(rows) >= min_texts}
    few = {code: rows for code, rows in found.items() if code not in kept}
    if not kept:
        raise ValueError(
            f"{source.name}: no language has {min_texts} vectors (min_texts): {_counts(few)}. If these are no "
            "languages, name their field (--language_field)"
        )
    print(f"sampled: {_counts(kept)}")
    if few:
        print(f"warning: left out, with fewer than {min_texts} vectors: {_counts(few)}")
    if source.fields.text is not None:
        _check_labels(source, set(kept))
    return kept


def _counts(found: Mapping[str, np.ndarray]) -> str:
    """The first languages with their numbers of vectors."""
    shown = [f"{code[:_LONGEST]} {len(rows)}" for code, rows in islice(found.items(), _SHOWN)]
    return ", ".join(shown) + f", ... ({len(found)} in all)" * (len(found) > _SHOWN)


def describe(comparison: Comparison) -> str:
    """The comparison, lift by language, and the strengths of both ways."""
    from st_xlret.evaluation import markdown_table

    before, after = comparison.before["search"], comparison.after["search"]
    rows = [
        [code, *(f"{100 * bias.shares[i, i]:.1f}" for bias in (before, after)), f"{100 * before.expected[i, i]:.1f}"]
        + [f"{bias.shares[i, i] / (bias.expected[i, i] or np.nan):.1f}" for bias in (before, after)]
        for i, code in enumerate(before.languages)
    ]
    header = ["language", "before (%)", "after (%)", "chance (%)", "lift before", "lift after"]
    strengths = f"\n\n{comparison.strengths_table()}" if comparison.other_way else ""
    return f"\n{markdown_table(header, rows)}{strengths}\n\n{comparison}"


def lines_for_a_service(output: str, *, queries_only: bool, needs_language: bool) -> str:
    """What a service that searches has to add."""
    language = ', language="fr"' if needs_language else ""
    documents = "    # the stored documents stay as they are; to go back, leave the second line out\n"
    if not queries_only:
        documents = f"    # the documents: st-xlret apply {output} --vectors SOURCE --into NAME\n"
    return (
        "In the service that searches, with NumPy alone (README.md there has the same for other programming "
        "languages):\n\n"
        f'    calibration = st_xlret.VectorCalibration.load("{output}")\n'
        f'    query = calibration.transform(query, role="query"{language})\n{documents}'
    )


def _check_labels(source: Store, codes: set[str]) -> None:
    """Print how many language labels an identifier doubts, on texts of each language among the first rows."""
    from st_xlret.commands.calibrate import report_labels

    texts: dict[str, list[str]] = {code: [] for code in codes}
    for rows in islice(source.batches(texts=True), _LOOKED_THROUGH):
        for code, text in zip(*(rows.column(name).to_pylist() for name in ("language", "text")), strict=True):
            if code in texts and text and len(texts[code]) < _LABELLED:
                texts[code].append(text)
        if all(len(found) == _LABELLED for found in texts.values()):
            break
    if labelled := {code: found for code, found in texts.items() if found}:
        report_labels(labelled)
