"""Micro-batches with gradient caching against one pass: values, gradients, dropout, autocast, widths."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.losses import MSMLoss, RetrievalContrastiveLoss, SemanticContrastiveLoss, SimilarityDistillationLoss
from st_xlret.losses.embedding import (
    backward_one_after_the_other,
    embed,
    embed_columns,
    read_tags,
    take_texts,
    translation_groups,
)
from st_xlret.modules import DocumentEncoder, static_encoder, train_tokenizer, transformer_encoder
from tests import tiny
from tests.losses.batches import block_features


def msm(model: SentenceTransformer, *, dropout: float = 0.0, **options: Any) -> MSMLoss:
    torch.manual_seed(1)
    return MSMLoss(model, DocumentEncoder(32, dropout=dropout), **options)


def gradients(loss: MSMLoss) -> dict[str, Tensor]:
    found = {name: p.grad.clone() for name, p in loss.named_parameters() if p.grad is not None}
    loss.zero_grad()
    return found


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor], **tolerance: float) -> None:
    assert set(ours) == set(theirs)
    assert any("word_embeddings" in name for name in ours) and any("networks." in name for name in ours)
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, msg=lambda m, n=name: f"{n}: {m}", **tolerance)


def in_chunks_with_graph(loss: MSMLoss, features: dict[str, Tensor]) -> Tensor:
    """The same micro-batches in one ordinary graph."""
    order = features["attention_mask"].sum(1).argsort(descending=True, stable=True)
    size = loss.mini_batch_size
    assert size is not None
    vectors = []
    for part in order.split(size):
        rows = take_texts(features, part, multiple=16)
        # The cache of weights would have the sums over micro-batches rounded to 16 bits.
        enabled = torch.is_autocast_enabled("cpu")
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled, cache_enabled=False):
            vectors.append(loss.model(rows)["sentence_embedding"])
    tags = {name: features[name] for name in ("block_id", "sentence_position", "language_id", "text_id")}
    return loss.compute_loss_from_embeddings(torch.cat(vectors)[order.argsort()], tags)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_equals_one_pass(size: int) -> None:
    results = []
    for mini_batch_size in (None, size):
        model = tiny.transformer()
        loss = msm(model, mini_batch_size=mini_batch_size).double()
        value = loss([block_features(model)])
        value.backward()
        results.append((value.detach(), gradients(loss), loss.owned_state()))
    torch.testing.assert_close(results[1][0], results[0][0])
    assert_same(results[1][1], results[0][1], rtol=1e-7, atol=1e-12)
    for name, tensor in results[0][2].items():
        torch.testing.assert_close(results[1][2][name], tensor)


@pytest.mark.parametrize("tokens", [1, 40, 400])
@pytest.mark.parametrize("kind", ["pairs", "questions", "teacher"])
def test_few_tokens_at_a_time_equal_one_pass(kind: str, tokens: int) -> None:
    results, passes = [], []
    for most in (None, tokens):
        model = tiny.transformer().double()
        sides = [tiny.sentence(random.Random(i), 1 + i % 7) for i in range(16)]
        columns = [model.preprocess(sides[start::2]) for start in (0, 1)]
        options: dict[str, Any] = {"mini_batch_num_tokens": most}
        if kind == "teacher":
            teacher = torch.eye(8, model.get_embedding_dimension(), dtype=torch.double)
            loss: Any = SimilarityDistillationLoss(model, teacher, **options)
            columns = columns[:1]
        else:
            loss = {"pairs": SemanticContrastiveLoss, "questions": RetrievalContrastiveLoss}[kind](model, **options)
        model[0].register_forward_hook(lambda _, given, out: passes.append(out["attention_mask"].numel()))
        passes.clear()
        value = loss(columns, torch.arange(8))
        value.backward()
        results.append((value.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}))
    assert max(passes) <= tokens or tokens == 1
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("autocast", [False, True])
def test_dropout_and_autocast_are_those_of_the_first_run(autocast: bool) -> None:
    model = tiny.transformer(dropout=0.3)
    loss = msm(model, dropout=0.3, mini_batch_size=3)
    features = block_features(model)
    states: list[bool] = []
    model[0].register_forward_pre_hook(lambda *_: states.append(torch.is_autocast_enabled("cpu")))
    # Whether backward is called outside of the context, as the Trainer does, or inside.
    for inside in (False, True):
        results = []
        for compute in (lambda: in_chunks_with_graph(loss, features), lambda: loss([dict(features)])):
            loss.steps.zero_()
            torch.manual_seed(5)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                value = compute()
                if inside:
                    value.backward()
            after = torch.get_rng_state()
            if not inside:
                value.backward()
                assert torch.equal(torch.get_rng_state(), after)
            results.append((value.detach(), gradients(loss)))
        torch.testing.assert_close(results[1][0], results[0][0])
        assert_same(results[1][1], results[0][1], rtol=1e-4, atol=1e-6)
    assert set(states) == {autocast}


def test_a_scaled_loss_scales_all_gradients_and_they_accumulate() -> None:
    model = tiny.transformer()
    loss = msm(model, mini_batch_size=4).double()
    features = block_features(model)
    loss([dict(features)]).backward()
    once = gradients(loss)
    (loss([dict(features)]) * 8).backward()
    loss([dict(features)]).backward()
    assert_same({name: g / 9 for name, g in gradients(loss).items()}, once)


def test_micro_batches_are_as_wide_as_their_longest_text_in_multiples_of_16() -> None:
    model = transformer_encoder(tiny.tokenizer(), "tiny", max_seq_length=64).to("cpu")
    shapes = []
    features = model.preprocess(["sun " * words for words in (3, 60, 20, 1, 40, 2)])
    model[0].register_forward_pre_hook(lambda module, args: shapes.append(tuple(args[0]["input_ids"].shape)))
    embed(model, features, 2).sum().backward()
    longest = features["input_ids"].shape[1]
    lengths = sorted(features["attention_mask"].sum(1).tolist(), reverse=True)
    once = [(2, min(longest, -(-length // 16) * 16)) for length in lengths[::2]]
    assert shapes == once * 2 and len(set(once)) > 1


def test_a_frozen_encoder_leaves_the_networks_to_learn() -> None:
    model = tiny.transformer()
    model.requires_grad_(False)
    loss = msm(model, mini_batch_size=3)
    loss([block_features(model)]).backward()
    assert all(p.grad is None for p in model.parameters())
    assert loss.networks.document_encoders[0].mask_vector.grad.any()  # type: ignore[union-attr]


def test_a_static_encoder_takes_one_pass() -> None:
    model = tiny.static()
    loss = MSMLoss(model, mini_batch_size=2)
    assert loss.mini_batch_size is None and not loss.uses_gradient_cache
    loss([block_features(model)]).backward()
    assert model[0].embedding.weight.grad is not None


def test_two_backward_passes_in_turn() -> None:
    x = torch.ones((), requires_grad=True)
    turns: list[str] = []
    first, then = x * 2, x * 3
    first.register_hook(lambda g: turns.append("first"))
    then.register_hook(lambda g: turns.append("then"))
    both = backward_one_after_the_other(first, then)
    assert both == 3
    (both * 0.5).backward()
    assert turns == ["first", "then"] and x.grad == 2.5


TEXTS = ["the cat sat on the mat", "a dog", "il pleut sur la ville", "la nuit"]


def encoders() -> list[SentenceTransformer]:
    tokenizer = train_tokenizer(TEXTS * 5, vocabulary=80)
    return [static_encoder(tokenizer, 8), transformer_encoder(tokenizer, "tiny").to("cpu").eval()]


def test_columns_together_equal_columns_apart_in_values_and_gradients() -> None:
    for model in encoders():
        results = []
        for together in (True, False):
            columns = [model.preprocess(TEXTS[:2]), model.preprocess(TEXTS[2:])]
            model.zero_grad()
            vectors = (
                embed_columns(model, columns)
                if together
                else [model(features)["sentence_embedding"] for features in columns]
            )
            (vectors[0] * vectors[1].roll(1, 0)).sum().backward()
            grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
            results.append([v.detach() for v in vectors] + grads)
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_a_static_encoder_runs_once_for_all_columns() -> None:
    model = encoders()[0]
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    columns = [model.preprocess(TEXTS[:1]), model.preprocess(TEXTS[1:]), model.preprocess(TEXTS)]
    assert [len(vectors) for vectors in embed_columns(model, columns)] == [1, 3, 4]
    assert len(calls) == 1


def test_tags_are_those_that_every_column_has() -> None:
    columns = [
        {"language_id": torch.tensor([1, 2]), "text_id": torch.tensor([3, 4])},
        {"language_id": torch.tensor([5, 6]), "document_id": torch.tensor([7, 8])},
    ]
    tags = read_tags(columns)
    assert {name: tag.tolist() for name, tag in tags.items()} == {"language_id": [1, 2, 5, 6]}
    assert read_tags(columns[:1])["text_id"].tolist() == [3, 4]


def test_against_joining_one_by_one() -> None:
    dice = random.Random(0)
    for _ in range(20):
        text = [dice.randrange(12) for _ in range(12)]
        groups = list(range(6))
        for _ in groups:
            for i in range(6):
                for j in range(6):
                    if {text[i], text[i + 6]} & {text[j], text[j + 6]}:
                        groups[i] = groups[j] = min(groups[i], groups[j])
        assert translation_groups(torch.tensor(text)).tolist() == groups * 2
