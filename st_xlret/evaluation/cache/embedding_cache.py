"""Encoding corpora once, into checked shards on disk, by one process, a pool of processes, or torchrun."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from st_xlret.calibration.encoding import encode as encode_by_language
from st_xlret.calibration.encoding import known_languages
from st_xlret.evaluation.cache.cached_embeddings import CachedEmbeddings, Ranks, join_ranks
from st_xlret.evaluation.cache.encoding import Encode, Encoding
from st_xlret.evaluation.cache.fingerprint import fingerprint
from st_xlret.evaluation.cache.shards import Item, ShardFolder
from st_xlret.precision import resolve_precision

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from st_xlret.evaluation.retrieval.data import TextCollection
    from st_xlret.evaluation.retrieval.ranking import DocumentEncoder

Method = Literal["encode", "encode_query", "encode_document"]
_ROLES: dict[str, Literal["query", "document"] | None] = {
    "encode": None,
    "encode_query": "query",
    "encode_document": "document",
}

_TEXTS_PER_CALL = 1_024


class EmbeddingCache:
    """Encodes each corpus once and keeps the embeddings as float16 shards; an interrupted run can be continued.

    A shard is identified by what determines its content: the model (weights, configuration, tokenizer), the options and
    the texts. Files are renamed into place when they are complete, and a shard whose size or checksum is wrong is
    encoded again. Texts are streamed; one shard of them is in memory at a time.

    Args:
        folder: Folder of the shards.
        shard_size: Texts per shard, which is the most that an interrupted run loses.
        devices: Devices on which the host's process pool encodes, such as `["cuda:0", "cuda:1"]`.
        distributed: Share the work among the processes of torchrun. Each encodes and searches its own shards, on one
            disk or several. All processes must make the same calls.
        show_progress_bar: Whether to show the number of encoded texts, their rate and the time left.

    Raises:
        ValueError: If `shard_size` is below 1.

    Example:
        >>> import tempfile
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> model = SentenceTransformer(modules=[BoW(vocab=["taxi", "hotel"])], device="cpu")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cache = EmbeddingCache(folder, show_progress_bar=False)
        ...     corpus = cache.encode(model, [("a", "a taxi"), ("b", "a hotel")])
        ...     scores, rows = corpus.top_k(model.encode(["hotel"]), k=1)
        >>> corpus.shape, rows.tolist()
        ((2, 2), [[1]])
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        shard_size: int = 16_384,
        devices: Sequence[str] | None = None,
        distributed: bool = False,
        show_progress_bar: bool = True,
    ) -> None:
        if shard_size < 1:
            raise ValueError(f"shard_size must be at least 1, got {shard_size}.")
        self.folder = Path(folder).expanduser()
        self.shard_size = shard_size
        self.devices = list(devices or [])
        self.ranks = join_ranks() if distributed else Ranks()
        self.show_progress_bar = show_progress_bar

    def encode(
        self,
        model: SentenceTransformer,
        texts: Iterable[Item],
        *,
        method: Method = "encode_document",
        **options: Any,
    ) -> CachedEmbeddings:
        """Embed texts by a method of the model, or load what an earlier run has kept.

        Args:
            model: Any Sentence Transformer.
            texts: Texts, pairs (id, text) or triples (id, text, language), in a sequence or anything else that can be
                iterated over repeatedly. With an iterator, the time left is unknown, and the space on the disk is
                checked for one shard at a time. A model with a map per language is told the languages.
            method: `"encode_document"` and `"encode_query"` put the model's prompts before the texts.
            **options: Options of the method, such as `normalize_embeddings=True` or `prompt="passage: "`.

        Raises:
            ValueError: If the model returns NaN or infinite values (the message names the id of the text), or there are
                no texts.
            OSError: If the disk has too little space. Nothing is written in that case.
        """
        pool = _LazyPool(model, self.devices)

        def encode(batch: Sequence[str], languages: Sequence[str]) -> np.ndarray:
            pool_option = {"pool": pool.started()} if self.devices else {}
            how = {**options, "show_progress_bar": False, **pool_option}
            codes = known_languages(model, languages)
            return encode_by_language(model, batch, codes, role=_ROLES[method], **how)  # type: ignore[no-any-return]

        # The result does not depend on the batches.
        lasting = {name: value for name, value in options.items() if name not in ("batch_size", "chunk_size")}
        identity = {"model": fingerprint(model), "method": method, **lasting}
        if torch.is_autocast_enabled(device := model.device.type):
            identity["autocast"] = str(torch.get_autocast_dtype(device))
        with pool:
            return self.embed(texts, encode, identity=identity)

    def __call__(self, corpus: TextCollection, encode: DocumentEncoder) -> CachedEmbeddings:
        """Embed the corpus of a benchmark: pass the cache as `embed_corpus` to the evaluator.

        Raises:
            ValueError: As `encode`, or if the cache has devices and the embedder uses a layer of the model, which
                bypasses the host's process pool.
            OSError: As `encode`.
        """
        embedder = encode.embedder
        if self.devices and (embedder.layer is not None or embedder.pooling == "mean"):
            raise ValueError(
                f"devices={self.devices} need model.encode, which layer={embedder.layer} with "
                f"pooling={embedder.pooling!r} bypasses: leave the devices out, or use torchrun."
            )
        pool = _LazyPool(encode.model, self.devices)

        def encode_batch(texts: Sequence[str], languages: Sequence[str]) -> Tensor:
            on_devices = replace(encode, embedder=replace(embedder, pool=pool.started())) if self.devices else encode
            return on_devices(texts, languages)

        identity = {
            "model": fingerprint(encode.model),
            "calibration": _calibration_identity(embedder.calibration),
            "prompt": embedder.prompt(encode.model, "document"),
            "layer": embedder.layer,
            "pooling": embedder.pooling,
            "language_as_task": bool(embedder.routes(encode.model)),
            "similarity": encode.similarity,
        }
        precision = resolve_precision(embedder.precision, encode.model.device)
        if precision != "fp32":
            identity["precision"] = precision
        with pool:
            return self.embed(_Documents(corpus), encode_batch, identity=identity)

    def embed(self, texts: Iterable[Item], encode: Encode, *, identity: Mapping[str, Any]) -> CachedEmbeddings:
        """Embed texts by any function.

        Args:
            texts: As for `encode`, or (id, text, language).
            encode: Function `encode(texts, languages)` that returns (n, d) in the order of the texts. Languages are
                empty strings if none were given.
            identity: All that determines the embeddings besides the texts, such as a `fingerprint` of the model and
                options. Values must be JSON or be distinguished by their `repr`.

        Raises:
            ValueError: As for `encode`, or if the texts change while they are read for the second time.
            OSError: As for `encode`.
        """
        shards = ShardFolder(self.folder / _hash_of(identity))
        shards.remove_abandoned()
        work = Encoding(
            shards,
            encode,
            shard_size=self.shard_size,
            # A pool divides whole shards among its processes.
            texts_per_call=self.shard_size if self.devices else _TEXTS_PER_CALL,
            ranks=self.ranks,
            show_progress_bar=self.show_progress_bar,
        )
        return work.in_one_pass(texts) if iter(texts) is texts else work.in_two_passes(texts)


