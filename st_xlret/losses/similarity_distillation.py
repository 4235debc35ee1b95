"""Distillation of a teacher's similarities, from one language into all of them."""

from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util.distributed import all_gather, get_world_size
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from st_xlret.batches import BatchFactory, LengthGroupedBatches, Rows
from st_xlret.citations import CITATIONS
from st_xlret.columns import BESIDE_ONE_TEXT, Layout
from st_xlret.functional import similarity_distillation_loss
from st_xlret.losses.base import Batches, CrossLingualLoss
from st_xlret.losses.embedding import embed_columns, keep_padding
from st_xlret.ranges import check_positive, check_range


class SimilarityDistillationLoss(CrossLingualLoss):
    """Give texts of all languages the place that a teacher gives their English translations.

    The neighbours of a text among the teacher's vectors become those of its translation, by
    [`similarity_distillation_loss`][st_xlret.functional.similarity_distillation_loss]. The teacher
    is often the encoder before training: English keeps its place then. The column `label` is the
    row of `teacher` that a text is to reach.

    Args:
        teacher: Vectors of the teacher (M, d), one for each English text, on any device and in any
            float type.
        bank_size: How many random rows of `teacher` each row is compared with, besides the targets
            of the batch.
        documents: Vectors (K, d) of a collection: `bank_size` random ones take the place of the
            teacher's rows.
        temperature: Divisor of the cosines.
        teacher_temperature: That of the teacher; a smaller one makes the encoder surer than it.
            Default: `temperature`.
        cosine_weight: Factor on the distance to the teacher's vector itself. 0 leaves it out.
        mini_batch_num_tokens: As for `RetrievalContrastiveLoss`.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> teacher = torch.tensor(model.encode(["a", "b"]))
        >>> loss = SimilarityDistillationLoss(model, teacher)
        >>> loss([model.preprocess(["a", "b"])], torch.tensor([0, 1])).abs() < 1e-5
        tensor(True)
    """

    teacher: Tensor
    documents: Tensor | None

    data = "texts with a teacher's vectors"
    equation = staticmethod(similarity_distillation_loss)
    paper = "SEED, Eq. 4"
    citation = CITATIONS["fang2021seed"] + CITATIONS["reimers2020making"]
    layouts = (Layout(1, needs=("label",), leaves_out=BESIDE_ONE_TEXT),)
    takes = "one text column, and the row of the teacher's vectors of each text as 'label'"

    def __init__(
        self,
        model: SentenceTransformer,
        teacher: Tensor,
        *,
        bank_size: int = 8192,
        documents: Tensor | None = None,
        temperature: float = 0.02,
        teacher_temperature: float | None = None,
        cosine_weight: float = 10.0,
        weight: float = 1.0,
        mini_batch_num_tokens: int | None = None,
        batches: Batches = None,
        ratio: float = 1.0,
    ) -> None:
        super().__init__(model, weight=weight, batches=batches, ratio=ratio)
        check_positive(temperature=temperature, teacher_temperature=teacher_temperature)
        check_range(0, bank_size=bank_size, cosine_weight=cosine_weight)
        self.bank_size = bank_size
        self.temperature = temperature
        self.teacher_temperature = teacher_temperature
        self.cosine_weight = cosine_weight
        self.mini_batch_num_tokens = mini_batch_num_tokens
        # Not in checkpoints: the caller can compute the vectors again.
        self.register_buffer("teacher", teacher.detach(), persistent=False)
        self.register_buffer("documents", documents, persistent=False)
        self._check_vectors(model.get_embedding_dimension())
        keep_padding(model, mini_batch_num_tokens=mini_batch_num_tokens)

    def _check_vectors(self, features: int | None) -> None:
        """Refuse teacher's vectors that are no matrices of the encoder's width."""
        given = [self.teacher]
        if self.documents is not None:
            given.append(self.documents)
        shapes = [tuple(vectors.shape) for vectors in given]
        fit = [len(shape) == 2 and shape[0] > 0 and shape[1] == features for shape in shapes]
        if not all(fit):
            self.refuse(f"teacher, documents {shapes} for an encoder of {features} features")

    def default_batches(self) -> BatchFactory:
        """Texts of similar lengths, if the encoder pads them."""
        tokenizer = self.model.tokenizer
        if isinstance(tokenizer, PreTrainedTokenizerBase):
            return LengthGroupedBatches(tokenizer)
        return Rows()

    def forward(
        self,
        sentence_features: Iterable[dict[str, Any]],
        labels: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of a column of N texts that are to reach the rows `labels` of `teacher`.

        The labels are integers (N,).
        """
        columns = self.read_columns(sentence_features)
        targets = self._required_labels(labels)
        (vectors,) = embed_columns(self.model, columns, num_tokens=self.mini_batch_num_tokens)
        # `encode` cuts the vectors of a model with `truncate_dim`, and a forward pass does not.
        dimensions = self.teacher.shape[1]
        return self.compute_loss_from_embeddings(vectors[:, :dimensions], targets)

    def _required_labels(self, labels: Tensor | None) -> Tensor:
        """The labels; a `ValueError` unless there are some, and all name rows of the teacher."""
        rows = len(self.teacher)
        if labels is not None and _are_rows(labels, rows):
            return labels
        self.refuse(f"labels must be rows of the teacher's {rows} vectors, got {labels}")

    def compute_loss_from_embeddings(self, vectors: Tensor, labels: Tensor) -> Tensor:
        """Compute the loss of vectors (N, d) that are to reach the rows `labels` of the teacher.

        All ranks call it together, with as many labels.
        """
        of_all_ranks = labels
        if get_world_size() > 1:
            # All ranks compare with the same bank, which has the targets of all of them.
            of_all_ranks = all_gather(labels.contiguous())
        bank = self.bank_rows(of_all_ranks)
        pool = self._bank_pool()
        loss = similarity_distillation_loss(
            vectors,
            self.teacher[labels.to(self.teacher.device)].to(vectors.device),
            pool[bank.to(pool.device)].to(vectors.device),
            temperature=self.temperature,
            teacher_temperature=self.teacher_temperature,
            cosine_weight=self.cosine_weight,
        )
        return self.weight * loss

    def _bank_pool(self) -> Tensor:
        """What the bank is drawn from: the documents, or else the teacher's vectors."""
        return self.teacher if self.documents is None else self.documents

    def bank_rows(self, labels: Tensor) -> Tensor:
        """The rows of the bank to compare with, each once.

        They are all of them, or random ones and, of the teacher's, those of the batch.
        """
        rows = len(self._bank_pool())
        if self.bank_size >= rows:
            return torch.arange(rows, device=labels.device)
        # Drawn by the labels: the same rows whenever the batch is the same, as after a resume.
        places = torch.arange(1, len(labels) + 1, device=labels.device)
        seed = int((labels.long() * places).sum())
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(rows, (self.bank_size,), generator=generator).to(labels.device)
        if self.documents is None:
            drawn = torch.cat([labels, drawn])
        return drawn.unique()

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the loss, for the model card."""
        return {"teacher": f"{len(self.teacher)} vectors", **super().get_config_dict()}


def _are_rows(labels: Tensor, rows: int) -> bool:
    """Whether all labels are numbers of rows."""
    if labels.is_floating_point():
        return False
    return bool(labels.min() >= 0 and labels.max() < rows)
