"""What a loss owns besides the encoder, and the encoder inside its wrappers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from torch import nn

from st_xlret.batches import Blocks, DistinctRows, LengthGroupedBatches, Rows, Windows, pairs_and_others
from st_xlret.losses import (
    CCPLoss,
    CZNCELoss,
    LangContrastiveLoss,
    MaskedLMLoss,
    MSMLoss,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
    SimilarityDistillationLoss,
)
from st_xlret.losses.base import CrossLingualLoss, embedding_size, unwrapped
from st_xlret.modules import AsymmetricBNHead, ContextualEncoder, LanguageMemoryBank, first_last_encoder
from tests import tiny


def test_the_encoder_is_not_owned() -> None:
    loss = CCPLoss(tiny.static(), bank=LanguageMemoryBank(8, 4))
    head = [f"head.{name}" for name, _ in loss.head.named_parameters()]
    assert [id(p) for p in loss.owned_parameters()] == [id(loss.get_parameter(name)) for name in head]
    assert set(loss.owned_state()) == set(head) | {
        *("head.toggle", "head.norm.running_mean", "head.norm.running_var", "head.norm.num_batches_tracked"),
        *("bank.keys", "bank.tags"),
    }
    loss.head.linear_in.weight.requires_grad_(False)
    assert len(loss.owned_parameters()) == len(head) - 1


def test_the_encoder_inside_of_its_wrappers() -> None:
    model = tiny.static()
    assert unwrapped(model) is model and unwrapped(nn.DataParallel(model)) is model
    assert unwrapped(torch.compile(nn.DataParallel(model))) is model


def test_an_encoder_that_does_not_tell_its_size() -> None:
    assert embedding_size(tiny.static(features=8)) == 8
    model = tiny.static()
    model.get_embedding_dimension = lambda: None  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="get_embedding_dimension"):
        CCPLoss(model)


def test_owned_state_is_restored_and_the_encoder_left_alone() -> None:
    first, second = CCPLoss(tiny.static(seed=0), bank_size=8), CCPLoss(tiny.static(seed=1), bank_size=8)
    embedding = second.model[0].embedding.weight.clone()
    second.load_owned_state(first.owned_state())
    assert all(torch.equal(t, first.owned_state()[name]) for name, t in second.owned_state().items())
    assert torch.equal(second.model[0].embedding.weight, embedding)


def test_a_state_that_does_not_fit() -> None:
    loss = CCPLoss(tiny.static(), bank=LanguageMemoryBank(8, 4))
    state = loss.owned_state()
    with pytest.raises(ValueError, match=r"does not fit CCPLoss.*unexpected.*bank\.keys.*options of the saved run"):
        CCPLoss(tiny.static(), bank_size=0).load_owned_state(state)
    with pytest.raises(ValueError, match=r"missing.*head\.norm"):
        without_norm = AsymmetricBNHead(8, normalization="none")
        loss.load_owned_state(CCPLoss(tiny.static(), without_norm, LanguageMemoryBank(8, 4)).owned_state())


DOCUMENTS = tiny.documents().add_column("id", ["x"] * 60).add_column("title_length", [3] * 60)
PAIRS = tiny.pairs(8)
QUESTIONS = PAIRS.rename_columns({"source": "query", "target": "positive", "source_language": "language"})
MODEL = tiny.static()


def sentence_teacher(model: Any) -> SimilarityDistillationLoss:
    return SimilarityDistillationLoss(model, torch.ones(8, model.get_embedding_dimension()))


@pytest.mark.parametrize(
    ("build", "dataset", "columns"),
    [
        (CCPLoss, DOCUMENTS, ["sentence", "language", "document"]),
        (CCPLoss, PAIRS, ["source", "target", "source_language", "target_language"]),
        (
            CCPLoss,
            PAIRS.select_columns(["source", "target"]).add_column("label", [1] * 8),
            ["source", "target", "label"],
        ),
        (
            lambda m: CCPLoss(m, cross_language_negatives=True),
            PAIRS.select_columns(["source", "target"]),
            ["source", "target"],
        ),
        (MSMLoss, DOCUMENTS, ["sentence", "language", "document", "position"]),
        (
            MSMLoss,
            PAIRS.add_column("document", [1] * 8),
            ["source", "target", "source_language", "target_language", "document"],
        ),
        (lambda m: MaskedLMLoss(tiny.transformer()), DOCUMENTS, ["sentence", "language"]),
        (SemanticContrastiveLoss, PAIRS, PAIRS.column_names),
        (CZNCELoss, PAIRS.remove_columns("source_language"), ["source", "target", "target_language"]),
        (LangContrastiveLoss, pairs_and_others(PAIRS, tiny.texts(4)), [*PAIRS.column_names, "other", "other_language"]),
        (RetrievalContrastiveLoss, QUESTIONS, ["query", "positive", "language"]),
        (sentence_teacher, DOCUMENTS.add_column("label", [0] * 60), ["sentence", "language", "label"]),
    ],
)
def test_the_columns_that_a_loss_reads(build: Any, dataset: Dataset, columns: list[str]) -> None:
    assert sorted(build(MODEL).select(dataset).column_names) == sorted(columns)


@pytest.mark.parametrize(
    ("build", "dataset", "message"),
    [
        (CCPLoss, DOCUMENTS.remove_columns("document"), "CCPLoss takes .*no column 'document'.*'language'"),
        (CCPLoss, DOCUMENTS.remove_columns("language"), "no column 'language'"),
        (CCPLoss, DOCUMENTS.remove_columns("sentence"), r"CCPLoss takes .*text columns \[\]"),
        (MSMLoss, DOCUMENTS.remove_columns(["position", "document"]), "MSMLoss .*no column 'document', 'position'"),
        (SemanticContrastiveLoss, DOCUMENTS, r"takes two columns of translations.*text columns \['sentence'\]"),
        (RetrievalContrastiveLoss, DOCUMENTS, "takes queries, passages"),
        (sentence_teacher, DOCUMENTS, "no column 'label'"),
    ],
)
def test_what_is_missing_is_named(build: Any, dataset: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        build(MODEL).select(dataset)


def test_words_are_read_with_a_contextual_encoder() -> None:
    model = first_last_encoder(tiny.transformer())
    loss = CZNCELoss(model, ContextualEncoder(32))
    with pytest.raises(ValueError, match="no column 'source_start', 'source_end', 'target_start', 'target_end'"):
        loss.select(PAIRS)
    words = {f"{side}_{end}": [1] * 8 for side in ("source", "target") for end in ("start", "end")}
    dataset = Dataset.from_dict({**PAIRS.to_dict(), **words, "source_word": ["sun"] * 8})
    assert set(loss.select(dataset).column_names) == {*PAIRS.column_names, *words}


@pytest.mark.parametrize(
    ("build", "batches"),
    [
        (CCPLoss, Windows()),
        (MSMLoss, Blocks()),
        (SemanticContrastiveLoss, Rows()),
        (CZNCELoss, Rows()),
        (LangContrastiveLoss, Rows()),
        (RetrievalContrastiveLoss, DistinctRows()),
    ],
)
def test_batches_and_ratio(build: Any, batches: Any) -> None:
    assert build(MODEL).batches == batches and build(MODEL).ratio == 1
    assert build(MODEL, batches=Rows(batch_scale=3)).batches == Rows(batch_scale=3)
    changed = build(MODEL, batches={"language_smoothing": 0.3}, ratio=0.5)
    assert changed.batches == type(batches)(language_smoothing=0.3) and changed.ratio == 0.5
    with pytest.raises(ValueError, match="batches={'windows': 3} does not fit"):
        build(MODEL, batches={"windows": 3})
    with pytest.raises(ValueError, match="ratio must not be negative, got -1"):
        build(MODEL, ratio=-1)


def test_batches_of_a_padded_encoder_have_similar_lengths() -> None:
    assert sentence_teacher(MODEL).batches == Rows()
    model = tiny.transformer()
    assert sentence_teacher(model).batches == LengthGroupedBatches(model.tokenizer)


def test_options_of_modules_may_be_mappings() -> None:
    loss = CCPLoss(MODEL, {"out_features": 3, "normalization": "batch"}, {"scope": "per_language"}, bank_size=5)
    assert (loss.head.out_features, loss.head.normalization) == (3, "batch")
    assert loss.bank is not None and (loss.bank.features, loss.bank.size, loss.bank.scope) == (3, 5, "per_language")
    networks = MSMLoss(MODEL, {"layers": 1, "max_sentences": 7}).networks.document_encoders[0]
    assert (len(networks.layers), networks.max_sentences) == (1, 7)  # type: ignore[arg-type]


def train_in_the_hosts_trainer(folder: Path, loss: CrossLingualLoss, dataset: Dataset, **options: Any) -> None:
    """With the collator of the host."""
    args = SentenceTransformerTrainingArguments(
        str(folder), max_steps=1, per_device_train_batch_size=4, report_to="none", save_strategy="no", **options
    )
    SentenceTransformerTrainer(model=loss.model, args=args, train_dataset=dataset, loss=loss).train()


TEXTS = DOCUMENTS.select_columns(["sentence", "language"])
IDS = TEXTS.rename_column("language", "document")


@pytest.mark.parametrize(
    ("build", "dataset", "message"),
    [
        (lambda: RetrievalContrastiveLoss(tiny.transformer()), QUESTIONS, "of languages and ids too"),
        (lambda: RetrievalContrastiveLoss(tiny.static()), QUESTIONS, "of languages and ids too"),
        (lambda: MaskedLMLoss(tiny.transformer()), TEXTS, "of languages and ids too"),
        (lambda: CCPLoss(tiny.static(), cross_language_negatives=True), TEXTS, "of languages and ids too"),
        (lambda: MaskedLMLoss(tiny.transformer()), IDS, "of languages and ids too"),
        (lambda: CCPLoss(tiny.static(), cross_language_negatives=True), IDS, "of languages and ids too"),
        (lambda: MSMLoss(tiny.static()), TEXTS, "of languages and ids too"),
        (lambda: SemanticContrastiveLoss(tiny.static()), PAIRS, "two columns of translations, got 4"),
        (lambda: CCPLoss(tiny.static()), TEXTS.remove_columns("language"), "one text column without documents"),
        (lambda: MSMLoss(tiny.static()), TEXTS.remove_columns("language"), "which sentences are of one document"),
    ],
)
def test_metadata_that_the_hosts_collator_takes_for_texts(
    tmp_path: Path, build: Any, dataset: Dataset, message: str
) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}.*CrossLingual(DataCollator|Trainer)"):
        train_in_the_hosts_trainer(tmp_path, build(), dataset)


def test_the_hosts_trainer_draws_the_batches(tmp_path: Path) -> None:
    model = tiny.static()
    dataset = PAIRS.select_columns(["source", "target"])
    train_in_the_hosts_trainer(tmp_path, SemanticContrastiveLoss(model), dataset, batch_sampler=Rows())


def test_a_forgotten_callback_is_said_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [tiny.features(MODEL, tiny.window_rows(4))]
    loss, kept = CCPLoss(MODEL), CCPLoss(MODEL)
    kept.state_is_kept = True
    with caplog.at_level(logging.WARNING):
        with torch.no_grad():
            loss(columns)
        loss.eval()(columns)
        kept(columns)
        SemanticContrastiveLoss(MODEL)([MODEL.preprocess(["sun", "moon"])] * 2)
        assert not caplog.text
        for _ in range(2):
            loss.train()(columns)
    assert caplog.text.count("CCPLoss has parameters of its own") == 1
    assert "CrossLingualTrainer" in caplog.text and "LossStateCallback(loss)" in caplog.text
    monkeypatch.setattr("st_xlret.losses.base.get_world_size", lambda: 2)
    with pytest.raises(ValueError, match="averages their gradients over the processes.*LossStateCallback"):
        CCPLoss(MODEL)(columns)


def test_a_loss_inside_of_another_is_kept_with_it(caplog: pytest.LogCaptureFixture) -> None:
    model = tiny.transformer()
    loss = CZNCELoss(model, mlm=MaskedLMLoss(model))
    loss.state_is_kept = True
    assert loss.mlm is not None and loss.mlm.state_is_kept
    with caplog.at_level(logging.WARNING):
        loss([model.preprocess(["sun moon", "star"]), model.preprocess(["wolf", "bear"])])
    assert not caplog.text
