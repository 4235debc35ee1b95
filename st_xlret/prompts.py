"""Which prompt stands before the texts of a role: the one place that knows it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Role = Literal["query", "document"]

PROMPT_NAMES: dict[Role, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""The names under which models keep the prompt of a role, in the order in which they are tried."""

_BARE_NAME = re.compile(r"\w+")


def role_prompt(model: SentenceTransformer, role: Role | None, given: str | None = None) -> str:
    """The text that is put before texts of a role.

    The host's `encode_document` takes the prompt named "document" wherever there is one, and gives an empty one to
    every model that it loads. The prompt of a model whose prompts are named "query" and "passage" is then left out.
    Here, an empty prompt is none: the first name of the role that has a text counts.

    Args:
        model: Any Sentence Transformer.
        role: `"query"`, `"document"`, or None for texts without a role, as in `model.encode`.
        given: A prompt that replaces the model's own: a text, or the name of one of the model's prompts.

    Returns:
        The prompt. Without one of the role it is the model's default prompt, unless that belongs to the other role;
            without a default prompt it is empty.

    Raises:
        ValueError: If the role is unknown, or `given` looks like a name and the model has no prompt of that name.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> prompts = {"query": "query: ", "passage": "passage: "}
        >>> model = SentenceTransformer(modules=[BoW(vocab=["one"])], prompts=prompts, device="cpu")
        >>> model.prompts["document"], role_prompt(model, "document"), role_prompt(model, None)
        ('', 'passage: ', '')
    """
    if given is None:
        name = prompt_name(model, role)
        return (model.prompts[name] or "") if name else ""
    if given in model.prompts:
        return model.prompts[given] or ""
    if _BARE_NAME.fullmatch(given):
        known = ", ".join(name for name, prompt in model.prompts.items() if prompt) or "none"
        raise ValueError(
            f"{role} prompt {given!r}: the model has no prompt of that name; it has: {known}. A text that is to "
            f"stand before each text ends with a space or a colon, such as {given + ': '!r}"
        )
    return given


def prompt_name(model: SentenceTransformer, role: Role | None) -> str | None:
    """The name of the prompt that `role_prompt` gives; None if that is empty."""
    if role not in (None, *PROMPT_NAMES):
        raise ValueError(f"role must be 'query', 'document' or None, got {role!r}")
    others = [name for other, names in PROMPT_NAMES.items() if role and other != role for name in names]
    names = [*(PROMPT_NAMES[role] if role else ()), model.default_prompt_name]
    return next((name for name in names if name and name not in others and model.prompts.get(name)), None)


def embeds_roles_apart(
    model: SentenceTransformer, query_prompt: str | None = None, document_prompt: str | None = None
) -> bool:
    """Whether a text has another embedding as a query than as a document: by its prompt, or by a `Router`.

    Args:
        model: Any Sentence Transformer.
        query_prompt: Prompt of queries, if it is not the model's own.
        document_prompt: Prompt of documents, likewise.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> model = SentenceTransformer(modules=[BoW(vocab=["one"])], device="cpu")
        >>> embeds_roles_apart(model), embeds_roles_apart(model, query_prompt="query: ")
        (False, True)
    """
    from sentence_transformers.base.modules import Router

    routers = (module for module in model.children() if isinstance(module, Router))
    by_task = any(_route(router, "query") != _route(router, "document") for router in routers)
    return by_task or role_prompt(model, "query", query_prompt) != role_prompt(model, "document", document_prompt)


def _route(router: Any, task: str) -> str | None:
    return router.route_mappings.get((task, None), task if task in router.sub_modules else router.default_route)
