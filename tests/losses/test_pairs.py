"""The losses over pairs, questions and a teacher's vectors: equations, and what is no negative."""

from functools import partial
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from torch import Tensor

from st_xlret import functional as f
from st_xlret.losses import (
    CZNCELoss,
    LangContrastiveLoss,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
    SimilarityDistillationLoss,
)
from st_xlret.modules import ContextualEncoder, first_last_encoder
from tests import tiny
from tests.functional.oracles import naive_distillation
from tests.losses.batches import columns, rows_with_others, two_encoders

OBJECTIVES = {"cz_nce": f.cz_nce_loss, "info_nce": f.info_nce_loss}
NAMES = ("source", "target", "other")
TO_DOCUMENT = {"source": "document", "target": "document"}
WORDS = tiny.word_rows()
PLAIN = [
    {k: v for k, v in row.items() if not k.endswith(("_start", "_end", "_word"))} for row in WORDS
]


def retrieval(q: Tensor, *passages: Tensor, **options: Any) -> Tensor:
    return f.retrieval_contrastive_loss(q, torch.cat(passages), **options)


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
@pytest.mark.parametrize(
    ("kind", "options", "equation", "count"),
    [
        *(
            (CZNCELoss, {"objective": name, "temperature": 0.1}, OBJECTIVES[name], 2)
            for name in OBJECTIVES
        ),
        (SemanticContrastiveLoss, {"temperature": 0.1}, f.info_nce_loss, 2),
        (RetrievalContrastiveLoss, {"temperature": 0.1}, retrieval, 3),
        (
            RetrievalContrastiveLoss,
            {"temperature": 1.0, "similarity": "dot"},
            partial(retrieval, normalize=False),
            2,
        ),
        (LangContrastiveLoss, {}, f.language_contrastive_loss, 2),
        *(
            (LangContrastiveLoss, {"reduction": way}, f.language_contrastive_loss, 3)
            for way in ("sum", "paper")
        ),
    ],
)
def test_equals_the_equation_over_the_encoder(
    make: Any, kind: Any, options: Any, equation: Any, count: int
) -> None:
    model = make()
    names = NAMES[:count]
    rows = rows_with_others()
    if kind is RetrievalContrastiveLoss:
        names = ("query", "positive", "negative")[:count]
        rows = [
            {"query": row["source"], "positive": row["target"], "negative": row["other"]}
            for row in rows
        ]
    vectors = [model(features)["sentence_embedding"] for features in columns(model, rows, names)]
    loss = kind(model, weight=3.0, **options)(columns(model, rows, names))
    expected = equation(
        *vectors, **{k: v for k, v in options.items() if k in ("temperature", "reduction")}
    )
    torch.testing.assert_close(loss, 3 * expected)


# Pairs 1 and 3 share their target, and pairs 3 and 5 their source.
SOURCES = torch.tensor([0, 1, 2, 3, 4, 3])
TARGETS = torch.tensor([0, 1, 2, 1, 4, 5])
GROUPS = torch.tensor([0, 1, 2, 1, 4, 1])


@pytest.mark.parametrize(
    ("kind", "equation", "tags"),
    [
        (SemanticContrastiveLoss, f.info_nce_loss, {"text": GROUPS.repeat(2)}),
        (CZNCELoss, f.cz_nce_loss, {"text": GROUPS.repeat(2)}),
        (
            RetrievalContrastiveLoss,
            f.retrieval_contrastive_loss,
            {"query_text": SOURCES, "passage_text": TARGETS},
        ),
    ],
)
def test_pairs_that_share_a_text_with_each_other_or_with_a_third_are_no_negatives(
    kind: Any, equation: Any, tags: dict[str, Tensor]
) -> None:
    model = tiny.static()
    rows = rows_with_others()
    rows[3]["target"] = rows[1]["target"]
    rows[5]["source"] = rows[3]["source"]
    source, target = (model(features)["sentence_embedding"] for features in columns(model, rows))
    torch.testing.assert_close(kind(model)(columns(model, rows)), equation(source, target, **tags))
    untagged = [
        {k: v for k, v in column.items() if k != "text_id"} for column in columns(model, rows)
    ]
    torch.testing.assert_close(kind(model)(untagged), equation(source, target))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_sentences_with_words(objective: Any) -> None:
    model = first_last_encoder(tiny.transformer())
    layer = ContextualEncoder(32, out_features=8)
    sides = []
    for side, features in zip(("source", "target"), columns(model, WORDS), strict=True):
        output = model(features)
        spans = [slice(row[f"{side}_start"], row[f"{side}_end"]) for row in WORDS]
        pairs = zip(output["token_embeddings"], spans, strict=True)
        words = torch.stack([tokens[span].mean(0) for tokens, span in pairs])
        sides.append(
            layer.linear_out(
                layer.linear(torch.cat([output["sentence_embedding"], words], 1)).relu()
            )
        )
    value = CZNCELoss(model, layer, objective=objective)(columns(model, WORDS))
    torch.testing.assert_close(value, OBJECTIVES[objective](*sides))


