"""Models as they are loaded: with what their card states, and of finite weights."""

import os

from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_xlret.hub.card import CrossLingualCardData


class NotFiniteError(ValueError, FloatingPointError):
    """A weight is NaN or infinite."""


def load_model(name: str, device: str | None = None) -> SentenceTransformer:
    """Load the model that `--model` names: a folder, or a name on the Hub.

    Its card keeps what the model's states. A model that cannot be loaded is a `ValueError` with the
    host's message; so is a weight that is NaN or infinite. Messages name the option `--model`.
    """
    path = os.path.expanduser(name)
    try:
        card = CrossLingualCardData().fill_in_from_card(path)
        model = SentenceTransformer(path, device=device, model_card_data=card)
        check_finite(model)
    except Exception as error:  # of the host, of safetensors, of tokenizers, of JSON
        raise ValueError(f"--model {name}: {error}") from error
    return model


def check_finite(model: nn.Module) -> None:
    """Refuse a model with a weight that is NaN or infinite.

    The `NotFiniteError` names the tensor.
    """
    for name, tensor in model.state_dict().items():
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            continue
        count = int((~tensor.isfinite()).sum())
        if count:
            raise NotFiniteError(
                f"{name}: {count} of {tensor.numel()} values ({tensor.dtype}) are NaN or infinite"
            )
