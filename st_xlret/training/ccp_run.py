"""One Trainer run of CCP, MLM and parallel sentences, as the scripts and the demo use it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset, DatasetDict
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from st_xlret.data.batches.collator import CrossLingualDataCollator
from st_xlret.data.batches.interleaving import InterleavedBatches
from st_xlret.data.batches.windows import CrossLingualBatches
from st_xlret.losses import CCPLoss, CrossLingualLoss, MaskedLMLoss, SemanticContrastiveLoss
from st_xlret.modules import AsymmetricBNHead, LanguageMemoryBank
from st_xlret.training.loss_state_callback import LossStateCallback
from st_xlret.training.monitor_callback import LossMonitorCallback


@dataclass
class CCPOptions:
    """What is trained, and how; the defaults are the paper's where it says."""

    ccp_weight: float = field(
        default=1.0,
        metadata={
            "help": "How often a batch is contrastive context prediction, relative to the other tasks; 0 leaves it out."
        },
    )
    mlm_weight: float = field(
        default=1.0,
        metadata={"help": "How often a batch is masked language modelling. A static encoder has none."},
    )
    pairs_weight: float = field(
        default=1.0, metadata={"help": "How often a batch holds parallel sentences, where --pairs are given."}
    )
    window: int = field(default=5, metadata={"help": "Largest distance of two sentences that belong together."})
    temperature: float = field(default=0.1, metadata={"help": "Temperature of CCP. The paper's best is 0.1."})
    pairs_temperature: float = field(default=0.05, metadata={"help": "Temperature of the loss on parallel sentences."})
    normalization: str = field(
        default="asymmetric",
        metadata={
            "help": "Batch normalisation in the projection head: asymmetric (the paper's), batch (leaks "
            "which rows belong together), none.",
            "choices": ["asymmetric", "batch", "none"],
        },
    )
    activation: str = field(
        default="relu",
        metadata={"help": "Activation after it.", "choices": ["relu", "gelu", "tanh", "none"]},
    )
    head_features: int | None = field(
        default=None, metadata={"help": "Output size of the projection head; by default the encoder's."}
    )
    bank_size: int = field(
        default=32768,
        metadata={"help": "Keys of earlier batches kept as further negatives; 0 for no memory bank."},
    )
    bank_scope: str = field(
        default="total",
        metadata={
            "help": "One queue for all languages, or one for each.",
            "choices": ["total", "per_language"],
        },
    )
    cross_language_negatives: bool = field(
        default=False,
        metadata={
            "help": "Also take rows of other languages as negatives: telling languages apart becomes a shortcut."
        },
    )
    same_document_negatives: bool = field(
        default=False, metadata={"help": "Also take other sentences of the same document as negatives."}
    )
    language_mixing: float = field(
        default=0.0,
        metadata={"help": "0: the windows of a batch are of one language (the paper's). 1: fully mixed."},
    )
    pairs_mixing: float = field(
        default=1.0,
        metadata={
            "help": "1: a batch of parallel sentences mixes all language pairs. 0: it is of one, and every "
            "negative is in the right language."
        },
    )
    alpha: float = field(
        default=0.7,
        metadata={"help": "Languages are sampled by size to the power of alpha; 1 as they are, 0 all alike."},
    )
    mask_probability: float = field(default=0.15, metadata={"help": "Share of tokens that MLM predicts."})
    token_dropout: float = field(
        default=0.0,
        metadata={"help": "Share of tokens left out of a static encoder's inputs; 0.1 to 0.2 helps."},
    )


