"""One Trainer run of ML-CTL or of the sentence-only systems beside it (Table 1 of the paper)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset, concatenate_datasets
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.modules import Transformer

from st_xlret.data import load_pairs_with_report, pairs_from_parallel_documents
from st_xlret.data.batches.collator import CrossLingualDataCollator
from st_xlret.data.batches.windows import CrossLingualBatches
from st_xlret.data.pairs.opus import languages_in_name, pairs_from_moses
from st_xlret.data.pairs.selection import lines_to_exclude
from st_xlret.data.pairs.tmx import pairs_from_tmx
from st_xlret.data.words.dictionaries import Dictionary, read_dictionary
from st_xlret.data.words.samples import WordSampleReport, build_word_samples_with_report
from st_xlret.data.words.segmentation import read_stop_words, stop_words
from st_xlret.losses import CZNCELoss, MaskedLMLoss
from st_xlret.modules import ContextualEncoder
from st_xlret.modules.first_last import first_last_encoder
from st_xlret.training.loss_state_callback import LossStateCallback
from st_xlret.training.monitor_callback import LossMonitorCallback

logger = logging.getLogger(__name__)

# Objective, and whether words stand beside the sentences.
MODES = {
    "info-snt": ("info_nce", False),
    "CZ-snt": ("cz_nce", False),
    "ML-CTL-info": ("info_nce", True),
    "ML-CTL-CZ": ("cz_nce", True),
}
PAIR_COLUMNS = ["source", "target", "source_language", "target_language"]


@dataclass
class MLCTLOptions:
    """What is trained, and how; the defaults are the paper's where it says."""

    mode: str = field(
        default="ML-CTL-CZ",
        metadata={
            "help": "info-snt: sentences, InfoNCE. CZ-snt: sentences, CZ-NCE. ML-CTL-CZ: sentences with a word of each "
            "(needs --dictionaries and a Transformer), CZ-NCE. ML-CTL-info: the same with InfoNCE.",
            "choices": list(MODES),
        },
    )
    mlm_alpha: float = field(
        default=0.1,
        metadata={"help": "Weight of masked language modelling on the same sentences; 0 leaves it out."},
    )
    temperature: float = field(default=0.07, metadata={"help": "Temperature of the contrastive loss."})
    mask_probability: float = field(default=0.15, metadata={"help": "Share of tokens that MLM predicts."})
    samples_per_pair: int | None = field(
        default=None, metadata={"help": "At most so many words of a pair, chosen at random; by default all."}
    )
    language_mixing: float = field(
        default=1.0,
        metadata={"help": "1: a batch mixes all language pairs. 0: it is of one."},
    )
    alpha: float = field(
        default=0.7,
        metadata={"help": "Language pairs are sampled by size to the power of alpha; 0 all alike (the paper's)."},
    )
    token_dropout: float = field(
        default=0.0, metadata={"help": "Share of tokens left out of a static encoder's inputs."}
    )

    @property
    def needs_words(self) -> bool:
        """Whether the mode trains on words beside the sentences."""
        return MODES[self.mode][1]


@dataclass
class ParallelArguments:
    """Parallel sentences to train on, and dictionaries to find words in them by."""

    pairs: list[str] = field(default_factory=list, metadata={"help": "Files or folders of parallel sentences."})
    parallel_documents: list[str] = field(
        default_factory=list,
        metadata={"help": "Documents with verse references: equal references are parallel sentences."},
    )
    moses: list[str] = field(
        default_factory=list, metadata={"help": "OPUS's Moses files: X.en-fr.en; X.en-fr.fr stands beside it."}
    )
    tmx: list[str] = field(default_factory=list, metadata={"help": "TMX files."})
    dictionaries: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Dictionaries, two columns (TSV, or MUSE's text); the languages are read off names like "
            "en-fr.txt or WORDS.en-fr.tsv.gz."
        },
    )
    stop_words: list[str] = field(
        default_factory=lambda: ["default"],
        metadata={
            "help": "Words that no samples are made of: default (the lists of the library stopwordsiso, which are "
            "long: 1298 words in English), none, or own files of one word a line, named after their language: en.txt. "
            "A language without a file then has the default list."
        },
    )
    languages: list[str] = field(default_factory=list, metadata={"help": "Languages to keep (ISO 639-1); default all."})
    pairs_per_language: int | None = field(
        default=None, metadata={"help": "At most so many pairs per language pair; the 500 are among the 5000."}
    )
    exclude: list[str] = field(
        default_factory=list,
        metadata={"help": "Text files whose lines must not be in the pairs, such as a test set's English side."},
    )
    skip_bad_lines: bool = field(default=False, metadata={"help": "Count bad lines instead of stopping at the first."})
    evaluation_pairs: int = field(
        default=200,
        metadata={"help": "Pairs per language to put aside, to evaluate and choose the best model by."},
    )

    def __post_init__(self) -> None:
        if not (self.pairs or self.parallel_documents or self.moses or self.tmx):
            raise ValueError(
                "nothing to train on: give parallel sentences by --pairs, --parallel-documents, --moses or --tmx"
            )
        if len(self.stop_words) != 1 and {"default", "none"} & set(self.stop_words):
            raise ValueError(f"--stop-words takes default, none or files, got {' '.join(self.stop_words)}")

    def load_pairs(self) -> Dataset:
        """All parallel sentences as one dataset."""
        options: dict[str, Any] = {
            "languages": self.languages or None,
            "per_language": self.pairs_per_language,
            "exclude": lines_to_exclude(self.exclude),
            "skip_bad_lines": self.skip_bad_lines,
        }
        parts = []
        for reader, files in (
            (load_pairs_with_report, self.pairs),
            (pairs_from_moses, self.moses),
            (pairs_from_tmx, self.tmx),
        ):
            if files:
                part, report = reader(files, **options)
                logger.info("%s", report)
                parts.append(part)
        if self.parallel_documents:
            parts.append(pairs_from_parallel_documents(self.parallel_documents, **options))
        return concatenate_datasets(parts)

    def load_dictionaries(self) -> list[Dictionary]:
        """The dictionaries between languages that are kept.

        Raises:
            ValueError: If there is none.
        """
        found = []
        for file in self.dictionaries:
            source, target = languages_in_name(file)
            if not self.languages or {source, target} <= set(self.languages):
                found.append(read_dictionary(file, source, target, skip_bad_lines=self.skip_bad_lines))
        if not found:
            kept = f", of which none is between two of {', '.join(self.languages)}" if self.dictionaries else ""
            raise ValueError(
                f"no dictionaries to find words by{kept}: give --dictionaries, or --mode CZ-snt to train on sentences"
            )
        return found

    def load_stop_words(self, dictionaries: list[Dictionary]) -> dict[str, frozenset[str]] | None:
        """Stop words by language, as :func:`~st_xlret.data.build_word_samples` takes them; None for its default.

        Raises:
            ValueError: If a file is of a language that no dictionary has.
        """
        if self.stop_words == ["default"]:
            return None
        if self.stop_words == ["none"]:
            return {}
        codes = {code for found in dictionaries for code in (found.source_language, found.target_language)}
        own = dict(map(read_stop_words, self.stop_words))
        if unknown := sorted(set(own) - codes):
            raise ValueError(f"--stop-words: no dictionary has {', '.join(unknown)}; they have {sorted(codes)}")
        return {code: own[code] if code in own else stop_words(code) for code in codes}


