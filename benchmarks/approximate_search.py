"""Recall and time of approximate_top_k on vectors of real sentences, beside the exact search.

    OMP_NUM_THREADS=1 python -m benchmarks.approximate_search ../shared/data/tensorflow_docs ../shared/data/ebible

The vectors are latent semantic analysis: TF-IDF of groups of characters, reduced to --dimension by a truncated SVD, of
unit length. They take a minute instead of an encoder's hours, and unlike random ones have neighbours worth the name.
The queries are sentences that are not in the corpus.
"""

from __future__ import annotations

import argparse
import time

import faiss
import numpy as np
import torch
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from st_xlret.data import load_documents
from st_xlret.search import approximate_top_k, top_k


def vectors_of(documents: list[str], dimension: int, limit: int | None) -> np.ndarray:
    """Unit rows, (n, d) float32, of the distinct sentences of documents, in random order."""
    sentences = sorted(set(load_documents(documents, skip_bad_lines=True)["sentence"]))
    chosen = np.random.default_rng(0).permutation(len(sentences))[:limit]
    counts = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), max_features=30_000, sublinear_tf=True)
    weights = counts.fit_transform([sentences[row] for row in chosen])
    reduced = TruncatedSVD(dimension, n_iter=2, random_state=0).fit_transform(weights)
    return normalize(reduced).astype(np.float32)


def main(arguments: list[str] | None = None) -> None:
    """Search once exactly and once per setting, and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", nargs="+", help="Files or folders of documents.")
    parser.add_argument("--limit", type=int, help="Sentences at most. Default: all.")
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--nprobe", type=int, nargs="+", default=[8, 32, 128])
    args = parser.parse_args(arguments)
    faiss.omp_set_num_threads(torch.get_num_threads())
    rows = vectors_of(args.documents, args.dimension, args.limit)
    queries, corpus = rows[: args.queries], rows[args.queries :]

    begun = time.perf_counter()
    top_k(queries, corpus, args.k)
    print(f"{len(queries)} queries, {len(corpus)} x {args.dimension}; exact: {time.perf_counter() - begun:.1f} s")
    for nprobe in args.nprobe:
        begun = time.perf_counter()
        found = approximate_top_k(queries, corpus, args.k, parameters=f"nprobe={nprobe}", recall_queries=args.queries)
        seconds = time.perf_counter() - begun
        print(f"{found.index_used}: recall@{args.k} {found.recall:.3f}, {seconds:.1f} s with building and measuring")


if __name__ == "__main__":
    main()
