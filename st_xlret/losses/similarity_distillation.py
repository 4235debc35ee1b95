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


class SimilarityDistillationLoss(CrossLingualLoss):
    """Give texts of all languages the place that a teacher gives their English translations.

    The neighbours of a text among the teacher's vectors become those of its translation, by
    [`similarity_distillation_loss`][st_xlret.functional.similarity_distillation_loss]. The teacher is often the encoder
    before training: English keeps its place then. The column `label` is the row of `teacher` that a text is to reach.

    Args:
        teacher: Vectors of the teacher (M, d), one for each English text, on any device and in any float type.
        bank_size: How many random rows of `teacher` each row is compared with, besides the targets of the batch.
        documents: Vectors (K, d) of a collection: `bank_size` random ones take the place of the teacher's rows.
        temperature: Divisor of the cosines.
        teacher_temperature: That of the teacher; a smaller one makes the encoder surer than it. Default: `temperature`.
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

    layouts = (Layout(1, needs=("label",), leaves_out=BESIDE_ONE_TEXT),)
    takes = "one text column, and the row of the teacher's vectors of each text as 'label'"
    citation = CITATIONS["fang2021seed"] + CITATIONS["reimers2020making"]

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
        super().__init__(model, batches=batches, ratio=ratio)
        features = model.get_embedding_dimension()
        shapes = [tuple(x.shape) for x in (teacher, documents) if x is not None]
        if bank_size < 0 or any(
            len(shape) != 2 or not shape[0] or shape[1] != features for shape in shapes
        ):
            self.refuse(
                f"teacher, documents {shapes} for an encoder of {features} features, bank_size {bank_size}"
            )
        keep_padding(model, mini_batch_num_tokens)
        self.bank_size, self.mini_batch_num_tokens = bank_size, mini_batch_num_tokens
        self.temperature, self.teacher_temperature = temperature, teacher_temperature
        self.cosine_weight, self.weight = cosine_weight, weight
        # Not in checkpoints: the caller can compute the vectors again.
        self.register_buffer("teacher", teacher.detach(), persistent=False)
        self.register_buffer("documents", documents, persistent=False)

    def default_batches(self) -> BatchFactory:
        """Texts of similar lengths, if the encoder pads them."""
        tokenizer = self.model.tokenizer
        return (
            LengthGroupedBatches(tokenizer)
            if isinstance(tokenizer, PreTrainedTokenizerBase)
            else Rows()
        )

    def forward(
        self, sentence_features: Iterable[dict[str, Any]], labels: Tensor | None = None
    ) -> Tensor:
        """Compute the loss of a text column of N rows that are to reach the rows `labels` (N,) of `teacher`."""
        columns = self.read_columns(sentence_features)
        if (
            labels is None
            or labels.is_floating_point()
            or not 0 <= labels.min() <= labels.max() < len(self.teacher)
        ):
            self.refuse(
                f"labels must be rows of the teacher's {len(self.teacher)} vectors, got {labels}"
            )
        (vectors,) = embed_columns(self.model, columns, num_tokens=self.mini_batch_num_tokens)
        # `encode` cuts the vectors of a model with `truncate_dim`, and a forward pass does not.
        return self.compute_loss_from_embeddings(vectors[:, : self.teacher.shape[1]], labels)

    def compute_loss_from_embeddings(self, vectors: Tensor, labels: Tensor) -> Tensor:
        """Compute the loss of vectors (N, d) that are to reach the rows `labels` (N,) of the teacher's vectors."""
        # All ranks compare with the same bank; one of the teacher's vectors holds the targets of all of them.
        bank = self.bank_rows(all_gather(labels.contiguous()) if get_world_size() > 1 else labels)
        pool = self.teacher if self.documents is None else self.documents
        goals = self.teacher[labels.to(self.teacher.device)].to(vectors.device)
        neighbours = pool[bank.to(pool.device)].to(vectors.device)
        names = ("temperature", "teacher_temperature", "cosine_weight")
        options: Any = {name: getattr(self, name) for name in names}
        return self.weight * similarity_distillation_loss(vectors, goals, neighbours, **options)

    def bank_rows(self, labels: Tensor) -> Tensor:
        """The rows of the bank to compare with, each once: all, or random ones and, of the teacher's, the batch's."""
        rows = len(self.teacher if self.documents is None else self.documents)
        if self.bank_size >= rows:
            return torch.arange(rows, device=labels.device)
        # Drawn by the labels: the same rows whenever the batch is the same, as after a resume.
        seed = int((labels.long() * torch.arange(1, len(labels) + 1, device=labels.device)).sum())
        drawn = torch.randint(
            rows, (self.bank_size,), generator=torch.Generator().manual_seed(seed)
        ).to(labels.device)
        return (torch.cat([labels, drawn]) if self.documents is None else drawn).unique()

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the loss, for the model card."""
        return {"teacher": f"{len(self.teacher)} vectors", **super().get_config_dict()}