def prepare_encoder(model: SentenceTransformer, options: MLCTLOptions) -> SentenceTransformer:
    """Give a Transformer the paper's avg-first-last pooling; leave a static encoder as it is.

    Raises:
        ValueError: If the mode needs words, and the encoder is no Transformer.
    """
    if isinstance(model[0], Transformer):
        return first_last_encoder(model)
    if options.needs_words:
        raise ValueError(
            f"--mode {options.mode} needs the token vectors of a Transformer, and this encoder is a "
            f"{type(model[0]).__name__}; take --from-scratch mini or a checkpoint, or --mode CZ-snt"
        )
    return model


def find_words(
    pairs: Dataset,
    dictionaries: list[Dictionary],
    model: SentenceTransformer,
    options: MLCTLOptions,
    seed: int = 0,
    stop_words_by_language: Mapping[str, Collection[str]] | None = None,
) -> tuple[Dataset, WordSampleReport]:
    """Word-positioned samples of parallel sentences, for this encoder's tokenizer and sequence length."""
    return build_word_samples_with_report(
        pairs,
        dictionaries,
        model.tokenizer,
        max_seq_length=model.max_seq_length,
        samples_per_pair=options.samples_per_pair,
        seed=seed,
        stop_words_by_language=stop_words_by_language,
    )


def build_loss(model: SentenceTransformer, options: MLCTLOptions) -> CZNCELoss:
    """The loss of a mode, with MLM where the encoder is a Transformer."""
    objective, words = MODES[options.mode]
    with_mlm = options.mlm_alpha and isinstance(model[0], Transformer)
    return CZNCELoss(
        model,
        ContextualEncoder(int(model.get_embedding_dimension() or 0)) if words else None,
        objective=objective,  # type: ignore[arg-type]
        temperature=options.temperature,
        mlm=MaskedLMLoss(model, mask_probability=options.mask_probability) if with_mlm else None,
        mlm_weight=options.mlm_alpha,
    )


def build_ml_ctl_trainer(
    model: SentenceTransformer,
    samples: Dataset,
    options: MLCTLOptions,
    args: SentenceTransformerTrainingArguments,
    *,
    evaluator: BaseEvaluator | list[BaseEvaluator] | None = None,
    callbacks: tuple[Any, ...] = (),
    resume_from: str | None = None,
) -> SentenceTransformerTrainer:
    """A standard Trainer over word-positioned samples or, in the sentence modes, parallel sentences.

    Batches may mix language pairs and hold one sentence with several of its words: those are negatives.

    Args:
        model: The encoder, as :func:`prepare_encoder` gives it.
        samples: What :func:`find_words` gives, or pairs as :func:`~st_xlret.data.load_pairs` makes them.
        options: What is trained.
        args: The host's training arguments.
        evaluator: In-training evaluation.
        callbacks: Further callbacks.
        resume_from: Checkpoint folder outside of the output directory to resume from.

    Returns:
        A trainer, ready to ``train()``.

    Raises:
        ValueError: If the batch size is 1: a pair needs negatives; or if the mode needs words and the samples
            have none.
    """
    if args.per_device_train_batch_size < 2:
        raise ValueError("the batch size must be at least 2: the negatives of a pair are the others of its batch")
    if options.needs_words and "source_start" not in samples.column_names:
        raise ValueError(f"--mode {options.mode} needs word-positioned samples, got pairs: {samples.column_names}")
    if not options.needs_words:
        samples = samples.select_columns(PAIR_COLUMNS)
    loss = build_loss(model, options)
    args.batch_sampler = CrossLingualBatches(alpha=options.alpha, row_mixing=options.language_mixing)
    token_dropout = 0.0 if isinstance(model[0], Transformer) else options.token_dropout
    return SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=samples,
        loss=loss,
        evaluator=evaluator,
        data_collator=CrossLingualDataCollator(model.preprocess, token_dropout=token_dropout),
        callbacks=[LossStateCallback(loss, resume_from=resume_from), LossMonitorCallback(loss), *callbacks],
    )
