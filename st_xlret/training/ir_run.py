"""One Trainer run of retrieval and the two cross-lingual losses of lang-contrastive, as its script uses it."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from sentence_transformers.util import batch_to_device

from st_xlret.data.batches.joint import MixedRowsDataCollator, PairsAndOthersBatchSampler, pairs_and_others
from st_xlret.data.batches.windows import LanguageBatchSampler
from st_xlret.losses import CrossLingualLoss, SemanticContrastiveLoss
from st_xlret.losses.lang_contrastive import LangContrastiveLoss
from st_xlret.losses.retrieval_contrastive import RetrievalContrastiveLoss
from st_xlret.training.joint_steps import JointTrainer
from st_xlret.training.loss_state_callback import LossStateCallback
from st_xlret.training.monitor_callback import LossMonitorCallback

RETRIEVAL, SEMANTIC, LANGUAGE = "retrieval", "semantic", "language"


@dataclass
class IROptions:
    """What is trained, and how: L = L_IR + w_s L_sema + w_l L_lang (Eq. 4)."""

    scale: float = field(
        default=20.0,
        metadata={"help": "Factor on the cosines of the retrieval loss; Eq. 1 as it is printed has 1."},
    )
    semantic_weight: float = field(
        default=0.01,
        metadata={"help": "Weight w_s of the loss that draws translations together; 0 leaves it out."},
    )
    semantic_temperature: float = field(default=0.07, metadata={"help": "Its temperature."})
    language_weight: float = field(
        default=0.001,
        metadata={
            "help": "Weight w_l of the loss by which every sentence is as near to the one side of a translation "
            "as to the other; 0 leaves it out."
        },
    )
    language_reduction: str = field(
        default="paper",
        metadata={
            "help": "What it is of its terms: paper (their sum divided by R (R - 2) for R sentences, as Eq. 3 is "
            "printed), mean, or sum, which grows with the square of the batch and needs small weights.",
            "choices": ["paper", "mean", "sum"],
        },
    )
    pairs_batch_size: int | None = field(
        default=None, metadata={"help": "Parallel sentences per device and step; by default --batch-size."}
    )
    others_batch_size: int | None = field(
        default=None, metadata={"help": "Sentences without translation per device and step; by default as many."}
    )
    pairs_mixing: float = field(
        default=1.0,
        metadata={"help": "1: a batch of parallel sentences mixes all language pairs (the paper's). 0: it is of one."},
    )
    alpha: float = field(
        default=0.7,
        metadata={"help": "Languages and language pairs are sampled by size to the power of alpha; 0 all alike."},
    )
    token_dropout: float = field(
        default=0.0, metadata={"help": "Share of tokens left out of a static encoder's inputs; 0.1 to 0.2 helps."}
    )
    two_encoders: bool = field(
        default=False,
        metadata={
            "help": "Train an encoder of questions and one of passages, both from the given one, instead of a "
            "shared one. The cross-lingual losses act on that of passages only."
        },
    )

    def __post_init__(self) -> None:
        for name in ("semantic_weight", "language_weight"):
            if getattr(self, name) < 0:
                raise ValueError(f"--{name.replace('_', '-')} must not be negative, got {getattr(self, name)}")


def with_two_encoders(model: SentenceTransformer) -> SentenceTransformer:
    """Two copies of an encoder behind one host ``Router``: for questions (``encode_query``) and for passages.

    Args:
        model: The encoder that both start from.

    Returns:
        A model of built-in modules; texts of no declared kind are passages.

    Raises:
        ValueError: If the model has a Router already.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = with_two_encoders(static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8))
        >>> model.encode_query(["a b"]).shape
        (1, 8)
    """
    modules: list[Any] = list(model.children())
    if any(isinstance(module, Router) for module in modules):
        raise ValueError("the model has a Router, and so encoders of its own, already: leave out two_encoders")
    router = Router.for_query_document([copy.deepcopy(module) for module in modules], modules)
    return SentenceTransformer(modules=[router], device=str(model.device))


def choose_ir_datasets(
    retrieval: Dataset, pairs: Dataset | None, others: Dataset | None, options: IROptions
) -> DatasetDict:
    """The datasets that the options ask for, retrieval last: its loss uses all of the encoder.

    Args:
        retrieval: Columns ``query``, ``positive``, any ``negative_...``, ``language``.
        pairs: Parallel sentences, or None.
        others: Sentences without translation (``sentence``, ``language``), or None: the language loss then
            compares parallel sentences with each other.
        options: Options of the run.

    Raises:
        ValueError: If a cross-lingual loss has a weight, and there are no parallel sentences.
    """
    wanted = {SEMANTIC: options.semantic_weight, LANGUAGE: options.language_weight}
    if pairs is None and any(wanted.values()):
        raise ValueError(
            "the cross-lingual losses need parallel sentences, of some languages at least: give pairs, or set "
            "semantic_weight and language_weight to 0"
        )
    datasets = DatasetDict()
    if pairs is not None and options.semantic_weight:
        datasets[SEMANTIC] = pairs_and_others(pairs, None)
    if pairs is not None and options.language_weight:
        datasets[LANGUAGE] = pairs_and_others(pairs, others)
    datasets[RETRIEVAL] = retrieval
    return datasets


def build_ir_losses(
    model: SentenceTransformer, names: Iterable[str], options: IROptions
) -> dict[str, CrossLingualLoss]:
    """The weighted loss of each part.

    Args:
        model: The encoder.
        names: Out of "semantic", "language" and "retrieval".
        options: Options of the run.
    """
    made: dict[str, CrossLingualLoss] = {}
    for name in names:
        if name == SEMANTIC:
            made[name] = SemanticContrastiveLoss(
                model, temperature=options.semantic_temperature, weight=options.semantic_weight
            )
        elif name == LANGUAGE:
            made[name] = LangContrastiveLoss(
                model,
                weight=options.language_weight,
                reduction=options.language_reduction,  # type: ignore[arg-type]
            )
        else:
            made[name] = RetrievalContrastiveLoss(model, scale=options.scale)
    return made


@dataclass
class IRBatches:
    """Picks a batch sampler for each dataset of a run; pass it as ``batch_sampler`` of the training arguments.

    Args:
        pairs: Parallel sentences per batch; None for the batch size.
        others: Sentences without translation per batch; None for as many as pairs.
        alpha: Exponent of the language smoothing.
        mixing: Mixing of the language pairs.
    """

    pairs: int | None = None
    others: int | None = None
    alpha: float = 0.7
    mixing: float = 1.0

    def __call__(self, dataset: Dataset, batch_size: int, *args: Any, **kwargs: Any) -> Any:
        """The sampler for this dataset, with the host's arguments."""
        columns = dataset.column_names
        if "source" not in columns:
            return LanguageBatchSampler(dataset, batch_size, *args, **kwargs, alpha=self.alpha)
        size = self.pairs or batch_size
        if "other" not in columns:
            return LanguageBatchSampler(dataset, size, *args, **kwargs, alpha=self.alpha, mixing=self.mixing)
        return PairsAndOthersBatchSampler(
            dataset, size, *args, **kwargs, others=self.others, alpha=self.alpha, mixing=self.mixing
        )


