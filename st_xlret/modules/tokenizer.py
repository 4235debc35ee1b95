"""A tokenizer from scratch, the same for the same texts."""

import json
from collections.abc import Iterable

from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

SPECIAL_TOKENS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
"""Their places are their ids. XLM-R counts positions from that of `<pad>`, 1, on."""


def train_tokenizer(
    texts: Iterable[str], vocabulary: int = 32000, *, show_progress: bool = False
) -> PreTrainedTokenizerFast:
    """Train a unigram tokenizer, the kind that XLM-R has, on texts in any languages.

    It makes texts lower case, which helps small models, and lets punctuation and digits stand
    alone. The vocabulary must have room for all characters of the texts. The same texts always give
    the same tokenizer.

    Example:
        >>> tokenizer = train_tokenizer(["the cat", "the dog"] * 10, vocabulary=60)
        >>> tokenizer.decode(tokenizer("the cat")["input_ids"], skip_special_tokens=True)
        'the cat'
    """
    tokenizer = _untrained_tokenizer()
    trainer = trainers.UnigramTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL_TOKENS,
        unk_token="<unk>",
        show_progress=show_progress,
    )
    filled = (text for text in texts if text.strip())
    tokenizer.train_from_iterator(filled, trainer)
    tokenizer = _with_stable_vocabulary(tokenizer)
    around_texts = [(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=around_texts
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


def _untrained_tokenizer() -> Tokenizer:
    """How texts are normalised and cut: in lower case, punctuation and digits alone."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(r"\s+"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(),
            pre_tokenizers.Punctuation(),
            pre_tokenizers.Digits(individual_digits=True),
        ]
    )
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def _with_stable_vocabulary(tokenizer: Tokenizer) -> Tokenizer:
    """Sort pieces and round scores, which the trainer leaves to chance.

    The same texts give the same vocabulary.
    """
    state = json.loads(tokenizer.to_str())
    vocabulary = state["model"]["vocab"]
    specials = vocabulary[: len(SPECIAL_TOKENS)]
    pieces = vocabulary[len(SPECIAL_TOKENS) :]
    # By the trainer's code, a character too rare for a score gets the lowest one plus 0.0001 for
    # each such one before.
    lowest = round(min(score for _, score in pieces), 9)
    characters = [piece for piece, _ in pieces if len(piece) == 1]
    stable = []
    for piece, score in pieces:
        steps = (score - lowest) / 0.0001
        is_whole = abs(steps - round(steps)) < 1e-3
        if len(piece) == 1 and steps < len(characters) and is_whole:
            score = lowest
        stable.append((piece, round(score, 9)))
    stable.sort(key=lambda entry: (-entry[1], entry[0]))
    state["model"]["vocab"] = [*specials, *stable]
    return Tokenizer.from_str(json.dumps(state))
