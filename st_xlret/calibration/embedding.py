"""Texts of each language as the vectors that a calibration is fitted on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.nn.functional import normalize

from st_xlret.calibration.rows import first_of_each
from st_xlret.calibration.sampling import Texts
from st_xlret.data.rows import by_language as pairs_by_language
from st_xlret.encoding import embeds_roles_apart, encode, role_prompt, warn_of_other_prompts
from st_xlret.modules.encoders import before_normalize

if TYPE_CHECKING:
    from st_xlret.columns import Role

AS_QUERIES = 100
"""Texts of each language that are embedded as queries too, at most: to compare calibrations."""

_POOLED = 500  # texts whose pooled vectors are measured


def embed_by_language(
    model: SentenceTransformer,
    texts: Texts,
    *,
    batch_size: int = 64,
    **encode_options: Any,
) -> dict[str, Tensor]:
    """Embed the texts of each language, at the full width of the model whatever its `truncate_dim`.

    Returns language -> (n, d), float32 on the CPU, in the order of `texts`; `encode_options` are
    those of [`encode`][st_xlret.encode].
    """
    codes: list[str] = []
    everything: list[str] = []
    for code, part in texts.items():
        codes += [code] * len(part)
        everything += part
    # A calibration maps whole embeddings, which are cut afterwards.
    with model.truncate_embeddings(None):
        rows = encode(
            model,
            everything,
            codes,
            batch_size=batch_size,
            convert_to_tensor=True,
            **encode_options,
        )
    counts = [len(part) for part in texts.values()]
    parts = rows.float().cpu().split(counts)
    return dict(zip(texts, parts, strict=True))


class SampleVectors(NamedTuple):
    """Vectors of a sample of texts.

    Attributes:
        documents: Language -> (n, d).
        as_queries: Language -> vectors (m, d) of the first texts as queries; None if they are the
            same.
        pooled: Some of the rows that the model normalises at its end, by role; None without that.
    """

    documents: dict[str, Tensor]
    as_queries: dict[str, Tensor] | None
    pooled: dict[Role, Tensor] | None = None


@dataclass(frozen=True)
class RoleEncoder:
    """Embeds texts as queries or as documents.

    Attributes:
        model: The encoder.
        prompts: The text that is put before those of each role, not a name of one.
        batch_size: As `encode` takes it, like `precision`.
    """

    model: SentenceTransformer
    prompts: Mapping[Role, str]
    batch_size: int = 64
    precision: str = "auto"
    show_progress_bar: bool = True

    @classmethod
    def of_model(
        cls,
        model: SentenceTransformer,
        *,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        **how: Any,
    ) -> RoleEncoder:
        """The encoder of a model with prompts as `role_prompt` takes them, by default its own."""
        given: dict[Role, str | None] = {"query": query_prompt, "document": document_prompt}
        warn_of_other_prompts(model, [role for role, prompt in given.items() if prompt is None])
        prompts = {role: role_prompt(model, role, prompt) for role, prompt in given.items()}
        return cls(model, prompts, **how)

    def embed(self, texts: Texts, role: Role) -> dict[str, Tensor]:
        """Language -> the vectors (n, d) of its texts in a role."""
        return embed_by_language(
            self.model,
            texts,
            role=role,
            prompt=self.prompts[role],
            batch_size=self.batch_size,
            precision=self.precision,
            show_progress_bar=self.show_progress_bar,
        )

    def embed_sample(self, texts: Texts) -> SampleVectors:
        """The texts as documents, and the first `AS_QUERIES` of each language as queries.

        These are equally many in all, and not embedded where the model makes no difference.
        """
        documents = self.embed(texts, "document")
        if not embeds_roles_apart(self.model, self.prompts["query"], self.prompts["document"]):
            return SampleVectors(documents, None)
        count = min(AS_QUERIES, *map(len, texts.values()))
        first = {code: part[:count] for code, part in texts.items()}
        return SampleVectors(documents, self.embed(first, "query"))

    def embed_sample_and_pooled(self, texts: Texts) -> SampleVectors:
        """The same with rows from before the `Normalize` at the end of the model, if it has one.

        No text is embedded twice for it.
        """
        before = before_normalize(self.model)
        if before is None:
            return self.embed_sample(texts)
        documents, as_queries, _ = replace(self, model=before).embed_sample(texts)
        count = -(-_POOLED // len(documents))
        pooled: dict[Role, Tensor] = {
            "document": torch.from_numpy(first_of_each(documents, count)),
            "query": torch.from_numpy(first_of_each(as_queries or documents, count)),
        }
        if as_queries is not None:
            as_queries = _unit_rows(as_queries)
        return SampleVectors(_unit_rows(documents), as_queries, pooled)


def embed_pairs(
    model: SentenceTransformer,
    pairs: Dataset,
    *,
    pivot: str = "en",
    languages: Iterable[str] | None = None,
    **how: Any,
) -> dict[str, tuple[Tensor, Tensor]]:
    """Embed both sides of parallel sentences.

    They have the pivot on one side, and one of `languages` on the other. Pairs are what
    [`load_pairs`][st_xlret.load_pairs] returns. Returns language -> row-aligned embeddings (n, d)
    of its sentences and of the pivot's, float32 on the CPU; `how` are the options of
    `embed_by_language`. A `ValueError` says that no pair is in these languages.
    """
    sides = pairs_by_language(pairs, pivot)
    wanted = set(sides if languages is None else languages) - {pivot}
    texts = {}
    for code, (sources, targets) in sorted(sides.items()):
        if code in wanted:
            texts[code] = sources + targets
    if not texts:
        others = wanted or "another"
        raise ValueError(
            f"none of the {len(pairs)} pairs is between the pivot {pivot!r} and {others}"
        )
    embedded = {}
    for code, rows in embed_by_language(model, texts, **how).items():
        source, target = rows.chunk(2)
        embedded[code] = (source, target)
    return embedded


def _unit_rows(vectors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The rows of each language, of unit length, as the model's own `Normalize` gives them."""
    return {code: normalize(rows, dim=1) for code, rows in vectors.items()}