def build_losses(model: SentenceTransformer, datasets: Any, options: CCPOptions) -> dict[str, CrossLingualLoss]:
    """The loss of each dataset of a run.

    Args:
        model: The encoder.
        datasets: Names out of "ccp", "mlm" and "pairs".
        options: Options of the run.

    Returns:
        Losses by dataset name.
    """
    losses: dict[str, CrossLingualLoss] = {}
    features = int(model.get_embedding_dimension() or 0)
    if "ccp" in datasets:
        head = AsymmetricBNHead(
            features,
            out_features=options.head_features,
            activation=options.activation,
            normalization=options.normalization,  # type: ignore[arg-type]
        )
        bank = None
        if options.bank_size:
            bank = LanguageMemoryBank(head.out_features, options.bank_size, scope=options.bank_scope)  # type: ignore[arg-type]
        losses["ccp"] = CCPLoss(
            model,
            head,
            bank,
            temperature=options.temperature,
            cross_language_negatives=options.cross_language_negatives,
            mask_same_document=not options.same_document_negatives,
        )
    if "mlm" in datasets:
        losses["mlm"] = MaskedLMLoss(model, mask_probability=options.mask_probability)
    if "pairs" in datasets:
        losses["pairs"] = SemanticContrastiveLoss(model, temperature=options.pairs_temperature)
    return losses


def choose_datasets(
    model: SentenceTransformer, documents: Dataset | None, pairs: Dataset | None, options: CCPOptions
) -> DatasetDict:
    """The datasets that the options ask for, in the order ccp, mlm, pairs.

    Raises:
        ValueError: If nothing is left to train on.
    """
    datasets = DatasetDict()
    if documents is not None and options.ccp_weight:
        datasets["ccp"] = documents.select_columns(["sentence", "language", "document"])
    if documents is not None and options.mlm_weight and isinstance(model[0], Transformer):
        datasets["mlm"] = documents.select_columns(["sentence", "language"])
    if pairs is not None and options.pairs_weight:
        datasets["pairs"] = pairs
    if not datasets:
        raise ValueError("nothing to train on: give documents or pairs, and a weight above 0 to a task they serve")
    return datasets


def build_ccp_trainer(
    model: SentenceTransformer,
    documents: Dataset | None,
    pairs: Dataset | None,
    options: CCPOptions,
    args: SentenceTransformerTrainingArguments,
    *,
    evaluator: BaseEvaluator | list[BaseEvaluator] | None = None,
    callbacks: tuple[Any, ...] = (),
    resume_from: str | None = None,
) -> SentenceTransformerTrainer:
    """A standard Trainer over up to three datasets: windows of documents, masked sentences, parallel ones.

    Args:
        model: The encoder: any checkpoint, or one from scratch.
        documents: Sentences as :func:`~st_xlret.data.load_documents` makes them.
        pairs: Parallel sentences as :func:`~st_xlret.data.load_pairs` makes them.
        options: What is trained.
        args: The host's training arguments; batch size means windows, sentences or pairs.
        evaluator: In-training evaluation.
        callbacks: Further callbacks.
        resume_from: Checkpoint folder outside of the output directory to resume from.

    Returns:
        A trainer, ready to ``train()``.

    Raises:
        ValueError: If nothing is left to train on.
    """
    datasets = choose_datasets(model, documents, pairs, options)
    losses: dict[str, Any] = {**build_losses(model, datasets, options)}
    weights = {"ccp": options.ccp_weight, "mlm": options.mlm_weight, "pairs": options.pairs_weight}
    args.batch_sampler = CrossLingualBatches(
        radius=options.window,
        alpha=options.alpha,
        window_mixing=options.language_mixing,
        row_mixing=options.pairs_mixing,
    )
    args.multi_dataset_batch_sampler = InterleavedBatches(weights=[weights[name] for name in datasets])
    static = isinstance(model[0], StaticEmbedding)
    return SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=datasets,
        loss=losses,
        evaluator=evaluator,
        data_collator=CrossLingualDataCollator(
            model.preprocess, token_dropout=options.token_dropout if static else 0.0
        ),
        callbacks=[
            LossStateCallback(losses, resume_from=resume_from),
            LossMonitorCallback(losses),
            *callbacks,
        ],
    )
