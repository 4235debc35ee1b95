"""The one place that embeds: prompts by role, maps by language, batches of like length, vectors kept on the disk."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager, suppress
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from st_xlret.columns import Role
from st_xlret.files import atomic_file
from st_xlret.languages import check_language, find_language
from st_xlret.precision import autocast, padding_options
from st_xlret.search import merge_top_k, top_k

PROMPT_NAMES: dict[Role, tuple[str, ...]] = {
    "query": ("query",),
    "document": ("document", "passage", "corpus"),
}
"""The names under which models keep the prompt of a role, in the order in which they are tried."""

_TOKENS_PER_TEXT, _MOST_TOKENS_ON_A_CPU = 64, 4_096  # larger batches no longer fit a CPU's caches
_NO_LIMIT = 2**31  # a tokenizer without a limit says 1e30, which it does not take as a length
_DIGEST = 32  # bytes at the end of a shard
_OF_THE_HOST = {
    "chunk_size",
    "convert_to_numpy",
    "output_value",
    "pool",
}  # options for which batches are the host's


def encode(
    model: SentenceTransformer,
    texts: str | Sequence[str],
    language: str | Sequence[str | None] | None = None,
    *,
    role: Role | None = None,
    precision: str = "fp32",
    **options: Any,
) -> Any:
    """Embed texts as `model.encode`, each through the map of its language where the model has one.

    Args:
        model: Any Sentence Transformer; one with a map per language, as [`export`][st_xlret.export] makes it.
        texts: A text, or n of them. They are sorted by their tokens, so that little is padded.
        language: Language of all texts, or n of them, in any spelling. Without one, a text takes the default map, with
            a warning; a language that has no map is a `ValueError`.
        role: `"query"` or `"document"` puts the prompt of that role before the texts. None does as `model.encode`.
        precision: `"fp32"`, `"bf16"` or `"auto"` (bf16 where the device computes in it).
        **options: Those of `model.encode`; `batch_size` is in texts of 64 tokens (64, the most that a CPU takes).

    Example:
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> from st_xlret import CalibrationLayer, export
        >>> calibration = CalibrationLayer(2, ["en", "fr"], pivot="en")
        >>> calibration.offset[1] = torch.tensor([0.5, 0.0])
        >>> model = export(SentenceTransformer(modules=[BoW(vocab=["one", "two"])], device="cpu"), calibration)
        >>> encode(model, ["one", "one"], ["fr-CA", "eng"], role="query").tolist()
        [[1.5, 0.0], [1.0, 0.0]]
    """
    if role is not None and options.get("prompt") is None and options.get("prompt_name") is None:
        options["prompt"] = role_prompt(model, role)
    rows = [texts] if isinstance(texts, str) else list(texts)
    codes = (
        [language] * len(rows) if language is None or isinstance(language, str) else list(language)
    )
    rows_of: dict[str | None, list[int]] = {}
    for row, task in zip(range(len(rows)), _router_tasks(model, codes, role), strict=True):
        rows_of.setdefault(task, []).append(row)
    with autocast(precision, model.device):
        if isinstance(texts, str) or not rows:
            return model.encode(texts, task=next(iter(rows_of), None), **options)
        parts = [
            _encode_in_batches(model, [rows[i] for i in of], task=task, **options)
            for task, of in rows_of.items()
        ]
    if len(parts) == 1:
        return parts[0]
    order = np.argsort([row for of in rows_of.values() for row in of])
    if isinstance(parts[0], list):
        vectors = [vector for part in parts for vector in part]
        return [vectors[place] for place in order]
    return (
        np.concatenate(parts)[order]
        if isinstance(parts[0], np.ndarray)
        else torch.cat(parts)[torch.tensor(order)]
    )


def task_languages(model: nn.Module) -> dict[str, str]:
    """Task -> language of a model that has a map for each: its stock `Router` has only routes of languages.

    `"query_fr"` is the task of French queries that have a map of their own.
    """
    router = next((module for module in model.children() if isinstance(module, Router)), None)
    if router is None:
        return {}
    route_of = {route: route for route in router.sub_modules}
    route_of |= {task: route for (task, _), route in router.route_mappings.items() if task}
    languages: dict[str, str] = {}
    for task in route_of:
        with suppress(ValueError):
            languages[task] = check_language(task.removeprefix("query_"))
    return languages if {route_of[task] for task in languages} == set(router.sub_modules) else {}


def known_languages(model: nn.Module, codes: Sequence[str | None]) -> list[str | None]:
    """The languages of texts as `encode` takes them; None, with a warning, for those that the model has no map for."""
    languages = dict.fromkeys(task_languages(model).values())
    known = {
        code: find_language(code, languages) if languages and code else code or None
        for code in {*codes}
    }
    if languages and (
        without := sorted(code or "no language" for code in known if known[code] is None)
    ):
        warnings.warn(
            f"the model has no map for texts in {', '.join(without)}: they take its default",
            stacklevel=3,
        )
    return [known[code] for code in codes]


def _router_tasks(
    model: nn.Module, codes: Sequence[str | None], role: Role | None
) -> list[str | None]:
    """Each text's task, by its language: that of the role without maps, or for texts that name no language."""
    languages, task_of = task_languages(model), dict[str | None, str | None]()
    for code in dict.fromkeys(codes):
        known = (
            find_language(code, dict.fromkeys(languages.values())) if code and languages else None
        )
        if code and code != "und" and languages and known is None:
            raise ValueError(
                f"the model has no map for {code!r}: it has maps for {', '.join(languages)}"
            )
        of_queries = f"query_{known}"
        task_of[code] = of_queries if role == "query" and of_queries in languages else known or role
    if languages and role in task_of.values():
        warnings.warn("texts in no language take the default map of the model", stacklevel=3)
    return [task_of[code] for code in codes]


