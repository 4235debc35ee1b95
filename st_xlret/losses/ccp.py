"""Contrastive context prediction (CCP) as a Sentence Transformers loss."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.batches import Windows
from st_xlret.functional import contrastive_context_loss
from st_xlret.losses.base import CITATIONS, Batches, CrossLingualLoss
from st_xlret.losses.embedding import embed_columns, keep_padding
from st_xlret.modules import AsymmetricBNHead, LanguageMemoryBank


class CCPLoss(CrossLingualLoss):
    """Contrastive context prediction (CCP, Wu et al. 2022, section 3.1 and Algorithm 1), from documents alone.

    The encoder learns to tell which sentence stands near a given one:
    [`contrastive_context_loss`][st_xlret.functional.contrastive_context_loss] of the vectors of a projection head, with
    the keys of a memory bank as further negatives (not in evaluation). Both are discarded after training.

    Rows are windows: either two columns (centre, context), or one column of all centres and then all contexts, as
    `Windows` draws them. Where the features have no `language_id`, as in `model.fit`, integer labels are the languages
    of the rows. R ranks compute what one rank computes with an R times larger batch.

    Args:
        head: Projection head, or options of the default one, an `AsymmetricBNHead` of the encoder's size.
        bank: Memory bank of the projected contexts, or options of the default one, a `LanguageMemoryBank`.
        bank_size: Number of keys in the default bank; 0 for no bank. Not used if `bank` is a bank.
        temperature: Divisor of the cosines; the best of Table 5.
        cross_language_negatives: Use rows and keys of other languages too, which teaches to tell languages apart.
        mask_same_document: Do not use other rows and keys of the anchor's document as negatives. Algorithm 1 uses them.
        mask_same_text: Do not use rows and keys that have the anchor's text as negatives. Algorithm 1 uses them.
        normalize: Compare projections by their cosines; if off, by inner products (an ablation of Table 5).
        gather_across_devices: Use the rows of all ranks. If off, each rank has its own loss and bank, as in the paper.
        mini_batch_size: Texts per micro-batch of the encoder (gradient caching); None for one pass.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> loss = CCPLoss(model, bank_size=64)
        >>> centres, contexts = model.preprocess(["a", "b"]), model.preprocess(["c", "d"])
        >>> loss([centres, contexts], torch.tensor([25701, 25701])).backward()
        >>> len(loss.bank)
        2
    """

    most_columns, labels_are, default_batches = 2, "language_id", Windows
    takes = "sentences with 'document' and 'language', or two text columns (centre, context) with 'language'"
    fit_example = "InputExample(texts=[centre, context], label=language_to_id('fr'))"
    citation = CITATIONS["wu2022ccp"]

    def __init__(
        self,
        model: SentenceTransformer,
        head: AsymmetricBNHead | Mapping[str, Any] | None = None,
        bank: LanguageMemoryBank | Mapping[str, Any] | None = None,
        *,
        bank_size: int = 32768,
        temperature: float = 0.1,
        cross_language_negatives: bool = False,
        mask_same_document: bool = True,
        mask_same_text: bool = True,
        normalize: bool = True,
        gather_across_devices: bool = True,
        mini_batch_size: int | None = None,
        batches: Batches = None,
        ratio: float = 1.0,
    ) -> None:
        super().__init__(model, batches=batches, ratio=ratio)
        features = model.get_embedding_dimension() or 0
        self.head = head if isinstance(head, AsymmetricBNHead) else AsymmetricBNHead(features, **(head or {}))
        if not isinstance(bank, LanguageMemoryBank):
            bank = LanguageMemoryBank(self.head.out_features, bank_size, **(bank or {})) if bank_size else None
        self.temperature, self.normalize, self.mini_batch_size = temperature, normalize, mini_batch_size
        keep_padding(model, mini_batch_size)
        self.cross_language_negatives, self.gather_across_devices = cross_language_negatives, gather_across_devices
        self.bank, self.mask_same_document, self.mask_same_text = bank, mask_same_document, mask_same_text

    def required_columns(self, texts: list[str], columns: list[str]) -> list[str]:
        """Documents, unless two columns are windows already; languages, unless they do not matter."""
        languages = [f"{text}_language" for text in texts]
        if not set(languages) <= set(columns):
            languages = ["label"] if "label" in columns and "language" not in columns else ["language"]
        return [*(["document"] if len(texts) == 1 else []), *([] if self.cross_language_negatives else languages)]

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch: one column of 2N rows (centres, then contexts) or two columns of N rows."""
        columns = self.read_columns(sentence_features, labels)
        documents = ["document_id"] if len(columns) == 1 else []
        tags = self.concatenate_tags(columns, *documents, *([] if self.cross_language_negatives else ["language_id"]))
        vectors = torch.cat(embed_columns(self.model, columns, self.mini_batch_size))
        centres, contexts = vectors.chunk(2)
        return self.compute_loss_from_embeddings(centres, contexts, tags)

    def compute_loss_from_embeddings(self, centres: Tensor, contexts: Tensor, tags: dict[str, Tensor]) -> Tensor:
        """Compute the loss of sentence vectors, (N, d) each, with tags (2N,): `language_id`, and others if known."""
        for kind in {"language_id", "document_id"} & tags.keys():
            if not torch.equal(*tags[kind].chunk(2)):
                self.refuse(f"a window of the batch has sentences with two values of {kind}")
        tags = {"language_id": torch.zeros(2 * len(centres), dtype=torch.long, device=centres.device), **tags}
        # Before the head: else batch statistics differ by rank.
        (centres, contexts), tags = self.gather_rows([centres, contexts], tags)
        language, document, text = tags["language_id"], tags.get("document_id"), tags.get("text_id")
        z_centres, z_contexts = self.head(centres, contexts)
        # Not in evaluation: equal weights have equal losses, however full the bank.
        bank = self.bank if self.updates_state else None
        queue = {} if bank is None else bank.get(None if self.cross_language_negatives else language)
        loss = contrastive_context_loss(
            torch.cat([z_centres, z_contexts]),
            torch.arange(len(centres), device=centres.device).repeat(2),
            language,
            temperature=self.temperature,
            document=document if self.mask_same_document else None,
            text=text if self.mask_same_text else None,
            cross_language_negatives=self.cross_language_negatives,
            normalize=self.normalize,
            queue_is_normalized=True,
            **queue,
        )
        if self.bank is not None and self.updates_state:
            # After the loss, and the contexts alone.
            keys = z_contexts.detach().float()
            new = (None if tag is None else tag[len(centres) :] for tag in (language, document, text))
            self.bank.enqueue(F.normalize(keys, dim=1) if self.normalize else keys, *new)  # type: ignore[arg-type]
        return loss

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the loss, for the model card."""
        bank = {} if self.bank is None else {"bank_size": self.bank.size, "bank_scope": self.bank.scope}
        return {**super().get_config_dict(), "normalization": self.head.normalization, "bank_size": 0, **bank}
