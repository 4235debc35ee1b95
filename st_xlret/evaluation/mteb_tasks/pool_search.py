"""mteb's search over a pool that several subsets share, which is encoded once and searched exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from mteb.models import SearchEncoderWrapper
from torch import Tensor

from st_xlret.search import top_k as exact_top_k
from st_xlret.search import unit_rows


class ExactIndex:
    """mteb's index protocol over `st_xlret.search.top_k`, which is exact and deterministic.

    Args:
        cosine: Whether rows are normalised first, so that they are searched by cosine.
    """

    def __init__(self, *, cosine: bool) -> None:
        self.cosine = cosine
        self.documents: Tensor | None = None

    def add_documents(self, embeddings: Any, idxs: list[str]) -> None:
        """Take the embeddings of a whole corpus, which replace those of an earlier one."""
        self.documents = self._rows(embeddings)

    def search(
        self,
        embeddings: Any,
        top_k: int,
        similarity_fn: Callable[..., Any],
        top_ranked: Any = None,
        query_idx_to_id: dict[int, str] | None = None,
    ) -> tuple[list[list[float]], list[list[int]]]:
        """Scores and rows of the best documents of each query.

        Raises:
            ValueError: If there are no documents, or candidates are to be reranked.
        """
        if self.documents is None or top_ranked is not None:
            raise ValueError("this index searches whole corpora: add one first. Reranking is for the index of mteb.")
        scores, rows = exact_top_k(self._rows(embeddings), self.documents, min(top_k, len(self.documents)))
        return scores.tolist(), rows.tolist()

    def clear(self) -> None:
        """Keep the corpus, as the next subset searches it too."""

    def _rows(self, embeddings: Any) -> Tensor:
        rows = torch.as_tensor(np.asarray(embeddings)) if not isinstance(embeddings, Tensor) else embeddings
        return unit_rows(rows) if self.cosine else rows.float()


class PoolSearch(SearchEncoderWrapper):
    """mteb's search wrapper, which encodes a corpus only if it differs from the last one.

    Args:
        model: An encoder of mteb.

    Raises:
        ValueError: If its similarity is neither cosine nor dot product.
    """

    def __init__(self, model: Any) -> None:
        name = model.mteb_model_meta.similarity_fn_name
        measure = str(getattr(name, "value", name) or "cosine")
        if measure not in ("cosine", "dot"):
            raise ValueError(f"the similarity {measure!r} of {model.mteb_model_meta.name} is no dot product or cosine.")
        super().__init__(model, index_backend=ExactIndex(cosine=measure == "cosine"))
        self.indexed: Any = None

    def index(self, corpus: Any, **options: Any) -> None:
        """Encode the corpus, unless it is the one that was indexed last."""
        if corpus is not self.indexed:
            super().index(corpus, **options)
            self.indexed = corpus
        self.task_corpus = corpus