def _encode_in_batches(
    model: Any,
    texts: list[str],
    *,
    batch_size: int = 64,
    show_progress_bar: bool | None = False,
    **options: Any,
) -> Any:
    """As `model.encode`, in batches of like numbers of tokens."""
    lengths = None
    if (
        batch_size > 0
        and not _OF_THE_HOST & options.keys()
        and not isinstance(options.get("device"), list)
    ):
        prompt = options.get("prompt")
        if prompt is None:
            prompt = (
                model.prompts.get(options.get("prompt_name") or model.default_prompt_name or "")
                or ""
            )
        lengths = token_lengths(model, [prompt + text for text in texts])  # prompts count
    if lengths is None:
        return model.encode(
            texts, batch_size=batch_size, show_progress_bar=show_progress_bar, **options
        )
    weights = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else weights
    is_on_cpu, budget = model.device.type == "cpu", batch_size * _TOKENS_PER_TEXT
    is_rounded = is_on_cpu and dtype == torch.bfloat16 and "processing_kwargs" not in options
    if is_rounded and (padding := padding_options(model)):
        lengths = [-(-length // 16) * 16 for length in lengths]
        options |= padding
    as_tensor, vectors = options.pop("convert_to_tensor", False), torch.empty(0)
    with tqdm(
        total=sum(lengths), desc="Encoding", unit=" tokens", disable=not show_progress_bar
    ) as bar:
        for rows in token_batches(
            lengths, min(budget, _MOST_TOKENS_ON_A_CPU) if is_on_cpu else budget
        ):
            of_batch: dict[str, Any] = {
                "batch_size": len(rows),
                "show_progress_bar": False,
                "convert_to_tensor": True,
            }
            part = model.encode([texts[row] for row in rows], **of_batch, **options)
            part = part if as_tensor else part.cpu()
            vectors = vectors if len(vectors) else part.new_empty(len(texts), part.shape[1])
            vectors[torch.tensor(rows, device=part.device)] = part
            bar.update(sum(lengths[row] for row in rows))
    vectors = (
        vectors if as_tensor or vectors.dtype != torch.bfloat16 else vectors.float()
    )  # NumPy has no bfloat16
    return vectors if as_tensor else vectors.numpy()


def token_lengths(model: Any, texts: Sequence[str]) -> list[int] | None:
    """Tokens of each text as the model reads it; None for a model without a Transformer's tokenizer, or padding."""
    tokenizer = getattr(model[0], "tokenizer", None) if len(model) else None
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        return None
    limit = model.max_seq_length if (model.max_seq_length or _NO_LIMIT) < _NO_LIMIT else None
    tokenizer_options = {"truncation": limit is not None, "max_length": limit, "verbose": False}
    chunks = (list(texts[at : at + 4_096]) for at in range(0, len(texts), 4_096))
    return [
        len(ids) for chunk in chunks for ids in tokenizer(chunk, **tokenizer_options)["input_ids"]
    ]


def token_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Cut texts into batches of at most `budget` tokens, padding included; the longest texts come first."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    start = 0
    while start < len(order):
        count = max(1, budget // max(1, lengths[order[start]]))
        yield order[start : start + count]
        start += count


def role_prompt(model: SentenceTransformer, role: Role | None, prompt: str | None = None) -> str:
    """The text that is put before texts of a role; without a role, as in `model.encode`.

    The host gives an empty prompt "document" to every model that it loads, and leaves out the "passage" of many models.
    Here, an empty prompt is none. Without one of the role, the model's default prompt counts, unless it belongs to the
    other role. A `prompt` that is given counts before these: a text, or the name of one of the model's prompts; what
    looks like a name and is none is a `ValueError`.
    """
    text = prompt_name(model, role) or "" if prompt is None else prompt
    if text in model.prompts:
        return model.prompts[text] or ""
    if re.fullmatch(r"\w+", text):
        known = (
            ", ".join(name for name, text_before in model.prompts.items() if text_before) or "none"
        )
        raise ValueError(
            f"the model has no prompt named {text!r}, it has: {known}; a text ends with a space or colon"
        )
    return text


def prompt_name(model: SentenceTransformer, role: Role | None) -> str | None:
    """The name of the prompt that `role_prompt` gives; None if that is empty."""
    of_role = PROMPT_NAMES[role] if role else ()
    of_other_roles = (
        {name for names in PROMPT_NAMES.values() for name in names} - {*of_role} if role else set()
    )
    names = [*of_role, model.default_prompt_name]
    return next(
        (name for name in names if name and name not in of_other_roles and model.prompts.get(name)),
        None,
    )


def embeds_roles_apart(
    model: SentenceTransformer, query_prompt: str | None = None, document_prompt: str | None = None
) -> bool:
    """Whether a text has another embedding as a query than as a document: by its prompt, or by a `Router`."""

    def route_of(router: Router, task: str) -> str | None:
        return router.route_mappings.get(
            (task, None), task if task in router.sub_modules else router.default_route
        )

    routers = [module for module in model.children() if isinstance(module, Router)]
    prompts = (
        role_prompt(model, "query", query_prompt),
        role_prompt(model, "document", document_prompt),
    )
    return prompts[0] != prompts[1] or any(
        route_of(each, "query") != route_of(each, "document") for each in routers
    )


@contextmanager
def cut_at_layer(
    model: SentenceTransformer, layer: int | None, pooling: Literal["model", "mean"] | None = None
) -> Iterator[SentenceTransformer]:
    """The model cut after a layer of its Transformer, as the CCP paper embeds; the model is left as it was.

    Args:
        model: A Sentence Transformer.
        layer: 0 for the input embeddings, n for the output of the n-th layer, None for the last one.
        pooling: `"mean"` averages the hidden states of all tokens, special ones included; `"model"` runs the modules
            after the Transformer. Default: `"mean"` if a layer is given, else `"model"`.
    """
    if layer is None and pooling in (None, "model"):
        yield model
        return
    first: Any = model[0]
    count = first.model.config.num_hidden_layers if isinstance(first, Transformer) else -1
    if not 0 <= (count if layer is None else layer) <= count:
        raise ValueError(
            f"layer={layer} is not in 0..{count}, the layers of {type(first).__name__} (-1: it has none)"
        )
    last = (
        list(model)[1:]
        if pooling == "model"
        else [Pooling(first.get_embedding_dimension(), pooling_mode="mean")]
    )
    config, before = (
        first.model.config,
        (first.model.config.output_hidden_states, first.unpad_inputs, model.training),
    )
    config.output_hidden_states, first.unpad_inputs = (
        True,
        False,
    )  # without padding, no attention mask for the average
    prompts: Any = {"prompts": model.prompts, "default_prompt_name": model.default_prompt_name}
    try:
        yield SentenceTransformer(
            modules=[first, _Layer(layer), *last], device=str(model.device), **prompts
        )
    finally:
        config.output_hidden_states, first.unpad_inputs = before[:2]
        model.train(before[2])


class _Layer(nn.Module):
    """Puts the hidden states of a layer in the place of the token embeddings."""

    def __init__(self, layer: int | None) -> None:
        super().__init__()
        self.layer = -1 if layer is None else layer

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        return {**features, "token_embeddings": features.pop("all_layer_embeddings")[self.layer]}

    def get_config_dict(self) -> dict[str, Any]:
        """What `fingerprint` tells layers apart by."""
        return {"layer": self.layer}


class KeptVectors:
    """Vectors of texts in float16 files of a folder, one a shard: embedded once, read back shard by shard.

    A file ends with the hash of its content: one that is damaged is made again.

    Args:
        folder: Folder of the shards of one corpus, model and set of options.
        shard_size: Texts per shard, which is the most that an interrupted run loses.
        distributed: Share the shards among the processes of torchrun, on one disk or several. All make the same calls.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, shard_size: int = 16_384, distributed: bool = False
    ) -> None:
        self.folder, self.shard_size = Path(folder).expanduser(), shard_size
        self.rows, self.files = 0, dict[int, Path]()
        if distributed and int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
            # What is exchanged is small and on the CPU; a rank may have hours more to embed than another.
            dist.init_process_group("gloo", timeout=timedelta(days=7))
        is_shared = distributed and dist.is_initialized()
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if is_shared else (0, 1)

    def write(self, texts: Sized, embed: Callable[[slice], Any]) -> KeptVectors:
        """Embed the shards that have no file yet by a function from the slice of a shard to its vectors, (rows, d)."""
        self.rows = len(texts)
        for number in range(self.rank, -(-self.rows // self.shard_size), self.world):
            file = self.folder / f"{number:06d}.npy"
            content = file.read_bytes() if file.is_file() else b""
            if hashlib.sha256(content[:-_DIGEST]).digest() != content[-_DIGEST:]:
                rows = slice(
                    number * self.shard_size, min((number + 1) * self.shard_size, self.rows)
                )
                with np.errstate(over="ignore"):
                    halves = np.asarray(torch.as_tensor(embed(rows)).cpu()).astype(np.float16)
                if not (is_finite := np.isfinite(halves).all(axis=1)).all():
                    raise ValueError(
                        f"the vector of row {rows.start + is_finite.argmin()} is not finite in float16"
                    )
                np.save(shard := BytesIO(), halves)
                with atomic_file(file) as part:
                    part.write_bytes(shard.getvalue() + hashlib.sha256(shard.getbuffer()).digest())
            self.files[number] = file
        return self

    def __len__(self) -> int:
        return self.rows

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and width."""
        return self.rows, next(iter(self)).shape[1]

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Consecutive rows, at least one, read into memory."""
        start, stop, _ = rows.indices(self.rows)
        numbers = range(start // self.shard_size, -(-stop // self.shard_size))
        parts = [
            (np.load(self.files[number], mmap_mode="r"), number * self.shard_size)
            for number in numbers
        ]
        return np.concatenate([part[max(0, start - first) : stop - first] for part, first in parts])

    def __iter__(self) -> Iterator[np.ndarray]:
        return (np.load(file, mmap_mode="r") for file in self.files.values())

    def top_k(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """As [`top_k`][st_xlret.search.top_k], over the shards of all processes: the same for any number of them."""
        scores, rows = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64)
        if self.files:
            scores, places = (
                part.cpu() for part in top_k(queries, self, min(k, sum(map(len, self))))
            )
            numbers = torch.tensor(list(self.files))
            rows = numbers[places // self.shard_size] * self.shard_size + places % self.shard_size
        if self.world > 1:
            parts: list[Any] = [None] * self.world
            dist.all_gather_object(parts, (scores, rows))
            scores, rows = (torch.cat(each, dim=1) for each in zip(*parts, strict=True))
        return merge_top_k(scores, rows, k)


def fingerprint(model: nn.Module) -> str:
    """Hash of a model's weights, their types and its configuration, in 32 digits, wherever it was loaded from."""
    digest = hashlib.sha256()
    for part in model.modules():
        config: dict[str, Any] = getattr(part, "get_config_dict", dict)()
        config |= {name: getattr(part, name, None) for name in ("max_seq_length", "truncate_dim")}
        digest.update(f"{type(part).__qualname__} {sorted(config.items(), key=str)}".encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:32]
