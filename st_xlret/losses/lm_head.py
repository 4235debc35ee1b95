"""The head of a masked language model, taken from a checkpoint and apart from its encoder."""

from contextlib import suppress
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from st_xlret.modules.reloading import has_weights_of_checkpoint, load_again, revision_on_card

WAY_OUT = (
    "Leave the loss of masked words out, give lm_head_from=..., or train a new head: "
    "fresh_head=True, and train_head before the training"
)


class NoHeadError(ValueError):
    """An encoder has no head for masked words that is as trained as it is.

    Sentence encoders usually have none.
    """


class LanguageModelHead(nn.Module):
    """The layers between the last hidden states and the projection to the vocabulary.

    Args:
        mlm: A masked language model, which is taken apart.
        tied: Whether its projection is the encoder's embedding matrix.
    """

    def __init__(self, mlm: Any, *, tied: bool) -> None:
        super().__init__()
        self.transform = mlm
        projection = self._extract_projection()
        self.bias = projection.bias
        self.own_projection = None
        if not tied:
            self.own_projection = projection.weight

    def _extract_projection(self) -> Any:
        """Take out the projection to the vocabulary, and the encoder; the logits must stay."""
        mlm = self.transform
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
        """Map hidden states (M, d) to the inputs of the vocabulary projection (M, d).

        They are converted to the type of the weights.
        """
        kind = next(self.transform.parameters()).dtype
        return self.transform(inputs_embeds=hidden[None].to(kind)).logits[0]


class _PassThrough(nn.Module):
    """Stands in the place of an encoder: hidden states come in, and go out."""

    def forward(self, *args: Any, inputs_embeds: Tensor, **kwargs: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=inputs_embeds)


def _replace_by_identity(model: nn.Module, part: nn.Module) -> None:
    """Put an `Identity` in the place of a part of a model, wherever it stands."""
    for name, module in list(model.named_modules()):
        if module is part:
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, nn.Identity())


def load_head(
    model: SentenceTransformer, checkpoint: str | None = None, *, fresh: bool = False
) -> LanguageModelHead:
    """The head of an encoder that starts with a Transformer.

    Args:
        model: The encoder.
        checkpoint: Where the head is taken from. Default: from where the encoder is, or a new one
            for one from scratch.
        fresh: Make a new head where the checkpoint has none.

    Raises:
        NoHeadError: There is none, or it is not known to be the encoder's.
    """
    config = _transformer_of(model).config
    if checkpoint is None and not config.name_or_path:
        return new_head(config)
    try:
        mlm = _load_masked_lm(model, checkpoint, fresh)
        return LanguageModelHead(mlm, tied=config.tie_word_embeddings)
    except NoHeadError:
        raise
    except Exception as error:  # whatever the program of one of many architectures raises
        raise _no_head_error(config, error) from error


def _transformer_of(model: SentenceTransformer) -> PreTrainedModel:
    """The model of Transformers in the first module of an encoder."""
    encoder: Any = model[0]
    return encoder.auto_model


def new_head(config: PretrainedConfig) -> LanguageModelHead:
    """An untrained head, as the configuration says; a `NoHeadError` where there is none."""
    try:
        mlm = AutoModelForMaskedLM.from_config(config)
        return LanguageModelHead(mlm, tied=config.tie_word_embeddings)
    except Exception as error:  # whatever the program of one of many architectures raises
        raise _no_head_error(config, error) from error


def _no_head_error(config: PretrainedConfig, error: Exception) -> NoHeadError:
    """The error of a head that cannot be taken, or made, for whatever reason."""
    return NoHeadError(f"no head of {config.model_type!r} can be used: {error}. {WAY_OUT}")


def _load_masked_lm(model: SentenceTransformer, checkpoint: str | None, fresh: bool) -> Any:
    """The Transformer with a head: of a checkpoint, or of where the encoder is from.

    A `fresh` head is trained anew, so what is loaded of it does not matter.
    """
    if checkpoint is not None:
        mlm, missing = load_again(AutoModelForMaskedLM, checkpoint, model, is_given=True)
        if not fresh:
            _check_head_was_loaded(checkpoint, mlm, missing)
        return mlm
    if not fresh:
        return _load_own_masked_lm(model, needs_head=True)
    with suppress(OSError, ValueError):
        return _load_own_masked_lm(model, needs_head=False)
    return AutoModelForMaskedLM.from_config(_transformer_of(model).config)


def _load_own_masked_lm(model: SentenceTransformer, *, needs_head: bool) -> Any:
    """The checkpoint of an encoder, loaded again with its head.

    A `NoHeadError` refuses weights other than the encoder's, as those of another revision or cache
    are, and, if it `needs_head`, a checkpoint without a head.
    """
    transformer = _transformer_of(model)
    name = str(transformer.config.name_or_path)
    revision = revision_on_card(model, name)
    mlm, missing = load_again(AutoModelForMaskedLM, name, model, revision=revision)
    if needs_head:
        _check_head_was_loaded(name, mlm, missing)
    # Quantised weights are other numbers, of which nothing can be said.
    is_quantized = getattr(transformer, "is_quantized", False)
    if not is_quantized and not has_weights_of_checkpoint(transformer, mlm.base_model.state_dict()):
        raise NoHeadError(
            f"{name!r} is found with other weights than the encoder has, which may be of another "
            f"revision or cache_folder, or was trained since: lm_head_from={name!r} takes the head "
            f"all the same. {WAY_OUT}"
        )
    return mlm


def _check_head_was_loaded(name: str, mlm: Any, missing_keys: list[str]) -> None:
    """Refuse a checkpoint that has no weights for the head."""
    encoder_prefix = f"{mlm.base_model_prefix}."
    missing = [key for key in missing_keys if not key.startswith(encoder_prefix)]
    # Biases that are missing are zero, as in a model that has none.
    if any(key.endswith("weight") for key in missing):
        raise NoHeadError(
            f"{name!r} has no trained language-model head (no {', '.join(sorted(missing))}). "
            f"{WAY_OUT}"
        )
