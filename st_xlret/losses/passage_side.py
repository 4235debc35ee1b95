"""The auxiliary losses act on the passage encoder only (lang-contrastive, section 4)."""

from __future__ import annotations

from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router

PASSAGE_TASK = "document"


class PassageSide:
    """Sends text columns through the encoder of passages.

    A shared encoder needs nothing. The host's `Router` reads the route from `features["task"]`, which the collator sets
    according to its `router_mapping`. Here, a column without a task takes the route of `encode_document`, and a column
    that was made for another route is refused. A Router that has no task "document" is left to its `router_mapping`.

    Args:
        model: The encoder.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> PassageSide(model)([{"input_ids": 1}])
        [{'input_ids': 1}]
    """

    def __init__(self, model: SentenceTransformer) -> None:
        router = next((module for module in model.children() if isinstance(module, Router)), None)
        self.routed = router is not None and _knows(router, PASSAGE_TASK)
        self.any_tokens = router is None or _is_default(router, PASSAGE_TASK) or _share_tokens(router)

    def __call__(self, columns: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the features of the columns, routed to the passage encoder.

        Raises:
            ValueError: If a column was tokenised for another route, or may have been.
        """
        if not self.routed:
            return columns
        for number, features in enumerate(columns):
            task = features.get("task")
            if task != PASSAGE_TASK and not (task is None and self.any_tokens):
                raise ValueError(
                    f"this loss acts on the passage encoder, and text column {number} was made for "
                    f"{'no route' if task is None else f'the route {task!r}'}: give the collator a router_mapping of "
                    f"its columns to {PASSAGE_TASK!r}, such as CrossLingualDataCollator(model.preprocess, "
                    f"router_mapping={{'source': {PASSAGE_TASK!r}, 'target': {PASSAGE_TASK!r}}})"
                )
        return [{**features, "task": PASSAGE_TASK} for features in columns]


def _knows(router: Router, task: str) -> bool:
    return task in router.sub_modules or any(key[0] == task for key in router.route_mappings)


def _is_default(router: Router, task: str) -> bool:
    return router.default_route == task and not router.route_mappings


def _share_tokens(router: Router) -> bool:
    """Whether all routes have the same tokens, so that those of a column serve any of them."""
    inputs: list[Any] = [next(modules.children()) for modules in router.sub_modules.values()]
    first, *others = inputs
    return all(
        module is first
        or (
            type(module) is type(first)
            and (module.tokenizer is first.tokenizer or module.tokenizer.get_vocab() == first.tokenizer.get_vocab())
        )
        for module in others
    )
