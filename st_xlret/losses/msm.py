"""The masked sentence model (MSM) as a Sentence Transformers loss."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
from st_xlret.columns import BESIDE_ONE_TEXT, Kind, Layout, Tag
from st_xlret.functional import masked_sentence_loss
from st_xlret.functional.tensors import at_least_float32
from st_xlret.losses.base import Batches, Columns, CrossLingualLoss, Tags, unwrap_model
from st_xlret.losses.embedding import Features, embed_columns, keep_padding, select_texts
from st_xlret.losses.masked_lm import MaskedLMLoss
from st_xlret.modules import DocumentEncoder, ProjectionHead
from st_xlret.ranges import check_positive, check_range


def _msm_layouts(*, needs_language: bool) -> tuple[Layout, Layout]:
    """Sentences of documents; or blocks, in which integer labels may be the documents."""
    needs: tuple[Kind, ...] = ("document", "position")
    if needs_language:
        needs = (*needs, "language")
    return (
        Layout(1, needs=needs, leaves_out=BESIDE_ONE_TEXT),
        Layout(0, reads=("language", "document"), label_is="document"),
    )


@dataclass(frozen=True)
class Sentences:
    """Sentences of a batch: (S, d) tensors, and (S,) tags.

    A tag that the batch lacks has the numbers of the blocks in its place: all ranks gather as many.
    """

    predictions: Tensor
    """Zeros where nothing is predicted."""
    vectors: Tensor
    predicted: Tensor
    document: Tensor
    language: Tensor
    text: Tensor


class MSMLoss(CrossLingualLoss):
    """Masked sentence prediction, from documents alone (MSM, Zhang et al. 2023, section 3.2).

    A document encoder predicts each sentence of a document from the others. Two projection heads
    map predictions and sentence vectors, and
    [`masked_sentence_loss`][st_xlret.functional.masked_sentence_loss] (Eq. 1-2) compares them.
    Document encoder and heads are discarded after training.

    A row is a sentence, whose block and place `Blocks` and `CrossLingualDataCollator` attach. Or a
    row is a block with a numbered column for each of its sentences (`sentence_0`, `sentence_1`,
    ...); empty texts are padding, and where the features have no `document_id`, as in `model.fit`,
    integer labels are the documents of the rows. A block of one sentence is a negative only, and a
    batch of one document has no bias. R ranks compute what one rank computes with an R times larger
    batch, and may have different numbers of rows.

    Args:
        document_encoder: Document encoder, or options of the default one, a `DocumentEncoder` of
            the encoder's size.
        heads: Two projection heads ("separate"), one for both sides ("shared"), or "none"
            (Table 7).
        num_negatives: Cross-document negatives of a row (Table 6), drawn if there are more; None
            for all.
        mu: Fraction of the bias that is subtracted from intra-document logits; 0 for no bias
            (Table 5).
        temperature: Divisor of the cosines. Eq. 1 shows none; 0.1 is that of the authors' program.
        intra_document_negatives: Use the other sentences of the document as negatives; off is
            "cross-doc" of Table 5.
        cross_language_negatives: Use rows of other languages too. The paper's batches, of one
            language, have none.
        mask_same_text: Do not use rows that have the sentence's own text as negatives. The paper
            does not say so.
        mini_batch_size: Number of sentences per micro-batch of the encoder (gradient caching); None
            for one pass.
        mlm: A masked-language-model loss of the same encoder on each batch (Eq. 3), of at most
            `mini_batch_size` random sentences of each rank; the value is then the two parts by
            name. None if the two alternate by batch.
        gather_across_devices: Use the rows of all ranks. If off, each rank computes its own loss.
        weight: Factor on the loss, without that of `mlm`, which has its own.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> loss = MSMLoss(model, cross_language_negatives=True)
        >>> columns = [["a", "d"], ["b", "a b"], ["c", ""]]  # documents of three and two sentences
        >>> loss([model.preprocess(texts) for texts in columns]).backward()
    """

    steps: Tensor

    data = "documents"
    equation = staticmethod(masked_sentence_loss)
    paper = "MSM, Eq. 1-2"
    citation = CITATIONS["zhang2023modeling"]
    layouts = _msm_layouts(needs_language=True)
    default_batches = Blocks
    takes = (
        "sentences with 'document', 'position' and 'language', "
        "or blocks in columns 'sentence_0', 'sentence_1', ..."
    )
    fit_example = "InputExample(texts=[first, second, ...], label=document)"

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
        weight: float = 1.0,
        batches: Batches = None,
        ratio: float = 1.0,
    ) -> None:
        super().__init__(model, weight=weight, batches=batches, ratio=ratio)
        check_positive(temperature=temperature)
        check_range(0, mu=mu)
        check_range(1, num_negatives=num_negatives)
        features = model.get_embedding_dimension() or 0
        if not isinstance(document_encoder, DocumentEncoder):
            document_encoder = DocumentEncoder(features, **(document_encoder or {}))
        if mlm is not None and mlm.model is not model:
            self.refuse("mlm is a loss of another encoder")
        self.document_encoder = document_encoder
        self.heads = heads
        self.num_negatives = num_negatives
        self.mu = mu
        self.temperature = temperature
        self.intra_document_negatives = intra_document_negatives
        self.cross_language_negatives = cross_language_negatives
        self.mask_same_text = mask_same_text
        self.mini_batch_size = mini_batch_size
        self.mlm = mlm
        self.gather_across_devices = gather_across_devices
        self.seed = seed
        # The head of predictions comes first and the head of sentences last.
        sides = {"separate": 2, "shared": 1, "none": 0}[heads]
        self.projections = nn.ModuleList(ProjectionHead(features) for _ in range(sides))
        self.register_buffer("steps", torch.tensor(0))
        self.layouts = _msm_layouts(needs_language=not cross_language_negatives)
        keep_padding(model, mini_batch_size=mini_batch_size)

    def forward(
        self,
        sentence_features: Iterable[dict[str, Tensor]],
        labels: Tensor | None = None,
    ) -> Tensor | dict[str, Tensor]:
        """Compute the loss of a column of sentences, or of a column for each place in a block."""
        columns = self.read_columns(sentence_features, labels)
        required: list[Tag] = []
        if not self.cross_language_negatives:
            required.append("language_id")
        if len(columns) == 1:
            required += ["block_id", "sentence_position"]
        tags = self.concatenate_tags(columns, *required)
        vectors = torch.cat(embed_columns(self.model, columns, self.mini_batch_size))
        if len(columns) > 1:
            vectors, tags = self._flatten_blocks(vectors, columns, tags, labels)
        if self.mlm is None:
            return self.compute_loss_from_embeddings(vectors, tags)
        # Before the loss, which counts the step.
        mlm = self.mlm(self._draw_texts(columns), labels)
        return {"msm": self.compute_loss_from_embeddings(vectors, tags), "mlm": mlm}

    def compute_loss_from_embeddings(self, vectors: Tensor, tags: Tags) -> Tensor:
        """Compute the loss of sentences, and count a step in training.

        All ranks call it together. A `ValueError` refuses a batch without a block of two sentences.

        Args:
            vectors: (S, d).
            tags: (S,) each: `block_id`, `sentence_position`, and others if they are known.
        """
        vectors = at_least_float32(vectors)  # as the networks are, where the encoder is in 16 bits
        predictions, predicted = self._predict_sentences(vectors, tags)
        sentences = Sentences(
            predictions=predictions,
            vectors=vectors,
            predicted=predicted,
            document=tags.get("document_id", tags["block_id"]),
            language=tags.get("language_id", tags["block_id"]),
            text=tags.get("text_id", tags["block_id"]),
        )
        if self.gather_across_devices and get_world_size() > 1:
            # Before the heads: else batch statistics differ by rank.
            sentences = _gather_sentences(sentences)
        if not sentences.predicted.any():
            self.refuse("no block of the batch has two sentences")
        predictions, vectors = self._project_sentences(sentences)
        language = None if self.cross_language_negatives else sentences.language
        text = sentences.text if self.mask_same_text and "text_id" in tags else None
        loss = masked_sentence_loss(
            predictions,
            vectors,
            sentences.document,
            mu=self.mu,
            temperature=self.temperature,
            num_negatives=self.num_negatives,
            generator=self._step_generator(vectors.device),
            intra_document_negatives=self.intra_document_negatives,
            predicted=sentences.predicted,
            language=language,
            text=text,
        )
        if self.updates_state:
            self.steps += 1
        return self.weight * loss

    def _predict_sentences(self, vectors: Tensor, tags: Tags) -> tuple[Tensor, Tensor]:
        """Predict the sentences (S, d) of blocks of two and more from the others.

        The second tensor tells which (S,) they are.
        """
        rows = _arrange_blocks(tags)
        self._check_blocks(rows, tags)
        of_blocks = rows[(rows >= 0).sum(1) > 1]
        present = of_blocks >= 0
        rows_to_predict = of_blocks[present]
        predicted = torch.zeros(len(vectors), dtype=torch.bool, device=vectors.device)
        predicted[rows_to_predict] = True
        predictions = torch.zeros_like(vectors)
        if len(of_blocks):
            sentences = vectors[of_blocks.clamp(min=0)]
            predictions_of_places = self.document_encoder(sentences, present)[present]
            predictions = predictions.index_copy(
                0, rows_to_predict, predictions_of_places.to(predictions.dtype)
            )
        return predictions, predicted

    def _check_blocks(self, rows: Tensor, tags: Tags) -> None:
        """Refuse blocks (blocks, places) whose sentences do not follow each other in one text."""
        both_are_there = rows[:, 1:] >= 0
        places = rows.clamp(min=0)
        wrong = tags["sentence_position"][places].diff() <= 0
        kinds: tuple[Tag, ...] = ("document_id", "language_id")
        for kind in kinds:
            if kind in tags:
                wrong |= tags[kind][places].diff() != 0
        if (wrong & both_are_there).any():
            self.refuse(
                "a block of the batch has two documents or languages, "
                "or two sentences at one position"
            )

    def _project_sentences(self, sentences: Sentences) -> tuple[Tensor, Tensor]:
        """Predictions and vectors (S, d) after the heads; other rows than predicted stay."""
        predictions = sentences.predictions
        if self.heads == "none":
            return predictions, sentences.vectors
        # Rows that are not predicted stay out of the head's statistics.
        predicted = sentences.predicted
        projected = self.projections[0](predictions[predicted]).to(predictions.dtype)
        rows = predicted.nonzero()[:, 0]
        return predictions.index_copy(0, rows, projected), self.projections[-1](sentences.vectors)

    def _flatten_blocks(
        self,
        vectors: Tensor,
        columns: Columns,
        tags: Tags,
        labels: Tensor | None,
    ) -> tuple[Tensor, Tags]:
        """Vectors and tags of the sentences of blocks with a column for each, without empty texts.

        Both come in the order of the columns. A `ValueError` refuses labels that are alike, and so
        name no documents.
        """
        places = len(columns)
        count = len(vectors) // places
        if labels is not None and count > 1 and len(labels.unique()) == 1:
            self.refuse(
                f"the {count} blocks of the batch are all labelled as of the document {labels[0]}"
            )
        device = vectors.device
        # A block has the same number on no other rank.
        block = (torch.arange(count, device=device) + (get_rank() << 40)).repeat(places)
        position = torch.arange(places, device=device).repeat_interleave(count)
        of_blocks: Tags = {"document_id": block, **tags}
        of_blocks["block_id"] = block
        of_blocks["sentence_position"] = position
        if "text_id" in tags:
            filled = tags["text_id"] != text_to_id("")
        else:
            filled = torch.cat([self._has_tokens(features) for features in columns])
        return vectors[filled], {name: tag[filled] for name, tag in of_blocks.items()}

    def _has_tokens(self, features: Features) -> Tensor:
        """Whether each text has tokens that are not special ones."""
        ids = features["input_ids"]
        if "offsets" in features:  # flattened inputs of a static encoder
            offsets = features["offsets"]
            end = offsets.new_tensor([len(ids)])
            return torch.diff(offsets, append=end) > 0
        tokenizer = unwrap_model(self.model).tokenizer
        special = torch.tensor(tokenizer.all_special_ids, device=ids.device)
        is_token = features["attention_mask"].bool() & ~torch.isin(ids, special)
        return is_token.any(1)

    def _step_generator(self, device: torch.device) -> torch.Generator:
        """Random numbers of a step: the same on all ranks and after a resume.

        All evaluations have those of step 0.
        """
        step = 0
        if self.updates_state:
            step = int(self.steps)
        return torch.Generator(device).manual_seed(1_000_003 * self.seed + step)

    def _draw_texts(self, columns: Columns) -> Columns:
        """As many sentences of one column as a micro-batch has, drawn at random by the step.

        Several columns stay whole. It is called before the step is counted.
        """
        ids = columns[0]["input_ids"]
        size = self.mini_batch_size
        if len(columns) > 1 or size is None or size >= len(ids):
            return columns
        generator = self._step_generator(ids.device)
        rows = torch.randperm(len(ids), generator=generator, device=ids.device)
        return [select_texts(columns[0], rows[:size])]

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the loss, for the model card."""
        options = super().get_config_dict()
        options["document_encoder_layers"] = len(self.document_encoder.layers)
        options["mlm"] = None
        if self.mlm is not None:
            options["mlm"] = self.mlm.get_config_dict()
        return options


