"""Which encoder a script trains: a checkpoint, or one from scratch with a tokenizer made of the texts."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from accelerate import PartialState
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from st_xlret.data.batches.runs import Runs
from st_xlret.data.batches.scanning import rows_by_language
from st_xlret.data.batches.shuffling import Shuffle
from st_xlret.files import atomic_directory
from st_xlret.hub.loading import load_model
from st_xlret.losses.masked_lm import has_language_model_head
from st_xlret.modules.from_scratch import static_encoder, train_tokenizer, transformer_encoder
from st_xlret.options import option
from st_xlret.training.arguments import RunArguments
from st_xlret.training.trainable import add_lora, freeze_word_embeddings, log_trainable

logger = logging.getLogger(__name__)

TOKENIZER_CHARACTERS = 10_000_000
"""Characters to train a tokenizer on, spread evenly over the languages."""

MAX_SEQ_LENGTH = 64
"""Tokens that a Transformer from scratch reads of a text."""

_WORDS_REMEMBERED = 500_000


@dataclass
class EncoderArguments:
    """The encoder to train."""

    _argument_group_name = "encoder"

    model: str | None = option(None, "Hub name or folder of a checkpoint, for example xlm-roberta-base.")
    from_scratch: str | None = option(
        None,
        "Instead of a checkpoint, with a tokenizer trained on the texts: static (a bag of token vectors, minutes on a "
        "CPU), or a Transformer: mini (1 layer of 128 features), small (3 of 256), base (12 of 768, as XLM-R base), or "
        "tiny (1 of 32) to try things out.",
        choices=["static", "tiny", "mini", "small", "base"],
    )
    tokenizer: str | None = option(None, "From scratch: folder of a tokenizer to use instead of training one.")
    vocabulary: int = option(
        60_000, "From scratch: size of the vocabulary of the tokenizer.", minimum=16, maximum=10_000_000
    )
    features: int = option(256, "From scratch: vector size of a static encoder.", minimum=1, maximum=65_536)
    max_seq_length: int | None = option(
        None, "Tokens to read of a text. By default the checkpoint's; 64 from scratch.", minimum=4, maximum=1_000_000
    )
    pooling: str | None = option(
        None,
        "Sentence vector of a Transformer: cls (the first token's, the papers'), mean, or checkpoint (the checkpoint's "
        "own). By default checkpoint; mean for one without pooling and from scratch.",
        choices=["cls", "mean", "checkpoint"],
    )
    freeze_embeddings: bool = option(
        False, "Leave the word embeddings of the checkpoint as they are: less memory, and faster steps."
    )
    lora_rank: int | None = option(
        None,
        "Train low-rank adapters (LoRA) of this rank, such as 16, in place of the checkpoint's weights, with a higher "
        'learning rate, such as 2e-4. They are merged into the saved model. Needs the extra "peft".',
        minimum=1,
    )

    def __post_init__(self) -> None:
        if (self.model is None) == (self.from_scratch is None):
            raise ValueError(
                "give either --model (a checkpoint) or --from_scratch static, tiny, mini, small or base, got "
                f"--model {self.model} and --from_scratch {self.from_scratch}"
            )
        if self.pooling == "checkpoint":
            if self.model is None:
                raise ValueError("--pooling checkpoint is for a checkpoint (--model): from scratch it is cls or mean")
            self.pooling = None
        for name in ("freeze_embeddings", "lora_rank"):
            if getattr(self, name) and self.model is None:
                raise ValueError(f"--{name} is for a checkpoint (--model): from scratch, all weights are to be learned")

    def load(
        self, texts: Iterable[tuple[Dataset, str, str]], args: SentenceTransformerTrainingArguments, run: RunArguments
    ) -> SentenceTransformer:
        """Load the checkpoint, or make an encoder from scratch.

        Args:
            texts: Texts to train a tokenizer on: data sets with the names of their text and language columns.
            args: The host's training arguments: a tokenizer that is trained here is kept in `output_dir/tokenizer`,
                so that a resumed run and all ranks of a distributed one have the same.
            run: With `overwrite`, a tokenizer that is there is replaced, unless the run is resumed.

        Raises:
            ValueError: If the tokenizer is no fast one, or there are no texts to train one on.
        """
        if self.model is not None:
            model = set_pooling(load_checkpoint(self.model, self.max_seq_length), self.pooling)
            if self.lora_rank:
                add_lora(model, self.lora_rank)
            if self.freeze_embeddings:
                freeze_word_embeddings(model)
            if self.lora_rank or self.freeze_embeddings:
                log_trainable(model)
            return model
        folder = Path(str(args.output_dir)) / "tokenizer"
        tokenizer = self._tokenizer(texts, folder, run.resume or not run.overwrite, args.seed)
        if self.from_scratch == "static":
            return static_encoder(tokenizer, self.features)
        return transformer_encoder(
            tokenizer,
            self.from_scratch,  # type: ignore[arg-type]
            max_seq_length=self.max_seq_length or MAX_SEQ_LENGTH,
            pooling=self.pooling or "mean",  # type: ignore[arg-type]
        )

    def _tokenizer(
        self, texts: Iterable[tuple[Dataset, str, str]], folder: Path, keep: bool, seed: int
    ) -> PreTrainedTokenizerFast:
        if not self.tokenizer:
            # Rank 0 trains while the others wait.
            with PartialState().main_process_first():
                if not keep and PartialState().is_main_process:
                    shutil.rmtree(folder, ignore_errors=True)
                if folder.is_dir():
                    logger.info("using the tokenizer in %s", folder)
                else:
                    sample = list(balanced_texts(texts, TOKENIZER_CHARACTERS, seed=seed))
                    logger.info("training a tokenizer of %d tokens on %d texts", self.vocabulary, len(sample))
                    trained = train_tokenizer(sample, self.vocabulary, show_progress=True)
                    with atomic_directory(folder) as temporary:
                        trained.save_pretrained(temporary)
        tokenizer = AutoTokenizer.from_pretrained(self.tokenizer or str(folder))
        if not isinstance(tokenizer, PreTrainedTokenizerFast):
            raise ValueError(f"{self.tokenizer!r} is no fast tokenizer")
        _remember_more_words(tokenizer)
        return tokenizer


@dataclass
class PretrainingEncoderArguments(EncoderArguments):
    """The encoder to train on short texts, such as the sentences of documents."""

    train_seq_length: int | None = option(
        None,
        "Tokens to read of a text in training batches: fewer are faster. The saved model reads as many as "
        "--max_seq_length says. By default the same.",
        minimum=4,
    )

    def batch_length(self, model: SentenceTransformer) -> int | None:
        """Tokens of a text in training batches, as the `max_length` of a collator; None is the model's own.

        Raises:
            ValueError: If the model reads fewer.
        """
        most = None if isinstance(model[0], StaticEmbedding) else model.max_seq_length
        if self.train_seq_length is not None and most is not None and self.train_seq_length > most:
            raise ValueError(
                f"--train_seq_length {self.train_seq_length}: the model reads only {most} tokens (--max_seq_length)"
            )
        return self.train_seq_length


def load_checkpoint(name: str, max_seq_length: int | None = None) -> SentenceTransformer:
    """Load a checkpoint from a folder or from the Hub.

    Args:
        name: Folder or Hub name.
        max_seq_length: Tokens to read of a text, at most those that the checkpoint has positions for.

    Raises:
        ValueError: If there is no such model.
    """
    model = load_model(name)
    if max_seq_length is not None and not isinstance(model[0], StaticEmbedding):
        model.max_seq_length = min(max_seq_length, _positions(model) or max_seq_length)
    return model


def _positions(model: SentenceTransformer) -> int | None:
    """How many tokens a Transformer has positions for; None if that cannot be told."""
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    positions = getattr(config, "max_position_embeddings", None)
    if config is None or positions is None:
        return model.max_seq_length
    # RoBERTa and its kin count positions from the padding token's number on.
    return positions - (config.pad_token_id + 1 if "roberta" in config.model_type else 0)


def set_pooling(model: SentenceTransformer, pooling: str | None) -> SentenceTransformer:
    """Make the sentence vector of a Transformer its first token's ("cls") or the mean of all ("mean"), in place.

    Args:
        model: The encoder. One without a pooling layer, such as a static encoder, is left as it is.
        pooling: "cls" or "mean"; None leaves the model as it is.

    Returns:
        The same model.
    """
    for name, module in model.named_children():
        if pooling and isinstance(module, Pooling):
            model._modules[name] = Pooling(module.embedding_dimension, pooling_mode=pooling)  # type: ignore[arg-type]
    return model


def learns_masked_words(model: SentenceTransformer) -> bool:
    """Whether masked language modelling has a head to start from; logs one line if a checkpoint lacks it.

    A static encoder has no masked language modelling, and a Transformer from scratch learns its head with everything
    else. A new head on a trained encoder would disturb it.
    """
    if not isinstance(model[0], Transformer):
        return False
    found = has_language_model_head(model)
    if not found:
        name = getattr(model[0].auto_model.config, "_name_or_path", "")
        logger.warning("masked language modelling is left out, because %s has no pre-trained language-model head", name)
    return found


def _remember_more_words(tokenizer: PreTrainedTokenizerFast) -> None:
    """Enlarge the tokenizer's own memory of words: 10 000 are few for many languages, and cost a third of its time."""
    resize = getattr(tokenizer.backend_tokenizer.model, "_resize_cache", None)
    if resize is not None:
        resize(_WORDS_REMEMBERED)


