"""Masked language modelling with the checkpoint's own head."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.util.distributed import get_world_size
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PretrainedConfig
from transformers.modeling_outputs import BaseModelOutput

from st_xlret.functional import chunked_cross_entropy
from st_xlret.losses.base import CrossLingualLoss, unwrapped
from st_xlret.losses.columns import read_tags

logger = logging.getLogger(__name__)

CITATION = """
@inproceedings{devlin2019bert,
    title = {{BERT}: Pre-training of Deep Bidirectional Transformers for Language Understanding},
    author = {Devlin, Jacob and Chang, Ming-Wei and Lee, Kenton and Toutanova, Kristina},
    booktitle = {Proceedings of NAACL-HLT},
    year = {2019},
}
"""


class MaskedLMLoss(CrossLingualLoss):
    """Masked language modelling beside a contrastive loss (BERT, Devlin et al. 2019; CCP, section 3; MSM, Eq. 3).

    The loss reads the encoder's `token_embeddings` and predicts the masked tokens with the checkpoint's own
    language-model head. The head's vocabulary projection stays tied to the input embeddings if the checkpoint ties
    them. The cross-entropy is [`chunked_cross_entropy`][st_xlret.functional.chunked_cross_entropy], on the masked
    positions only and in chunks of the vocabulary, so that the logits of a batch are never in memory all at once.

    Of the chosen tokens, 80 % are replaced by the mask token, 10 % by a random one, and 10 % stay, as in BERT. Padding
    and special tokens are never chosen. In distributed training the mean is over the masked tokens of all ranks.

    Args:
        model: An encoder that starts with a `Transformer` module. Unpadding of its inputs is turned off, because the
            loss reads the padded layout.
        mask_probability: Fraction of tokens to predict.
        weight: Factor on the loss.
        chunk_size: Number of vocabulary entries whose logits exist at a time. Default: about 4M logits.
        lm_head_from: Checkpoint (name or folder) to take the head from. Default: the encoder's own checkpoint. If it
            has no head, a new one is trained, with a warning.

    Raises:
        ValueError: If the encoder has no `Transformer`, its tokenizer has no mask token, or `mask_probability` is
            outside (0, 1].

    Example:
        >>> from st_xlret.modules import train_tokenizer, transformer_encoder
        >>> model = transformer_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=60), "tiny")
        >>> loss = MaskedLMLoss(model)
        >>> loss([model.preprocess(["a b c d", "b c"])]).backward()
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        mask_probability: float = 0.15,
        weight: float = 1.0,
        chunk_size: int | None = None,
        lm_head_from: str | None = None,
    ) -> None:
        super().__init__(model)
        if not 0 < mask_probability <= 1:
            raise ValueError(f"mask_probability must lie in (0, 1], got {mask_probability}")
        encoder = model[0]
        if not isinstance(encoder, Transformer):
            raise ValueError(
                f"MaskedLMLoss needs an encoder that starts with a Transformer module, got {type(encoder).__name__}"
            )
        if encoder.tokenizer is None or encoder.tokenizer.mask_token_id is None:
            raise ValueError("MaskedLMLoss needs a tokenizer with a mask token, and this one has none")
        encoder.unpad_inputs = False
        self.mask_probability, self.weight, self.chunk_size = mask_probability, weight, chunk_size
        self.mask_token_id: int = encoder.tokenizer.mask_token_id
        self.special_token_ids: list[int] = sorted(encoder.tokenizer.all_special_ids)
        embeddings = encoder.auto_model.get_input_embeddings()
        self.vocabulary: int = embeddings.num_embeddings
        self.lm_head = LanguageModelHead(encoder.auto_model.config, lm_head_from).to(embeddings.weight.dtype)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch of texts.

        Args:
            sentence_features: Text columns; tokens of all of them are predicted.
            labels: Ignored.

        Returns:
            A scalar: the mean over masked tokens, times `weight`.
        """
        columns = list(sentence_features)
        languages = read_tags(columns).get("language_id")
        vectors, targets = [], []
        for features in columns:
            masked_ids, chosen = self.mask_tokens(features["input_ids"], features["attention_mask"])
            tokens = _last_layer(self.model({**features, "input_ids": masked_ids}))
            vectors.append(tokens[chosen])
            targets.append(features["input_ids"][chosen])
        hidden, target = self.lm_head(torch.cat(vectors)), torch.cat(targets)
        weight = self.lm_head.own_projection
        if weight is None:
            weight = unwrapped(self.model)[0].auto_model.get_input_embeddings().weight
        loss = chunked_cross_entropy(hidden, weight, self.lm_head.bias, target, chunk_size=self.chunk_size)
        return self._record(self.weight * loss * self._share_of_masked_tokens(target), languages)

    def mask_tokens(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Choose tokens to predict and hide them, with torch's global random generator.

        Args:
            input_ids: Token ids (rows, length).
            attention_mask: 1 for tokens, 0 for padding (rows, length).

        Returns:
            The token ids to read (rows, length), and the positions to predict, boolean (rows, length).
        """
        specials = torch.tensor(self.special_token_ids, device=input_ids.device)
        candidates = attention_mask.bool() & ~torch.isin(input_ids, specials)
        draw = torch.rand(input_ids.shape, device=input_ids.device)
        chosen = candidates & (draw < self.mask_probability)
        if not chosen.any() and candidates.any():
            # A short batch still teaches something: the candidate with the lowest draw.
            lowest = draw.masked_fill(~candidates, 2.0).argmin()
            chosen.view(-1)[lowest] = True
        kind = torch.rand(input_ids.shape, device=input_ids.device)
        random_ids = torch.randint(self.vocabulary, input_ids.shape, device=input_ids.device)
        masked = input_ids.masked_fill(chosen & (kind < 0.8), self.mask_token_id)
        return torch.where(chosen & (kind >= 0.9), random_ids, masked), chosen

    def _share_of_masked_tokens(self, target: Tensor) -> Tensor | float:
        # Ranks mask different numbers of tokens; gradients are averaged over ranks with equal weight.
        if get_world_size() == 1:
            return 1.0
        total = torch.tensor(float(len(target)), device=target.device)
        dist.all_reduce(total)
        return len(target) * get_world_size() / total.clamp(min=1)

    def get_config_dict(self) -> dict[str, Any]:
        """Options of the loss, for the model card."""
        return {"mask_probability": self.mask_probability, "weight": self.weight}

    @property
    def citation(self) -> str:
        """BibTeX entry of the paper."""
        return CITATION


