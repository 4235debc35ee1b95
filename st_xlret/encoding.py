"""Embedding texts: batches of about equal numbers of tokens, the prompt of a role, the map of a language."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from st_xlret.data.languages import check_language, find_language
from st_xlret.precision import few_lengths
from st_xlret.prompts import PROMPT_NAMES, Role, role_prompt

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TOKENS_PER_TEXT = 64
"""Tokens that one text of `batch_size` stands for."""

_MOST_TOKENS_ON_A_CPU = 4_096  # Larger batches no longer fit the caches and take up to 1.6 times as long.
_TEXTS_PER_TOKENIZER_CALL = 4_096
_NO_LIMIT = 2**31  # A tokenizer without a limit of its own says 1e30, which it does not take as a length.
_QUERY = "query_"
_WARNED: WeakSet[Any] = WeakSet()


def encode(
    model: SentenceTransformer,
    texts: str | Sequence[str],
    language: str | Sequence[str | None] | None = None,
    *,
    role: Role | None = None,
    **options: Any,
) -> Any:
    """Embed texts, each through the map of its language where the model has one.

    A model that was calibrated per language and written by [`export`][st_xlret.export] takes the language as the `task`
    of `model.encode`, for one language at a time and by its exact code. The host's `encode_query` and `encode_document`
    cannot be told a language. This function puts the prompt of the role before the texts, and takes texts in several
    languages. For a model without maps per language, the language changes nothing.

    Args:
        model: Any Sentence Transformer.
        texts: A text, or n of them.
        language: Language of all texts, or n of them, None where it is unknown. The length of the code and the region
            do not matter: `"rus"`, `"fr-CA"` and `"zh-Hans"` find the maps of `"ru"`, `"fr"` and `"zh"`.
        role: `"query"` or `"document"` puts the prompt of that role before the texts. None does as `model.encode`.
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
    options["role"] = role
    if not language_routes(model):
        return encode_texts(model, texts, **options)
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
    order = np.argsort([row for rows in groups.values() for row in rows])
    if isinstance(parts[0], list):
        joined = [entry for part in parts for entry in part]
        return [joined[place] for place in order]
    found = np.concatenate(parts)[order] if isinstance(parts[0], np.ndarray) else torch.cat(parts)[torch.tensor(order)]
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

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> from st_xlret import CalibrationLayer, export
        >>> model = SentenceTransformer(modules=[BoW(vocab=["one", "two"])], device="cpu")
        >>> language_routes(model), language_routes(export(model, CalibrationLayer(2, ["en", "fr"], pivot="en")))
        ([], ['en', 'fr'])
    """
    router = _router(model)
    found = [] if router is None else [code for codes in _languages_of(router).values() for code in codes]
    return list(dict.fromkeys(found))


def language_task(model: Any, language: str, role: Role | None = None) -> str | None:
    """The `task` by which a model's `encode` takes texts through the map of their language; None if it has none.

    The language code may have any form; queries may have maps of their own.
    """
    code = find_language(language, language_routes(model))
    of_queries = f"{_QUERY}{code}"
    return of_queries if code and role == "query" and of_queries in _router(model).sub_modules else code


def known_languages(model: Any, codes: Sequence[str]) -> list[str | None]:
    """The languages of texts as `encode` takes them: None instead of those that the model has no map for.

    Codes are also `"und"` or the empty string, for unknown languages. A warning names those without a map.
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


