"""Encoders without a checkpoint: a tokenizer trained on texts, and a static or Transformer model."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import nn
from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

# Layers, hidden size, heads: "base" is XLM-R base's shape, the others train on a CPU.
SIZES = {"tiny": (1, 32, 2), "mini": (1, 128, 4), "small": (3, 256, 4), "base": (12, 768, 12)}
SPECIAL_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def train_tokenizer(
    texts: Iterable[str], vocabulary: int = 32000, *, show_progress: bool = False
) -> PreTrainedTokenizerFast:
    """Train a unigram tokenizer, the kind that XLM-R has, on texts in any languages.

    Args:
        texts: Training texts.
        vocabulary: Maximum size of the vocabulary.
        show_progress: Show the trainer's progress bar.

    Returns:
        A fast tokenizer that writes `<s> text </s>` and has padding and mask tokens. The same texts always give the
        same tokenizer.

    Raises:
        ValueError: If there are no texts, or they have more distinct characters than the vocabulary has room for.

    Example:
        >>> tokenizer = train_tokenizer(["the cat", "the dog"] * 10, vocabulary=60)
        >>> tokenizer.decode(tokenizer("the cat")["input_ids"], skip_special_tokens=True)
        'the cat'
    """
    tokenizer = Tokenizer(models.Unigram())
    # Lower case helps small models.
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(r"\s+"), " ")]
    )
    # Punctuation stands alone: "word," and "word" share their token.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(),
            pre_tokenizers.Punctuation(),
            pre_tokenizers.Digits(individual_digits=True),
        ]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=vocabulary, special_tokens=SPECIAL_TOKENS, unk_token="<unk>", show_progress=show_progress
    )
    filled = [text for text in texts if text.strip()]
    if not filled:
        raise ValueError("there are no texts to train a tokenizer on")
    try:
        tokenizer.train_from_iterator(filled, trainer, length=len(filled))
    except Exception as error:  # the library has no other
        if "vocabulary is not large enough" not in str(error):
            raise
        needed = len(set().union(*map(tokenizer.normalizer.normalize_str, filled))) + len(SPECIAL_TOKENS)
        raise ValueError(
            f"a vocabulary of {vocabulary} tokens (--vocabulary) has no room for the characters of the texts: it needs "
            f"{needed} for them and the special tokens; give more, or leave languages with many characters out"
        ) from error
    tokenizer = _in_stable_order(tokenizer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        cls_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
    )


def _in_stable_order(tokenizer: Tokenizer) -> Tokenizer:
    """Make the vocabulary a function of the texts, where the trainer leaves three things to chance.

    Pieces of equal score are numbered in any order, sums differ in their last digits, and characters too rare for a
    score of their own get the lowest score plus 0.0001 for each such character before them, in any order.
    """
    state = json.loads(tokenizer.to_str())
    vocabulary: list[tuple[str, float]] = state["model"]["vocab"]
    specials, pieces = vocabulary[: len(SPECIAL_TOKENS)], vocabulary[len(SPECIAL_TOKENS) :]
    lowest = round(min(score for _, score in pieces), 9)
    characters = sum(len(piece) == 1 for piece, _ in pieces)
    stable = []
    for piece, score in pieces:
        steps = (score - lowest) / 0.0001
        if len(piece) == 1 and steps < characters and abs(steps - round(steps)) < 1e-3:
            score = lowest
        stable.append((piece, round(score, 9)))
    state["model"]["vocab"] = [*specials, *sorted(stable, key=lambda entry: (-entry[1], entry[0]))]
    return Tokenizer.from_str(json.dumps(state))


def static_encoder(tokenizer: PreTrainedTokenizerFast, features: int = 256) -> SentenceTransformer:
    """Build a bag of token vectors (the host's `StaticEmbedding`), which trains on two CPU cores in minutes.

    Args:
        tokenizer: A fast tokenizer.
        features: Size of the vectors.

    Returns:
        An untrained model.

    Example:
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> model.encode(["a b", "c"]).shape
        (2, 8)
    """
    embedding = StaticEmbedding(tokenizer, embedding_dim=features)
    # Vectors have unit length on average, so that frequent and rare tokens start with equal influence.
    nn.init.normal_(embedding.embedding.weight, std=features**-0.5)
    return SentenceTransformer(modules=[embedding], device="cpu")


def transformer_encoder(
    tokenizer: PreTrainedTokenizerFast,
    size: Literal["tiny", "mini", "small", "base"] = "small",
    *,
    max_seq_length: int = 64,
    pooling: Literal["mean", "cls"] = "mean",
) -> SentenceTransformer:
    """Build an untrained XLM-R of a given size with pooling.

    Args:
        tokenizer: A tokenizer as `train_tokenizer` makes it.
        size: "tiny" (1 layer of 32 features, for tests), "mini" (1 of 128), "small" (3 of 256) or "base" (12 of 768).
        max_seq_length: Maximum number of tokens of a text.
        pooling: "mean", which learns faster from scratch, or "cls", which the papers use.

    Returns:
        An untrained model of built-in modules.

    Raises:
        ValueError: If the size is unknown.

    Example:
        >>> tokenizer = train_tokenizer(["a b c d"] * 4, vocabulary=60)
        >>> transformer_encoder(tokenizer, "tiny").encode(["a b", "c"]).shape
        (2, 32)
    """
    if size not in SIZES:
        raise ValueError(f"size must be one of {sorted(SIZES)}, got {size!r}")
    layers, features, heads = SIZES[size]
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=features,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * features,
        max_position_embeddings=max_seq_length + 2,
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    tokenizer.model_max_length = max_seq_length
    with tempfile.TemporaryDirectory() as folder:
        # Not the model's save_pretrained: with several processes it writes in the first one only.
        config.save_pretrained(folder)
        save_file(XLMRobertaModel(config).state_dict(), Path(folder) / "model.safetensors", {"format": "pt"})
        tokenizer.save_pretrained(folder)
        encoder = Transformer(folder, max_seq_length=max_seq_length)
    # The folder is gone: a model made here has no checkpoint to load a language-model head from.
    encoder.auto_model.config.name_or_path = ""
    return SentenceTransformer(modules=[encoder, Pooling(features, pooling_mode=pooling)])
