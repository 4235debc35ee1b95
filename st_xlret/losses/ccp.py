"""Contrastive context prediction as a Sentence Transformers loss."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import all_gather_with_grad, get_world_size
from torch import Tensor

from st_xlret.functional import contrastive_context_loss
from st_xlret.losses.base import CrossLingualLoss, gather_tags, read_tags
from st_xlret.losses.embedding import embed_in_one_pass
from st_xlret.modules import AsymmetricBNHead, LanguageMemoryBank

CITATION = """
@inproceedings{wu2022ccp,
    title = {Unsupervised Context Aware Sentence Representation Pretraining for Multi-lingual Dense
        Retrieval},
    author = {Wu, Ning and Liang, Yaobo and Ren, Houxing and Shou, Linjun and Duan, Nan and Gong, Ming and
        Jiang, Daxin},
    booktitle = {Proceedings of the Thirty-First International Joint Conference on Artificial Intelligence},
    year = {2022},
}
"""


class CCPLoss(CrossLingualLoss):
    """Contrastive context prediction (CCP, Algorithm 1): tell a sentence's neighbour from other sentences.

    Needs documents only. Rows come as windows: either two columns (centre, context), or one column whose
    first half holds the centres and second half their contexts, as :class:`~st_xlret.data.WindowBatchSampler`
    makes it (one forward pass). :class:`~st_xlret.data.CrossLingualDataCollator` attaches the languages,
    documents and texts. The head is thrown away after training; the encoder is what remains.

    Under distributed training the sentence vectors are gathered before the head, so that batch statistics,
    negatives and bank are those of the whole batch: R ranks compute what one rank computes with an R times
    larger batch.

    Args:
        model: The encoder.
        head: Projection head; an :class:`~st_xlret.AsymmetricBNHead` of the encoder's size by default.
        bank: Keys of earlier batches as further negatives; None for none. As in the paper the contexts'
            projections (z_i) enter it. See :class:`~st_xlret.LanguageMemoryBank`.
        temperature: Divisor of the cosines.
        cross_language_negatives: Also take in-batch rows and keys of other languages as negatives. Then
            telling languages apart lowers the loss, the shortcut that the paper warns of.
        mask_same_document: Other rows and keys of the anchor's document are not negatives.
        mask_same_text: Rows and keys of the very same text are not negatives.
        gather_across_devices: Use all ranks' rows; off, each rank works for itself and keeps its own bank.

    Raises:
        ValueError: If the head or the bank does not fit the encoder's size.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> loss = CCPLoss(model, bank=LanguageMemoryBank(8, size=64))
        >>> features = model.preprocess(["a", "b", "c", "d"])      # two centres, then their contexts
        >>> features["language_id"] = torch.tensor([7, 7, 7, 7])
        >>> loss([features], None).backward()
        >>> len(loss.bank)
        2
    """

    def __init__(
        self,
        model: SentenceTransformer,
        head: AsymmetricBNHead | None = None,
        bank: LanguageMemoryBank | None = None,
        *,
        temperature: float = 0.1,
        cross_language_negatives: bool = False,
        mask_same_document: bool = True,
        mask_same_text: bool = True,
        gather_across_devices: bool = True,
    ) -> None:
        super().__init__(model)
        features = model.get_embedding_dimension()
        if features is None:
            raise ValueError("the encoder does not tell the size of its embeddings")
        self.head = AsymmetricBNHead(features) if head is None else head
        self.bank = bank
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        if self.head.in_features != features:
            raise ValueError(f"the head takes {self.head.in_features} features, the encoder gives {features}")
        if bank is not None and bank.features != self.head.out_features:
            raise ValueError(f"the bank holds {bank.features} features, the head gives {self.head.out_features}")
        self.temperature = temperature
        self.cross_language_negatives = cross_language_negatives
        self.mask_same_document = mask_same_document
        self.mask_same_text = mask_same_text
        self.gather_across_devices = gather_across_devices

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Loss of a batch of windows.

        Args:
            sentence_features: One column of 2N rows (centres, then contexts) or two columns of N rows.
            labels: Ignored.

        Returns:
            A scalar.

        Raises:
            ValueError: If there are more than two columns, an odd number of rows, or no language ids.
        """
        columns = list(sentence_features)
        tags = read_tags(columns)
        embeddings = embed_in_one_pass(self.model, columns)
        if len(embeddings) == 1:
            if len(embeddings[0]) % 2:
                raise ValueError(f"one column must hold centres, then contexts: got {len(embeddings[0])} rows")
            embeddings = list(embeddings[0].chunk(2))
        if len(embeddings) != 2:
            raise ValueError(f"CCPLoss takes one or two text columns, got {len(embeddings)}")
        loss = self.compute_loss_from_embeddings(embeddings[0], embeddings[1], tags)
        return self._record(loss, tags["language_id"])

    def compute_loss_from_embeddings(self, centres: Tensor, contexts: Tensor, tags: dict[str, Tensor]) -> Tensor:
        """Loss of sentence vectors (N, d) and (N, d) with tags (2N,): ``language_id``, and others if known.

        Raises:
            ValueError: If ``language_id`` is missing.
        """
        if "language_id" not in tags:
            raise ValueError(
                "CCPLoss needs features['language_id']: give the Trainer a CrossLingualDataCollator and the "
                "dataset a 'language' column"
            )
        if self.gather_across_devices and get_world_size() > 1:
            centres, contexts = all_gather_with_grad(centres), all_gather_with_grad(contexts)
            tags = gather_tags(tags, columns=2)
        z_centres, z_contexts = self.head(centres, contexts)
        language = tags["language_id"]
        document = tags.get("document_id") if self.mask_same_document else None
        text = tags.get("text_id") if self.mask_same_text else None
        queue: dict[str, Any] = {}
        if self.bank is not None:
            held = self.bank.get(None if self.cross_language_negatives else language)
            queue = {"queue": held.keys, "queue_language": held.language, "queue_is_normalized": True}
            queue |= {"queue_document": held.document, "queue_text": held.text}
        loss = contrastive_context_loss(
            torch.cat([z_centres, z_contexts]),
            torch.arange(len(centres), device=centres.device).repeat(2),
            language,
            temperature=self.temperature,
            document=document,
            text=text,
            cross_language_negatives=self.cross_language_negatives,
            **queue,
        )
        if self.bank is not None and self.updates_state:
            new = {name: tag[len(centres) :] for name, tag in tags.items()}
            keys = F.normalize(z_contexts.detach().float(), dim=1)
            self.bank.enqueue(keys, new["language_id"], new.get("document_id"), new.get("text_id"))
        return loss

    def get_config_dict(self) -> dict[str, Any]:
        """Options, for the model card."""
        return {
            "temperature": self.temperature,
            "normalization": self.head.normalization,
            "bank_size": 0 if self.bank is None else self.bank.size,
            "bank_scope": None if self.bank is None else self.bank.scope,
            "cross_language_negatives": self.cross_language_negatives,
            "mask_same_document": self.mask_same_document,
            "gather_across_devices": self.gather_across_devices,
        }

    @property
    def citation(self) -> str:
        """BibTeX entry of the paper."""
        return CITATION