def encode_texts(
    model: SentenceTransformer,
    texts: str | Sequence[str],
    *,
    role: Role | None = None,
    batch_size: int = 64,
    show_progress_bar: bool | None = False,
    **options: Any,
) -> Any:
    """Embed texts of a role, in batches of texts that have about the same number of tokens.

    The host's `encode` sorts texts by their characters and cuts them into batches of equally many texts. In a
    collection of many languages, characters say little about tokens, and up to half of what the model computes is
    padding. Here, texts are sorted by their tokens, and a batch holds as many texts as fit a number of tokens, padding
    included. The embeddings are those of the host's batches up to rounding. Where texts have no tokens to count, or
    with several devices, or for another output than embeddings of texts, batches are the host's.

    Args:
        model: Any Sentence Transformer.
        texts: A text or several, of any length and language.
        role: `"query"` or `"document"` puts the prompt of [`role_prompt`][st_xlret.prompts.role_prompt] before the
            texts, and takes the route of `encode_query` or `encode_document`. None does as `model.encode`.
        batch_size: Size of a forward pass in texts of 64 tokens: fewer of longer texts, more of shorter ones. On a CPU
            at most 4 096 tokens are taken, as larger batches are slower there.
        show_progress_bar: Whether to show a bar over the tokens.
        **options: Options of `model.encode`, such as `prompt_name`, `task` and `normalize_embeddings`.

    Returns:
        What `model.encode` returns with these options: by default a NumPy array (n, d).

    Raises:
        ValueError: If `batch_size` is below 1, or the model does not take an option.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> model = SentenceTransformer(modules=[BoW(vocab=["one", "two"])], device="cpu")
        >>> encode_texts(model, ["one two", "two"]).tolist()
        [[1.0, 1.0], [0.0, 1.0]]
    """
    if role is not None:
        options.setdefault("task", role)
        if options.get("prompt") is None and options.get("prompt_name") is None:
            options["prompt"] = role_prompt(model, role)
    lengths = None
    if batch_size > 0 and len(texts) and _returns_embeddings(texts, options):
        prompt = options.get("prompt")
        if prompt is None:
            prompt = model.prompts.get(options.get("prompt_name") or model.default_prompt_name or "")
        lengths = token_lengths(model, texts, prompt=prompt or "")
    if lengths is None:
        return model.encode(texts, batch_size=batch_size, show_progress_bar=show_progress_bar, **options)
    texts = list(texts)
    if "processing_kwargs" not in options and _computes_in_bf16_on_a_cpu(model):
        if padding := few_lengths(model):
            lengths = [-(-length // 16) * 16 for length in lengths]
        options |= padding
    on_device, as_array = options.pop("convert_to_tensor", False), options.pop("convert_to_numpy", True)
    # The host, too, keeps embeddings on their device unless they are to be an array.
    keep = torch.device("cpu") if as_array and not on_device else None
    found: Tensor | None = None
    with tqdm(total=sum(lengths), desc="Encoding", unit=" tokens", disable=not show_progress_bar) as bar:
        for rows in token_batches(lengths, token_budget(model, batch_size)):
            batch = [texts[row] for row in rows]
            part = model.encode(
                batch, batch_size=len(batch), show_progress_bar=False, convert_to_tensor=True, **options
            )
            part = part if keep is None else part.to(keep)
            if found is None:
                found = part.new_empty(len(texts), part.shape[1])
            found[torch.tensor(rows, device=part.device)] = part
            bar.update(sum(lengths[row] for row in rows))
    assert found is not None
    if on_device:
        return found
    if not as_array:
        return list(found)
    return (found.float() if found.dtype == torch.bfloat16 else found).numpy()  # NumPy has no bfloat16


def token_budget(model: Any, batch_size: int) -> int:
    """Tokens of a forward pass, padding included."""
    budget = batch_size * TOKENS_PER_TEXT
    return min(budget, _MOST_TOKENS_ON_A_CPU) if model.device.type == "cpu" else budget


def token_lengths(model: Any, texts: Sequence[str], *, prompt: str = "") -> list[int] | None:
    """The number of tokens of each text as the model reads it: with a prompt and special tokens, and truncated.

    It is None for a model without the tokenizer of a Transformer, which pads nothing.
    """
    from transformers import PreTrainedTokenizerBase

    tokenizer = getattr(model[0], "tokenizer", None) if len(model) else None
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        return None
    limit = model.max_seq_length
    if limit is not None and limit >= _NO_LIMIT:
        limit = None
    lengths: list[int] = []
    for start in range(0, len(texts), _TEXTS_PER_TOKENIZER_CALL):
        some = [prompt + text for text in texts[start : start + _TEXTS_PER_TOKENIZER_CALL]]
        tokens = tokenizer(some, truncation=limit is not None, max_length=limit, verbose=False)
        lengths += map(len, tokens["input_ids"])
    return lengths


def token_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Cut texts into batches whose tokens, padding included, are at most a budget; the longest texts come first.

    A batch has as many tokens as its number of texts times the length of its longest text. A text that is longer than
    the budget is a batch of its own. Yields the rows of the texts of a batch.

    Example:
        >>> list(token_batches([2, 9, 2, 3, 2], budget=8))
        [[1], [3, 0], [2, 4]]
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    start = 0
    while start < len(order):
        count = max(1, budget // max(1, lengths[order[start]]))
        yield order[start : start + count]
        start += count


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


def _task(model: Any, language: str | None, role: Role | None) -> str | None:
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


def _computes_in_bf16_on_a_cpu(model: Any) -> bool:
    """Whether a forward pass that began now would multiply in bfloat16 on a CPU."""
    if model.device.type != "cpu":
        return False
    if torch.is_autocast_enabled("cpu"):
        return torch.get_autocast_dtype("cpu") == torch.bfloat16
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), None) == torch.bfloat16


def _returns_embeddings(texts: Any, options: dict[str, Any]) -> bool:
    """Whether a call asks for one float embedding of each of several texts, from one device."""
    return (
        not isinstance(texts, str)
        and isinstance(texts[0], str)
        and options.get("output_value", "sentence_embedding") == "sentence_embedding"
        and options.get("precision", "float32") in ("float32", None)
        and options.get("pool") is None
        and not isinstance(options.get("device"), list)
    )
