from __future__ import annotations

import torch
from sentence_transformers import SentenceTransformer

from st_xlret.losses.embedding import embed_in_one_pass
from st_xlret.modules import static_encoder, train_tokenizer, transformer_encoder

TEXTS = ["the cat sat on the mat", "a dog", "il pleut sur la ville", "la nuit"]


def encoders() -> list[SentenceTransformer]:
    tokenizer = train_tokenizer(TEXTS * 5, vocabulary=80)
    return [static_encoder(tokenizer, 8), transformer_encoder(tokenizer, "tiny").eval()]


def test_columns_together_equal_columns_apart_in_values_and_gradients() -> None:
    for model in encoders():
        results = []
        for together in (True, False):
            columns = [model.preprocess(TEXTS[:2]), model.preprocess(TEXTS[2:])]
            model.zero_grad()
            vectors = (
                embed_in_one_pass(model, columns)
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
    assert [len(vectors) for vectors in embed_in_one_pass(model, columns)] == [1, 3, 4]
    assert len(calls) == 1
