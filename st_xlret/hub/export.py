"""Calibrated models of built-in Sentence Transformers modules alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Module, Normalize, Router
from torch import Tensor, nn

from st_xlret.columns import Role
from st_xlret.encoding import PROMPT_NAMES, role_prompt, task_languages
from st_xlret.encoding.maps import ROUTE_PREFIX, query_task
from st_xlret.hub.card import copy_card_data, set_card_calibration
from st_xlret.hub.lengths import measure_mean_lengths
from st_xlret.hub.loading import check_finite
from st_xlret.languages import language_form
from st_xlret.modules.calibration_layer import CalibrationLayer
from st_xlret.modules.encoders import routers_of, with_modules


def export(
    model: SentenceTransformer,
    calibration: CalibrationLayer | None = None,
    *,
    query_calibration: CalibrationLayer | None = None,
    default_language: str | None = None,
    pooled: Mapping[Role, Tensor] | None = None,
) -> SentenceTransformer:
    """Build a model that loads without st-xlret and without `trust_remote_code`.

    A calibration that needs no language, such as LSAR, becomes a single `Dense`. One per language
    becomes the host's `Router` with a `Dense` for each, chosen by `encode(texts, task="fr")`. Where
    queries have a calibration of their own, `encode_query` takes it, and per language
    `encode(texts, task="query_fr")`.

    Args:
        model: The model, which shares its modules with the result. A `CalibrationLayer` in it is
            exported in place.
        calibration: Fitted on what `model.encode` returns; put last. Behind a `Normalize`, another
            one follows.
        query_calibration: Calibration of queries, if `calibration` is of documents only, with the
            same languages.
        default_language: Language of texts that name none. Default: the pivot of the calibration.
        pooled: What `pooled_rows` gives for texts. A map for all languages then stands before the
            `Normalize` at the end, the only order that engines such as TEI and vLLM know, with its
            bias times the mean length of these rows. Where their lengths vary so much that search
            would lose a point, it stays behind.

    Raises:
        ValueError: If a module is not built in, the model has routes or other dimensions, or a
            weight is not finite.

    Example:
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> model = SentenceTransformer(modules=[BoW(vocab=["one", "two"])], device="cpu")
        >>> calibration = CalibrationLayer(2, ["en", "fr"], pivot="en")
        >>> calibration.offset[1] = torch.tensor([0.5, 0.0])
        >>> exported = export(model, calibration)
        >>> exported.encode("one", task="fr").tolist(), exported.encode("one").tolist()
        ([1.5, 0.0], [1.0, 0.0])
    """
    modules = list(model.children())
    lengths = None
    if calibration is not None:
        _check_routes_and_width(model, calibration)
        lengths = _lengths_before_normalize(model, calibration, query_calibration, pooled)
        modules = _with_layer(modules, calibration, is_before_normalize=lengths is not None)

    layers = [module for module in modules if isinstance(module, CalibrationLayer)]
    has_languages = bool(layers) and not layers[-1].language_agnostic
    if default_language is not None and not has_languages:
        raise ValueError(
            f"{default_language!r} would be the default of maps per language, and there are none"
        )

    like = _floating_weight(model)
    for place, module in enumerate(modules):
        if isinstance(module, CalibrationLayer):
            maps = _Maps(module, default_language=default_language)
            if module is calibration:
                maps = _Maps(module, query_calibration, lengths, default_language)
            modules[place] = maps.built_in_module().to(like)
    _check_built_in(modules)

    prompts = {name: text or "" for name, text in model.prompts.items()}
    for role in PROMPT_NAMES:
        prompts[role] = role_prompt(model, role)
    exported = with_modules(model, modules, prompts=prompts)
    copy_card_data(model, exported)
    if layers:
        set_card_calibration(exported, layers[-1], query_calibration)
    check_finite(exported)
    return exported


def check_routes(model: SentenceTransformer, *, by_language: bool) -> None:
    """Refuse a model with routes by language, and one with any routes for maps `by_language`.

    That is a `ValueError`.
    """
    if task_languages(model) or (by_language and routers_of(model)):
        raise ValueError(
            "the model has a Router: calibrate the model that it was made from, or, where routes "
            "are tasks, without languages (lsar)"
        )


def _check_routes_and_width(model: SentenceTransformer, calibration: CalibrationLayer) -> None:
    """Refuse a model with routes that the maps do not fit, or whose vectors have another width."""
    check_routes(model, by_language=not calibration.language_agnostic)
    # The width before `truncate_dim`, which is a setting of the whole model.
    width = None
    for module in model.children():
        width_of = getattr(module, "get_embedding_dimension", None)
        if width_of is not None:
            width = width_of()
    calibration.check_width(width)


def _lengths_before_normalize(
    model: SentenceTransformer,
    documents: CalibrationLayer,
    queries: CalibrationLayer | None,
    pooled: Mapping[Role, Tensor] | None,
) -> dict[Role, float] | None:
    """The lengths by which maps may stand before the last `Normalize`; None if they may not.

    They join the notes of the layers.
    """
    if not pooled or not documents.language_agnostic or not isinstance(model[-1], Normalize):
        return None
    return measure_mean_lengths(pooled, {"document": documents, "query": queries or documents})


def _with_layer(
    modules: list[nn.Module], layer: CalibrationLayer, *, is_before_normalize: bool
) -> list[nn.Module]:
    """The modules with the layer at the end; where there is a `Normalize`, one stays last."""
    if is_before_normalize:
        return [*modules[:-1], layer, Normalize()]
    if isinstance(modules[-1], Normalize):
        return [*modules, layer, Normalize()]
    return [*modules, layer]


def _floating_weight(model: SentenceTransformer) -> Tensor:
    """A weight whose number format and device new modules take."""
    for weight in model.parameters():
        if weight.is_floating_point():
            return weight
    return torch.empty(0, device=model.device)


def _check_built_in(modules: list[nn.Module]) -> None:
    """Refuse a module of others, in a route as well."""
    for module in [*modules, *_modules_in_routes(modules)]:
        if not type(module).__module__.startswith("sentence_transformers."):
            name = f"{type(module).__module__}.{type(module).__name__}"
            raise ValueError(
                f"{name} is no module of Sentence Transformers: the model would not load without us"
            )


def _modules_in_routes(modules: list[nn.Module]) -> Iterator[nn.Module]:
    """The modules in the routes of all routers, also of those within modules."""
    for module in nn.ModuleList(modules).modules():
        if isinstance(module, Router):
            for route in module.sub_modules.children():
                yield from route.children()


@dataclass(frozen=True)
class _Maps:
    """A layer that becomes a built-in module, with what stands beside it."""

    documents: CalibrationLayer
    queries: CalibrationLayer | None = None
    lengths: Mapping[Role, float] | None = None
    default_language: str | None = None

    def built_in_module(self) -> nn.Module:
        """The maps as a `Dense`, or as a `Router` by role or by language."""
        if not self.documents.language_agnostic:
            return self._router_by_language()
        lengths = self.lengths or {"document": 1.0, "query": 1.0}
        dense = _dense_layer(self.documents, None, lengths["document"])
        if self.queries is None:
            return dense
        of_queries = _dense_layer(self.queries, None, lengths["query"])
        return Router({"document": [dense], "query": [of_queries]}, "document")

    def _router_by_language(self) -> Router:
        """A route for each language, and for each language of queries where they have maps.

        Texts that name none take the default language's. `task_languages` reads the languages back
        from the names of tasks and routes.
        """
        languages = self.documents.languages
        routes = {code: _route_name(code) for code in languages}
        maps: dict[str, list[Module]] = {}
        for code, route in routes.items():
            maps[route] = [_dense_layer(self.documents, code)]
        default = self.default_language or self.documents.pivot or languages[0]
        # The host refuses one that is no route.
        default_route = routes.get(language_form(default), default)

        # `encode_query` and `encode_document` need routes of their own.
        tasks: dict[tuple[str | None, str | tuple[str, ...] | None], str] = {
            ("query", None): default_route,
            ("document", None): default_route,
        }
        for code, route in routes.items():
            if route != code:
                tasks[code, None] = route
        if self.queries is not None:
            for code in languages:
                maps[query_task(code)] = [_dense_layer(self.queries, code)]
                if routes[code] == default_route:
                    tasks["query", None] = query_task(code)
        return Router(maps, default_route=default_route, route_mappings=tasks)


def _route_name(code: str) -> str:
    """The route of a language; a `ModuleDict` cannot hold `to` (Tongan), which is its method."""
    return f"{ROUTE_PREFIX}{code}" if hasattr(nn.ModuleDict(), code) else code


def _dense_layer(calibration: CalibrationLayer, language: str | None, length: float = 1.0) -> Dense:
    """The map of a language, or the one for all, as a `Dense`; its bias is for rows of a length."""
    weight, bias = calibration.map_of(language)
    rows, columns = weight.shape
    return Dense(
        columns, rows, activation_function=None, init_weight=weight.clone(), init_bias=length * bias
    )
