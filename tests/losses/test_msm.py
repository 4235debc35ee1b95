"""MSMLoss: the equation over encoder, document encoder and heads, its options, and what it leaves alone."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from torch import Tensor

from st_xlret.losses import MaskedLMLoss, MSMLoss
from st_xlret.modules import DocumentEncoder
from tests import tiny
from tests.functional.oracles import naive_masked_sentence_loss, naive_predictions
from tests.losses.batches import EN, FR, block_features

LENGTHS = (3, 2, 4, 1)


@pytest.fixture
def model() -> SentenceTransformer:
    return tiny.static()


def msm(model: SentenceTransformer, **options: Any) -> MSMLoss:
    torch.manual_seed(1)
    return MSMLoss(model, DocumentEncoder(8, heads=2, max_sentences=5, dropout=0.0), **options)


def state(loss: MSMLoss) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in loss.owned_state().items()}


def by_hand(loss: MSMLoss, features: dict[str, Tensor], lengths: tuple[int, ...] = LENGTHS) -> Tensor:
    """Document by document; rows must come in the order of documents."""
    vectors = loss.model(dict(features))["sentence_embedding"]
    encoder: Any = loss.networks.document_encoders[0]
    documents = [rows for rows in vectors.split(lengths) if len(rows) > 1]
    p = torch.cat(
        naive_predictions(encoder.layers, encoder.norm, encoder.mask_vector, encoder.positions.weight, documents)
    )
    number = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    predicted = [row for row in range(len(vectors)) if lengths[number[row]] > 1]
    h = vectors
    if loss.networks.heads != "none":
        heads: Any = list(loss.networks.projections[0].children())  # type: ignore[operator]
        p, h = heads[0](p), heads[-1](h)
    everywhere = torch.zeros(len(h), p.shape[1]).index_copy(0, torch.tensor(predicted), p)
    return naive_masked_sentence_loss(
        everywhere,
        h,
        features["document_id"].tolist(),
        mu=loss.mu,
        temperature=loss.temperature,
        intra=loss.intra_document_negatives,
        predicted=predicted,
        language=None if loss.cross_language_negatives else features["language_id"].tolist(),
        text=features["text_id"].tolist() if loss.mask_same_text else None,
    )


@pytest.mark.parametrize("heads", ["separate", "shared", "none"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mu": 0.0},
        {"temperature": 0.3, "mu": 0.7},
        {"intra_document_negatives": False},
        {"mask_same_text": False, "cross_language_negatives": True},
    ],
)
def test_equals_its_parts_one_sentence_after_another(model: SentenceTransformer, heads: str, options: dict) -> None:
    loss, other = msm(model, heads=heads, **options), msm(model, heads=heads, **options)
    texts = [tiny.sentence(random.Random(i), 4) for i in range(10)]
    texts[6] = texts[1]
    languages = [EN, EN, EN, FR]
    for seed in (0, 1):
        features = block_features(model, seed=seed, languages=languages, texts=texts)
        torch.testing.assert_close(loss([dict(features)]), by_hand(other, features))
    for name, tensor in other.owned_state().items():
        if "norm" in name:
            torch.testing.assert_close(loss.owned_state()[name], tensor)


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_the_order_of_rows_does_not_matter(make) -> None:
    model = make()
    torch.manual_seed(1)
    loss = MSMLoss(model, DocumentEncoder(model.get_embedding_dimension(), dropout=0.0)).double()
    order = list(range(10))
    random.Random(3).shuffle(order)
    texts = [tiny.sentence(random.Random(i), 4) for i in range(10)]
    one, other = (loss([block_features(model, texts=texts, order=rows)]) for rows in (None, order))
    torch.testing.assert_close(one, other)


def test_documents_of_one_sentence_are_negatives_only_and_counted(model: SentenceTransformer) -> None:
    loss = msm(model, heads="none")
    with_single = loss([block_features(model)])
    assert loss.negatives_only == 1
    with torch.no_grad():
        loss([block_features(model)])
    assert loss.negatives_only == 1
    texts = [tiny.sentence(random.Random(0), 2 + i) for i in range(9)]
    features = block_features(model, (3, 2, 4), texts=texts)
    without, further = loss([features]), loss([block_features(model, texts=[*texts, "wolf"])])
    assert loss.negatives_only == 2 and further > without and with_single.isfinite()


def test_documents_of_one_sentence_alone_are_refused(model: SentenceTransformer) -> None:
    with pytest.raises(ValueError, match="none of the 3 sentences.*Blocks"):
        msm(model)([block_features(model, (1, 1, 1))])


def test_equal_sentences_and_empty_ones() -> None:
    model = tiny.transformer()
    loss = MSMLoss(model, DocumentEncoder(32))
    for texts in (["sun moon"] * 10, [""] * 10, ["", *["sun"] * 3, "", *["moon"] * 5]):
        value = loss([block_features(model, texts=texts)])
        value.backward()
        assert value.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in loss.parameters())
    same = block_features(model, texts=["sun moon"] * 10)
    assert MSMLoss(model, DocumentEncoder(32))([same]) == 0
    unmasked = MSMLoss(model, DocumentEncoder(32), mask_same_text=False, num_negatives=None)
    assert unmasked([same]).isfinite()


def test_blocks_of_one_document_are_one_document(model: SentenceTransformer) -> None:
    loss = msm(model, heads="none", mu=0.0, intra_document_negatives=False)
    features = block_features(model, (2, 2, 2))
    apart = loss([dict(features)])
    features["document_id"][:4] = 7
    assert loss([dict(features)]) < apart
    del features["document_id"]
    assert loss([dict(features)]) == apart


@pytest.mark.parametrize("separate_heads", [False, True])
def test_a_language_group_has_its_own_document_encoder(model: SentenceTransformer, separate_heads: bool) -> None:
    loss = msm(model, language_groups=[["en"]], separate_heads=separate_heads)
    encoders, projections = loss.networks.document_encoders, loss.networks.projections
    assert len(encoders) == 2 and len(projections) == 1 + separate_heads
    assert not torch.equal(encoders[0].mask_vector, encoders[1].mask_vector)
    used = {EN: 1, FR: 0}
    for language, number in used.items():
        loss.zero_grad()
        loss([block_features(model, languages=[language] * 4)]).backward()
        touched = [any(p.grad is not None and p.grad.any() for p in part.parameters()) for part in encoders]
        assert touched == [number == 0, number == 1]
        if separate_heads:
            touched = [any(p.grad is not None and p.grad.any() for p in part.parameters()) for part in projections]
            assert touched == [number == 0, number == 1]
    mixed = loss([block_features(model, languages=[EN, FR, EN, FR])])
    assert mixed.isfinite()


def test_negatives_are_drawn_by_seed_and_step(model: SentenceTransformer) -> None:
    features = block_features(model)
    loss = msm(model, heads="none", num_negatives=1)
    before = state(loss)
    values = [loss([dict(features)]).item() for _ in range(6)]
    assert loss.steps == 6 and len(set(values)) > 1
    loss.load_owned_state(before)
    assert [loss([dict(features)]).item() for _ in range(6)] == values
    other = msm(model, heads="none", num_negatives=1, seed=1)
    assert [other([dict(features)]).item() for _ in range(6)] != values
    every = [msm(model, heads="none", num_negatives=n)([dict(features)]) for n in (None, 9, 512)]
    assert every[0] == every[1] == every[2]


def test_bad_batches(model: SentenceTransformer) -> None:
    loss = msm(model)
    features = block_features(model)
    for tag in ("block_id", "sentence_position"):
        without = {name: tensor for name, tensor in features.items() if name != tag}
        with pytest.raises(ValueError, match="'document' and 'position'.*CrossLingualTrainer.*InputExample"):
            loss([without])
    without = {name: tensor for name, tensor in features.items() if name != "language_id"}
    with pytest.raises(ValueError, match="does not know the languages.*cross_language_negatives=True"):
        loss([dict(without)])
    msm(model, cross_language_negatives=True)([dict(without)])
    with pytest.raises(ValueError, match="a document of 6 sentences is longer than max_sentences=5"):
        loss([block_features(model, (6, 2))])
    features["sentence_position"][1] = features["sentence_position"][0]
    with pytest.raises(ValueError, match="block 0 has two sentences at position 10.*Blocks"):
        loss([features])


@pytest.mark.parametrize("kind", ["document", "language"])
def test_blocks_of_two_documents_or_languages_are_refused(model: SentenceTransformer, kind: str) -> None:
    loss, features = msm(model), block_features(model)
    features[f"{kind}_id"][1] = FR
    with pytest.raises(ValueError, match=rf"block 0 .*2 {kind}s.*Blocks"):
        loss([features])
    assert not loss.steps


def test_scattered_sentences_of_documents_are_refused_in_the_first_step(model: SentenceTransformer) -> None:
    loss, features = msm(model), block_features(model)
    scattered = {**features, "sentence_position": 10 + 3 * (features["sentence_position"] - 10)}
    with pytest.raises(ValueError, match=r"of 6 neighbours.* 0 are consecutive.*Blocks"):
        loss([dict(scattered)])
    # A sentence without text that a sampler leaves out is no reason to stop, then or later.
    loss([dict(features)])
    loss([dict(scattered)])


def test_inside_of_the_hosts_matryoshka_loss_it_says_what_to_do(model: SentenceTransformer) -> None:
    with pytest.raises(ValueError, match="8 features.*vectors of 4.*MatryoshkaLoss cannot wrap MSMLoss"):
        MatryoshkaLoss(model, msm(model), [8, 4])([block_features(model)], None)


def test_it_learns() -> None:
    """Documents that count in order: what is missing can be told."""
    model = tiny.static(features=16)
    torch.manual_seed(0)
    loss = MSMLoss(model, DocumentEncoder(16, heads=2, dropout=0.0))
    texts = [word for start in range(8) for word in (tiny.WORDS * 2)[start : start + 4]]
    features = block_features(model, [4] * 8, texts=texts)
    optimizer = torch.optim.Adam(loss.parameters(), lr=0.01)
    values = []
    for _ in range(60):
        value = loss([dict(features)])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < 0.5 * values[0]


@pytest.mark.parametrize("mini_batch_size", [None, 4])
def test_a_masked_language_model_is_added(mini_batch_size: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.transformer()
    mlm = MaskedLMLoss(model)
    loss = MSMLoss(model, DocumentEncoder(32, dropout=0.0), mini_batch_size=mini_batch_size, mlm=mlm)
    features = block_features(model)
    given: list[dict[str, Tensor]] = []
    forward = mlm.forward

    def remember(columns: list[dict[str, Tensor]], labels: None = None) -> Tensor:
        given.extend(columns)
        torch.manual_seed(3)
        return forward(columns, labels)

    monkeypatch.setattr(mlm, "forward", remember)
    before = {name: tensor.clone() for name, tensor in loss.owned_state().items()}
    parts = loss([dict(features)])
    torch.stack(list(parts.values())).sum().backward()
    ours = {name: p.grad.clone() for name, p in loss.named_parameters() if p.grad is not None}
    assert len(given[0]["input_ids"]) == (mini_batch_size or 10)
    assert loss.last_value == parts["msm"].detach() + parts["mlm"]

    loss.zero_grad()
    loss.load_owned_state(before)
    loss.mlm = None
    (loss([dict(features)]) + mlm([given[0]])).backward()
    loss.mlm = mlm
    theirs = {name: p.grad for name, p in loss.named_parameters() if p.grad is not None}
    assert set(ours) == set(theirs) and any("mlm.lm_head" in name for name in ours)
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-4, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
    with torch.no_grad():
        assert set(loss([dict(features)])) == {"msm", "mlm"}


def test_what_is_owned_beside_a_masked_language_model() -> None:
    model = tiny.transformer()
    loss = MSMLoss(model, mlm=MaskedLMLoss(model))
    names = set(loss.owned_state())
    assert not [name for name in names if "model." in name.replace("lm_head.transform.", "")]
    assert {"steps", "negatives_only", "mlm.lm_head.bias", "networks.document_encoders.0.mask_vector"} <= names
    encoder = {id(p) for p in model.parameters()}
    assert loss.owned_parameters() and not encoder & {id(p) for p in loss.owned_parameters()}
    loss.load_owned_state(loss.owned_state())
    with pytest.raises(ValueError, match="the saved state does not fit MSMLoss"):
        MSMLoss(model).load_owned_state(loss.owned_state())
