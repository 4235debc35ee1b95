"""The head of a masked language model, taken from a checkpoint and apart from its encoder."""

from contextlib import suppress
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PretrainedConfig
from transformers.modeling_outputs import BaseModelOutput


class NoHeadError(ValueError):
    """An encoder has no head for masked words that is as trained as it is.

    Sentence encoders usually have none.
    """


class LanguageModelHead(nn.Module):
    """The layers between the last hidden states and the projection to the vocabulary."""

    def __init__(
        self, config: PretrainedConfig, checkpoint: str | None = None, *, fresh: bool = False
    ) -> None:
        super().__init__()
        try:
            self.transform = _load_masked_lm(config, checkpoint, fresh)
            projection = self._extract_projection()
        except Exception as error:  # whatever the program of one of many architectures raises
            raise NoHeadError(f"no head of {config.model_type!r} can be used: {error}") from error
        self.bias = projection.bias
        # A tied projection is the encoder's embedding matrix.
        self.own_projection = None
        if not config.tie_word_embeddings:
            self.own_projection = projection.weight

    def _extract_projection(self) -> Any:
        """Take out the projection to the vocabulary, and the encoder; the logits must stay."""
        mlm: Any = self.transform
        training = mlm.training
        projection = mlm.get_output_embeddings()
        setattr(mlm, mlm.base_model_prefix, _PassThrough())
        mlm.eval()
        with torch.no_grad():
            numbers = torch.linspace(-1, 1, 2 * mlm.config.hidden_size)
            hidden = numbers.view(2, -1).to(projection.weight)
            logits = self(hidden)
            _replace_by_identity(mlm, projection)
            without_head = F.linear(self(hidden), projection.weight, projection.bias)
            torch.testing.assert_close(without_head, logits)
        mlm.train(training)
        return projection

    def forward(self, hidden: Tensor) -> Tensor:
        """Map hidden states (M, d) to the inputs of the vocabulary projection (M, d)."""
        return self.transform(inputs_embeds=hidden[None]).logits[0]


class _PassThrough(nn.Module):
    """Stands in the place of an encoder: hidden states come in, and go out."""

    def forward(self, *args: Any, inputs_embeds: Tensor, **kwargs: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=inputs_embeds)


def _replace_by_identity(model: nn.Module, part: nn.Module) -> None:
    for name, module in list(model.named_modules()):
        if module is part:
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, nn.Identity())


def _load_masked_lm(config: PretrainedConfig, checkpoint: str | None, fresh: bool) -> Any:
    name = checkpoint or config.name_or_path
    if not name:
        return AutoModelForMaskedLM.from_config(config)
    if fresh and not checkpoint:
        with suppress(OSError, ValueError):
            return AutoModelForMaskedLM.from_pretrained(name)
        return AutoModelForMaskedLM.from_config(config)
    mlm, info = AutoModelForMaskedLM.from_pretrained(name, output_loading_info=True)
    if not fresh:
        _check_head_was_loaded(name, mlm, info["missing_keys"])
    return mlm


def _check_head_was_loaded(name: str, mlm: Any, missing_keys: list[str]) -> None:
    of_encoder = f"{mlm.base_model_prefix}."
    missing = [key for key in missing_keys if not key.startswith(of_encoder)]
    # Biases that are missing are zero, as in a model that has none.
    if any(key.endswith("weight") for key in missing):
        raise NoHeadError(
            f"{name!r} has no trained language-model head (no {', '.join(sorted(missing))}): "
            "give lm_head_from=..., or train a new one: "
            "fresh_head=True, and train_head before the training"
        )
