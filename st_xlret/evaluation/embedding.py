"""Sentence embeddings the way a protocol asks for them: layer, pooling, language, calibration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import torch
from torch import Tensor
from tqdm.auto import trange

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Pooling = Literal["model", "mean"]


class Calibration(Protocol):
    """What the evaluators need of a calibration: ``CalibrationLayer`` has it."""

    languages: Sequence[str]

    def transform(self, embeddings: Tensor, language: str) -> Tensor:
        """Maps embeddings (n, d) of one language into the shared space."""
        ...


def resolve_pooling(layer: int | None, pooling: str | None) -> Pooling:
    """The pooling that is used: as given, else the mean where a layer is chosen, else the model's own.

    Raises:
        ValueError: If ``pooling`` is neither ``"model"`` nor ``"mean"``.

    Example:
        >>> resolve_pooling(14, None), resolve_pooling(None, None)
        ('mean', 'model')
    """
    if pooling is None:
        return "model" if layer is None else "mean"
    if pooling not in ("model", "mean"):
        raise ValueError(f'pooling must be "model" or "mean", got {pooling!r}.')
    return cast(Pooling, pooling)


def describe_pooling(layer: int | None, pooling: str | None) -> str:
    """One phrase for tables and result files.

    Example:
        >>> describe_pooling(14, None)
        'mean of the hidden states of layer 14'
        >>> describe_pooling(None, None)
        "the model's own sentence embedding"
    """
    resolved = resolve_pooling(layer, pooling)
    if resolved == "mean":
        return f"mean of the hidden states of layer {layer}" if layer is not None else "mean of the last hidden states"
    if layer is not None:
        return f"the model's own pooling over the hidden states of layer {layer}"
    return "the model's own sentence embedding"


def encode_layer(
    model: SentenceTransformer,
    texts: Sequence[str],
    *,
    layer: int | None = None,
    pooling: Pooling | None = None,
    batch_size: int = 32,
    show_progress_bar: bool = False,
    **encode_kwargs: Any,
) -> Tensor:
    """Embeds texts with a model, optionally from the hidden states of one of its layers.

    CCP's retrieval results for large models use the averaged hidden vectors of the 14th layer (``layer=14``).
    The model is left as it was: the same weights, configuration, modules and train/eval mode.

    Args:
        model: Any Sentence Transformer.
        texts: The texts to embed.
        layer: None for the model's own output, or a layer of its Transformer: 0 for the input embeddings,
            n for the output of the n-th layer.
        pooling: ``"mean"`` averages the hidden states under the attention mask (special tokens count, as in
            the paper's protocol); ``"model"`` runs the model's own modules after the Transformer. Default:
            ``"mean"`` where a layer is given, else ``"model"``.
        batch_size: Texts per forward pass.
        show_progress_bar: Whether to show a bar over the batches.
        **encode_kwargs: Passed to ``model.encode``, such as ``task="fr"``. Not available with a layer or
            ``pooling="mean"``, which bypass ``encode``.

    Returns:
        Float32 tensor (len(texts), d) on the model's device.

    Raises:
        ValueError: If the model has no Transformer with hidden states, if ``layer`` is out of its range, if
            ``pooling`` is unknown, or if encode arguments come together with a layer.

    Example:
        >>> from st_xlret.evaluation.embedding import encode_layer
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> model = SentenceTransformer(modules=[BoW(vocab=["one", "two"])], device="cpu")
        >>> encode_layer(model, ["one two", "two"]).tolist()
        [[1.0, 1.0], [0.0, 1.0]]
    """
    resolved = resolve_pooling(layer, pooling)
    if not texts:
        raise ValueError("there are no texts to embed.")
    if layer is None and resolved == "model":
        embeddings = model.encode(
            list(texts),
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            convert_to_tensor=True,
            **encode_kwargs,
        )
        return embeddings.float()
    if encode_kwargs:
        raise ValueError(
            f"{sorted(encode_kwargs)} belong to model.encode, which layer={layer} with "
            f"pooling={resolved!r} bypasses: leave the layer and the pooling out, or these arguments."
        )
    return _encode_hidden_states(model, texts, layer, resolved, batch_size, show_progress_bar)


@torch.inference_mode()
def _encode_hidden_states(
    model: SentenceTransformer,
    texts: Sequence[str],
    layer: int | None,
    pooling: Pooling,
    batch_size: int,
    show_progress_bar: bool,
) -> Tensor:
    from sentence_transformers.util import batch_to_device

    transformer = _transformer_of(model)
    later_modules = list(model)[1:]
    longest_first = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
    batches: list[Tensor] = []
    with _hidden_states_exposed(model, transformer):
        for start in trange(0, len(texts), batch_size, desc="Batches", disable=not show_progress_bar):
            batch = [texts[index] for index in longest_first[start : start + batch_size]]
            features = transformer(batch_to_device(model.preprocess(batch), model.device))
            hidden_states = features.pop("all_layer_embeddings", None)
            if hidden_states is None:
                raise ValueError(
                    f"the {type(transformer).__name__} of this model returns no hidden states: leave layer "
                    "and pooling at their defaults."
                )
            chosen = len(hidden_states) - 1 if layer is None else layer
            if not 0 <= chosen < len(hidden_states):
                raise ValueError(
                    f"layer={layer} is not in this model's range 0..{len(hidden_states) - 1} "
                    "(0: the input embeddings, n: the output of layer n)."
                )
            features["token_embeddings"] = hidden_states[chosen]
            batches.append(_pool(features, pooling, later_modules).float())
    in_batch_order = torch.cat(batches)
    embeddings = torch.empty_like(in_batch_order)
    embeddings[torch.tensor(longest_first, device=embeddings.device)] = in_batch_order
    return embeddings


def _pool(features: dict[str, Any], pooling: Pooling, later_modules: list[torch.nn.Module]) -> Tensor:
    if pooling == "mean":
        mask = features["attention_mask"].unsqueeze(-1).float()
        return (features["token_embeddings"].float() * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)
    for module in later_modules:
        features = module(features)
    return features["sentence_embedding"]


def _transformer_of(model: SentenceTransformer) -> Any:
    from sentence_transformers.base.modules import Transformer

    first = model[0] if len(model) else None
    if isinstance(first, Transformer):
        return first
    raise ValueError(
        f"a layer or the mean of hidden states needs a model that starts with a Transformer; this one "
        f"starts with {type(first).__name__}, which has no hidden states. "
        "Leave layer and pooling at their defaults."
    )


@contextmanager
def _hidden_states_exposed(model: SentenceTransformer, transformer: Any) -> Iterator[None]:
    config = transformer.model.config
    before = (config.output_hidden_states, transformer.unpad_inputs, model.training)
    config.output_hidden_states = True
    if before[1] is not False:
        transformer.unpad_inputs = False  # the flattened layout has no attention mask to average under
    model.eval()
    try:
        yield
    finally:
        config.output_hidden_states = before[0]
        if before[1] is not False:
            transformer.unpad_inputs = before[1]
        model.train(before[2])


@dataclass(frozen=True)
class TextEmbedder:
    """How an evaluator turns the texts of one language into embeddings.

    Attributes:
        layer: See `encode_layer`.
        pooling: See `encode_layer`.
        language_as_task: Passes the language as ``task=`` to ``model.encode``, as exported calibrated models
            want.
        calibration: Applied to the embeddings of every language, such as a ``CalibrationLayer``.
        batch_size: Texts per forward pass.
        show_progress_bar: Whether ``encode`` shows its bar.

    Raises:
        ValueError: If ``language_as_task`` comes with a layer or ``pooling="mean"``, which bypass the task.

    Example:
        >>> TextEmbedder(layer=14).describe()["pooling"]
        'mean of the hidden states of layer 14'
    """

    layer: int | None = None
    pooling: Pooling | None = None
    language_as_task: bool = False
    calibration: Calibration | None = None
    batch_size: int = 32
    show_progress_bar: bool = False

    def __post_init__(self) -> None:
        bypasses_encode = self.layer is not None or resolve_pooling(self.layer, self.pooling) == "mean"
        if self.language_as_task and bypasses_encode:
            raise ValueError(
                f"language_as_task needs model.encode, which layer={self.layer} with "
                f"pooling={self.pooling!r} bypasses: choose one of the two."
            )

    def embed(self, model: SentenceTransformer, texts: Sequence[str], language: str) -> Tensor:
        """Embeds every distinct text once, so that equal texts get equal embeddings: float32 (n, d)."""
        distinct = list(dict.fromkeys(texts))
        row_of = {text: row for row, text in enumerate(distinct)}
        embeddings = encode_layer(
            model,
            distinct,
            layer=self.layer,
            pooling=self.pooling,
            batch_size=self.batch_size,
            show_progress_bar=self.show_progress_bar,
            **({"task": language} if self.language_as_task else {}),
        )
        if self.calibration is not None:
            with torch.inference_mode():
                embeddings = self.calibration.transform(embeddings, language).float()
        if len(distinct) == len(texts):
            return embeddings
        return embeddings[torch.tensor([row_of[text] for text in texts], device=embeddings.device)]

    def require_languages(self, languages: Sequence[str]) -> None:
        """Raises a ValueError for languages that the calibration does not know, before any encoding."""
        if self.calibration is None or not self.calibration.languages:
            return  # a calibration without languages serves all text
        missing = [language for language in languages if language not in set(self.calibration.languages)]
        if missing:
            raise ValueError(
                f"the calibration has no map for {missing}; it knows {sorted(self.calibration.languages)}. "
                "Evaluate those languages only, or fit the calibration on the missing ones too."
            )

    def describe(self) -> dict[str, str]:
        """Pooling and calibration in words, for the protocol of a result."""
        if self.language_as_task:
            calibration = "in the model, by task=language"
        else:
            calibration = "none" if self.calibration is None else type(self.calibration).__name__
        return {"pooling": describe_pooling(self.layer, self.pooling), "calibration": calibration}
