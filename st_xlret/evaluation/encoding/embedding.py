"""Sentence embeddings as a protocol defines them: by layer, pooling, language and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import torch
from torch import Tensor

from st_xlret.calibration.encoding import default_language, language_routes, language_task
from st_xlret.evaluation.encoding.hidden_states import encode_hidden_states
from st_xlret.modules.encoding import PROMPT_NAMES, encode_texts
from st_xlret.precision import autocast, resolve_precision

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Pooling = Literal["model", "mean"]
Side = Literal["query", "document"]


class Calibration(Protocol):
    """The interface of a calibration that the evaluators use. `CalibrationLayer` has it."""

    languages: Sequence[str]

    def transform(self, embeddings: Tensor, language: str) -> Tensor:
        """Map embeddings (n, d) of one language into the shared space."""
        ...


def resolve_pooling(layer: int | None, pooling: str | None) -> Pooling:
    """The pooling that is used: the given one, else the mean if a layer is chosen, else the pooling of the model.

    Raises:
        ValueError: If `pooling` is neither `"model"` nor `"mean"`.

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
    """Describe the pooling in a phrase, for tables and result files.

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
    """Embed texts with a model, optionally from the hidden states of one of its layers.

    The retrieval results of the CCP paper for large models use the average of the hidden states of layer 14
    (`layer=14`). Weights, configuration, modules and train/eval mode of the model are left as they were.

    Args:
        model: Any Sentence Transformer.
        texts: The texts to embed.
        layer: A layer of the Transformer: 0 for the input embeddings, n for the output of the n-th layer. Default: the
            output of the model.
        pooling: `"mean"` averages the hidden states under the attention mask, special tokens included, as in the
            paper's protocol. `"model"` runs the modules of the model after the Transformer. Default: `"mean"` if a
            layer is given, else `"model"`.
        batch_size: Size of a forward pass, in texts of 64 tokens.
        show_progress_bar: Whether to show a bar over the tokens.
        **encode_kwargs: Options of `model.encode`, such as `task="fr"`. Not available with a layer or `pooling="mean"`,
            which bypass `encode`.

    Returns:
        Float32 tensor (len(texts), d) on the device of the model.

    Raises:
        ValueError: If the model has no Transformer with hidden states, `layer` is out of its range, `pooling` is
            unknown, or options of `encode` are given together with a layer.

    Example:
        >>> from st_xlret.evaluation.encoding.embedding import encode_layer
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
        embeddings = encode_texts(
            model,
            texts,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            convert_to_tensor=True,
            **encode_kwargs,
        )
        return embeddings.float()
    if encode_kwargs:
        raise ValueError(
            f"{sorted(encode_kwargs)} are options of model.encode, which layer={layer} with "
            f"pooling={resolved!r} bypasses: leave out the layer and the pooling, or these options."
        )
    return encode_hidden_states(model, texts, layer, resolved, batch_size, show_progress_bar)


