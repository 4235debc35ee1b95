"""Micro-batches against one pass: values, gradients, dropout, autocast, widths; tags, groups."""

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from st_xlret.losses import RetrievalContrastiveLoss, SemanticContrastiveLoss
from st_xlret.losses.embedding import embed_columns, select_texts
from st_xlret.modules import transformer_encoder
from tests import tiny
from tests.losses.batches import block_features, columns, msm, taught


def gradients(loss: torch.nn.Module) -> dict[str, Tensor]:
    of_names = {name: p.grad.clone() for name, p in loss.named_parameters() if p.grad is not None}
    loss.zero_grad()
    return of_names


@pytest.mark.parametrize("make", [msm, SemanticContrastiveLoss, RetrievalContrastiveLoss, taught])
@pytest.mark.parametrize(("texts", "tokens"), [(1, 1), (3, 40), (100, 400)])
def test_micro_batches_equal_one_pass(make: Any, texts: int, tokens: int) -> None:
    results = []
    passes = []
    size = {"mini_batch_size": texts} if make is msm else {"mini_batch_num_tokens": tokens}
    sides = [tiny.sentence(random.Random(i), 1 + i % 7) for i in range(16)]
    for options in ({}, size):
        model = tiny.transformer()
        loss = make(model, **options).double()
        batch = [model.preprocess(sides[start::2]) for start in (0, 1)]
        batch = [block_features(model)] if make is msm else batch[: 1 if make is taught else 2]
        model[0].register_forward_hook(
            lambda _, given, out: passes.append(out["attention_mask"].numel())
        )
        passes.clear()
        value = loss(batch, torch.arange(8) if make is taught else None)
        value.backward()
        results.append((value.detach(), gradients(loss), loss.owned_state()))
    assert max(passes) <= tokens or make is msm or tokens == 1
    torch.testing.assert_close(results[1], results[0], rtol=1e-7, atol=1e-12)
    assert any("word_embeddings" in name for name in results[0][1])


@pytest.mark.parametrize("autocast", [False, True])
def test_dropout_and_autocast_are_those_of_the_first_run(autocast: bool) -> None:
    model = tiny.transformer(dropout=0.3)
    loss = msm(model, dropout=0.3, mini_batch_size=3)
    features = block_features(model)
    order = features["attention_mask"].sum(1).argsort(descending=True, stable=True)
    tags = loss.concatenate_tags([features])

    def in_one_graph() -> Tensor:
        vectors = [
            model(select_texts(features, rows))["sentence_embedding"] for rows in order.split(3)
        ]
        return loss.compute_loss_from_embeddings(torch.cat(vectors)[order.argsort()], tags)

    # Whether backward is called outside of the context, as the Trainer does, or inside.
    for inside in (False, True):
        results = []
        for compute in (in_one_graph, lambda: loss([dict(features)])):
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
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-6)


def test_parts_are_of_similar_lengths_as_wide_as_their_longest_text_in_multiples_of_16() -> None:
    model = transformer_encoder(tiny.tokenizer(), "tiny", max_seq_length=64).to("cpu")
    shapes: list[tuple[int, ...]] = []
    model[0].register_forward_pre_hook(
        lambda module, args: shapes.append(tuple(args[0]["input_ids"].shape))
    )
    features = model.preprocess(["sun " * words for words in (3, 60, 20, 1, 40, 2)])
    embed_columns(model, [features], 2)[0].sum().backward()
    longest = features["input_ids"].shape[1]
    lengths = sorted(features["attention_mask"].sum(1).tolist(), reverse=True)
    once = [(2, min(longest, -(-length // 16) * 16)) for length in lengths[::2]]
    assert sorted(shapes) == sorted(once * 2) and len(set(once)) > 1
    # So are large batches on a CPU, which are not asked for in parts.
    shapes.clear()
    texts = [tiny.sentence(random.Random(i), 1 + i % 8) for i in range(32)]
    (vectors,) = embed_columns(model, [model.preprocess(texts)])
    torch.testing.assert_close(vectors, model(model.preprocess(texts))["sentence_embedding"])
    assert [rows for rows, _ in shapes] == [8] * 4 + [32]


@pytest.mark.parametrize("include_prompt", [True, False])
def test_columns_with_prompts_of_different_lengths_have_the_vectors_of_encode(
    include_prompt: bool,
) -> None:
    model = tiny.transformer()
    model.set_pooling_include_prompt(include_prompt)
    prompts = {"source": "wind snow leaf ", "target": "leaf "}
    rows = tiny.pairs(8).to_list()
    vectors = embed_columns(model, columns(model, rows, prompts=prompts))
    for (name, prompt), of_column in zip(prompts.items(), vectors, strict=True):
        expected = model.encode([row[name] for row in rows], prompt=prompt, convert_to_tensor=True)
        torch.testing.assert_close(of_column, expected, rtol=1e-4, atol=1e-5)
