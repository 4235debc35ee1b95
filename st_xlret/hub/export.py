"""Turn a model and its calibration into built-in Sentence Transformers modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Router
from torch import Tensor, nn

from st_xlret.encoding import languages_of
from st_xlret.hub.card import carry_card_data, set_calibration
from st_xlret.modules.calibration_layer import CalibrationLayer
from st_xlret.prompts import PROMPT_NAMES, role_prompt

_BUILT_IN = "sentence_transformers."
_RESERVED_TASKS = ("query", "document")


def export(
    model: SentenceTransformer,
    calibration: CalibrationLayer | None = None,
    query_calibration: CalibrationLayer | None = None,
    *,
    default_language: str | None = None,
) -> SentenceTransformer:
    """Build a model of built-in modules only, which loads without st-xlret and without `trust_remote_code`.

    A calibration per language becomes the host's `Router` with one `Dense` per language, chosen by `encode(texts,
    task="fr")`. For an unknown language the host raises a `ValueError` that lists the known ones. Without a task, and
    in `encode_query` and `encode_document`, texts are treated as being in the default language. A calibration without
    languages (LSAR) becomes a single `Dense`. The calibration follows all modules of the model. If the model ends with
    a `Normalize`, another one follows the calibration, so that outputs keep unit length.

    With a calibration of queries beside that of documents, as
    [`fit_role_calibrations`][st_xlret.calibration.fit_role_calibrations] gives them, `encode_query` and
    `encode_document` take the right one each, and `encode` takes that of documents. Per language, queries are
    `encode(texts, task="query_fr")` and documents `encode(texts, task="fr")`.

    Args:
        model: The model. It shares its modules with the result and is not changed.
        calibration: Calibration fitted on what `model.encode` returns. Default: a `CalibrationLayer` that is already at
            the end of the model, or before its last `Normalize`, if there is one.
        query_calibration: Calibration of queries, if `calibration` is of documents only. Both have the same languages,
            or none.
        default_language: Language of texts that name none. Default: the pivot of the calibration.

    Returns:
        The model, with the prompts and the similarity function of the given one.

    Raises:
        ValueError: If a module is not built in, the model is calibrated already, dimensions or languages differ, the
            calibration does not have the default language, it is per language and the model routes by task, or weights
            or maps are not finite.

    Example:
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> model = SentenceTransformer(modules=[BoW(vocab=["one", "two"])], device="cpu")
        >>> calibration = CalibrationLayer(2, ["en", "fr"], pivot="en")
        >>> calibration.bias[1] = torch.tensor([0.5, 0.0])
        >>> exported = export(model, calibration)
        >>> exported.encode("one", task="fr").tolist(), exported.encode("one").tolist()
        ([1.5, 0.0], [1.0, 0.0])
    """
    modules, calibration, ends_normalized = _split(list(model.children()), calibration)
    for module in _flattened(modules):
        if not type(module).__module__.startswith(_BUILT_IN):
            raise ValueError(
                f"{type(module).__module__}.{type(module).__name__} is no module of Sentence Transformers: "
                "a model that contains it would not load without trust_remote_code"
            )
    if calibration is not None:
        check_routes(model, by_language=not calibration.language_agnostic)
        width = modules_width(modules)
        if width is not None and width != calibration.dimension:
            raise ValueError(
                f"the model gives {width} dimensions, the calibration was fitted on {calibration.dimension}: "
                "fit it on embeddings of this model, without truncate_dim"
            )
        modules.append(_calibration_module(calibration, query_calibration, default_language).to(_placement(model)))
        if ends_normalized:
            modules.append(Normalize())
    elif default_language is not None or query_calibration is not None:
        given = "query_calibration" if default_language is None else f"default_language {default_language!r}"
        raise ValueError(f"{given} is given, but there is no calibration")
    roles = {str(role): role_prompt(model, role) for role in PROMPT_NAMES}
    exported = SentenceTransformer(
        modules=modules,
        device=str(model.device),
        prompts={**{name: text or "" for name, text in model.prompts.items()}, **roles},
        default_prompt_name=model.default_prompt_name,
        similarity_fn_name=model.similarity_fn_name,
        truncate_dim=model.truncate_dim,
    )
    carry_card_data(model, exported)
    if calibration is not None:
        set_calibration(exported, calibration, query_calibration)
    check_finite(exported)
    return exported


def check_finite(model: nn.Module) -> None:
    """Refuse a model whose weights are not all finite, such as one that overflows in float16.

    Raises:
        ValueError: If a weight is NaN or infinite. The message names the tensor.

    Example:
        >>> check_finite(nn.Linear(2, 2).to(torch.float16))
    """
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, Tensor) and tensor.is_floating_point() and not (finite := tensor.isfinite()).all():
            raise ValueError(
                f"{name} holds {int((~finite).sum())} of {finite.numel()} values that are NaN or infinite "
                f"({tensor.dtype}): the model is not usable. Take another checkpoint, calibration or number format."
            )


def check_routes(model: SentenceTransformer, *, by_language: bool) -> None:
    """Refuse a calibration of a model whose routes leave no place for it.

    Args:
        model: The model to be calibrated.
        by_language: Whether the calibration has a map per language. Its routes would be chosen by the same task.

    Raises:
        ValueError: If the model has routes by language, as a calibrated one has; or any, and `by_language`.
    """
    if languages := dict.fromkeys(languages_of(model).values()):
        raise ValueError(
            f"the model has a Router by language ({', '.join(languages)}), so it was calibrated before: "
            "calibrate the model it was made from"
        )
    if by_language and any(isinstance(module, Router) for module in model.children()):
        raise ValueError(
            "the model has a Router by task, and a calibration per language would need the task for the language: "
            "use a calibration that needs no language, such as the step lsar"
        )


def modules_width(modules: Sequence[nn.Module]) -> int | None:
    """The embedding size of a pipeline, from the last module that tells it."""
    for module in reversed(modules):
        if hasattr(module, "get_embedding_dimension"):
            width: int | None = module.get_embedding_dimension()  # type: ignore[operator]
            return width
    return None


def _split(
    modules: list[nn.Module], calibration: CalibrationLayer | None
) -> tuple[list[nn.Module], CalibrationLayer | None, bool]:
    """Split into the modules before the calibration, the calibration, and whether outputs have unit length."""
    ends_normalized = bool(modules) and isinstance(modules[-1], Normalize)
    layers = [index for index, module in enumerate(modules) if isinstance(module, CalibrationLayer)]
    if not layers:
        return modules, calibration, ends_normalized
    rest = modules[layers[0] + 1 :]
    if calibration is not None or len(layers) > 1 or len(rest) > 1 or (rest and not ends_normalized):
        raise ValueError(
            "the model holds a CalibrationLayer already: export it without another one, "
            "with nothing but a Normalize after it"
        )
    layer = modules[layers[0]]
    assert isinstance(layer, CalibrationLayer)
    return modules[: layers[0]], layer, ends_normalized


def _calibration_module(
    calibration: CalibrationLayer, queries: CalibrationLayer | None, default_language: str | None
) -> nn.Module:
    if queries is not None and (queries.languages, queries.dimension) != (calibration.languages, calibration.dimension):
        raise ValueError(
            f"the calibrations of queries and documents must have the same languages and dimensions: the queries' has "
            f"{queries.languages or 'no languages'} and {queries.dimension} dimensions, the documents' "
            f"{calibration.languages or 'no languages'} and {calibration.dimension}"
        )
    if calibration.language_agnostic:
        if default_language is not None:
            raise ValueError(
                f"default_language {default_language!r} is given, but this calibration is the same for all"
            )
        if queries is None:
            return _dense(*calibration.map_of(None))
        by_role: dict[str, list[Any]] = {
            "document": [_dense(*calibration.map_of(None))],
            "query": [_dense(*queries.map_of(None))],
        }
        return Router(by_role, default_route="document")
    languages = calibration.languages
    default = default_language or calibration.pivot or languages[0]
    if default not in languages:
        raise ValueError(f"default_language {default!r} is none of the calibration's: {', '.join(languages)}")
    routes = {language: _route_name(language) for language in languages}
    mappings: dict[tuple[str | None, Any], str] = {(task, None): routes[default] for task in _RESERVED_TASKS}
    mappings |= {(language, None): route for language, route in routes.items() if route != language}
    modules: dict[str, list[Any]] = {
        route: [_dense(*calibration.map_of(language))] for language, route in routes.items()
    }
    if queries is not None:
        modules |= {f"query_{language}": [_dense(*queries.map_of(language))] for language in languages}
        mappings[("query", None)] = f"query_{default}"
    return Router(modules, default_route=routes[default], route_mappings=mappings)


def _route_name(language: str) -> str:
    """The language, unless a `ModuleDict` cannot hold it: `to` (Tongan) is one of its methods."""
    return f"language_{language}" if hasattr(nn.ModuleDict(), language) or "." in language else language


def _dense(weight: Tensor, bias: Tensor) -> Dense:
    rows, columns = weight.shape
    return Dense(columns, rows, activation_function=None, init_weight=weight.clone(), init_bias=bias.clone())


def _placement(model: SentenceTransformer) -> torch.Tensor:
    """A tensor whose device and dtype are the model's."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            return parameter
    return torch.empty(0, device=model.device)


def _flattened(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """The modules and those inside their routes."""
    found = list(modules)
    for module in modules:
        if isinstance(module, Router):
            found += _flattened([inner for route in module.sub_modules.children() for inner in route.children()])
    return found
