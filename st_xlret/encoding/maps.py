"""The maps of a calibrated model: which task of its router belongs to which language."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress

from sentence_transformers.base.modules import Router
from torch import nn

from st_xlret.columns import Role
from st_xlret.languages import UNKNOWN, check_language, find_language
from st_xlret.modules.encoders import routers_of

_OF_QUERIES = "query_"

ROUTE_PREFIX = "language_"
"""Before a language in the name of its route, where the language itself cannot be that name."""


def query_task(language: str) -> str:
    """The task of queries in a language, where they have a map of their own."""
    return f"{_OF_QUERIES}{language}"


def task_languages(model: nn.Module) -> dict[str, str]:
    """Task -> language of a model with a map for each: its `Router` has only routes of languages.

    Empty for another model. A language has a task of its name, and perhaps its `query_task`.
    """
    for router in routers_of(model):
        return _languages_of_router(router)
    return {}


def _languages_of_router(router: Router) -> dict[str, str]:
    """The language of each task of a router by language; empty if its routes are something else."""
    route_of = {route: route for route in router.sub_modules}
    for (task, _), route in router.route_mappings.items():
        if task:
            route_of[task] = route
    languages = {}
    for task in route_of:
        with suppress(ValueError):
            languages[task] = check_language(task.removeprefix(_OF_QUERIES))
    routes = {route_of[task] for task in languages}
    return languages if routes == set(router.sub_modules) else {}


def known_languages(model: nn.Module, codes: Sequence[str | None]) -> list[str | None]:
    """The languages of texts as `encode` takes them.

    None, with a warning, for those that the model has no map for.
    """
    languages = list(task_languages(model).values())
    if not languages:
        return [code or None for code in codes]
    known = {}
    without = []
    for code in dict.fromkeys(codes):
        known[code] = find_language(code, languages) if code else None
        if known[code] is None:
            without.append(code or "no language")
    if without:
        names = ", ".join(sorted(without))
        warnings.warn(
            f"the model has no map for texts in {names}: they take its default", stacklevel=3
        )
    return [known[code] for code in codes]


def router_tasks(
    model: nn.Module, codes: Sequence[str | None], role: Role | None
) -> list[str | None]:
    """Each text's task, by its language; None leaves it to the model.

    It is that of the role without maps, or for texts that name no language, of which a warning
    tells. A language without a map is a `ValueError`.
    """
    languages = task_languages(model)
    task_of = {}
    for code in codes:
        if code not in task_of:
            task_of[code] = _router_task(languages, code, role)
    if languages and role in task_of.values():
        warnings.warn("texts in no language take the default map of the model", stacklevel=3)
    return [task_of[code] for code in codes]


def _router_task(languages: dict[str, str], code: str | None, role: Role | None) -> str | None:
    """The task of texts in a language: the role, if there are no maps or it names none.

    A `ValueError` refuses a language without a map.
    """
    if not languages or not code or code == UNKNOWN:
        return role
    known = find_language(code, languages.values())
    if known is None:
        names = ", ".join(languages)
        raise ValueError(f"the model has no map for {code!r}: it has maps for {names}")
    if role == "query" and query_task(known) in languages:
        return query_task(known)
    return known
