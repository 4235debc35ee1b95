"""ML-CTL: contrastive learning over parallel sentences and the words in them."""

from collections.abc import Iterable
from typing import Any, Literal

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.merged_forward import merge_feature_batches
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn
from typing_extensions import Unpack

from st_xlret.citations import CITATIONS
from st_xlret.columns import Layout
from st_xlret.functional import cz_nce_loss, info_nce_loss
from st_xlret.losses.base import Columns, Tags
from st_xlret.losses.contrastive import PairContrastiveLoss, WeightedOptions
from st_xlret.losses.masked_lm import MaskedLMLoss
from st_xlret.modules import ContextualEncoder
from st_xlret.ranges import check_range

OBJECTIVES = {"cz_nce": cz_nce_loss, "info_nce": info_nce_loss}


class CZNCELoss(PairContrastiveLoss):
    """CZ-NCE over pairs of sentences, or of sentences with a word of each (ML-CTL, Eq. 5).

    [`cz_nce_loss`][st_xlret.functional.cz_nce_loss] or
    [`info_nce_loss`][st_xlret.functional.info_nce_loss] of two text columns of translations or
    other pairs. The systems of the paper's Table 1 (Chen et al. 2022) are:

    - *info-snt*: `objective="info_nce"` (Eq. 1-2).
    - *CZ-snt*: the defaults (Eq. 5).
    - *ML-CTL-CZ*: a `contextual_encoder`, on word-positioned samples. Their columns are `source`,
      `source_start`, `source_end` and `target`, `target_start`, `target_end`; positions count the
      tokens of the text with its special tokens. The same sentences with another word are a
      negative, as in the paper.

    All of them can add an `mlm` loss over the same texts (Eq. 3 and 8); the value is then the two
    weighted parts by name, which the Trainer logs and sums. With a `CrossLingualDataCollator`,
    pairs that have a sample in common are not negatives of each other, such as one sentence in two
    translations.

    Args:
        model: The encoder. Word-positioned samples need one with token vectors;
            `first_last_encoder` builds the paper's. Unpadding of its inputs is turned off then.
        contextual_encoder: Layer over sentence and word that is used in training only; None for
            sentences alone.
        objective: "cz_nce", or "info_nce" with the same negatives.
        temperature: Divisor of the cosines.
        mlm: Masked-language-model loss of the same encoder that is added.
        mlm_weight: Factor on the `mlm` loss (the paper's alpha).
        **options: `weight`, that of the contrastive part, and the other arguments of
            `WeightedContrastiveLoss`.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> value = CZNCELoss(model)([model.preprocess(["a", "b"]), model.preprocess(["a", "b"])])
        >>> value.item() < 0
        True
    """

    data = "translations"
    equation = staticmethod(cz_nce_loss)
    paper = "ML-CTL, Eq. 5"
    citation = CITATIONS["mlctl2022"]
    takes = "two text columns, anchor and positive"

    def __init__(
        self,
        model: SentenceTransformer,
        contextual_encoder: ContextualEncoder | None = None,
        *,
        objective: Literal["cz_nce", "info_nce"] = "cz_nce",
        temperature: float = 0.07,
        mlm: MaskedLMLoss | None = None,
        mlm_weight: float = 0.1,
        **options: Unpack[WeightedOptions],
    ) -> None:
        super().__init__(model, temperature=temperature, **options)
        check_range(0, mlm_weight=mlm_weight)
        if contextual_encoder is not None:
            transformer = self._required_transformer(model[0])
            transformer.unpad_inputs = False  # positions are those of the padded layout
            self.layouts = (Layout(2, needs=("span",)),)
        if mlm is not None and mlm.model is not model:
            self.refuse("mlm is a loss of another encoder")
        self.contextual_encoder = contextual_encoder
        self.mlm = mlm
        self.mlm_weight = mlm_weight
        self.objective = objective
        self.equation = OBJECTIVES[objective]

    def _required_transformer(self, encoder: nn.Module) -> Transformer:
        """The encoder's first module; a `ValueError` unless it gives token vectors."""
        if not isinstance(encoder, Transformer) or self.mini_batch_num_tokens:
            kind = type(encoder).__name__
            self.refuse(f"words need token vectors, which {kind} and micro-batches do not give")
        return encoder

    def forward(
        self,
        sentence_features: Iterable[dict[str, Any]],
        labels: Tensor | None = None,
    ) -> Tensor | dict[str, Tensor]:
        """Compute the loss of two text columns of N rows.

        With masked words it is two parts by name.
        """
        columns = self.read_columns(sentence_features, labels)
        merged = merge_feature_batches(columns)
        batches = columns if merged is None else [merged]
        if self.contextual_encoder is None:
            value = self._loss_of_sentences(columns)
        else:
            value = self._loss_of_words(self.contextual_encoder, columns, batches)
        if self.mlm is None:
            return value
        return {self.objective: value, "mlm": self.mlm_weight * self.mlm(batches, labels)}

    def _loss_of_sentences(self, columns: Columns) -> Tensor:
        """The loss of sentences alone.

        All ranks call it together.
        """
        tags = self.concatenate_tags(columns)
        anchor, positive = self.embed_columns(columns)
        return self.compute_loss_from_embeddings(anchor, positive, tags)

    def _loss_of_words(
        self, encoder: ContextualEncoder, columns: Columns, batches: Columns
    ) -> Tensor:
        """The loss of words in their sentences; `batches` are the columns, merged if possible.

        All ranks call it together.
        """
        tags = self.concatenate_tags(columns, "word_start", "word_end")
        vectors = []
        for features in batches:
            output = self.model(dict(features))
            words = encoder(
                output["sentence_embedding"],
                output["token_embeddings"],
                output["attention_mask"],
                features["word_start"],
                features["word_end"],
            )
            vectors.append(words)
        anchor, positive = torch.cat(vectors).chunk(2)
        if "text_id" in tags:
            tags["text_id"] = _id_of_text_and_word(tags)
        return self.compute_loss_from_embeddings(anchor, positive, tags)

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the loss, for the model card."""
        options = super().get_config_dict()
        options["words"] = self.contextual_encoder is not None
        if self.mlm is None:
            options["mlm_weight"] = 0.0
        return options


def _id_of_text_and_word(tags: Tags) -> Tensor:
    """A sample is a text with a word: equal texts with other words are others.

    As a hash, it may wrap around.
    """
    text_and_start = tags["text_id"] * 1_000_003 + tags["word_start"]
    return text_and_start * 1_000_003 + tags["word_end"]
