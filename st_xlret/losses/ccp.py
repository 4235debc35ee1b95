"""Contrastive context prediction (CCP) as a Sentence Transformers loss."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.batches import Windows
from st_xlret.citations import CITATIONS
from st_xlret.columns import BESIDE_ONE_TEXT, Kind, Layout, Tag
from st_xlret.functional import contrastive_context_loss
from st_xlret.losses.base import Batches, CrossLingualLoss, Tags
from st_xlret.losses.embedding import embed_columns, keep_padding
from st_xlret.modules import AsymmetricBNHead, LanguageMemoryBank
from st_xlret.ranges import check_positive, check_range


def _ccp_layouts(*, needs_language: bool) -> tuple[Layout, Layout]:
    """Sentences of documents; or windows, in which integer labels may be the languages."""
    language: tuple[Kind, ...] = ()
    if needs_language:
        language = ("language",)
    sentences = Layout(
        texts=1,
        needs=("document", *language),
        reads=("language", "position"),
        leaves_out=BESIDE_ONE_TEXT,
    )
    windows = Layout(texts=2, needs=language, label_is="language")
    return sentences, windows


class CCPLoss(CrossLingualLoss):
    """Contrastive context prediction, from documents alone (CCP, Wu et al. 2022, Algorithm 1).

    The encoder learns to tell which sentence stands near a given one:
    [`contrastive_context_loss`][st_xlret.functional.contrastive_context_loss] of the vectors of a
    projection head, with the keys of a memory bank as further negatives (not in evaluation). Both
    are discarded after training.

    Rows are windows: either two columns (centre, context), or one column of all centres and then
    all contexts, as `Windows` draws them. Where the features have no `language_id`, as in
    `model.fit`, integer labels are the languages of the rows. R ranks compute what one rank
    computes with an R times larger batch.

    Args:
        head: Projection head, or options of the default one, an `AsymmetricBNHead` of the encoder's
            size.
        bank: Memory bank of the projected contexts, or options of the default one, a
            `LanguageMemoryBank`.
        bank_size: Number of keys in the default bank; 0 for no bank. Not used if `bank` is a bank.
        temperature: Divisor of the cosines; the best of Table 5.
        cross_language_negatives: Use rows and keys of other languages too, which teaches to tell
            languages apart.
        mask_same_document: Do not use other rows and keys of the anchor's document as negatives.
            Algorithm 1 uses them.
        mask_same_text: Do not use rows and keys that have the anchor's text as negatives. Algorithm
            1 uses them.
        normalize: Compare projections by their cosines; if off, by inner products (an ablation of
            Table 5).
        gather_across_devices: Use the rows of all ranks. If off, each rank has its own loss and
            bank, as in the paper.
        mini_batch_size: Texts per micro-batch of the encoder (gradient caching); None for one pass.
        weight: Factor on the loss.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> loss = CCPLoss(model, bank_size=64)
        >>> centres, contexts = model.preprocess(["a", "b"]), model.preprocess(["c", "d"])
        >>> loss([centres, contexts], torch.tensor([25701, 25701])).backward()
        >>> len(loss.bank)
        2
    """

    data = "documents"
    equation = staticmethod(contrastive_context_loss)
    paper = "CCP, Algorithm 1"
    citation = CITATIONS["wu2022ccp"]
    layouts = _ccp_layouts(needs_language=True)
    default_batches = Windows
    takes = (
        "sentences with 'document' and 'language', "
        "or two text columns (centre, context) with 'language'"
    )
    fit_example = "InputExample(texts=[centre, context], label=language_to_id('fr'))"

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
        weight: float = 1.0,
        batches: Batches = None,
        ratio: float = 1.0,
    ) -> None:
        super().__init__(model, weight=weight, batches=batches, ratio=ratio)
        check_positive(temperature=temperature)
        check_range(0, bank_size=bank_size)
        if not isinstance(head, AsymmetricBNHead):
            head = AsymmetricBNHead(model.get_embedding_dimension() or 0, **(head or {}))
        self.head = head
        self.bank = _make_bank(bank, bank_size, self.head.out_features)
        self.temperature = temperature
        self.cross_language_negatives = cross_language_negatives
        self.mask_same_document = mask_same_document
        self.mask_same_text = mask_same_text
        self.normalize = normalize
        self.gather_across_devices = gather_across_devices
        self.mini_batch_size = mini_batch_size
        self.layouts = _ccp_layouts(needs_language=not cross_language_negatives)
        keep_padding(model, mini_batch_size=mini_batch_size)

    def forward(
        self,
        sentence_features: Iterable[dict[str, Tensor]],
        labels: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of a batch.

        It has one column of 2N rows (centres, then contexts), or two columns of N rows.
        """
        columns = self.read_columns(sentence_features, labels)
        required: list[Tag] = []
        if len(columns) == 1:
            required.append("document_id")
        if not self.cross_language_negatives:
            required.append("language_id")
        tags = self.concatenate_tags(columns, *required)
        vectors = torch.cat(embed_columns(self.model, columns, self.mini_batch_size))
        centres, contexts = vectors.chunk(2)
        return self.compute_loss_from_embeddings(centres, contexts, tags)

    def compute_loss_from_embeddings(
        self,
        centres: Tensor,
        contexts: Tensor,
        tags: Tags,
    ) -> Tensor:
        """Compute the loss of sentence vectors.

        All ranks call it together. In training, the head's statistics change, and the projected
        contexts go into the bank.

        Args:
            centres: (N, d).
            contexts: (N, d), row by row those of the centres.
            tags: (2N,) each, of centres and then of contexts: `language_id`, and `document_id` and
                `text_id` if they are known.
        """
        self._check_windows(tags)
        # Before the head: else batch statistics differ by rank.
        (centres, contexts), tags = self.gather_rows([centres, contexts], tags)
        tags = _tags_with_language(tags, centres)
        document = None
        if self.mask_same_document:
            document = tags.get("document_id")
        text = None
        if self.mask_same_text:
            text = tags.get("text_id")
        z_centres, z_contexts = self.head(centres, contexts)
        loss = contrastive_context_loss(
            torch.cat([z_centres, z_contexts]),
            torch.arange(len(centres), device=centres.device).repeat(2),
            tags["language_id"],
            temperature=self.temperature,
            document=document,
            text=text,
            cross_language_negatives=self.cross_language_negatives,
            normalize=self.normalize,
            queue_is_normalized=True,
            **self._queue_arguments(tags["language_id"]),
        )
        # After the loss: a window is no negative of itself.
        self._enqueue(z_contexts, tags)
        return self.weight * loss

    def _check_windows(self, tags: Tags) -> None:
        """Refuse rows whose two sentences are of two languages or documents."""
        kinds: tuple[Tag, ...] = ("language_id", "document_id")
        for kind in kinds:
            if kind in tags and not torch.equal(*tags[kind].chunk(2)):
                self.refuse(f"a window of the batch has sentences with two values of {kind}")

    def _queue_arguments(self, language: Tensor) -> dict[str, Any]:
        """The keys of the bank that a batch is compared with.

        There are none in evaluation: equal weights have equal losses, however full the bank.
        """
        if self.bank is None or not self.updates_state:
            return {}
        if self.cross_language_negatives:
            return self.bank.get()
        return self.bank.get(language)

    def _enqueue(self, contexts: Tensor, tags: Tags) -> None:
        """Put the projected contexts of a batch, and them alone, into the bank.

        `tags` are of centres and then of contexts.
        """
        if self.bank is None or not self.updates_state:
            return
        keys = contexts.detach().float()
        if self.normalize:
            keys = F.normalize(keys, dim=1)
        context_tags = {name: tag[len(contexts) :] for name, tag in tags.items()}
        self.bank.enqueue(
            keys,
            context_tags["language_id"],
            context_tags.get("document_id"),
            context_tags.get("text_id"),
        )

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the loss, for the model card."""
        options = super().get_config_dict()
        options["normalization"] = self.head.normalization
        options["bank_size"] = 0
        if self.bank is not None:
            options["bank_size"] = self.bank.size
            options["bank_scope"] = self.bank.scope
        return options


def _make_bank(
    bank: LanguageMemoryBank | Mapping[str, Any] | None,
    size: int,
    features: int,
) -> LanguageMemoryBank | None:
    """The bank as it was given, or a new one; None where its size is 0."""
    if isinstance(bank, LanguageMemoryBank):
        return bank
    if size == 0:
        return None
    return LanguageMemoryBank(features, size, **(bank or {}))


def _tags_with_language(tags: Tags, centres: Tensor) -> Tags:
    """The tags with a language: where the batch names none, all of it is in one."""
    if "language_id" in tags:
        return tags
    same_language = torch.zeros(2 * len(centres), dtype=torch.long, device=centres.device)
    return {**tags, "language_id": same_language}
