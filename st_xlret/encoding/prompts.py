"""Prompts by role, and whether a model embeds the roles apart."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router

from st_xlret.columns import Role
from st_xlret.modules.encoders import routers_of

PROMPT_NAMES: dict[Role, tuple[str, ...]] = {
    "query": ("query",),
    "document": ("document", "passage", "corpus"),
}
"""The names under which models keep the prompt of a role, in the order in which they are tried.

Queries come first, as in all that lists both roles.
"""


_logger = logging.getLogger(__name__)


def role_prompt(model: SentenceTransformer, role: Role | None, prompt: str | None = None) -> str:
    """The text that is put before texts of a role; without a role, as in `model.encode`.

    The host gives an empty prompt "document" to every model that it loads, and leaves out the
    "passage" of many models. Here, an empty prompt is none. Without one of the role, the model's
    default prompt counts, unless it belongs to the other role. A `prompt` that is given counts
    before these: a text, or the name of one of the model's prompts; what looks like a name and is
    none is a `ValueError`.
    """
    text = prompt_name(model, role) or "" if prompt is None else prompt
    if text in model.prompts:
        return model.prompts[text] or ""
    if re.fullmatch(r"\w+", text):
        names = [name for name, before_texts in model.prompts.items() if before_texts]
        known = ", ".join(names) or "none"
        raise ValueError(
            f"the model has no prompt named {text!r}, it has: {known}; a text ends with a space or"
            " colon"
        )
    return text


def warn_of_other_prompts(model: SentenceTransformer, roles: Iterable[Role]) -> None:
    """Log a warning where the prompt of a role is another than that of the host's call for it."""
    for role in roles:
        prompt = role_prompt(model, role)
        of_host = ""
        for name in (*PROMPT_NAMES[role], model.default_prompt_name):
            if name in model.prompts:
                of_host = model.prompts[name] or ""
                break
        if prompt != of_host:
            _logger.warning(
                "before each %s stands %r, where the model's encode_%s puts %r: vectors of the two "
                "differ",
                role,
                prompt,
                role,
                of_host,
            )


def prompt_name(model: SentenceTransformer, role: Role | None) -> str | None:
    """The name of the prompt that `role_prompt` gives; None if that is empty."""
    of_role = PROMPT_NAMES[role] if role else ()
    for name in of_role:
        if model.prompts.get(name):
            return name
    default = model.default_prompt_name
    if default and model.prompts.get(default) and not _is_of_another_role(default, role):
        return default
    return None


def _is_of_another_role(name: str, role: Role | None) -> bool:
    """Whether a prompt's name is one of the other role's; without a role, none is."""
    if role is None:
        return False
    return any(name in names for other, names in PROMPT_NAMES.items() if other != role)


def embeds_roles_apart(
    model: SentenceTransformer, query_prompt: str | None = None, document_prompt: str | None = None
) -> bool:
    """Whether a text has another embedding as a query than as a document.

    It has by its prompt, or by a `Router`.
    """
    before_queries = role_prompt(model, "query", query_prompt)
    before_documents = role_prompt(model, "document", document_prompt)
    if before_queries != before_documents:
        return True
    for router in routers_of(model):
        if _route_of(router, "query") != _route_of(router, "document"):
            return True
    return False


def _route_of(router: Router, task: str) -> str | None:
    """The route that a router takes for a task; None if it has neither that nor a default."""
    route = task if task in router.sub_modules else router.default_route
    return router.route_mappings.get((task, None), route)
