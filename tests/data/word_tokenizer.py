"""A tokenizer with one token for each word, for the tests that count tokens."""

from __future__ import annotations

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tests import tiny


def word_tokenizer() -> PreTrainedTokenizerFast:
    """A token for each word, and two special ones around a text."""
    specials = ["<s>", "</s>", "<unk>", "<pad>"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*specials, *tiny.WORDS])}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", None, [("<s>", 0), ("</s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>")
