"""Embedding texts whose language is known with models that have a map per language."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

import numpy as np
import torch

from st_xlret.data.languages import check_language, find_language
from st_xlret.modules.encoding import PROMPT_NAMES, Method, encode_texts

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_METHODS: dict[str | None, Method] = {None: "encode", "query": "encode_query", "document": "encode_document"}
_QUERY = "query_"
_WARNED: WeakSet[Any] = WeakSet()


def encode(
    model: SentenceTransformer,
    texts: str | Sequence[str],
    language: str | Sequence[str | None] | None = None,
    *,
    role: Literal["query", "document"] | None = None,
    **options: Any,
) -> Any:
    """Embed texts, each through the map of its language where the model has one.

    A model that was calibrated per language and written by [`export`][st_xlret.export] takes the language as the `task`
    of `model.encode`, for one language at a time and by its exact code. The host's `encode_query` and `encode_document`
    cannot be told a language. This function does what all three methods do, with the same prompts, and takes texts in
    several languages. For a model without maps per language it is the method of the host, and the language changes
    nothing.

    Args:
        model: Any Sentence Transformer.
        texts: A text, or n of them.
        language: Language of all texts, or n of them, None where it is unknown. The length of the code and the region
            do not matter: `"rus"`, `"fr-CA"` and `"zh-Hans"` find the maps of `"ru"`, `"fr"` and `"zh"`.
        role: `"query"` or `"document"` puts the prompt before the texts that `model.encode_query` or
            `model.encode_document` would. None does as `model.encode`.
        **options: Options of `model.encode`, such as `batch_size`, `prompt` and `convert_to_tensor`.

    Returns:
        What `model.encode` returns with these options, in the order of the texts; by default a NumPy array (n, d), or
            (d,) for a single text.

    Raises:
        ValueError: If there are more or fewer languages than texts, the model has no map for a language (the message
            names those that it has), or `role` is unknown.

    Warns:
        UserWarning: Once per model that has maps per language, if a text comes without a language. It is then taken to
            be in the default language of the model.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> from st_xlret import CalibrationLayer, export
        >>> calibration = CalibrationLayer(2, ["en", "fr"], pivot="en")
        >>> calibration.bias[1] = torch.tensor([0.5, 0.0])
        >>> model = export(SentenceTransformer(modules=[BoW(vocab=["one", "two"])], device="cpu"), calibration)
        >>> encode(model, ["one", "one"], ["fr-CA", "eng"], role="query").tolist()
        [[1.5, 0.0], [1.0, 0.0]]
    """
    if role not in (None, *PROMPT_NAMES):
        raise ValueError(f"role must be 'query', 'document' or None, got {role!r}")
    if not language_routes(model):
        return encode_texts(model, texts, method=_METHODS[role], **options)
    if role is not None and options.get("prompt") is None and options.get("prompt_name") is None:
        options["prompt_name"] = next((name for name in PROMPT_NAMES[role] if name in model.prompts), None)
    if isinstance(texts, str):
        if not (language is None or isinstance(language, str)):
            raise ValueError(f"one text has one language, got {language!r}")
        return encode_texts(model, texts, task=_task(model, language, role), **options)
    codes = [language] * len(texts) if language is None or isinstance(language, str) else list(language)
    if len(codes) != len(texts):
        raise ValueError(f"there are {len(texts)} texts and {len(codes)} languages: give one for each text, or one")
    task_of = {code: _task(model, code, role) for code in dict.fromkeys(codes)}
    groups: dict[str | None, list[int]] = {}
    for row, code in enumerate(codes):
        groups.setdefault(task_of[code], []).append(row)
    if len(groups) <= 1:
        return encode_texts(model, texts, task=next(iter(groups), None), **options)
    # The levels of int8 are those of all texts together.
    precision: Any
    precision, as_tensor = options.pop("precision", None) or "float32", options.get("convert_to_tensor", False)
    parts = [encode_texts(model, [texts[row] for row in rows], task=task, **options) for task, rows in groups.items()]
    found = _in_order(parts, list(groups.values()))
    if precision == "float32":
        return found
    from sentence_transformers.util.quantization import quantize_embeddings

    quantized = quantize_embeddings(found, precision=precision)
    return torch.as_tensor(quantized) if as_tensor else quantized


def language_routes(model: Any) -> list[str]:
    """The languages that a model has a map of its own for.

    These are the routes of a stock `Router` that are all named after languages, as [`export`][st_xlret.export] makes it
    from a calibration per language; `"query_fr"` names the map of French queries where they have one of their own. A
    `Router` by other tasks, such as queries and documents, has none.

    Args:
        model: Any Sentence Transformer.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> from st_xlret import CalibrationLayer, export
        >>> model = SentenceTransformer(modules=[BoW(vocab=["one", "two"])], device="cpu")
        >>> language_routes(model), language_routes(export(model, CalibrationLayer(2, ["en", "fr"], pivot="en")))
        ([], ['en', 'fr'])
    """
    router = _router(model)
    if router is None:
        return []
    return list(dict.fromkeys(code for codes in _languages_of(router).values() for code in codes))


def language_task(model: Any, language: str, role: str | None = None) -> str | None:
    """The `task` by which a model's `encode` takes texts through the map of their language; None if it has none.

    Args:
        model: Any Sentence Transformer.
        language: Language code of any form.
        role: `"query"` or `"document"`, which may have maps of their own.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> from st_xlret import CalibrationLayer, export
        >>> model = SentenceTransformer(modules=[BoW(vocab=["one", "two"])], device="cpu")
        >>> language_task(export(model, CalibrationLayer(2, ["en", "fr"], pivot="en")), "fr-CA")
        'fr'
    """
    code = find_language(language, language_routes(model))
    of_queries = f"{_QUERY}{code}"
    return of_queries if code and role == "query" and of_queries in _router(model).sub_modules else code


def known_languages(model: Any, codes: Sequence[str]) -> list[str | None]:
    """The languages of texts as `encode` takes them: None instead of those that the model has no map for.

    Args:
        model: Any Sentence Transformer.
        codes: Language of each text, also `"und"` or the empty string for unknown ones.

    Warns:
        UserWarning: If the model has maps per language, but not for some of these. The warning names them.
    """
    if not (routes := language_routes(model)):
        return [code or None for code in codes]
    found = {code: find_language(code, routes) for code in dict.fromkeys(codes)}
    if missing := [code or "no language" for code, known in found.items() if known is None]:
        _warn(model, f"it has none for texts in {', '.join(sorted(missing))}, which are")
    return [found[code] for code in codes]


def default_language(model: Any) -> str | None:
    """The language that a model with maps per language takes texts without one to be in."""
    router = _router(model)
    return None if router is None else next(iter(_languages_of(router).get(router.default_route, [])), None)


def _router(model: Any) -> Any:
    """The Router of a model whose routes are all named after languages."""
    from sentence_transformers.base.modules import Router

    for module in model.children() if model is not None else ():
        if isinstance(module, Router) and all(_languages_of(module).values()):
            return module
    return None


def _languages_of(router: Any) -> dict[str, list[str]]:
    """Route -> the languages that lead to it."""
    names: list[tuple[str | None, str]] = [(route, route) for route in router.sub_modules]
    names += [(task, route) for (task, _), route in router.route_mappings.items()]
    found: dict[str, list[str]] = {route: [] for route in router.sub_modules}
    for task, route in names:
        language = (task or "").removeprefix(_QUERY)
        if _is_language(language) and language not in found[route]:
            found[route].append(language)
    return found


def _is_language(name: str) -> bool:
    try:
        return bool(check_language(name))
    except ValueError:
        return False


def _task(model: Any, language: str | None, role: str | None) -> str | None:
    if language is None:
        _warn(model, "texts without a language are")
        return role
    task = language_task(model, language, role)
    if task is None:
        known = ", ".join(language_routes(model))
        raise ValueError(
            f"the model has no map for the language {language!r}; it has: {known}. Leave such texts out, or calibrate "
            "the model it was made from for that language too"
        )
    return task


def _warn(model: Any, what: str) -> None:
    if model not in _WARNED:
        _WARNED.add(model)
        warnings.warn(
            f"the model has a map per language ({', '.join(language_routes(model))}): {what} taken for "
            f"{default_language(model)}. Name the language of each text, as in st_xlret.encode(model, texts, language)",
            stacklevel=4,
        )


def _in_order(parts: Sequence[Any], rows: Sequence[Sequence[int]]) -> Any:
    """The rows of all groups, in the order of the texts."""
    order = [row for group in rows for row in group]
    if isinstance(parts[0], list):
        found = [entry for part in parts for entry in part]
        return [found[place] for place in np.argsort(order)]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)[np.argsort(order)]
    joined = torch.cat(list(parts))
    return joined[torch.from_numpy(np.argsort(order)).to(joined.device)]
