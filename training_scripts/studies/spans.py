"""The collator of two rivals of MSM and CCP: crops of documents, and the inverse cloze task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from st_xlret import CrossLingualDataCollator
from st_xlret.batches.collator import text_to_id
from st_xlret.data.packing import token_offsets
from st_xlret.data.text import join_sentences


@dataclass
class SpanDataCollator(CrossLingualDataCollator):
    """Makes two text columns, `anchor` and `positive`, of the documents of a batch: crops and ICT.

    The rows are sentences of blocks, as [`Blocks`][st_xlret.Blocks] gives them. Each document
    of the batch becomes one row, for a loss of two columns such as
    [`SemanticContrastiveLoss`][st_xlret.SemanticContrastiveLoss]:

    - `"crop"`: two random spans of tokens, drawn independently of each other, so that they may overlap (as in
      mContriever: Izacard et al., 2021, section 3.1, with up to 256 tokens of a document and spans of 5 % to 50 % of
      them). The MSM paper's baseline CROP is another method: it pairs two sentences, as CCP does (section 5.3);
    - `"ict"`: a random sentence, and as its context the other sentences of its block. The context keeps the sentence
      itself in 10 % of the cases (inverse cloze task: Lee et al., 2019, section 4).

    The random generator is seeded with the rows of the batch in their order, which the sampler shuffles. So spans are
    drawn anew in every pass, and a resumed run draws the same ones. Rows without a document and a position, such as
    those for masked language modelling, are collated as
    [`CrossLingualDataCollator`][st_xlret.CrossLingualDataCollator] does.

    Args:
        kind: "crop" or "ict".
        tokenizer: The encoder's tokenizer, a fast one; needed by "crop".
        max_tokens: Tokens of the random stretch of a document from which "crop" draws both spans.
        shortest: Minimum length of a crop, as a share of those tokens.
        longest: Maximum length of a crop, as a share of those tokens.
        keep_sentence: Probability that the context of "ict" keeps the sentence.

    Raises:
        ValueError: If the kind is unknown, or "crop" has no tokenizer.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> collator = SpanDataCollator(model.preprocess, kind="ict", keep_sentence=0.0)
        >>> rows = [{"sentence": "a", "language": "en", "document": 5, "position": 0}]
        >>> rows += [{"sentence": "b c", "language": "en", "document": 5, "position": 1}]
        >>> collator.make_pairs(rows)
        [{'anchor': 'b c', 'positive': 'a', 'language': 'en', 'document': 5}]
    """

    kind: Literal["crop", "ict"] = "crop"
    tokenizer: Any = None
    max_tokens: int = 256
    shortest: float = 0.05
    longest: float = 0.5
    keep_sentence: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in ("crop", "ict"):
            raise ValueError(f"kind must be 'crop' or 'ict', got {self.kind!r}")
        if self.kind == "crop" and self.tokenizer is None:
            raise ValueError("crops are spans of tokens: give the encoder's tokenizer (model.tokenizer)")

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate sentences of blocks into a batch of pairs, and other rows as they are."""
        if features and {"document", "position"} <= features[0].keys():
            features = self.make_pairs(features)
        return super().__call__(features)

    def make_pairs(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Make a pair of texts of each document that has at least two sentences in the batch."""
        texts = [name for name in rows[0] if name not in ("language", "document", "position", "dataset_name")]
        if len(texts) != 1:
            raise ValueError(f"sentences of blocks must be in one text column, got {texts}")
        generator = np.random.default_rng([text_to_id(f"{row['document']} {row['position']}") for row in rows])
        blocks: dict[int, list[dict[str, Any]]] = {}
        for row in sorted(rows, key=lambda row: (row["document"], row["position"])):
            blocks.setdefault(row["document"], []).append(row)
        kept = [block for block in blocks.values() if len(block) > 1]
        if not kept:
            raise ValueError(f"no document of the batch has two sentences to make a pair of: {rows[0]}")
        sentences = [[row[texts[0]] for row in block] for block in kept]
        languages = [block[0]["language"] for block in kept]
        if self.kind == "ict":
            pairs = [self._ict(*block, generator) for block in zip(sentences, languages, strict=True)]
        else:
            whole = [join_sentences(*block) for block in zip(sentences, languages, strict=True)]
            spans = token_offsets(self.tokenizer, whole)
            pairs = [self._crop(text, tokens, generator) for text, tokens in zip(whole, spans, strict=True)]
        own = [{k: v for k, v in block[0].items() if k not in (texts[0], "position")} for block in kept]
        return [{"anchor": a, "positive": p, **rest} for (a, p), rest in zip(pairs, own, strict=True)]

    def _ict(self, sentences: list[str], language: str, generator: np.random.Generator) -> tuple[str, str]:
        chosen = int(generator.integers(len(sentences)))
        keep = generator.random() < self.keep_sentence
        context = sentences if keep else sentences[:chosen] + sentences[chosen + 1 :]
        return sentences[chosen], join_sentences(context, language)

    def _crop(self, text: str, tokens: list[tuple[int, int]], generator: np.random.Generator) -> tuple[str, str]:
        begin = int(generator.integers(max(0, len(tokens) - self.max_tokens) + 1))
        tokens = tokens[begin : begin + self.max_tokens]
        return self._span(text, tokens, generator), self._span(text, tokens, generator)

    def _span(self, text: str, tokens: list[tuple[int, int]], generator: np.random.Generator) -> str:
        length = max(1, round(generator.uniform(self.shortest, self.longest) * len(tokens)))
        begin = int(generator.integers(max(0, len(tokens) - length) + 1))
        span = tokens[begin : begin + length]
        return text[span[0][0] : span[-1][1]].strip() if span else text
