"""Embedding text columns together, reading their tags, and which pairs are connected by a common text."""

from __future__ import annotations

import random

import torch
from sentence_transformers import SentenceTransformer

from st_xlret.losses.columns import embed_columns, read_tags, translation_groups
from st_xlret.modules import static_encoder, train_tokenizer, transformer_encoder

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