class _Documents:
    """Triples (id, text, language) of a corpus, read slice by slice."""

    def __init__(self, corpus: TextCollection) -> None:
        self.corpus = corpus

    def __len__(self) -> int:
        return len(self.corpus)

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        for start in range(0, len(self), _TEXTS_PER_CALL):
            rows = slice(start, start + _TEXTS_PER_CALL)
            ids, texts, languages = self.corpus.ids[rows], self.corpus.full_texts(rows), self.corpus.languages_of(rows)
            codes = [languages] * len(texts) if isinstance(languages, str) else languages
            yield from zip(ids, texts, codes, strict=True)


class _LazyPool:
    """The host's process pool, which is started by the first text that must be encoded and stopped at the end."""

    def __init__(self, model: SentenceTransformer, devices: Sequence[str]) -> None:
        self.model = model
        self.devices = list(devices)
        self.pool: Any = None

    def started(self) -> Any:
        if self.pool is None:
            self.device = self.model.device
            self.pool = self.model.start_multi_process_pool(self.devices)
        return self.pool

    def __enter__(self) -> _LazyPool:
        return self

    def __exit__(self, *_: object) -> None:
        if self.pool is not None:
            self.model.stop_multi_process_pool(self.pool)
            self.model.to(self.device)  # the host has moved it to the CPU


def _calibration_identity(calibration: Any) -> Any:
    return fingerprint(calibration) if isinstance(calibration, torch.nn.Module) else calibration


def _hash_of(identity: Mapping[str, Any]) -> str:
    def described(value: Any) -> str:
        if " at 0x" in (description := repr(value)):
            raise ValueError(
                f"the cache cannot tell one {type(value).__name__} from another: give it as a torch.nn.Module, "
                "or do without the cache."
            )
        return description

    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=described).encode()).hexdigest()[:32]
