"""Which encoder a script trains: a checkpoint, or one from scratch.

The tokenizer of one from scratch is made of the texts.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from sentence_transformers.util import is_sentence_transformer_model
from transformers import PreTrainedTokenizerFast

from st_xlret.hub.loading import load_model
from st_xlret.losses import MaskedLMLoss
from st_xlret.losses.lm_head import NoHeadError
from st_xlret.modules import static_encoder, train_tokenizer, transformer_encoder
from st_xlret.options import option
from st_xlret.precision import autocast
from st_xlret.training.arguments import ScriptArguments
from st_xlret.training.checkpoints import last_checkpoint
from st_xlret.training.output_folder import make_folder
from st_xlret.training.text_lengths import check_length
from st_xlret.training.texts import TextColumns, balanced_texts

logger = logging.getLogger(__name__)

_CHARACTERS = 10_000_000
"""To train a tokenizer on, or a new head for masked words, spread evenly over the languages."""


@dataclass
class EncoderArguments:
    """The encoder to train."""

    _argument_group_name = "encoder"

    model: str | None = option(
        None,
        "Hub name or folder of a checkpoint, for example xlm-roberta-base.",
    )
    from_scratch: str | None = option(
        None,
        "Layers x features of a Transformer: tiny 1 x 32, mini 1 x 128, small 3 x 256, "
        "base 12 x 768; static: none.",
        choices=["static", "tiny", "mini", "small", "base"],
    )
    max_seq_length: int | None = option(
        None,
        "Tokens to read of a text. By default the checkpoint's; 64 from scratch.",
    )
    pooling: str | None = option(
        None,
        "Sentence vector: the first token's (the papers'), mean (also from scratch), or the "
        "checkpoint's.",
        choices=["cls", "mean", "checkpoint"],
    )
    vocabulary: int = option(60_000, "From scratch: size of the vocabulary of the tokenizer.")
    features: int = option(256, "From scratch: vector size of a static encoder.")
    train_head: bool = option(
        False,
        "Train a head for masked words first, if the checkpoint has none, as E5; else they are "
        "left out.",
    )

    def __post_init__(self) -> None:
        """Refuse neither, or both, of `model` and `from_scratch`."""
        if (self.model is None) == (self.from_scratch is None):
            raise ValueError(
                f"give either --model or --from_scratch, not {self.model} and {self.from_scratch}"
            )

    def load_encoder(self, texts: TextColumns, args: ScriptArguments) -> SentenceTransformer:
        """Load the checkpoint, or make an encoder and its tokenizer of the texts.

        The tokenizer is kept in `output_dir/tokenizer`. All ranks call it together.
        """
        if self.model is not None:
            model = self._load_checkpoint(self.model)
            if isinstance(model[0], Transformer):
                _warn_of_rate(self.model, args)
            return model
        tokenizer = self._make_tokenizer(texts, args)
        if self.from_scratch == "static":
            return static_encoder(tokenizer, self.features)
        return transformer_encoder(
            tokenizer,
            self.from_scratch,  # type: ignore[arg-type]
            max_seq_length=64 if self.max_seq_length is None else self.max_seq_length,
            pooling=self.pooling or "mean",  # type: ignore[arg-type]
        )

    def _load_checkpoint(self, name: str) -> SentenceTransformer:
        """The encoder of `--model`, with the length and pooling that were asked for."""
        model = load_model(name)
        if self.max_seq_length is not None and isinstance(model[0], StaticEmbedding):
            logger.warning(
                "a static encoder reads whole texts: --max_seq_length %d has no effect; "
                "--train_seq_length cuts those of the training",
                self.max_seq_length,
            )
        elif self.max_seq_length is not None:
            check_length(model, None, max_seq_length=self.max_seq_length)
            model.max_seq_length = self.max_seq_length
        if self.pooling in ("cls", "mean"):
            for place, module in enumerate(model.children()):
                if isinstance(module, Pooling):
                    model[place] = Pooling(
                        module.embedding_dimension,
                        pooling_mode=self.pooling,
                        include_prompt=module.include_prompt,
                    )
        return model

    def _make_tokenizer(self, texts: TextColumns, args: ScriptArguments) -> PreTrainedTokenizerFast:
        """A tokenizer of the texts, kept in the output folder for a resumed run.

        All ranks call it together. A `ValueError` says that there are no texts.
        """

        def train(folder: Path) -> None:
            sample = list(balanced_texts(texts, _CHARACTERS, seed=args.seed))
            if not sample:
                raise ValueError(
                    f"--from_scratch {self.from_scratch}: "
                    "there are no texts to train a tokenizer on"
                )
            logger.info(
                "training a tokenizer of %d tokens on %d texts", self.vocabulary, len(sample)
            )
            tokenizer = train_tokenizer(sample, self.vocabulary, show_progress=True)
            tokenizer.save_pretrained(folder)

        folder = make_folder(args, "tokenizer", train, keep=_has_checkpoint_to_resume(args))
        return PreTrainedTokenizerFast.from_pretrained(folder)

    def masked_words_loss(
        self,
        model: SentenceTransformer,
        texts: TextColumns,
        args: ScriptArguments,
        **loss_options: Any,
    ) -> MaskedLMLoss | None:
        """The loss of masked words, its new head trained if asked to.

        None without a head, and for a static encoder. All ranks call it together.
        """
        if not isinstance(model[0], Transformer):
            return None
        try:
            return MaskedLMLoss(model, **loss_options)
        except NoHeadError:
            if not self.train_head:
                logger.warning(
                    "masked words are left out: the checkpoint has no head for them, "
                    "see --train_head"
                )
                return None
        loss = MaskedLMLoss(model, fresh_head=True, **loss_options)
        if not _has_checkpoint_to_resume(args):
            with autocast(args.precision, model.device):
                loss.train_head(list(balanced_texts(texts, _CHARACTERS, seed=args.seed)))
        return loss


def _has_checkpoint_to_resume(args: ScriptArguments) -> bool:
    """Whether a run is to go on, and left a checkpoint to go on from."""
    return args.resume and last_checkpoint(Path(str(args.output_dir))) is not None


def _warn_of_rate(name: str, args: ScriptArguments) -> None:
    """Say that a whole run at the rate of an untrained encoder harms one that is trained."""
    keeps_some = args.keep_trained < 1 or args.lora_rank
    if args.rate_of_trained is None or keeps_some:
        return
    is_high = args.learning_rate >= type(args).learning_rate
    if is_high and is_sentence_transformer_model(name, local_files_only=True):
        logger.warning(
            "%s is trained already, and %d steps at --learning_rate %g make it worse: "
            "--learning_rate %g suits it, or --keep_trained 0.3 keeps a part of the change alone",
            name,
            args.max_steps,
            args.learning_rate,
            args.rate_of_trained,
        )
