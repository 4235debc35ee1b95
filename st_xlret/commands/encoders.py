"""How the commands embed texts as queries and as documents: prompts, precision, one bar over all texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.calibration.embedding import embed_texts
from st_xlret.calibration.encoding import PROMPT_NAMES

Role = Literal["query", "document"]

_BARE_NAME = re.compile(r"\w+")


@dataclass
class Embedder:
    """An encoder with the prompts that it is used with.

    Args:
        model: The encoder.
        query_prompt: Put before queries: a text, or the name of a prompt of the model. None: as in `encode_query`.
        document_prompt: The same for documents, as in `encode_document`.
        batch_size: Size of a forward pass, in texts of 64 tokens.
        precision: `"auto"`, `"fp32"` or `"bf16"`.

    Raises:
        ValueError: If a prompt looks like a name and the model has none of that name, or the model gives no sentence
            embeddings.
    """

    model: SentenceTransformer
    query_prompt: str | None = None
    document_prompt: str | None = None
    batch_size: int = 64
    precision: str = "fp32"

    def __post_init__(self) -> None:
        self.query_prompt = self._resolve("query_prompt", self.query_prompt)
        self.document_prompt = self._resolve("document_prompt", self.document_prompt)
        check_sentence_embeddings(self.model)

    @property
    def apart(self) -> bool:
        """Whether a text has another embedding as a query than as a document."""
        routers = (module for module in self.model.children() if isinstance(module, Router))
        by_task = any(_route(router, "query") != _route(router, "document") for router in routers)
        return by_task or self.prompt("query") != self.prompt("document")

    def prompt(self, role: Role) -> str:
        """What is put before the texts of a role; empty if nothing is."""
        given = self.query_prompt if role == "query" else self.document_prompt
        if given is not None:
            return given
        prompts = self.model.prompts
        own = next((prompts[name] for name in PROMPT_NAMES[role] if prompts.get(name) is not None), None)
        return own if own is not None else prompts.get(self.model.default_prompt_name or "") or ""

    def embed(self, texts: Mapping[str, tuple[Role, Mapping[str, Sequence[str]]]]) -> dict[str, dict[str, Tensor]]:
        """Embed several sets of texts, with one progress bar over all of them.

        Args:
            texts: Name of a set -> its role, and language -> texts.

        Returns:
            Name of a set -> language -> (n, d).
        """
        total = sum(len(found) for _, by_language in texts.values() for found in by_language.values())
        rows = {}
        with tqdm(total=total, unit="text") as bar:
            for name, (role, by_language) in texts.items():
                bar.set_description({"document": "embedding documents", "query": "embedding queries"}[role])
                rows[name] = embed_texts(
                    self.model,
                    by_language,
                    role=role,
                    prompt=self.query_prompt if role == "query" else self.document_prompt,
                    batch_size=self.batch_size,
                    precision=self.precision,
                    bar=bar,
                )
        return rows

    def _resolve(self, option: str, given: str | None) -> str | None:
        if given is None:
            return None
        if given in self.model.prompts:
            return self.model.prompts[given]
        if _BARE_NAME.fullmatch(given):
            known = ", ".join(name for name, prompt in self.model.prompts.items() if prompt) or "none"
            raise ValueError(
                f"--{option} {given}: the model has no prompt of that name; it has: {known}. A text that is put before "
                f"each text ends with a space or a colon, such as {given + ': '!r}"
            )
        return given


def check_sentence_embeddings(model: SentenceTransformer) -> None:
    """Check that a model gives one vector of finite numbers per text, before long work.

    Raises:
        ValueError: If it does not, such as without a pooling layer.
    """
    try:
        found = model.encode(["a"], convert_to_tensor=True, show_progress_bar=False, truncate_dim=None)
    except KeyError as error:
        kinds = ", ".join(type(module).__name__ for module in model.children())
        raise ValueError(
            f"the model gives no sentence embeddings ({error} is missing after its modules, {kinds}): add a Pooling "
            "module, as in SentenceTransformer(modules=[transformer, Pooling(dimension)]), and save it"
        ) from error
    if found.ndim != 2 or not bool(torch.isfinite(found).all()):
        raise ValueError(
            f"the model gives no sentence embeddings: one text became {tuple(found.shape)} numbers, or NaN"
        )


def _route(router: Router, task: str) -> str | None:
    """The route that a task takes."""
    return router.route_mappings.get((task, None), task if task in router.sub_modules else router.default_route)
