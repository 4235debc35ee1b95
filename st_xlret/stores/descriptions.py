"""What a store says of its vectors: the metric that compares them, and the model that made them."""

from collections.abc import Mapping
from typing import Any, Literal

Metric = Literal["cosine", "dot", "euclidean"]

METRICS: dict[str, Metric] = {
    "cosine": "cosine",
    "dot": "dot",
    "ip": "dot",
    "euclid": "euclidean",
    "euclidean": "euclidean",
    "l2": "euclidean",
}
"""What stores and models call the metrics, in lower case; the postgres store reads them, too."""


def metric_of(name: str | None, where: str) -> Metric | None:
    """The metric that a store or a model calls so; None if it calls none.

    A `ValueError` is of one that maps do not keep, and begins with `where`.
    """
    if not name:
        return None
    if name.lower() not in METRICS:
        kept = "maps are for cosine, dot product and Euclidean distance"
        raise ValueError(f"{where} compares vectors by {name}; {kept}")
    return METRICS[name.lower()]


def model_name_in(settings: Mapping[str, Any]) -> str | None:
    """The name of the model in settings of a client, or in metadata; None without one."""
    for key in ("model_name", "model", "name"):
        name = settings.get(key)
        if isinstance(name, str):
            # Without what would break a page that shows it.
            shown = (letter for letter in name if letter.isprintable() and letter not in "`<>")
            return "".join(shown) or None
    return None
