"""The masked sentence model (MSM) as a Sentence Transformers loss."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import (
    all_gather,
    all_gather_with_grad,
    get_rank,
    get_world_size,
)
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from st_xlret.batches import Blocks
from st_xlret.batches.collator import text_to_id
from st_xlret.citations import CITATIONS
from st_xlret.columns import BESIDE_ONE_TEXT, Kind, Layout
from st_xlret.functional import masked_sentence_loss
from st_xlret.functional.tensors import at_least_float32
from st_xlret.losses.base import Batches, Columns, CrossLingualLoss, unwrap_model
from st_xlret.losses.embedding import embed_columns, keep_padding, select_texts
from st_xlret.losses.masked_lm import MaskedLMLoss
from st_xlret.modules import DocumentEncoder, ProjectionHead


class MSMLoss(CrossLingualLoss):
    """Masked sentence prediction (MSM, Zhang et al. 2023, section 3.2), from documents alone.

    A document encoder predicts each sentence of a document from the others. Two projection heads map predictions and
    sentence vectors, and [`masked_sentence_loss`][st_xlret.functional.masked_sentence_loss] (Eq. 1-2) compares them.
    Document encoder and heads are discarded after training.

    A row is a sentence, whose block and place `Blocks` and `CrossLingualDataCollator` attach. Or a row is a block with
    a numbered column for each of its sentences (`sentence_0`, `sentence_1`, ...); empty texts are padding, and where
    the features have no `document_id`, as in `model.fit`, integer labels are the documents of the rows. A block of one
    sentence is a negative only, and a batch of one document has no bias. R ranks compute what one rank computes with an
    R times larger batch, and may have different numbers of rows.

    Args:
        document_encoder: Document encoder, or options of the default one, a `DocumentEncoder` of the encoder's size.
        heads: Two projection heads ("separate"), one for both sides ("shared"), or "none" (Table 7).
        num_negatives: Cross-document negatives of a row (Table 6), drawn if there are more; None for all.
        mu: Fraction of the bias that is subtracted from intra-document logits; 0 for no bias (Table 5).
        temperature: Divisor of the cosines. Eq. 1 shows none; 0.1 is that of the authors' program.
        intra_document_negatives: Use the other sentences of the document as negatives; off is "cross-doc" of Table 5.
        cross_language_negatives: Use rows of other languages too. The paper's batches, of one language, have none.
        mask_same_text: Do not use rows that have the sentence's own text as negatives. The paper does not say so.
        mini_batch_size: Number of sentences per micro-batch of the encoder (gradient caching); None for one pass.
        mlm: A masked-language-model loss of the same encoder on each batch (Eq. 3), of at most `mini_batch_size` random
            sentences of each rank; the value is then the two parts by name. None if the two alternate by batch.
        gather_across_devices: Use the rows of all ranks. If off, each rank computes its own loss.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> loss = MSMLoss(model, cross_language_negatives=True)
        >>> columns = [["a", "d"], ["b", "a b"], ["c", ""]]      # documents of three and of two sentences
        >>> loss([model.preprocess(texts) for texts in columns]).backward()
    """

    steps: Tensor

    default_batches = Blocks
    takes = "sentences with 'document', 'position' and 'language', or blocks in columns 'sentence_0', 'sentence_1', ..."
    fit_example = "InputExample(texts=[first, second, ...], label=document)"
    citation = CITATIONS["zhang2023modeling"]

    def __init__(
        self,
        model: SentenceTransformer,
        document_encoder: DocumentEncoder | Mapping[str, Any] | None = None,
        *,
        heads: Literal["separate", "shared", "none"] = "separate",
        num_negatives: int | None = 512,
        mu: float = 0.5,
        temperature: float = 0.1,
        intra_document_negatives: bool = True,
        cross_language_negatives: bool = False,
        mask_same_text: bool = True,
        mini_batch_size: int | None = None,
        mlm: MaskedLMLoss | None = None,
        gather_across_devices: bool = True,
        seed: int = 0,
        batches: Batches = None,
        ratio: float = 1.0,
    ) -> None:
        super().__init__(model, batches=batches, ratio=ratio)
        keep_padding(model, mini_batch_size)
        features = model.get_embedding_dimension() or 0
        if not isinstance(document_encoder, DocumentEncoder):
            document_encoder = DocumentEncoder(features, **(document_encoder or {}))
        if mlm is not None and mlm.model is not model:
            self.refuse("mlm is a loss of another encoder")
        self.mu, self.temperature, self.seed, self.mini_batch_size = (
            mu,
            temperature,
            seed,
            mini_batch_size,
        )
        self.intra_document_negatives, self.mask_same_text = (
            intra_document_negatives,
            mask_same_text,
        )
        self.cross_language_negatives, self.gather_across_devices = (
            cross_language_negatives,
            gather_across_devices,
        )
        self.num_negatives, self.document_encoder, self.heads, self.mlm = (
            num_negatives,
            document_encoder,
            heads,
            mlm,
        )
        # The head of predictions comes first and the head of sentences last.
        sides = {"separate": 2, "shared": 1, "none": 0}[heads]
        self.projections = nn.ModuleList(ProjectionHead(features) for _ in range(sides))
        self.register_buffer("steps", torch.tensor(0))
        of_documents: tuple[Kind, ...] = (
            ("document", "position")
            if cross_language_negatives
            else ("document", "position", "language")
        )
        self.layouts = (
            Layout(1, needs=of_documents, leaves_out=BESIDE_ONE_TEXT),
            Layout(0, reads=("language", "document"), label_is="document"),
        )

    def forward(
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Tensor | dict[str, Tensor]:
        """Compute the loss of one column of sentences, or of a column for each sentence of a block."""
        columns = self.read_columns(sentence_features, labels)
        required = [] if self.cross_language_negatives else ["language_id"]
        required += ["block_id", "sentence_position"] if len(columns) == 1 else []
        tags = self.concatenate_tags(columns, *required)
        vectors = torch.cat(embed_columns(self.model, columns, self.mini_batch_size))
        if len(columns) > 1:
            vectors, tags = self._flatten_blocks(vectors, columns, tags, labels)
        if self.mlm is None:
            return self.compute_loss_from_embeddings(vectors, tags)
        mlm = self.mlm(self._draw_texts(columns), labels)  # before the loss, which counts the step
        return {"msm": self.compute_loss_from_embeddings(vectors, tags), "mlm": mlm}

    def compute_loss_from_embeddings(self, vectors: Tensor, tags: dict[str, Tensor]) -> Tensor:
        """Compute the loss of vectors (S, d) with tags (S,): `block_id`, `sentence_position`, and others if known."""
        vectors = at_least_float32(vectors)  # as the networks are, where the encoder is in 16 bits
        predictions, predicted = self._predict_sentences(vectors, tags)
        document, language, text = (
            tags.get(f"{tag}_id", tags["block_id"]) for tag in ("document", "language", "text")
        )
        if self.gather_across_devices and get_world_size() > 1:
            # Before the heads: else batch statistics differ by rank.
            integers = torch.stack([document, language, text, predicted.long()], 1)
            predictions, vectors, integers = gather_ragged_rows(predictions, vectors, integers)
            document, language, text, predicted = (
                *integers[:, :3].unbind(1),
                integers[:, 3].bool(),
            )
        if not predicted.any():
            self.refuse("no block of the batch has two sentences")
        if self.heads != "none":
            # Rows that are not predicted stay out of the head's statistics.
            projected = self.projections[0](predictions[predicted]).to(predictions.dtype)
            predictions = predictions.index_copy(0, predicted.nonzero()[:, 0], projected)
            vectors = self.projections[-1](vectors)
        loss = masked_sentence_loss(
            predictions,
            vectors,
            document,
            mu=self.mu,
            temperature=self.temperature,
            num_negatives=self.num_negatives,
            generator=self._step_generator(vectors.device),
            intra_document_negatives=self.intra_document_negatives,
            predicted=predicted,
            language=None if self.cross_language_negatives else language,
            text=text if self.mask_same_text and "text_id" in tags else None,
        )
        if self.updates_state:
            self.steps += 1
        return loss

    def _predict_sentences(self, vectors: Tensor, tags: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Predict the sentences (S, d) of blocks of two and more from the others, and tell which (S,) they are."""
        order = torch.argsort(tags["sentence_position"], stable=True)
        order = order[torch.argsort(tags["block_id"][order], stable=True)]
        counts = torch.unique_consecutive(tags["block_id"][order], return_counts=True)[1].tolist()
        rows = pad_sequence(
            order.split(counts or [0]), batch_first=True, padding_value=-1
        )  # (blocks, places)
        rows, present = rows.clamp(min=0), rows >= 0
        wrong = tags["sentence_position"][rows].diff() <= 0
        for kind in {"document_id", "language_id"} & tags.keys():
            wrong |= tags[kind][rows].diff() != 0
        if (wrong & present[:, 1:]).any():
            self.refuse(
                "a block of the batch has two documents or languages, or two sentences at one position"
            )
        longer = present.sum(1) > 1
        rows, present = rows[longer], present[longer]
        predicted = torch.zeros(len(vectors), dtype=torch.bool, device=vectors.device)
        predicted[rows[present]] = True
        predictions = torch.zeros_like(vectors)
        if len(rows):
            of_places = self.document_encoder(vectors[rows], present)[present].to(predictions.dtype)
            predictions = predictions.index_copy(0, rows[present], of_places)
        return predictions, predicted

    def _flatten_blocks(
        self, vectors: Tensor, columns: Columns, tags: dict[str, Tensor], labels: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Vectors and tags of the sentences of blocks that have a column for each sentence, without empty texts."""
        count, device = len(vectors) // len(columns), vectors.device
        if labels is not None and count > 1 and len(labels.unique()) == 1:
            self.refuse(
                f"the {count} blocks of the batch are all labelled as of the document {labels[0]}"
            )
        # A block has the same number on no other rank.
        block = torch.arange(count, device=device) + (get_rank() << 40)
        document = tags.get("document_id", block.repeat(len(columns)))
        position = torch.arange(len(columns), device=device).repeat_interleave(count)
        tags = {
            **tags,
            "document_id": document,
            "block_id": block.repeat(len(columns)),
            "sentence_position": position,
        }
        if "text_id" in tags:
            filled = tags["text_id"] != text_to_id("")
        else:
            filled = torch.cat([self._has_tokens(features) for features in columns])
        return vectors[filled], {name: tag[filled] for name, tag in tags.items()}

    def _has_tokens(self, features: dict[str, Any]) -> Tensor:
        ids = features["input_ids"]
        if "offsets" in features:  # flattened inputs of a static encoder
            return (
                torch.diff(features["offsets"], append=features["offsets"].new_tensor([len(ids)]))
                > 0
            )
        special = torch.tensor(
            unwrap_model(self.model).tokenizer.all_special_ids, device=ids.device
        )
        return (features["attention_mask"].bool() & ~torch.isin(ids, special)).any(1)

    def _step_generator(self, device: torch.device) -> torch.Generator:
        # From the step alone: the same on all ranks and after a resume, and in every evaluation.
        return torch.Generator(device).manual_seed(
            1_000_003 * self.seed + int(self.steps) * self.updates_state
        )

    def _draw_texts(self, columns: Columns) -> Columns:
        """As many sentences of one column as a micro-batch has, drawn at random; several columns stay whole."""
        ids, size = columns[0]["input_ids"], self.mini_batch_size
        if len(columns) > 1 or size is None or size >= len(ids):
            return columns
        rows = torch.randperm(
            len(ids), generator=self._step_generator(ids.device), device=ids.device
        )
        return [select_texts(columns[0], rows[:size])]

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the loss, for the model card."""
        mlm = None if self.mlm is None else self.mlm.get_config_dict()
        return {
            **super().get_config_dict(),
            "document_encoder_layers": len(self.document_encoder.layers),
            "mlm": mlm,
        }


def gather_ragged_rows(
    predictions: Tensor, vectors: Tensor, integers: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gather the rows of all ranks, one rank after the other. Ranks may have different numbers of rows."""
    most = torch.tensor(len(vectors), device=vectors.device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    padding = (0, 0, 0, int(most) - len(vectors))
    filled = all_gather(F.pad(torch.ones_like(integers[:, 0]), padding[2:])).bool()
    both = all_gather_with_grad(F.pad(torch.cat([predictions, vectors], 1), padding).contiguous())[
        filled
    ]
    predictions, vectors = both.chunk(2, dim=1)
    return predictions, vectors, all_gather(F.pad(integers, padding))[filled]