def _arrange_blocks(tags: Tags) -> Tensor:
    """The rows of each block in the order of its sentences (blocks, places), -1 behind them."""
    order = torch.argsort(tags["sentence_position"], stable=True)
    order = order[torch.argsort(tags["block_id"][order], stable=True)]
    _, counts = torch.unique_consecutive(tags["block_id"][order], return_counts=True)
    rows_of_blocks = order.split(counts.tolist() or [0])  # a batch may be empty
    return pad_sequence(rows_of_blocks, batch_first=True, padding_value=-1)


def _gather_sentences(own: Sentences) -> Sentences:
    """The sentences of all ranks, one rank after the other.

    All ranks call it together. They may have different numbers of sentences, which are padded to
    the most, gathered, and cut.
    """
    device = own.vectors.device
    most = torch.tensor(len(own.vectors), device=device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    missing = int(most) - len(own.vectors)
    filled = all_gather(F.pad(torch.ones_like(own.document), (0, missing))).bool()
    both = F.pad(torch.cat([own.predictions, own.vectors], 1), (0, 0, 0, missing))
    predictions, vectors = all_gather_with_grad(both.contiguous())[filled].chunk(2, dim=1)
    tags = torch.stack([own.predicted.long(), own.document, own.language, own.text], 1)
    gathered = all_gather(F.pad(tags, (0, 0, 0, missing)))[filled]
    predicted, document, language, text = gathered.unbind(1)
    return Sentences(predictions, vectors, predicted.bool(), document, language, text)
