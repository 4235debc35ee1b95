"""What a training changes of its encoder beside the weights, and how all of it is taken back."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import PreTrainedModel

from st_xlret.encoding import fingerprint
from st_xlret.hub.loading import check_finite
from st_xlret.modules.adapters import has_adapters, merge_adapters
from st_xlret.modules.encoders import outermost_transformers
from st_xlret.training import trainable
from st_xlret.training.arguments import CrossLingualTrainingArguments
from st_xlret.training.loss_state import LossStateCallback


class EncoderPreparation:
    """Prepares the encoder of a training, once, and takes it back when the training ends.

    A Trainer has one. `open` is the context of a training. In it the encoder waits until model and
    arguments are final; then `prepare` sets dropout, attention, number format, frozen weights and
    adapters. When the context ends, after an exception too, adapters are merged, and dropout,
    attention and frozen weights are as before; the number format stays.

    Attributes:
        stage: "closed" outside of a training, and in one "waiting" until it is "prepared".
    """

    def __init__(self) -> None:
        self.stage: Literal["closed", "waiting", "prepared"] = "closed"
        self._take_back = ExitStack()
        self._original: dict[str, Tensor] = {}

    @contextmanager
    def open(self) -> Iterator[None]:
        """The context of a training."""
        self.stage = "waiting"
        try:
            with self._take_back:
                yield
        finally:
            self.stage = "closed"

    def prepare(
        self,
        model: SentenceTransformer,
        args: CrossLingualTrainingArguments,
        loss_state: LossStateCallback,
    ) -> None:
        """Set what of an encoder is trained and how its layers compute, within `open`."""
        self.stage = "prepared"
        take_back = self._take_back
        take_back.enter_context(changed_dropout(model, args.dropout))
        if args.bf16 and args.device.type == "cpu":
            # There, the backward pass of PyTorch's fused attention is slow.
            take_back.enter_context(changed_attention(model, "eager"))
        trainable.weights_to_fp32([model, *loss_state.all_losses.values()])
        for weight in model.parameters():
            take_back.callback(weight.requires_grad_, weight.requires_grad)
        if args.freeze_embeddings:
            trainable.freeze_word_embeddings(model)
        # Before adapters are added: the fingerprint is of a model without them.
        self.remember_start(model, args, loss_state)
        if args.lora_rank:
            trainable.add_lora(model, args.lora_rank)
            take_back.callback(merge_adapters, model)
        if args.save_strategy != "no":
            trainable.check_adapters_match_folder(model)

    def remember_start(
        self,
        model: SentenceTransformer,
        args: CrossLingualTrainingArguments,
        loss_state: LossStateCallback,
    ) -> None:
        """Keep what a training begins with.

        The weights, where `keep_trained` leaves a part of them, for `finish`. Then
        `loss_state` refuses to resume from other ones. Their fingerprint goes to it, where
        checkpoints or somebody who compares need it.
        """
        self._original = {}
        if args.keep_trained < 1:
            self._original = trainable.copy_trainable_weights(model)
            loss_state.keeps_start = True
        is_needed = args.save_strategy != "no" or loss_state.keeps_start
        if is_needed and not has_adapters(model):
            loss_state.start = fingerprint(model)

    def finish(
        self,
        model: SentenceTransformer,
        args: CrossLingualTrainingArguments,
        loss_state: LossStateCallback,
    ) -> None:
        """Let the trained weights go a part of the way back to those of `remember_start`."""
        trainable.interpolate_weights(model, self._original, args.keep_trained)
        check_weights(model, loss_state)


def check_weights(model: SentenceTransformer, loss_state: LossStateCallback) -> None:
    """Refuse weights of an encoder or of losses that are not finite."""
    check_finite(model)
    for loss in loss_state.losses.values():
        check_finite(loss)


@contextmanager
def changed_dropout(model: nn.Module, dropout: float | None) -> Iterator[None]:
    """A context in which the layers of an encoder have another dropout; None changes nothing."""
    before = []
    if dropout is not None:
        for module in model.modules():
            for name in _dropout_names(module):
                before.append((module, name, getattr(module, name)))
                setattr(module, name, dropout)
    try:
        yield
    finally:
        for module, name, share in before:
            setattr(module, name, share)


def _dropout_names(module: nn.Module) -> list[str]:
    """The attributes of a module that are the share that it drops."""
    names = []
    for name, value in vars(module).items():
        # Attention has its dropout as a number.
        says_dropout = "dropout" in name and not isinstance(module, nn.Dropout)
        is_share_of_layer = name == "p" and isinstance(module, nn.Dropout)
        if (says_dropout or is_share_of_layer) and type(value) in (int, float):
            names.append(name)
    return names


@contextmanager
def changed_attention(model: nn.Module, attention: str | None) -> Iterator[None]:
    """A context in which an encoder has another of the host's attentions; None changes nothing."""
    # The host sets an attention, and does not tell which one a model has: all settings are kept.
    before = []
    if attention is not None:
        for module in model.modules():
            if isinstance(module, PreTrainedModel):
                before.append((module.config, dict(vars(module.config))))
        for transformer in outermost_transformers(model):
            transformer.set_attn_implementation(attention)
    try:
        yield
    finally:
        for config, settings in before:
            vars(config).update(settings)