class LanguageModelHead(nn.Module):
    """The layers of a checkpoint between its last hidden states and the projection to the vocabulary.

    It works for any architecture that `AutoModelForMaskedLM` knows: the encoder in it is replaced by a pass-through and
    the projection by the identity.

    Args:
        config: Configuration of the encoder.
        checkpoint: Name or folder to load the head from. Default: the checkpoint of `config`.

    Raises:
        ValueError: If the architecture has no masked language model.
    """

    def __init__(self, config: PretrainedConfig, checkpoint: str | None = None) -> None:
        super().__init__()
        mlm = _load_masked_lm(config, checkpoint)
        projection = mlm.get_output_embeddings()
        self.bias = projection.bias
        # An untied projection belongs to the head; a tied one is the encoder's embedding matrix.
        self.own_projection = None if config.tie_word_embeddings else projection.weight
        for name, module in list(mlm.named_modules()):
            if module is projection:
                parent, _, attribute = name.rpartition(".")
                setattr(mlm.get_submodule(parent), attribute, nn.Identity())
        setattr(mlm, mlm.base_model_prefix, _PassThrough())
        self.transform = mlm

    def forward(self, hidden: Tensor) -> Tensor:
        """Map hidden states (M, d) to the inputs of the vocabulary projection (M, d)."""
        return self.transform(inputs_embeds=hidden[None]).logits[0]


class _PassThrough(nn.Module):
    def forward(self, *args: Any, inputs_embeds: Tensor, **kwargs: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=inputs_embeds)


def _load_masked_lm(config: PretrainedConfig, checkpoint: str | None) -> Any:
    name = checkpoint or getattr(config, "_name_or_path", "")
    try:
        if not name:
            return AutoModelForMaskedLM.from_config(config)
        mlm, info = AutoModelForMaskedLM.from_pretrained(name, output_loading_info=True)
    except (OSError, ValueError) as error:
        if checkpoint:
            raise ValueError(f"no masked language model could be loaded from {checkpoint!r}: {error}") from error
        if type(config) not in AutoModelForMaskedLM._model_mapping:
            raise ValueError(f"{type(config).__name__} has no masked language model") from error
        logger.warning("%r has no language-model head to load: a fresh one is trained", name)
        return AutoModelForMaskedLM.from_config(config)
    fresh = [key for key in info["missing_keys"] if not key.startswith(f"{mlm.base_model_prefix}.")]
    if fresh:
        logger.warning("%r has no weights for %s: this part of the language-model head is fresh", name, fresh)
    return mlm


def _last_layer(output: dict[str, Any]) -> Tensor:
    # Where layers are averaged, token_embeddings are no longer what the checkpoint's head was trained on.
    layers = output.get("all_layer_embeddings")
    return output["token_embeddings"] if layers is None else layers[-1]
