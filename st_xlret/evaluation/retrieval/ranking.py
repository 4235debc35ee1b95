"""The core of the retrieval benchmarks: encode queries and corpus, search, and score per language."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from st_xlret.evaluation.encoding.embedding import Side, TextEmbedder
from st_xlret.evaluation.retrieval.data import RetrievalData, TextCollection
from st_xlret.evaluation.retrieval.metrics import Ranking, parse_metric, score_ranking
from st_xlret.search import top_k, unit_rows

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Similarity = Literal["cosine", "dot"]
Matrix: TypeAlias = "Tensor | np.ndarray"
EmbedCorpus: TypeAlias = "Callable[[TextCollection, DocumentEncoder], Matrix | Searchable]"


class Searchable(Protocol):
    """Embeddings with a search of their own, such as those in shards or shared among processes."""

    def __len__(self) -> int:
        """Number of documents."""
        ...

    def top_k(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """As `st_xlret.search.top_k`."""
        ...


class BrokenEmbeddingError(ValueError):
    """The model returns NaN or infinite values for a text.

    Attributes:
        row: Index of the text.
    """

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


def similarity_of(model: SentenceTransformer, similarity: Similarity | None = None) -> Similarity:
    """The similarity by which documents are searched: the given one, else that of the model.

    Raises:
        ValueError: If it is neither `"cosine"` nor `"dot"`.
    """
    chosen = similarity if similarity is not None else str(model.similarity_fn_name)
    if chosen == "cosine":
        return "cosine"
    if chosen == "dot":
        return "dot"
    raise ValueError(f'similarity must be "cosine" or "dot", got {chosen!r}; give one that retrieval can search by.')


def encode_rows(
    model: SentenceTransformer,
    embedder: TextEmbedder,
    texts: Sequence[str],
    languages: str | Sequence[str],
    *,
    side: Side,
    similarity: Similarity = "cosine",
) -> Tensor:
    """Encode texts for a search by dot product; returns float32 (n, d), of unit length for the cosine.

    Args:
        model: Any Sentence Transformer.
        embedder: How texts are encoded.
        texts: Queries or documents.
        languages: Language of each text, or one for all.
        side: Whether the texts are queries or documents.
        similarity: The similarity that the dot product of the results equals.

    Raises:
        BrokenEmbeddingError: If the model returns NaN or infinite values. The message names the text.
    """
    known_languages = [languages] * len(texts) if isinstance(languages, str) else list(languages)
    groups: dict[str, list[int]] = {}
    # If the language does not change the encoding, one pass sorts the batches better by length.
    by_language = bool(embedder.routes(model)) or embedder.calibration is not None
    for row, language in enumerate(known_languages):
        groups.setdefault(language if by_language else known_languages[0], []).append(row)
    embeddings: Tensor | None = None
    for language, rows in groups.items():
        part = embedder.embed(model, [texts[row] for row in rows], language, side=side)
        if embeddings is None:
            embeddings = part.new_empty(len(texts), part.shape[1])
        embeddings[torch.tensor(rows, device=part.device)] = part
    if embeddings is None:
        raise ValueError("there are no texts to encode.")
    broken = (~torch.isfinite(embeddings).all(dim=1)).nonzero()
    if len(broken):
        row = int(broken[0, 0])
        raise BrokenEmbeddingError(
            f"the model gives NaN or infinite values for the {known_languages[row]} {side} {texts[row][:80]!r} "
            f"({len(broken)} of {len(texts)} texts): it has diverged, or the text is broken.",
            row,
        )
    return unit_rows(embeddings) if similarity == "cosine" else embeddings


@dataclass(frozen=True)
class DocumentEncoder:
    """Function `encode(texts, languages)` that embeds documents for a search by dot product.

    Attributes:
        model: The model.
        embedder: How it encodes.
        similarity: The similarity that the dot product of the results equals.
    """

    model: SentenceTransformer
    embedder: TextEmbedder
    similarity: Similarity

    def __call__(self, texts: Sequence[str], languages: str | Sequence[str]) -> Tensor:
        """Float32 (n, d)."""
        return encode_rows(self.model, self.embedder, texts, languages, side="document", similarity=self.similarity)


def retrieve(
    model: SentenceTransformer,
    queries: TextCollection,
    corpus: TextCollection,
    *,
    k: int,
    embedder: TextEmbedder | None = None,
    similarity: Similarity | None = None,
    embed_corpus: EmbedCorpus | None = None,
) -> Ranking:
    """Find the k best documents of the corpus for each query, by an exact search.

    Args:
        model: Any Sentence Transformer.
        queries: The queries.
        corpus: The documents, in one language or several.
        k: Number of documents per query; all documents of a smaller corpus.
        embedder: Layer, pooling, calibration and prompts. Default: the model as it is.
        similarity: `"cosine"` or `"dot"`. Default: that of the model.
        embed_corpus: A cache of embeddings, or another function `embed_corpus(corpus, encode)` that returns the
            embeddings of the corpus, (C, d), in memory or memory-mapped, float16 or float32. `encode(texts, languages)`
            embeds some texts. Default: the whole corpus is encoded into memory.

    Raises:
        ValueError: If k is below 1, the embeddings hold NaN, or `embed_corpus` returns another number of
            rows than the corpus has.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> model = SentenceTransformer(modules=[BoW(vocab=["taxi", "hotel"])], device="cpu")
        >>> corpus = TextCollection(["a", "b"], ["a taxi", "a hotel"], "en")
        >>> queries = TextCollection(["q"], ["hotel"], "fr")
        >>> retrieve(model, queries, corpus, k=2).rows.tolist()
        [[1, 0]]
    """
    how = embedder or TextEmbedder()
    measure = similarity_of(model, similarity)
    how.require_languages(list(dict.fromkeys([*queries.language_set(), *corpus.language_set()])))

    encode = DocumentEncoder(model, how, measure)
    query_rows = encode_rows(
        model, how, queries.full_texts(slice(None)), queries.languages, side="query", similarity=measure
    )
    documents = (embed_corpus or encode_in_memory)(corpus, encode)
    if len(documents) != len(corpus):
        raise ValueError(f"{corpus.source} has {len(corpus)} documents, but {len(documents)} embeddings.")
    depth = min(k, len(corpus))
    if isinstance(documents, (np.ndarray, Tensor)):
        scores, rows = top_k(query_rows, documents, depth)
    else:
        scores, rows = documents.top_k(query_rows, depth)
    return Ranking(rows.cpu().numpy(), scores.cpu().numpy())


def encode_in_memory(corpus: TextCollection, encode: DocumentEncoder) -> Tensor:
    """The embeddings of a whole corpus as one tensor."""
    return encode(corpus.full_texts(slice(None)), corpus.languages)


def evaluate_retrieval(
    model: SentenceTransformer,
    data: RetrievalData,
    *,
    metrics: Iterable[str] = ("mrr_at_100", "recall_at_100"),
    embedder: TextEmbedder | None = None,
    similarity: Similarity | None = None,
    embed_corpus: EmbedCorpus | None = None,
) -> dict[str, dict[str, float]]:
    """Encode, search and score one pool: `retrieve`, followed by `score_ranking`.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> model = SentenceTransformer(modules=[BoW(vocab=["taxi", "hotel"])], device="cpu")
        >>> corpus = TextCollection(["a", "b"], ["a taxi", "a hotel"], "en")
        >>> data = RetrievalData(corpus, TextCollection(["q"], ["hotel"], "fr"), {"q": {"b": 1}})
        >>> evaluate_retrieval(model, data, metrics=["mrr_at_100"])
        {'fr': {'mrr_at_100': 1.0}}
    """
    metrics = list(metrics)
    depth = max(parse_metric(name)[1] for name in metrics)
    ranking = retrieve(
        model,
        data.judged,
        data.corpus,
        k=depth,
        embedder=embedder,
        similarity=similarity,
        embed_corpus=embed_corpus,
    )
    return score_ranking(ranking, data, metrics)
