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
from st_xlret.losses.msm import arrange_blocks
from st_xlret.modules import DocumentEncoder
from tests import tiny
from tests.functional.oracles_documents import naive_masked_sentence_loss, naive_predictions
from tests.losses.documents import EN, FR, block_features

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


def test_a_batch_of_one_document_has_no_bias(model: SentenceTransformer) -> None:
    values = [msm(model, mu=mu)([block_features(model, (4,))]) for mu in (0.0, 0.5)]
    torch.testing.assert_close(*values)
    assert values[0] > 0
    nothing = msm(model, intra_document_negatives=False)([block_features(model, (4,))])
    assert nothing == 0


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


def test_rows_of_other_languages_are_no_negatives_by_default(model: SentenceTransformer) -> None:
    mixed = block_features(model, languages=[EN, FR, EN, FR])
    separate, together = (msm(model, heads="none", cross_language_negatives=cross) for cross in (False, True))
    assert separate([dict(mixed)]) < together([dict(mixed)])
    pure = block_features(model)
    assert separate([dict(pure)]) == together([dict(pure)])


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


def test_equal_document_encoders_are_one(model: SentenceTransformer) -> None:
    grouped, shared = msm(model, language_groups=[["en"]], heads="shared"), msm(model, heads="shared")
    grouped.networks.projections.load_state_dict(shared.networks.projections.state_dict())
    for encoder in grouped.networks.document_encoders:
        encoder.load_state_dict(shared.networks.document_encoders[0].state_dict())
    features = block_features(model, languages=[EN, FR, EN, FR])
    torch.testing.assert_close(grouped([dict(features)]), shared([dict(features)]))


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


def test_evaluation_in_training_mode_changes_nothing(model: SentenceTransformer) -> None:
    loss = MSMLoss(model, DocumentEncoder(8, dropout=0.3), num_negatives=2)
    loss([block_features(model)]).backward()
    before, value = state(loss), loss.last_value
    assert loss.training
    with torch.no_grad():
        first, second = (loss([block_features(model, seed=1)]) for _ in range(2))
    assert first == second and loss.last_value is value
    assert all(torch.equal(tensor, before[name]) for name, tensor in loss.owned_state().items())


def test_gradients_reach_everything(model: SentenceTransformer) -> None:
    loss = msm(model)
    loss([block_features(model)]).backward()
    # The key's bias moves all logits of a query alike.
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in loss.parameters())
    owned = {id(p) for p in loss.owned_parameters()}
    assert owned == {id(p) for p in loss.networks.parameters()}


@pytest.mark.parametrize("mini_batch_size", [None, 3])
@pytest.mark.parametrize("heads", ["separate", "none"])
def test_bfloat16_autocast_with_a_transformer(heads: str, mini_batch_size: int | None) -> None:
    model = tiny.transformer(dropout=0.1)
    loss = MSMLoss(model, heads=heads, mini_batch_size=mini_batch_size)  # type: ignore[arg-type]
    for seed in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss([block_features(model, seed=seed)])
        value.backward()
        assert value.dtype == torch.float32 and value.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in loss.parameters())


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


@pytest.mark.parametrize("heads", ["separate", "none"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_16_bit_encoder_without_autocast(heads: str, dtype: torch.dtype) -> None:
    def made() -> MSMLoss:
        torch.manual_seed(1)
        return MSMLoss(tiny.transformer(), DocumentEncoder(32, dropout=0.0), heads=heads)  # type: ignore[arg-type]

    exact, low = made(), made()
    low.model.to(dtype)
    value = low([block_features(low.model)])
    torch.testing.assert_close(value, exact([block_features(exact.model)]), rtol=0.05, atol=0.05)
    value.backward()
    assert value.dtype == low.networks.document_encoders[0].mask_vector.grad.dtype == torch.float32
    assert next(low.model.parameters()).grad.dtype == dtype


def test_inside_of_the_hosts_matryoshka_loss_it_says_what_to_do(model: SentenceTransformer) -> None:
    with pytest.raises(ValueError, match="8 features.*vectors of 4.*MatryoshkaLoss cannot wrap MSMLoss"):
        MatryoshkaLoss(model, msm(model), [8, 4])([block_features(model)], None)


def test_blocks_of_no_rows() -> None:
    rows, present = arrange_blocks(torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long))
    assert rows.shape == present.shape == (0, 0)


def test_wrong_options(model: SentenceTransformer) -> None:
    with pytest.raises(ValueError, match=r"16 features.*encoder gives 8.*DocumentEncoder\(8\)"):
        MSMLoss(model, DocumentEncoder(16))
    with pytest.raises(ValueError, match="heads must be 'separate', 'shared' or 'none', got 'two'"):
        MSMLoss(model, heads="two")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_negatives must be at least 1, or None for all, got 0"):
        MSMLoss(model, num_negatives=0)
    with pytest.raises(ValueError, match="mu must not be negative, got -1"):
        MSMLoss(model, mu=-1)
    with pytest.raises(ValueError, match="temperature.*0"):
        MSMLoss(model, temperature=0)
    with pytest.raises(ValueError, match="separate_heads needs language_groups"):
        MSMLoss(model, separate_heads=True)
    with pytest.raises(ValueError, match="unknown language code 'english'"):
        MSMLoss(model, language_groups=[["english"]])
    with pytest.raises(ValueError, match="mlm.*another encoder"):
        MSMLoss(tiny.transformer(), mlm=MaskedLMLoss(tiny.transformer()))


def test_what_the_model_card_learns(model: SentenceTransformer) -> None:
    config = msm(model, language_groups=[["en"]]).get_config_dict()
    assert config["document_encoder_layers"] == 2 and config["language_groups"] == [["en"]]
    assert config["num_negatives"] == 512 and config["mlm"] is None
    assert "zhang2023modeling" in msm(model).citation
