"""What calibrations do to the neighbours of a sample of texts, and which one is recommended, without labels."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from st_xlret.evaluation.language_bias import LanguageBias, measure_language_bias, neighbours_kept
from st_xlret.evaluation.reporting.tables import markdown_table
from st_xlret.modules.calibration_layer import CalibrationLayer

_COMPARED_TEXTS = 250


def compare(
    embeddings: Mapping[str, Tensor],
    ids: Mapping[str, Tensor],
    layers: Mapping[str, CalibrationLayer | None],
    chosen: str,
) -> dict[str, LanguageBias]:
    """Print what each calibration does to the neighbours of the sampled texts, and which one is recommended.

    Returns:
        Calibration -> the language bias after it.
    """
    size = min(_COMPARED_TEXTS, *(len(rows) for rows in embeddings.values()))
    sample = {code: rows[:size] for code, rows in embeddings.items()}
    sample_ids = {code: rows[:size] for code, rows in ids.items()}
    neighbours = min(10, size * len(sample) - 2)
    biases, rows, scores = {}, [], {}
    for name, layer in layers.items():
        mapped = sample if layer is None else {code: layer.transform(rows, code) for code, rows in sample.items()}
        bias = measure_language_bias(mapped, sample_ids, neighbours=neighbours)
        kept = neighbours_kept(sample, mapped)
        biases[name], scores[name] = bias, kept**0.5 * (1 - bias.imbalance)
        rows.append(
            [
                f"{name} (chosen)" if name == chosen else name,
                "no" if layer is None or layer.language_agnostic else "yes",
                f"{100 * bias.same_language_share:.1f}",
                f"{100 * kept:.1f}",
                f"{scores[name]:.3f}",
            ]
        )
    header = ["calibration", "needs the language", "neighbours in the own language (%)", "neighbours kept (%)", "score"]
    print(f"\n{markdown_table(header, rows)}")
    first = next(iter(biases.values()))
    print(
        f"\n{size} texts a language, {neighbours} neighbours; chance: {100 * first.chance:.1f} % in the own language. "
        "'Kept' are nearest neighbours within one language that stay. The score is the square root of the share kept "
        "times the evenness of the neighbours' languages. It needs no labels; higher is better."
    )
    best = max(scores, key=lambda name: scores[name])
    if best not in ("as it is", chosen):
        known = " where the language of every text is known" if best != "lsar" else ""
        print(f"By this score, --steps {best} is recommended{known}. What is saved is the chosen one, {chosen}.")
    if scores[chosen] < scores["as it is"]:
        print("warning: by this score the model was better as it is")
    return biases
