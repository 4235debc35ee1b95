"""Which encoder a script trains: a checkpoint, or one from scratch with a tokenizer made of the texts."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import PartialState
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from st_xlret.data.batches.sampling import column_codes, rows_by_code
from st_xlret.modules.from_scratch import static_encoder, train_tokenizer, transformer_encoder

logger = logging.getLogger(__name__)

_WORDS_REMEMBERED = 500_000


@dataclass
class EncoderArguments:
    """The encoder to train."""

    model: str | None = field(
        default=None, metadata={"help": "Hub name or folder of a checkpoint, for example xlm-roberta-base."}
    )
    from_scratch: str | None = field(
        default=None,
        metadata={
            "help": "Instead of a checkpoint, with a tokenizer trained on the texts: static (a bag of token vectors, "
            "minutes on a CPU), or a Transformer: mini (1 layer of 128), small (3 of 256), base (12 of 768, as XLM-R "
            "base), or tiny (1 of 32) to try things out.",
            "choices": ["static", "tiny", "mini", "small", "base"],
        },
    )
    tokenizer: str | None = field(
        default=None, metadata={"help": "Folder of a tokenizer to use from scratch instead of training one."}
    )
    vocabulary: int = field(default=60000, metadata={"help": "Tokens of a tokenizer trained here."})
    tokenizer_characters: int = field(
        default=10_000_000, metadata={"help": "Characters to train it on, spread evenly over the languages."}
    )
    features: int = field(default=256, metadata={"help": "Vector size of a static encoder."})
    max_seq_length: int = field(default=64, metadata={"help": "Tokens read of a sentence."})

    def __post_init__(self) -> None:
        if (self.model is None) == (self.from_scratch is None):
            raise ValueError(
                "give either --model (a checkpoint) or --from-scratch static|small|base, got "
                f"--model {self.model} and --from-scratch {self.from_scratch}"
            )

    def build(
        self,
        texts: Iterable[tuple[Dataset, str, str]],
        *,
        tokenizer_folder: str | Path,
        keep_tokenizer: bool = True,
        seed: int = 0,
    ) -> SentenceTransformer:
        """Load or make the encoder.

        Args:
            texts: Where to take a tokenizer's texts from: datasets with their text and language columns.
            tokenizer_folder: Where a tokenizer trained here is kept. One that is there is taken: a resumed
                run and all ranks of a distributed one have the same.
            keep_tokenizer: Off, one that is there is replaced.
            seed: Seed of the choice of those texts.

        Raises:
            ValueError: If the tokenizer is no fast one, or there are no texts to train one on.
        """
        if self.model is not None:
            model = SentenceTransformer(self.model)
            if not isinstance(model[0], StaticEmbedding):
                model.max_seq_length = min(self.max_seq_length, model.max_seq_length or self.max_seq_length)
            return model
        tokenizer = self._tokenizer(texts, Path(tokenizer_folder), keep_tokenizer, seed)
        if self.from_scratch == "static":
            return static_encoder(tokenizer, self.features)
        return transformer_encoder(tokenizer, self.from_scratch, max_seq_length=self.max_seq_length)  # type: ignore[arg-type]

    def _tokenizer(
        self, texts: Iterable[tuple[Dataset, str, str]], folder: Path, keep: bool, seed: int
    ) -> PreTrainedTokenizerFast:
        if not self.tokenizer:
            # Rank 0 trains while the others wait.
            with PartialState().main_process_first():
                if not keep and PartialState().is_main_process:
                    shutil.rmtree(folder, ignore_errors=True)
                if folder.is_dir():
                    logger.info("taking the tokenizer in %s", folder)
                else:
                    sample = list(balanced_texts(texts, self.tokenizer_characters, seed=seed))
                    logger.info("training a tokenizer of %d tokens on %d texts", self.vocabulary, len(sample))
                    save_folder_atomically(
                        train_tokenizer(sample, self.vocabulary, show_progress=True).save_pretrained, folder
                    )
        tokenizer = AutoTokenizer.from_pretrained(self.tokenizer or str(folder))
        if not isinstance(tokenizer, PreTrainedTokenizerFast):
            raise ValueError(f"{self.tokenizer!r} is no fast tokenizer")
        _remember_more_words(tokenizer)
        return tokenizer


def _remember_more_words(tokenizer: PreTrainedTokenizerFast) -> None:
    """Enlarge the tokenizer's own memory of words: 10 000 are few for many languages, and cost a third of its time."""
    resize = getattr(tokenizer.backend_tokenizer.model, "_resize_cache", None)
    if resize is not None:
        resize(_WORDS_REMEMBERED)


def save_folder_atomically(save: Callable[[str], Any], folder: Path) -> None:
    """Let ``save`` fill a temporary sibling of ``folder``, then rename it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        save(f"{temporary}/whole")
        Path(temporary, "whole").rename(folder)


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
    rows: dict[str, list[tuple[Dataset, str, np.ndarray]]] = {}
    for dataset, column, language_column in sources:
        code, names = column_codes(dataset, [language_column])
        for (language,), group in zip(names, rows_by_code(code, len(names)), strict=True):
            rows.setdefault(language, []).append((dataset, column, generator.permutation(group)))
    share = characters / max(1, len(rows))
    for language in sorted(rows):
        # Small sources first, whole: what they lack is filled from the larger ones.
        parts = sorted(rows[language], key=lambda part: len(part[2]))
        left = share
        for i, (dataset, column, group) in enumerate(parts):
            budget = left / (len(parts) - i)
            for text in _texts(dataset, column, group):
                if budget <= 0:
                    break
                yield text
                budget -= len(text)
                left -= len(text)


def _texts(dataset: Dataset, column: str, rows: np.ndarray) -> Iterator[str]:
    for start in range(0, len(rows), 1000):
        chunk = rows[start : start + 1000]
        # Read in the order of the file, given in the order asked for.
        texts = dataset.select(np.sort(chunk))[column][:]
        yield from (texts[i] for i in np.argsort(np.argsort(chunk)))
