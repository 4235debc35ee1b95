from __future__ import annotations

import pytest
import torch
from torch import Tensor

from st_xlret.search.neighbours import (
    csls_nearest,
    csls_scores,
    mean_neighbour_similarity,
    mutual_nearest_neighbours,
)


def cosine(x: Tensor, y: Tensor) -> float:
    return float(x @ y / (x.norm() * y.norm()))


def naive_csls(source: Tensor, target: Tensor, k: int) -> Tensor:
    def mean_of_nearest(x: Tensor, others: Tensor) -> float:
        best = sorted((cosine(x, other) for other in others), reverse=True)[:k]
        return sum(best) / len(best)

    scores = torch.empty(len(source), len(target))
    for i, x in enumerate(source):
        for j, y in enumerate(target):
            scores[i, j] = 2 * cosine(x, y) - mean_of_nearest(x, target) - mean_of_nearest(y, source)
    return scores


@pytest.fixture
def clouds() -> tuple[Tensor, Tensor]:
    return torch.randn(23, 5), torch.randn(17, 5) + 0.3


def whole(source: Tensor, target: Tensor, k: int, chunk_size: int) -> Tensor:
    return torch.cat([scores for _, scores in csls_scores(source, target, k, chunk_size=chunk_size)])


@pytest.mark.parametrize("chunk_size", [1, 4, 1000])
@pytest.mark.parametrize("k", [1, 3, 10, 50])
def test_csls_equals_a_double_loop(clouds: tuple[Tensor, Tensor], k: int, chunk_size: int) -> None:
    torch.testing.assert_close(whole(*clouds, k, chunk_size), naive_csls(*clouds, k), atol=1e-5, rtol=1e-5)


def test_chunks_say_where_they_start_and_never_exceed_their_size(clouds: tuple[Tensor, Tensor]) -> None:
    chunks = list(csls_scores(*clouds, 3, chunk_size=10))
    assert [start for start, _ in chunks] == [0, 10, 20]
    assert [tuple(scores.shape) for _, scores in chunks] == [(10, 17), (10, 17), (3, 17)]


@pytest.mark.parametrize("chunk_size", [5, 1000])
def test_mutual_neighbours_are_the_best_of_row_and_column(clouds: tuple[Tensor, Tensor], chunk_size: int) -> None:
    scores = naive_csls(*clouds, 4)
    expected = [
        (i, int(scores[i].argmax())) for i in range(23) if int(scores[:, int(scores[i].argmax())].argmax()) == i
    ]
    matches = mutual_nearest_neighbours(*clouds, 4, chunk_size=chunk_size)
    assert list(zip(matches.source.tolist(), matches.target.tolist(), strict=True)) == expected
    torch.testing.assert_close(
        matches.scores, torch.tensor([float(scores[i, j]) for i, j in expected]), atol=1e-5, rtol=1e-5
    )


def test_nearest_gives_the_best_column_and_its_cosine(clouds: tuple[Tensor, Tensor]) -> None:
    source, target = clouds
    best, similarity = csls_nearest(source, target, 4, chunk_size=6)
    assert best.tolist() == naive_csls(source, target, 4).argmax(dim=1).tolist()
    expected = [cosine(source[i], target[j]) for i, j in enumerate(best.tolist())]
    torch.testing.assert_close(similarity, torch.tensor(expected), atol=1e-5, rtol=1e-5)


def test_a_hub_loses_its_lead() -> None:
    hub = torch.tensor([1.0, 1.0, 1.0])
    source = torch.eye(3) + 0.8
    target = torch.cat([torch.eye(3) + 0.1 * torch.tensor([[0.0, 1.0, 0.0]]), hub[None]])
    by_cosine = (torch.nn.functional.normalize(source) @ torch.nn.functional.normalize(target).T).argmax(dim=1)
    assert by_cosine.tolist() == [3, 3, 3]
    assert csls_nearest(source, target, 3)[0].tolist() == [0, 1, 2]


def test_length_does_not_matter(clouds: tuple[Tensor, Tensor]) -> None:
    source, target = clouds
    torch.testing.assert_close(
        mean_neighbour_similarity(source, target, 3),
        mean_neighbour_similarity(7 * source, 0.1 * target.double(), 3),
    )


@pytest.mark.parametrize(
    ("source", "target", "k", "message"),
    [
        (torch.ones(2, 3), torch.ones(2, 4), 1, r"\(2, 3\) and \(2, 4\)"),
        (torch.ones(3), torch.ones(2, 3), 1, "two matrices"),
        (torch.ones(0, 3), torch.ones(2, 3), 1, "0 rows with 2 rows"),
        (torch.ones(2, 3), torch.ones(2, 3), 0, "k must be at least 1, got 0"),
    ],
)
def test_bad_input_is_named(source: Tensor, target: Tensor, k: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mutual_nearest_neighbours(source, target, k)
