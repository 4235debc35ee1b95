"""The networks that the masked sentence model adds to the encoder during training."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Literal

import torch
from torch import Tensor, nn

from st_xlret.data.languages import check_language, language_to_id
from st_xlret.modules import DocumentEncoder, ProjectionHead

Heads = Literal["separate", "shared", "none"]


class MSMNetworks(nn.Module):
    """Document encoder and projection heads, for all languages or for each group of them (MSM, Tables 4 and 7).

    Args:
        document_encoder: The document encoder. Those of further groups have the same shape and weights of their own.
        heads: One head for predictions and one for sentences ("separate"), one for both ("shared"), or "none".
        language_groups: Groups of language codes that have a document encoder of their own. All other languages share
            one more.
        separate_heads: Give each group its own heads too.

    Raises:
        ValueError: If an option or a language code is unknown, or there are no heads to separate.
    """

    def __init__(
        self,
        document_encoder: DocumentEncoder,
        heads: Heads = "separate",
        language_groups: Sequence[Sequence[str]] = (),
        *,
        separate_heads: bool = False,
    ) -> None:
        super().__init__()
        if heads not in ("separate", "shared", "none"):
            raise ValueError(f"heads must be 'separate', 'shared' or 'none', got {heads!r}")
        if separate_heads and (not language_groups or heads == "none"):
            raise ValueError("separate_heads needs language_groups, and heads to separate")
        self.features, self.heads, self.separate_heads = document_encoder.features, heads, separate_heads
        self.language_groups = [[check_language(code) for code in group] for group in language_groups]
        groups = 1 + len(self.language_groups)
        encoders = [document_encoder, *(deepcopy(document_encoder) for _ in range(groups - 1))]
        for encoder in encoders[1:]:
            encoder.reset_parameters()
        self.document_encoders = nn.ModuleList(encoders)
        sides, features = {"separate": 2, "shared": 1, "none": 0}[heads], document_encoder.features
        # In each group the head of predictions comes first and the head of sentences last.
        self.projections = nn.ModuleList(
            nn.ModuleList(ProjectionHead(features) for _ in range(sides))
            for _ in range(groups if separate_heads else 1)
        )

    def predict(
        self, vectors: Tensor, rows: Tensor, present: Tensor, language_id: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Predict sentences from the others of their block.

        Args:
            vectors: Sentence vectors (S, d).
            rows: Which of them stands at which place of which block (blocks, places).
            present: Where there is one, boolean (blocks, places).
            language_id: Language ids (S,), needed if there are language groups.

        Returns:
            Predictions (S, d), zero for rows without one, and which rows have one (S,): those in blocks of at least two
            sentences.
        """
        rows, present = (x[present.sum(1) > 1] for x in (rows, present))
        predicted = torch.zeros(len(vectors), dtype=torch.bool, device=vectors.device)
        predicted[rows[present]] = True
        result = torch.zeros_like(vectors)
        if not len(rows):
            return result, predicted
        group = self._groups_of(language_id)[rows[:, 0]] if self.language_groups else torch.zeros_like(rows[:, 0])
        for number, encoder in enumerate(self.document_encoders):
            mine = group == number
            if mine.any():
                places, there = rows[mine], present[mine]
                predictions = encoder(vectors[places], there)[there]
                result = result.index_copy(0, places[there], predictions.to(result.dtype))
        return result, predicted

    def project(
        self, predictions: Tensor, vectors: Tensor, predicted: Tensor, language_id: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Pass predictions and sentences through the heads, the rows of a group together.

        Args:
            predictions: Predictions (S, d).
            vectors: Sentence vectors (S, d).
            predicted: Which rows have a prediction, boolean (S,). Only those predictions are projected.
            language_id: Language ids (S,), needed if there are language groups.

        Returns:
            The two projections (S, d).
        """
        if self.heads == "none":
            return predictions, vectors
        group = self._groups_of(language_id) if self.separate_heads else torch.zeros_like(predicted, dtype=torch.long)
        everything = torch.ones_like(predicted)
        return self._through(0, predictions, predicted, group), self._through(-1, vectors, everything, group)

    def _through(self, side: int, x: Tensor, rows: Tensor, group: Tensor) -> Tensor:
        result = x
        for number, heads in enumerate(self.projections):
            chosen = (rows & (group == number)).nonzero()[:, 0]
            if len(chosen):
                head: Any = list(heads.children())[side]
                result = result.index_copy(0, chosen, head(x[chosen]).to(x.dtype))
        return result

    def _groups_of(self, language_id: Tensor | None) -> Tensor:
        assert language_id is not None
        group = torch.zeros_like(language_id)
        for number, codes in enumerate(self.language_groups, start=1):
            ids = torch.tensor([language_to_id(code) for code in codes], device=language_id.device)
            group[torch.isin(language_id, ids)] = number
        return group

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the networks, for the model card."""
        encoder: Any = self.document_encoders[0]
        return {
            "document_encoder_layers": len(encoder.layers),
            "heads": self.heads,
            "language_groups": self.language_groups,
            "separate_heads": self.separate_heads,
        }
