"""A BERT tokenizer, a small dictionary and pairs that the tests of word-positioned samples share."""

from __future__ import annotations

from typing import Any

from datasets import Dataset
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

ENTRIES = [
    ("dog", "Hund"),
    ("house", "Haus"),
    ("the", "der"),
    ("guinea pig", "Meerschweinchen"),
    ("street", "Straße"),
    ("tree", "Baum"),
]
PIECES = "the dog house street guinea pig tree big old der hund haus baum meer ##schwein ##chen straße ##s ##house ein"


def word_piece() -> PreTrainedTokenizerFast:
    """A BERT tokenizer: words have the same tokens wherever they stand."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *PIECES.split(), *".,()'-"]
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]")


def german(*texts: tuple[str, str]) -> Dataset:
    rows = [{"source": source, "target": target} for source, target in texts]
    return Dataset.from_list([{**row, "source_language": "en", "target_language": "de"} for row in rows])


def tokens(sample: dict[str, Any], side: str, tokenizer: Any) -> list[str]:
    ids = tokenizer(sample[side])["input_ids"][sample[f"{side}_start"] : sample[f"{side}_end"]]
    return tokenizer.convert_ids_to_tokens(ids)


# One sample, so that a refused pair does not leave none at all.
GOOD = ("A big tree.", "Ein Baum.")