def test_another_word_of_the_same_sentences_is_a_negative_and_the_same_word_is_none() -> None:
    model = first_last_encoder(tiny.transformer())
    loss = CZNCELoss(model, ContextualEncoder(32))
    other_word = {
        **WORDS[0],
        "source_end": WORDS[0]["source_end"] + 1,
        "target_end": WORDS[0]["target_end"] + 1,
    }
    assert loss(columns(model, [WORDS[0], other_word])) != 0
    assert loss(columns(model, [WORDS[0], WORDS[0]])) == 0
    # Without words, both are the same pair of sentences.
    assert CZNCELoss(model)(columns(model, [WORDS[0], other_word])) == 0
    half = [
        {k: v for k, v in row.items() if not k.startswith("target_") or k == "target_language"}
        for row in WORDS
    ]
    for rows in (PLAIN, half):
        with pytest.raises(ValueError, match="word_start"):
            loss(columns(model, rows))


@pytest.mark.parametrize(
    ("default", "mapping"), [("document", {}), ("query", TO_DOCUMENT), (None, TO_DOCUMENT)]
)
@pytest.mark.parametrize("kind", [SemanticContrastiveLoss, LangContrastiveLoss])
def test_the_passage_encoder_alone_is_trained(
    kind: Any, default: str | None, mapping: dict[str, str]
) -> None:
    # The default route is what a column without a task takes: here it may be the wrong one.
    model, query, passage = two_encoders(default=default)
    rows = rows_with_others()
    loss = kind(model)(columns(model, rows, router_mapping=mapping))
    torch.testing.assert_close(loss, kind(passage)(columns(passage, rows)))
    loss.backward()
    assert all(p.grad is None for p in query.parameters())
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in passage.parameters())
    mapping = {} if default == "query" else {"source": "document", "target": "query"}
    with pytest.raises(ValueError, match="'query'"):
        kind(model)(columns(model, rows, router_mapping=mapping))


def test_a_router_without_a_document_route_is_left_alone() -> None:
    first = tiny.static(seed=1)
    second = tiny.static(seed=2)
    model = SentenceTransformer(
        modules=[Router({"left": list(first), "right": list(second)})], device="cpu"
    )
    mapped = columns(
        model, rows_with_others(), router_mapping={"source": "right", "target": "right"}
    )
    expected = SemanticContrastiveLoss(second)(columns(second, rows_with_others()))
    torch.testing.assert_close(SemanticContrastiveLoss(model)(mapped), expected)


TEXTS = tiny.texts(3)["sentence"]
LABELS = torch.tensor([4, 0, 4])


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_distillation_equals_its_equation_with_the_whole_teacher_as_the_bank(make: Any) -> None:
    model = make()
    vectors = torch.randn(6, model.get_embedding_dimension())
    options: Any = {"temperature": 0.1, "cosine_weight": 2.0}
    value = SimilarityDistillationLoss(model, vectors, weight=3.0, **options)(
        [model.preprocess(TEXTS)], LABELS
    )
    student = model(model.preprocess(TEXTS))["sentence_embedding"]
    torch.testing.assert_close(
        value, 3 * f.similarity_distillation_loss(student, vectors[LABELS], vectors, **options)
    )
    half = SimilarityDistillationLoss(model, vectors.half(), weight=3.0, **options)
    torch.testing.assert_close(half([model.preprocess(TEXTS)], LABELS), value, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("bank_size", [0, 5, 6, 9])
def test_the_bank_is_drawn_by_the_batch_alone_and_no_vector_counts_twice(bank_size: int) -> None:
    vectors = torch.randn(6, 8)
    student = torch.randn(3, 8)
    loss = SimilarityDistillationLoss(tiny.static(), vectors, bank_size=bank_size)
    rows = [*range(6)] if bank_size >= 6 else sorted({*loss.bank_rows(LABELS).tolist()})
    assert {0, 4} <= {*rows}
    expected = naive_distillation(student, vectors[LABELS], vectors[rows], 0.02, 10.0)
    torch.rand(7)
    torch.testing.assert_close(loss.compute_loss_from_embeddings(student, LABELS), expected)
    documents = torch.randn(9, 8)
    of_documents = SimilarityDistillationLoss(
        tiny.static(), vectors, documents=documents, teacher_temperature=0.05
    )
    expected = naive_distillation(student, vectors[LABELS], documents, 0.02, 10.0, 0.05)
    torch.testing.assert_close(of_documents.compute_loss_from_embeddings(student, LABELS), expected)
    many = SimilarityDistillationLoss(tiny.static(), torch.randn(500, 8), bank_size=20)
    assert not torch.equal(many.bank_rows(LABELS), many.bank_rows(torch.tensor([4, 4, 0])))


def test_labels_that_name_no_vector_are_refused_and_vectors_may_be_cut_off() -> None:
    model = tiny.static()
    loss = SimilarityDistillationLoss(model, torch.randn(6, 8))
    for labels in (
        None,
        torch.tensor([0.0, 1.0, 2.0]),
        torch.tensor([0, 6, 1]),
        torch.tensor([-1] * 3),
    ):
        with pytest.raises(ValueError, match="6 vectors"):
            loss([model.preprocess(TEXTS)], labels)
    model.truncate_dim = 4
    loss = SimilarityDistillationLoss(model, torch.tensor(model.encode(["sun", "moon"])))
    assert loss([model.preprocess(["sun", "moon"])], torch.tensor([0, 1])).abs() < 1e-5