def balanced_texts(sources: Iterable[tuple[Dataset, str, str]], characters: int, *, seed: int = 0) -> Iterator[str]:
    """Texts with as many characters of each language, as far as they go.

    Args:
        sources: Datasets with the names of their text and language columns.
        characters: Characters in all.
        seed: Seed of the order.

    Yields:
        Texts, language by language.
    """
    generator = np.random.default_rng([seed, 7])
    rows: dict[str, list[tuple[Dataset, str, Runs, Shuffle]]] = {}
    for dataset, column, language_column in sources:
        for group, (language,) in zip(*rows_by_language(dataset, [language_column]), strict=True):
            rows.setdefault(language, []).append((dataset, column, group, Shuffle(len(group), generator)))
    share = characters / max(1, len(rows))
    for language in sorted(rows):
        # Small sources first, whole: what they lack is filled from the larger ones.
        parts = sorted(rows[language], key=lambda part: len(part[2]))
        left = share
        for i, part in enumerate(parts):
            budget = left / (len(parts) - i)
            for text in _texts(*part):
                if budget <= 0:
                    break
                yield text
                budget -= len(text)
                left -= len(text)


def _texts(dataset: Dataset, column: str, rows: Runs, order: Shuffle) -> Iterator[str]:
    for start in range(0, len(order), 1000):
        chunk = rows[order[np.arange(start, min(start + 1000, len(order)))]]
        # Read in the order of the file, given in the order asked for.
        texts = dataset.select(np.sort(chunk))[column][:]
        yield from (texts[i] for i in np.argsort(np.argsort(chunk)))
