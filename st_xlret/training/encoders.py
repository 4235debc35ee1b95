"""Which encoder a script trains: a checkpoint, or one from scratch with a tokenizer made of the texts."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import PartialState
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from transformers import PreTrainedTokenizerFast

from st_xlret.data.columns import rows_by_value
from st_xlret.files import atomic_directory
from st_xlret.hub.loading import load_model
from st_xlret.losses.masked_lm import MaskedLMLoss, NoHeadError
from st_xlret.modules import static_encoder, train_tokenizer, transformer_encoder
from st_xlret.options import option
from st_xlret.precision import autocast
from st_xlret.training.checkpoints import last_checkpoint
from st_xlret.training.script import TrainingArguments

logger = logging.getLogger(__name__)

CHARACTERS = 10_000_000
"""Characters to train a tokenizer on, or a new head for masked words, spread evenly over the languages."""

MAX_SEQ_LENGTH = 64
"""Tokens that a Transformer from scratch reads of a text."""


@dataclass
class EncoderArguments:
    """The encoder to train."""

    _argument_group_name = "encoder"

    model: str | None = option(None, "Hub name or folder of a checkpoint, for example xlm-roberta-base.")
    from_scratch: str | None = option(
        None,
        "Instead of a checkpoint, with a tokenizer trained on the texts: static (a bag of token vectors, minutes on a "
        "CPU), or a Transformer: mini (1 layer of 128 features), small (3 of 256), base (12 of 768, as XLM-R base), "
        "or tiny (1 of 32) to try things out.",
        choices=["static", "tiny", "mini", "small", "base"],
    )
    max_seq_length: int | None = option(
        None,
        "Tokens to read of a text. By default the checkpoint's; 64 from scratch.",
    )
    pooling: str | None = option(
        None,
        "Sentence vector of a Transformer: cls (the first token's, the papers'), mean, or checkpoint (the "
        "checkpoint's own). By default checkpoint; mean for one without pooling and from scratch.",
        choices=["cls", "mean", "checkpoint"],
    )

    vocabulary = 60_000
    features = 256

    def __post_init__(self) -> None:
        if (self.model is None) == (self.from_scratch is None):
            raise ValueError(
                "give either --model (a checkpoint) or --from_scratch static, tiny, mini, small or base, got "
                f"--model {self.model} and --from_scratch {self.from_scratch}"
            )
        if self.pooling == "checkpoint" and self.model is None:
            raise ValueError("--pooling checkpoint is for a checkpoint (--model): from scratch it is cls or mean")

    def load(self, texts: Iterable[tuple[Dataset, str, str]], args: TrainingArguments) -> SentenceTransformer:
        """Load the checkpoint, or make an encoder from scratch.

        Args:
            texts: Texts to train a tokenizer on: data sets with the names of their text and language columns.
            args: The training arguments. A tokenizer that is trained is kept in `output_dir/tokenizer` for a resumed
                run and all ranks of a distributed one.

        Raises:
            ValueError: If there is no such model, or there are no texts to train a tokenizer on.
        """
        if self.model is not None:
            model = load_model(self.model)
            if self.max_seq_length is not None and not isinstance(model[0], StaticEmbedding):
                model.max_seq_length = min(self.max_seq_length, _positions(model) or self.max_seq_length)
            for place, module in enumerate(model.children()):
                if self.pooling in ("cls", "mean") and isinstance(module, Pooling):
                    model[place] = Pooling(module.embedding_dimension, pooling_mode=self.pooling)  # type: ignore[arg-type]
            return model
        for name in ("freeze_embeddings", "lora_rank"):
            if getattr(args, name):
                raise ValueError(f"--{name} is for a checkpoint (--model): from scratch, all weights are to be learned")
        if args.keep_trained < 1:
            raise ValueError(f"--keep_trained {args.keep_trained} is for a checkpoint: --from_scratch has none to keep")
        tokenizer = self._tokenizer(texts, args)
        if self.from_scratch == "static":
            return static_encoder(tokenizer, self.features)
        return transformer_encoder(
            tokenizer,
            self.from_scratch,  # type: ignore[arg-type]
            max_seq_length=self.max_seq_length or MAX_SEQ_LENGTH,
            pooling=self.pooling or "mean",  # type: ignore[arg-type]
        )

    def _tokenizer(self, texts: Iterable[tuple[Dataset, str, str]], args: TrainingArguments) -> PreTrainedTokenizerFast:
        output = Path(str(args.output_dir))
        folder, state = output / "tokenizer", PartialState()
        # Rank 0 trains while the others wait.
        with state.main_process_first():
            if state.is_main_process and not (args.resume and last_checkpoint(output) and folder.is_dir()):
                sample = list(balanced_texts(texts, CHARACTERS, seed=args.seed))
                logger.info("training a tokenizer of %d tokens on %d texts", self.vocabulary, len(sample))
                trained = train_tokenizer(sample, self.vocabulary, show_progress=True)
                shutil.rmtree(folder, ignore_errors=True)
                with atomic_directory(folder) as temporary:
                    trained.save_pretrained(temporary)
        return PreTrainedTokenizerFast.from_pretrained(str(folder))


@dataclass
class PretrainingEncoderArguments(EncoderArguments):
    """The encoder to train, with the sizes of one from scratch, and masked words."""

    vocabulary: int = option(60_000, "From scratch: size of the vocabulary of the tokenizer.")
    features: int = option(256, "From scratch: vector size of a static encoder.")
    train_head: bool = option(
        False,
        "For a checkpoint without a head for masked words, such as E5: train one first, on the encoder as it is, until "
        "its loss on held-out texts is flat. Without it, masked words are left out.",
    )

    def masked_words(
        self,
        model: SentenceTransformer,
        texts: Iterable[tuple[Dataset, str, str]],
        args: TrainingArguments,
        **options: Any,
    ) -> MaskedLMLoss | None:
        """The loss of masked words; None, for a Transformer with a warning, if it has no head to start from.

        Args:
            model: The encoder. A static one has no masked words, and one from scratch learns its head with all else.
            texts: As in `load`; `train_head` trains on them.
            args: The training arguments. A resumed run takes the head from its checkpoint.
            **options: Further options of the loss.
        """
        if not isinstance(model[0], Transformer):
            return None
        try:
            return MaskedLMLoss(model, **options)
        except NoHeadError:
            if not self.train_head:
                logger.warning(
                    "masked language modelling is left out: the checkpoint has no pre-trained language-model head "
                    "(--train_head trains one first)"
                )
                return None
        loss = MaskedLMLoss(model, fresh_head=True, **options)
        if not (args.resume and last_checkpoint(Path(str(args.output_dir)))):
            with autocast(args.precision, model.device):
                loss.train_head(list(balanced_texts(texts, CHARACTERS, seed=args.seed)))
        return loss


@dataclass
class CheckpointArguments(EncoderArguments):
    """The encoder to train: a trained one."""

    from_scratch: str | None = field(default=None, init=False)


def _positions(model: SentenceTransformer) -> int | None:
    """How many tokens a Transformer has positions for; None if that cannot be told."""
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    positions = getattr(config, "max_position_embeddings", None)
    if config is None or positions is None:
        return model.max_seq_length
    # RoBERTa and its kin count positions from the padding token's number on.
    return positions - (config.pad_token_id + 1 if "roberta" in config.model_type else 0)


def balanced_texts(sources: Iterable[tuple[Dataset, str, str]], characters: int, *, seed: int = 0) -> Iterator[str]:
    """Texts with as many characters of each language, as far as they go.

    Args:
        sources: Data sets with the names of their text and language columns.
        characters: Characters in all.
        seed: Seed of the order.

    Yields:
        Texts, language by language.
    """
    generator = np.random.default_rng([seed, 7])
    parts: dict[str, list[tuple[Dataset, str, np.ndarray]]] = {}
    for dataset, column, language_column in sources:
        for rows, (language,) in zip(*rows_by_value(dataset, [language_column]), strict=True):
            parts.setdefault(language, []).append((dataset, column, rows[generator.permutation(len(rows))]))
    for language in sorted(parts):
        left = characters / len(parts)
        # Small sources first, whole: what they lack is filled from the larger ones.
        ordered = sorted(parts[language], key=lambda part: len(part[2]))
        for i, (dataset, column, rows) in enumerate(ordered):
            budget = left / (len(ordered) - i)
            parts_of_rows = np.split(rows, range(1000, len(rows), 1000))
            for text in (text for part in parts_of_rows for text in dataset.select(part)[column][:]):
                if budget <= 0:
                    break
                yield text
                budget -= len(text)
                left -= len(text)
