"""Lengths of pooled vectors: where a map may stand before the `Normalize` at a model's end.

Engines such as TEI and vLLM know that order alone. A map `W x + b` of vectors of unit length is
`W x + |x| b` of pooled ones. The mean of their lengths stands for each, where that costs little.
"""

import logging
from collections.abc import Mapping, Sequence

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.columns import Role
from st_xlret.encoding import PROMPT_NAMES, role_prompt
from st_xlret.modules.calibration_layer import CalibrationLayer
from st_xlret.modules.encoders import before_normalize

logger = logging.getLogger(__name__)

# One minus the cosine between a row mapped by its own length and by the mean one.
# multilingual-e5-small has 0.0014 (both sides) and 0.0002 (queries alone); with more spread
# lengths, a point of mAP@20 is lost at 0.007 and at 0.15.
_MOST_CHANGE: dict[Role, float] = {"document": 0.006, "query": 0.1}


def pooled_rows(model: SentenceTransformer, texts: Sequence[str]) -> dict[Role, Tensor]:
    """Rows before the `Normalize` at a model's end (n, d), for texts with the prompt of each role.

    They are float32 on the CPU. Nothing for a model that does not end in a `Normalize`.
    """
    before = before_normalize(model)
    if before is None:
        return {}
    pooled: dict[Role, Tensor] = {}
    for role in PROMPT_NAMES:
        rows = before.encode(
            list(texts),
            task=role,
            prompt=role_prompt(model, role),
            convert_to_tensor=True,
            show_progress_bar=False,
        )
        pooled[role] = rows.float().cpu()
    return pooled


def measure_mean_lengths(
    pooled: Mapping[Role, Tensor], layers: Mapping[Role, CalibrationLayer]
) -> dict[Role, float] | None:
    """The mean length of each role's rows; None where it cannot stand for that of each row.

    Where both roles have one layer, the same object, the rows of both are taken together. The
    lengths join the notes of the layers, for the card.
    """
    is_one_map = layers["query"] is layers["document"]
    lengths: dict[Role, float] = {}
    for role, layer in layers.items():
        rows = torch.cat([*pooled.values()]) if is_one_map else pooled[role]
        of_rows = rows.norm(dim=1)
        mean = float(of_rows.mean())
        spread = f"{mean:.3g} ± {float(of_rows.std()):.2g}"
        layer.notes["lengths of pooled vectors"] = spread
        most = _MOST_CHANGE["document" if is_one_map else role]
        if _change_by_mean(rows, layer) > most:
            logger.warning(
                "lengths of pooled vectors vary (%s): no engine reads a map behind a Normalize",
                spread,
            )
            return None
        lengths[role] = mean
    return lengths


def _change_by_mean(rows: Tensor, layer: CalibrationLayer) -> float:
    """One minus the cosine between rows mapped by their own lengths and by the mean one."""
    weight, bias = layer.map_of(None)
    lengths = rows.norm(dim=1, keepdim=True)
    turned = rows @ weight.cpu().T
    exact = turned + lengths * bias.cpu()
    by_mean = turned + lengths.mean() * bias.cpu()
    return 1 - float(torch.cosine_similarity(exact, by_mean).mean())
