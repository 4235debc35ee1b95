"""Embeddings of texts as a protocol defines them: by layer, pooling, language and calibration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from st_xlret.encoding import Role, default_language, encode, language_routes, role_prompt
from st_xlret.precision import autocast, resolve_precision
from st_xlret.search import unit_rows

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from st_xlret.modules import CalibrationLayer

Pooling = Literal["model", "mean"]


@dataclass(frozen=True)
class TextEmbedder:
    """How an evaluator turns texts into embeddings.

    A model with a map per language, as `st_xlret.export` makes it, is told the languages of the texts.

    Attributes:
        layer: Embed by the hidden states of this layer of the Transformer: 0 for the input embeddings, n for the output
            of the n-th layer. The CCP paper takes layer 14 of large models. Default: the output of the model.
        pooling: `"mean"` averages the hidden states under the attention mask, special tokens included, as in the CCP
            paper. `"model"` runs the modules after the Transformer. Default: `"mean"` if a layer is given, else
            `"model"`.
        calibration: Applied to the embeddings of every language, a `CalibrationLayer`.
        batch_size: Size of a forward pass, in texts of 64 tokens.
        show_progress_bar: Whether to show a bar over the tokens.
        query_prompt: Prompt put before queries. Default: that of the model.
        document_prompt: Prompt put before documents. Default: that of the model.
        precision: `"fp32"`, `"bf16"` or `"auto"` (bf16 where the device computes in it) of the model; vectors are
            float32.
        query_calibration: Applied to queries, if it is another one than that of documents.

    Raises:
        ValueError: If the pooling or the precision is unknown.
    """

    layer: int | None = None
    pooling: Pooling | None = None
    calibration: CalibrationLayer | None = None
    batch_size: int = 128
    show_progress_bar: bool = False
    query_prompt: str | None = None
    document_prompt: str | None = None
    precision: str = "fp32"
    query_calibration: CalibrationLayer | None = None

    def __post_init__(self) -> None:
        if self.pooling not in (None, "model", "mean"):
            raise ValueError(f'pooling must be "model" or "mean", got {self.pooling!r}.')
        resolve_precision(self.precision, "cpu")

    def embed(
        self,
        model: SentenceTransformer,
        texts: Sequence[str],
        languages: str | Sequence[str],
        *,
        role: Role | None = None,
        normalize: bool = False,
    ) -> Tensor:
        """Embed every distinct text once, so that equal texts get equal embeddings: float32 (n, d).

        Args:
            model: Any Sentence Transformer.
            texts: The texts.
            languages: Their languages, or that of all.
            role: `"query"` or `"document"` in asymmetric retrieval, which puts the prompt of the role before the texts.
            normalize: Whether to divide the embeddings by their lengths.

        Raises:
            ValueError: If there are no texts, the model has no such layer, or it returns NaN or infinite values.
        """
        if not len(texts):
            raise ValueError("there are no texts to embed.")
        codes = [languages] * len(texts) if isinstance(languages, str) else list(languages)
        is_query = role == "query" and self.query_calibration is not None
        calibration = self.query_calibration if is_query else self.calibration
        if calibration is None and not self.routes(model):
            codes = codes[:1] * len(texts)  # the language changes nothing
        row_of: dict[tuple[str, str], int] = {}
        for key in zip(texts, codes, strict=True):
            row_of.setdefault(key, len(row_of))
        embeddings = self.embed_distinct(model, [text for text, _ in row_of], [code for _, code in row_of], role)
        if calibration is not None:
            rows_of: dict[str, list[int]] = {}
            for (_, code), row in row_of.items():
                rows_of.setdefault(code, []).append(row)
            mapped: Tensor | None = None
            with torch.inference_mode():
                for code, rows in rows_of.items():
                    part = calibration.transform(embeddings[rows], code).float()
                    mapped = part.new_empty(len(embeddings), part.shape[1]) if mapped is None else mapped
                    mapped[rows] = part
            assert mapped is not None
            embeddings = mapped
        broken = (~embeddings.isfinite().all(dim=1)).nonzero()[:, 0].tolist()
        if broken:
            text, _ = list(row_of)[broken[0]]
            raise ValueError(
                f"the model gives NaN or infinite values for the {role or 'text'} {text[:80]!r} ({len(broken)} of "
                f"{len(row_of)} texts): it has diverged, or the text is broken."
            )
        if normalize:
            embeddings = unit_rows(embeddings)
        if len(row_of) == len(texts):
            return embeddings
        return embeddings[torch.tensor([row_of[key] for key in zip(texts, codes, strict=True)])]

    def embed_distinct(self, model: Any, texts: list[str], languages: list[str], role: Role | None) -> Tensor:
        """Embed texts before calibration; a subclass may do so in another way."""
        how: dict[str, Any] = {"batch_size": self.batch_size, "show_progress_bar": self.show_progress_bar}
        if role is not None or self._bypasses_modules:  # hidden states have no prompt of their own
            how["prompt"] = "" if role is None else self.prompt(model, role)
        with autocast(self.precision, model.device), self._reading_layer(model) as encoder:
            return encode(encoder, texts, languages, role=role, convert_to_tensor=True, **how).float()

    def prompt(self, model: Any, role: Role) -> str:
        """The prompt of the texts of a role: the given one, else that of the model."""
        given = self.query_prompt if role == "query" else self.document_prompt
        return role_prompt(model, role, given)

    def routes(self, model: Any) -> list[str]:
        """The languages whose texts go through a map of their own in the model; none with a layer or the mean."""
        return [] if self._bypasses_modules else language_routes(model)

    @property
    def _bypasses_modules(self) -> bool:
        return self.layer is not None or self.pooling == "mean"

    @contextmanager
    def _reading_layer(self, model: SentenceTransformer) -> Iterator[SentenceTransformer]:
        """The model, or one of its parts that ends with the layer and the pooling; it is left as it was."""
        if not self._bypasses_modules:
            yield model
            return
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.base.modules import Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling as HostPooling

        first: Any = model[0] if len(model) else None
        if not isinstance(first, Transformer):
            raise ValueError(
                "a layer or the mean of hidden states needs a model that starts with a Transformer; this one starts "
                f"with {type(first).__name__}. Leave layer and pooling at their defaults."
            )
        own = self.pooling == "model"
        last = list(model)[1:] if own else [HostPooling(first.get_embedding_dimension(), pooling_mode="mean")]
        config, unpadded = first.model.config, first.unpad_inputs
        before = (config.output_hidden_states, model.training)
        config.output_hidden_states = True
        if unpadded is not False:
            first.unpad_inputs = False  # without padding there is no attention mask for the average
        try:
            modules = [first, _HiddenStates(self.layer), *last]
            yield SentenceTransformer(
                modules=modules,
                device=str(model.device),
                prompts=model.prompts,  # type: ignore[arg-type]
                default_prompt_name=model.default_prompt_name,
            )
        finally:
            config.output_hidden_states = before[0]
            if unpadded is not False:
                first.unpad_inputs = unpadded
            model.train(before[1])

    def require_languages(self, languages: Sequence[str]) -> None:
        """Raise a ValueError for languages that the calibration does not know, before any encoding."""
        known = [] if self.calibration is None else list(self.calibration.languages)
        missing = [language for language in dict.fromkeys(languages) if language not in known]
        if missing and known:  # a calibration without languages is for all texts
            raise ValueError(
                f"the calibration has no map for {missing}; it knows {sorted(known)}. "
                "Evaluate those languages only, or fit the calibration on the missing ones as well."
            )

    def describe(self, model: Any = None) -> dict[str, str]:
        """Pooling, calibration, precision and given prompts in words, for the protocol of a result."""
        states = "last hidden states" if self.layer is None else f"hidden states of layer {self.layer}"
        if not self._bypasses_modules:
            pooling = "the model's own sentence embedding"
        else:
            pooling = (
                f"the model's own pooling over the {states}" if self.pooling == "model" else f"mean of the {states}"
            )
        calibration = "none" if self.calibration is None else type(self.calibration).__name__
        if routes := self.routes(model):
            others = f"other languages are taken for {default_language(model)}"
            inside = f"in the model, by the language of the texts ({', '.join(routes)}; {others})"
            calibration = inside if self.calibration is None else f"{inside}, then {calibration}"
        elif self._bypasses_modules and language_routes(model):
            calibration += " (the model's maps per language come after the layer, and were not used)"
        precision = self.precision if model is None else resolve_precision(self.precision, model.device)
        prompts = {"query_prompt": self.query_prompt, "document_prompt": self.document_prompt}
        given = {name: prompt for name, prompt in prompts.items() if prompt is not None}
        return {"pooling": pooling, "calibration": calibration, "precision": precision, **given}


class _HiddenStates(torch.nn.Module):
    """Puts the hidden states of a layer in the place of the token embeddings."""

    def __init__(self, layer: int | None) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        states = features.pop("all_layer_embeddings", None)
        if states is None:
            raise ValueError("the Transformer of this model returns no hidden states: leave layer and pooling out.")
        layer = len(states) - 1 if self.layer is None else self.layer
        if not 0 <= layer < len(states):
            raise ValueError(
                f"layer={layer} is not in this model's range 0..{len(states) - 1} "
                "(0: the input embeddings, n: the output of layer n)."
            )
        features["token_embeddings"] = states[layer]
        return features