def routes(model: SentenceTransformer, datasets: DatasetDict) -> dict[str, dict[str, str]]:
    """Which route of a Router each column takes: questions that of queries, all else that of passages.

    Returns:
        The host's ``router_mapping``; empty for a shared encoder.
    """
    if not any(isinstance(module, Router) for module in model.children()):
        return {}
    return {
        name: {
            column: "query" if column == "query" else "document"
            for column in dataset.column_names
            if not column.endswith("language")
        }
        for name, dataset in datasets.items()
    }


def freeze_unused(model: SentenceTransformer) -> list[str]:
    """Freeze what neither questions nor passages use, such as the pooler of XLM-R beside mean pooling.

    Args:
        model: A model with the routes "query" and "document".

    Returns:
        Names of the parameters.
    """
    training = model.training
    model.eval()
    for task in ("query", "document"):
        features = batch_to_device(model.preprocess(["a"], task=task), model.device)
        model({**features, "task": task})["sentence_embedding"].sum().backward()
    unused = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    for name in unused:
        model.get_parameter(name).requires_grad_(False)
    model.zero_grad(set_to_none=True)
    model.train(training)
    return unused


def build_ir_trainer(
    model: SentenceTransformer,
    retrieval: Dataset,
    pairs: Dataset | None,
    others: Dataset | None,
    options: IROptions,
    args: SentenceTransformerTrainingArguments,
    *,
    evaluator: BaseEvaluator | list[BaseEvaluator] | None = None,
    callbacks: tuple[Any, ...] = (),
    resume_from: str | None = None,
) -> JointTrainer:
    """A Trainer over up to three datasets of different shape, whose losses are summed in every step.

    Args:
        model: The encoder, shared or a ``Router`` with the routes "query" and "document".
        retrieval: Questions and passages as :func:`~st_xlret.data.retrieval.loading.load_retrieval` makes them.
        pairs: Parallel sentences as :func:`~st_xlret.data.load_pairs` makes them.
        others: Sentences as :func:`~st_xlret.data.load_documents` makes them.
        options: What is trained.
        args: The host's training arguments; the batch size means questions, and ``max_steps`` sums.
        evaluator: In-training evaluation.
        callbacks: Further callbacks.
        resume_from: Checkpoint folder outside of the output directory to resume from.

    Returns:
        A trainer, ready to ``train()``.

    Raises:
        ValueError: If parallel sentences are needed and not given.
    """
    datasets = choose_ir_datasets(retrieval, pairs, others, options)
    router = routes(model, datasets)
    if router and args.ddp_find_unused_parameters is None:
        # Two forward passes on different parameters, and DDP would take each for all that there is.
        freeze_unused(model)
        args.ddp_find_unused_parameters = False
    losses: dict[str, Any] = {**build_ir_losses(model, datasets, options)}
    args.batch_sampler = IRBatches(
        options.pairs_batch_size, options.others_batch_size, options.alpha, options.pairs_mixing
    )
    static = any(isinstance(module, StaticEmbedding) for module in model.modules())
    return JointTrainer(
        model=model,
        args=args,
        train_dataset=datasets,
        loss=losses,
        evaluator=evaluator,
        data_collator=MixedRowsDataCollator(
            model.preprocess,
            router_mapping=router,
            token_dropout=options.token_dropout if static else 0.0,
        ),
        callbacks=[
            LossStateCallback(losses, resume_from=resume_from),
            LossMonitorCallback(losses),
            *callbacks,
        ],
    )
