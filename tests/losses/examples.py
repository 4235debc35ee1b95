"""An example of every loss, over which the tests of all losses and of all equations run.

A loss without an example fails in `tests/test_lists.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret import functional as f
from st_xlret.losses import (
    CCPLoss,
    CrossLingualLoss,
    CZNCELoss,
    LangContrastiveLoss,
    MaskedLMLoss,
    MSMLoss,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
    SimilarityDistillationLoss,
)
from st_xlret.losses.embedding import select_texts
from st_xlret.modules import AsymmetricBNHead, ContextualEncoder, LanguageMemoryBank
from tests import tiny
from tests.losses.batches import EN, block_features, columns, questions, translations

Columns = list[dict[str, Any]]


@dataclass(frozen=True)
class Share:
    """The part of a batch that a rank has."""

    rank: int = 0
    ranks: int = 1

    def of(self, rows: Sequence[Any]) -> list[Any]:
        size = len(rows) // self.ranks
        return list(rows[self.rank * size : (self.rank + 1) * size])


@dataclass(frozen=True)
class SixRows:
    """An equation over matrices of six rows each.

    Args:
        equation: Gives the loss of the matrices.
        matrices: How many there are.
        learnt: How many of them, the first ones, get gradients.
        differentiable: The equation without what its backward pass takes for a constant.
        of_directions: Whether it compares directions, which a row of zeros does not have.
        tolerance: Of 16 bits.
    """

    equation: Callable[..., Tensor]
    matrices: int
    learnt: int
    differentiable: Callable[..., Tensor] | None = None
    of_directions: bool = True
    tolerance: float = 1e-4


@dataclass(frozen=True)
class Example:
    """A loss as the tests use it.

    Args:
        build: Makes the loss of an encoder.
        batch: What a rank gets of the batch of a step (0, 1 or 2), on this encoder.
        dataset: What `CrossLingualTrainer` trains it on.
        six_rows: Its equation.
        owns: The beginnings of the names of the parameters that it owns.
        reads_padding: Whether it needs the inputs with their padding.
        labels: Those of a step.
        of_own_rows: Whether ranks have losses of their own rows, whose mean is that of one rank.
        encoder: Makes the encoder.
    """

    build: Callable[[SentenceTransformer], CrossLingualLoss]
    batch: Callable[[SentenceTransformer, int, Share], Columns]
    dataset: Dataset
    six_rows: SixRows
    owns: tuple[str, ...] = ()
    reads_padding: bool = False
    labels: Callable[[int], list[int]] | None = None
    of_own_rows: bool = False
    encoder: Callable[[], SentenceTransformer] = tiny.transformer

    def labels_of(self, step: int, share: Share) -> Tensor | None:
        if self.labels is None:
            return None
        return torch.tensor(share.of(self.labels(step)))


# Batches


def of_columns(rows: Callable[[int], list[dict]], *texts: str) -> Callable[..., Columns]:
    """Batches of the text columns of six rows, as the Trainer hands them over."""

    def batch(model: SentenceTransformer, step: int, share: Share) -> Columns:
        return columns(model, share.of(rows(step)), texts)

    return batch


def windows(model: SentenceTransformer, step: int, share: Share) -> Columns:
    """Eight centres and their contexts."""
    rows = tiny.window_rows(8, seed=step, language=("en", "fr")[step % 2])
    return [tiny.features(model, share.of(rows[:8]) + share.of(rows[8:]))]


BLOCKS = [((3, 2, 2), (4, 2, 2, 1)), ((4, 2, 2, 1), (2, 2)), ((3, 3), (1, 1))]
"""Numbers of sentences of the documents of each of two ranks: there are documents of one sentence,
and ranks of different numbers."""


def blocks(model: SentenceTransformer, step: int, share: Share) -> Columns:
    """Documents; the last of the first rank and the first of the second are two blocks of one."""
    first, second = BLOCKS[step]
    lengths = (*first, *second)
    features = block_features(model, lengths, seed=step, languages=[EN] * len(lengths))
    last = 100 * step + len(first) - 1
    features["document_id"][features["document_id"] == last + 1] = last
    rows = torch.arange(sum(lengths))
    if share.ranks == 2:
        rows = rows.split([sum(first), sum(second)])[share.rank]
    return [select_texts(features, rows)]


def sentences(model: SentenceTransformer, step: int, share: Share) -> Columns:
    """Eight sentences; in the last batch the second rank has nothing to predict."""
    texts = [row["sentence"] for row in tiny.window_rows(12)]
    of_step = texts[8 * step : 8 * step + 8]
    if step == 2:
        of_step = texts[16:20] + [""] * 4
    return [model.preprocess(share.of(of_step))]


# Losses


def ccp(model: SentenceTransformer, scope: Any = "total") -> CCPLoss:
    bank = LanguageMemoryBank(8, 13, scope=scope)
    return CCPLoss(model, AsymmetricBNHead(32, out_features=8), bank)


def msm(model: SentenceTransformer, **options: Any) -> MSMLoss:
    return MSMLoss(model, {"dropout": 0.0}, **options)


def words(model: SentenceTransformer, mlm: MaskedLMLoss | None = None) -> CZNCELoss:
    return CZNCELoss(model, ContextualEncoder(32, out_features=8), mlm=mlm)


def distillation(model: SentenceTransformer) -> SimilarityDistillationLoss:
    teacher = torch.randn(40, 32, generator=torch.Generator().manual_seed(0))
    return SimilarityDistillationLoss(model, teacher, bank_size=10, temperature=0.1)


# Equations

IDS = torch.arange(6)
IN_PAIRS = IDS // 2
ALL_ONE = torch.zeros_like(IDS)

CONTEXT = SixRows(
    lambda z, queue: f.contrastive_context_loss(
        z, IN_PAIRS, ALL_ONE, queue=queue, queue_language=ALL_ONE
    ),
    matrices=2,
    learnt=1,
)
MASKED_SENTENCE = SixRows(
    lambda p, h: f.masked_sentence_loss(p, h, IN_PAIRS),
    matrices=2,
    learnt=2,
    differentiable=lambda p, h: f.masked_sentence_loss(p, h, IN_PAIRS, mu=0.0),
)
VOCABULARY = SixRows(
    lambda hidden, weight: f.chunked_cross_entropy(hidden, weight, None, IDS),
    matrices=2,
    learnt=2,
    of_directions=False,
    tolerance=2e-2,  # the projection is in 16 bits where its inputs or autocast are
)
CZ_NCE = SixRows(f.cz_nce_loss, matrices=2, learnt=2)

EXAMPLES: dict[str, Example] = {
    "ccp": Example(
        build=ccp,
        batch=windows,
        dataset=tiny.documents(),
        six_rows=CONTEXT,
        owns=("head.",),
    ),
    "msm": Example(
        build=msm,
        batch=blocks,
        dataset=tiny.documents(),
        six_rows=MASKED_SENTENCE,
        owns=("projections.", "document_encoder."),
    ),
    "msm, micro-batches": Example(
        build=lambda model: msm(model, mini_batch_size=3, num_negatives=2),
        batch=blocks,
        dataset=tiny.documents(),
        six_rows=MASKED_SENTENCE,
        owns=("projections.", "document_encoder."),
        reads_padding=True,
    ),
    "mlm": Example(
        build=MaskedLMLoss,
        batch=sentences,
        dataset=tiny.texts(),
        six_rows=VOCABULARY,
        owns=("lm_head.",),
        reads_padding=True,
        of_own_rows=True,
    ),
    "cz_nce": Example(
        build=CZNCELoss,
        batch=of_columns(translations, "source", "target"),
        dataset=tiny.pairs(),
        six_rows=CZ_NCE,
    ),
    "words": Example(
        build=words,
        batch=of_columns(translations, "source", "target"),
        dataset=Dataset.from_list(tiny.word_rows(16)),
        six_rows=CZ_NCE,
        owns=("contextual_encoder.",),
        reads_padding=True,
    ),
    "semantic": Example(
        build=SemanticContrastiveLoss,
        batch=of_columns(translations, "source", "target"),
        dataset=tiny.pairs(),
        six_rows=SixRows(f.info_nce_loss, matrices=2, learnt=2),
    ),
    "language": Example(
        build=LangContrastiveLoss,
        batch=of_columns(translations, "source", "target", "other"),
        dataset=tiny.pairs(),
        six_rows=SixRows(f.language_contrastive_loss, matrices=3, learnt=3),
    ),
    "retrieval": Example(
        build=RetrievalContrastiveLoss,
        batch=of_columns(questions, "query", "positive", "negative"),
        dataset=Dataset.from_list(questions(0) + questions(1)),
        six_rows=SixRows(f.retrieval_contrastive_loss, matrices=2, learnt=2),
    ),
    "distillation": Example(
        build=distillation,
        batch=of_columns(translations, "target"),
        dataset=tiny.texts().add_column("label", list(range(40))),
        six_rows=SixRows(f.similarity_distillation_loss, matrices=3, learnt=1),
        labels=lambda step: [7 * step + row for row in range(6)],
        of_own_rows=True,
    ),
}