@dataclass(frozen=True)
class TextEmbedder:
    """How an evaluator turns the texts of one language into embeddings.

    A model with a map per language, as `st_xlret.export` makes it, is told the language of the texts, see
    [`language_routes`][st_xlret.calibration.language_routes].

    Attributes:
        layer: See `encode_layer`.
        pooling: See `encode_layer`.
        calibration: Applied to the embeddings of every language, such as a `CalibrationLayer`.
        batch_size: Size of a forward pass, in texts of 64 tokens.
        show_progress_bar: Whether `encode` shows its bar.
        query_prompt: Prompt put before queries. Default: the query prompt of the model.
        document_prompt: Prompt put before documents. Default: the document prompt of the model.
        pool: A pool of `model.start_multi_process_pool` that does the encoding.
        precision: `"fp32"`, `"bf16"` or `"auto"`, see `st_xlret.precision`. The model alone computes in it; vectors are
            float32, and so is the search.

    Raises:
        ValueError: If the pooling or the precision is unknown.

    Example:
        >>> TextEmbedder(layer=14).describe()["pooling"]
        'mean of the hidden states of layer 14'
    """

    layer: int | None = None
    pooling: Pooling | None = None
    calibration: Calibration | None = None
    batch_size: int = 32
    show_progress_bar: bool = False
    query_prompt: str | None = None
    document_prompt: str | None = None
    pool: Any = None
    precision: str = "fp32"

    def __post_init__(self) -> None:
        resolve_pooling(self.layer, self.pooling)
        resolve_precision(self.precision, "cpu")

    def embed(
        self, model: SentenceTransformer, texts: Sequence[str], language: str, *, side: Side | None = None
    ) -> Tensor:
        """Embed every distinct text once, so that equal texts get equal embeddings; returns float32 (n, d).

        Args:
            model: Any Sentence Transformer.
            texts: Texts of one language.
            language: Their language.
            side: `"query"` or `"document"` in asymmetric retrieval: texts are encoded as `model.encode_query` and
                `model.encode_document` do, with their prompts and, unless the language is the task, their routes.
                Default: `model.encode`, for symmetric tasks.
        """
        distinct = list(dict.fromkeys(texts))
        row_of = {text: row for row, text in enumerate(distinct)}
        prompt = self.prompt(model, side)
        with autocast(self.precision, model.device):
            embeddings = encode_layer(
                model,
                distinct if prompt is None or not self._bypasses_encode else [prompt + text for text in distinct],
                layer=self.layer,
                pooling=self.pooling,
                batch_size=self.batch_size,
                show_progress_bar=self.show_progress_bar,
                **({} if self._bypasses_encode else self._encode_arguments(model, language, side, prompt)),
            )
        if self.calibration is not None:
            with torch.inference_mode():
                embeddings = self.calibration.transform(embeddings, language).float()
        if len(distinct) == len(texts):
            return embeddings
        return embeddings[torch.tensor([row_of[text] for text in texts], device=embeddings.device)]

    def prompt(self, model: SentenceTransformer, side: Side | None) -> str | None:
        """The prompt of the texts of one side: the given one, else that of the model."""
        if side is None:
            return None
        given = self.query_prompt if side == "query" else self.document_prompt
        if given is not None:
            return given
        return next((model.prompts[name] for name in PROMPT_NAMES[side] if name in model.prompts), None)

    @property
    def _bypasses_encode(self) -> bool:
        return self.layer is not None or resolve_pooling(self.layer, self.pooling) == "mean"

    def routes(self, model: Any) -> list[str]:
        """The languages whose texts go through a map of their own in the model; none with a layer or the mean."""
        return [] if self._bypasses_encode else language_routes(model)

    def _encode_arguments(self, model: Any, language: str, side: Side | None, prompt: str | None) -> dict[str, Any]:
        # As encode_query and encode_document set them; the task of a calibrated model is the language.
        task = (language_task(model, language, side) if self.routes(model) else None) or side
        arguments = {"task": task, "prompt": prompt, "pool": self.pool}
        return {name: value for name, value in arguments.items() if value is not None}

    def require_languages(self, languages: Sequence[str]) -> None:
        """Raise a ValueError for languages that the calibration does not know, before any encoding."""
        if self.calibration is None or not self.calibration.languages:
            return  # a calibration without languages is for all texts
        missing = [language for language in languages if language not in set(self.calibration.languages)]
        if missing:
            raise ValueError(
                f"the calibration has no map for {missing}; it knows {sorted(self.calibration.languages)}. "
                "Evaluate those languages only, or fit the calibration on the missing ones as well."
            )

    def describe(self, model: Any = None) -> dict[str, str]:
        """Pooling, calibration and precision in words, for the protocol of a result.

        Args:
            model: The model that was evaluated, whose own maps per language are then described too.
        """
        calibration = "none" if self.calibration is None else type(self.calibration).__name__
        if routes := self.routes(model):
            others = f"other languages are taken for {default_language(model)}"
            inside = f"in the model, by the language of the texts ({', '.join(routes)}; {others})"
            calibration = inside if self.calibration is None else f"{inside}, then {calibration}"
        elif self._bypasses_encode and language_routes(model):
            calibration += " (the model's maps per language come after the layer, and were not used)"
        prompts = {"query_prompt": self.query_prompt, "document_prompt": self.document_prompt}
        return {
            "pooling": describe_pooling(self.layer, self.pooling),
            "calibration": calibration,
            "precision": self.precision
            if model is None
            else resolve_precision(self.precision, getattr(model, "device", "cpu")),  # encoders of mteb have none
            **{name: prompt for name, prompt in prompts.items() if prompt is not None},
        }
