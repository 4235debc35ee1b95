"""Contrastive context prediction (CCP) as a Sentence Transformers loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_xlret.batches import Windows
from st_xlret.functional import contrastive_context_loss
from st_xlret.languages import id_to_language
from st_xlret.losses.base import Batches, CrossLingualLoss, embedding_size, language_columns
from st_xlret.losses.embedding import embed_columns, gather_columns, read_tags
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
    """Contrastive context prediction (CCP, Wu et al. 2022, section 3.1 and Algorithm 1), from documents alone.

    The encoder learns to tell which sentence stands near a given one. The equation (lines 14-16 of Algorithm 1) is
    [`contrastive_context_loss`][st_xlret.functional.contrastive_context_loss], computed on the vectors of a
    projection head, with the keys of a memory bank as further negatives. Head and bank are discarded after
    training.

    Rows are windows: either two columns (centre, context), or one column whose first half holds the centres and
    whose second half holds their contexts, as `Windows` draws them (one forward pass).
    `CrossLingualDataCollator` attaches the ids of languages, documents and texts.

    In distributed training the sentence vectors are gathered before the head, so that batch statistics, negatives
    and bank are those of the whole batch. R ranks compute what one rank computes with an R times larger batch.

    For `MatryoshkaLoss`, name its dimensions here too: each truncated size gets a head and a bank of its own.

    Args:
        model: The encoder.
        head: Projection head, or options of the default one, an `AsymmetricBNHead` of the encoder's size.
        bank: Memory bank, or options of the default one, a `LanguageMemoryBank` of `bank_size` keys of the head's size.
            As in the paper, the projections of the contexts (z_i) enter it.
        bank_size: Number of keys in the default bank; 0 for no bank. Not used if `bank` is a bank.
        temperature: Divisor of the cosines; the best of Table 5.
        cross_language_negatives: Use rows and keys of other languages as negatives too. The encoder can then lower
            the loss by telling languages apart, the shortcut that the paper warns of.
        mask_same_document: Do not use other rows and keys of the anchor's document as negatives. Algorithm 1 uses them.
        mask_same_text: Do not use rows and keys that have the anchor's text as negatives. Algorithm 1 uses them.
        normalize: Compare projections by their cosines. If off, by their inner products: the ablation without L2
            normalisation of Table 5.
        gather_across_devices: Use the rows of all ranks. If off, each rank computes its own loss and has its own
            bank, as in the paper, where the batch of a device stands alone.
        matryoshka_dims: The dimensions of a `MatryoshkaLoss` around this loss. Each one below the encoder's size
            gets a head and a bank like the main ones.
        batches: How batches are drawn, see `CrossLingualLoss`. Default: `Windows()`.
        ratio: How often batches of this loss are drawn beside those of the other losses of a run.

    Raises:
        ValueError: If the head or the bank does not fit the encoder's size, or a number is out of its range.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> loss = CCPLoss(model, bank_size=64)
        >>> centres, contexts = model.preprocess(["a", "b"]), model.preprocess(["c", "d"])
        >>> language = torch.tensor([25701, 25701])
        >>> loss([centres, contexts], language).backward()
        >>> len(loss.bank)
        2
    """

    most_columns = 2
    takes = (
        "sentences with their 'document' and 'language', as load_documents gives them, or two text columns (a centre "
        "and a context near it) with their 'language'"
    )
    citation = CITATION

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
        matryoshka_dims: Sequence[int] = (),
        batches: Batches = None,
        ratio: float = 1.0,
    ) -> None:
        super().__init__(model, batches=batches, ratio=ratio)
        features = embedding_size(model)
        if bank_size < 0:
            raise ValueError(f"bank_size must be 0, for no bank, or the number of its keys, got {bank_size}")
        self.head = AsymmetricBNHead(features, **(head or {})) if head is None or isinstance(head, Mapping) else head
        if self.head.in_features != features:
            raise ValueError(
                f"the head takes {self.head.in_features} features and the encoder gives {features}: leave head out, "
                f"or build it with AsymmetricBNHead({features})"
            )
        if not isinstance(bank, LanguageMemoryBank):
            bank = LanguageMemoryBank(self.head.out_features, bank_size, **(bank or {})) if bank_size else None
        if bank is not None and bank.features != self.head.out_features:
            raise ValueError(
                f"the bank holds keys of {bank.features} features and the head gives {self.head.out_features}: leave "
                f"bank out (bank_size sets its size), or build it with LanguageMemoryBank({self.head.out_features})"
            )
        self.bank, self.temperature, self.normalize = bank, temperature, normalize
        self.cross_language_negatives, self.gather_across_devices = cross_language_negatives, gather_across_devices
        self.mask_same_document, self.mask_same_text = mask_same_document, mask_same_text
        self.truncated = nn.ModuleDict()
        for size in sorted({*matryoshka_dims} - {features}, reverse=True):
            if not 0 < size < features:
                raise ValueError(f"matryoshka_dims must lie between 1 and the encoder's {features}, got {size}")
            self.truncated[str(size)] = self._resized(size)

    def default_batches(self) -> Windows:
        """Windows of documents, of one language in a batch."""
        return Windows()

    def required_columns(self, texts: list[str], columns: list[str]) -> list[str]:
        """Documents, unless two columns are windows already; languages, unless they do not matter."""
        languages = [] if self.cross_language_negatives else language_columns(texts, columns)
        return [*(["document"] if len(texts) == 1 else []), *languages]

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch of windows, a scalar.

        Args:
            sentence_features: One column of 2N rows (centres, then contexts) or two columns of N rows.
            labels: Language of each row, integers, where the features have no `language_id`, as in `model.fit`.

        Raises:
            ValueError: If there are more than two columns, one column has an odd number of rows or no documents,
                languages are missing where they are needed, a window's sentences are of different documents or
                languages, or the vectors have a size for which there is no head.
        """
        columns = self.read_columns(sentence_features, labels)
        tags = read_tags(columns)
        if "language_id" not in tags and labels is not None and not labels.is_floating_point():
            _check_labels(labels)
            tags["language_id"] = labels.repeat(len(columns))
        if len(columns) == 1 and "document_id" not in tags:
            raise ValueError(
                "CCPLoss got one text column without documents, and takes its first half for centres and its second "
                "half for their contexts. Of random sentences it would learn nonsense: give the data set a "
                "'document' column and use CrossLingualTrainer (or batch_sampler=Windows() and "
                "data_collator=CrossLingualDataCollator(model.preprocess)), or give two text columns, centre and "
                "context"
            )
        embeddings = embed_columns(self.model, columns)
        if len(embeddings) == 1:
            if len(embeddings[0]) % 2:
                raise ValueError(f"one column must hold centres, then contexts: got {len(embeddings[0])} rows")
            embeddings = list(embeddings[0].chunk(2))
        return self._record(self.compute_loss_from_embeddings(embeddings[0], embeddings[1], tags))

    def compute_loss_from_embeddings(self, centres: Tensor, contexts: Tensor, tags: dict[str, Tensor]) -> Tensor:
        """Compute the loss of sentence vectors (N, d) and (N, d) with tags (2N,): `language_id`, and others if known.

        Raises:
            ValueError: As in `forward`.
        """
        if "language_id" not in tags and not self.cross_language_negatives:
            raise ValueError(
                "CCPLoss does not know the languages of the texts: give the data set a 'language' column and use "
                "CrossLingualTrainer (or data_collator=CrossLingualDataCollator(model.preprocess)); with model.fit, "
                "InputExample(texts=[centre, context], label=language_to_id('fr')); or take negatives of all "
                "languages: CCPLoss(model, cross_language_negatives=True)"
            )
        tags = {"language_id": torch.zeros(2 * len(centres), dtype=torch.long, device=centres.device), **tags}
        _check_windows(tags)
        head, bank = self._networks_for(centres.shape[1])
        if self.gather_across_devices:
            (centres, contexts), tags = gather_columns([centres, contexts], tags)
        z_centres, z_contexts = head(centres, contexts)
        language = tags["language_id"]
        document = tags.get("document_id") if self.mask_same_document else None
        text = tags.get("text_id") if self.mask_same_text else None
        queue: dict[str, Any] = {}
        if bank is not None:
            queue = bank.get(None if self.cross_language_negatives else language) | {"queue_is_normalized": True}
        loss = contrastive_context_loss(
            torch.cat([z_centres, z_contexts]),
            torch.arange(len(centres), device=centres.device).repeat(2),
            language,
            temperature=self.temperature,
            document=document,
            text=text,
            cross_language_negatives=self.cross_language_negatives,
            normalize=self.normalize,
            **queue,
        )
        if bank is not None and self.updates_state:
            new = {name: tag[len(centres) :] for name, tag in tags.items()}
            keys = z_contexts.detach().float()
            keys = F.normalize(keys, dim=1) if self.normalize else keys
            bank.enqueue(keys, new["language_id"], new.get("document_id"), new.get("text_id"))
        return loss

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the loss, for the model card."""
        bank = (
            {"bank_size": self.bank.size, "bank_scope": self.bank.scope} if self.bank is not None else {"bank_size": 0}
        )
        return {**super().get_config_dict(), "normalization": self.head.normalization, **bank}

    def _resized(self, size: int) -> nn.ModuleDict:
        """A head like the main one for vectors of another size, and an empty bank like the main one."""
        head = deepcopy(self.head)
        head.in_features, head.linear_in = size, nn.Linear(size, head.linear_in.out_features)
        if (like := self.bank) is None:
            return nn.ModuleDict({"head": head})
        bank = LanguageMemoryBank(like.features, like.size, scope=like.scope)
        return nn.ModuleDict({"head": head, "bank": bank})

    def _networks_for(self, size: int) -> tuple[AsymmetricBNHead, LanguageMemoryBank | None]:
        if size == self.head.in_features:
            return self.head, self.bank
        if str(size) not in self.truncated:
            raise ValueError(
                f"CCPLoss has a head for {self.head.in_features} features and got vectors of {size}: inside of "
                f"MatryoshkaLoss, build it with CCPLoss(model, matryoshka_dims=[..., {size}])"
            )
        networks: Any = self.truncated[str(size)]
        return networks["head"], dict(networks).get("bank")


def _check_windows(tags: dict[str, Tensor]) -> None:
    """Refuse pairs of sentences that are no windows: on them the loss would teach nonsense without an error."""
    for kind in ("language", "document"):
        if f"{kind}_id" not in tags:
            continue
        centres, contexts = tags[f"{kind}_id"].chunk(2)
        different = centres != contexts
        if different.any():
            row = int(different.nonzero()[0])
            raise ValueError(
                f"window {row} of the batch has sentences of two {kind}s (ids {int(centres[row])} and "
                f"{int(contexts[row])}), and CCPLoss takes neighbours in a document: draw the batches with "
                "Windows (CrossLingualTrainer does, or batch_sampler=Windows() in the training arguments), or take "
                "SemanticContrastiveLoss for translations"
            )


def _check_labels(labels: Tensor) -> None:
    """Refuse labels that are no languages: with one of its own for each row, the loss would have no negatives."""
    for label in labels.unique().tolist():
        try:
            id_to_language(label)
        except ValueError as error:
            raise ValueError(
                f"CCPLoss reads the label of a row as its language, and {label} is none: "
                'InputExample(texts=[centre, context], label=language_to_id("fr"))'
            ) from error
