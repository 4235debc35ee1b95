"""Ways to mine translations with the ratio margin. Each returns the sum of its pairs' scores."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import faiss
import numpy as np
import torch
from sentence_transformers import util
from torch import Tensor

from benchmarks.steps import Step
from st_xlret.search import mine_bitext


@cache
def sentences(rows: int, dimension: int) -> tuple[Tensor, Tensor]:
    """Unit vectors; a fifth of the rows of either side are noisy copies of one another."""
    generator = torch.Generator().manual_seed(0)
    source, target, noise = (torch.randn(rows, dimension, generator=generator) for _ in range(3))
    shared = rows // 5
    target[:shared] = source[:shared] + noise[:shared]
    source, target = (torch.nn.functional.normalize(side, dim=1) for side in (source, target))
    return source, target[torch.randperm(rows, generator=generator)]


def one_pass(rows: int, dimension: int, k: int) -> Step:
    source, target = sentences(rows, dimension)
    return Step(lambda: torch.tensor(sum(score for score, _, _ in mine_bitext(source, target, k=k))))


def two_faiss_searches(rows: int, dimension: int, k: int) -> Step:
    """Two flat indexes and scoring in Python, as mining programs do."""
    faiss.omp_set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    source, target = (side.numpy() for side in sentences(rows, dimension))

    def search(queries: np.ndarray, corpus: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        index = faiss.IndexFlatIP(dimension)
        index.add(corpus)
        return index.search(queries, k)

    def run() -> Tensor:
        forward_scores, forward = search(source, target)
        backward_scores, backward = search(target, source)
        forward_mean, backward_mean = forward_scores.mean(axis=1), backward_scores.mean(axis=1)

        def score(i: int, j: int) -> tuple[float, int, int]:
            return float(source[i] @ target[j] / ((forward_mean[i] + backward_mean[j]) / 2)), i, j

        candidates = [max(score(i, j) for j in near) for i, near in enumerate(forward)]
        candidates += [max(score(i, j) for i in near) for j, near in enumerate(backward)]
        return _sum_of_pairs(candidates)

    return Step(run)


def two_semantic_searches(rows: int, dimension: int, k: int) -> Step:
    """The host's `semantic_search` both ways, and the same scoring from the scores that it returns."""
    source, target = sentences(rows, dimension)

    def run() -> Tensor:
        forward: Any = util.semantic_search(source, target, top_k=k, score_function=util.dot_score)
        backward: Any = util.semantic_search(target, source, top_k=k, score_function=util.dot_score)
        forward_mean = [sum(hit["score"] for hit in hits) / k for hits in forward]
        backward_mean = [sum(hit["score"] for hit in hits) / k for hits in backward]

        def score(cosine: float, i: int, j: int) -> tuple[float, int, int]:
            return cosine / ((forward_mean[i] + backward_mean[j]) / 2), i, j

        candidates = [max(score(hit["score"], i, hit["corpus_id"]) for hit in hits) for i, hits in enumerate(forward)]
        candidates += [max(score(hit["score"], hit["corpus_id"], j) for hit in hits) for j, hits in enumerate(backward)]
        return _sum_of_pairs(candidates)

    return Step(run)


def _sum_of_pairs(candidates: list[tuple[float, int, int]]) -> Tensor:
    taken_source, taken_target, total = set(), set(), 0.0
    for score, i, j in sorted(candidates, key=lambda candidate: -candidate[0]):
        if i not in taken_source and j not in taken_target:
            taken_source.add(i)
            taken_target.add(j)
            total += float(score)
    return torch.tensor(total)
