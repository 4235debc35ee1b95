"""What a loss reads of a data set and a batch, its batches, and what it owns."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Array2D, Dataset
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.data_collator import (
    SentenceTransformerDataCollator as OfHost,
)

from st_xlret.batches import Blocks, CrossLingualDataCollator, LengthGroupedBatches, Rows, Windows
from st_xlret.losses import (
    CCPLoss,
    CZNCELoss,
    LangContrastiveLoss,
    MaskedLMLoss,
    MSMLoss,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
)
from st_xlret.modules import ContextualEncoder
from tests import tiny
from tests.losses.batches import taught

DOCUMENTS = tiny.documents()
DUMP = DOCUMENTS.add_column("title", ["A moon"] * 60).add_column("url", ["https://a.b/c"] * 60)
BODY = DUMP.rename_column("sentence", "body")
TEXTS = DOCUMENTS.select_columns(["sentence", "language"])
PAIRS = tiny.pairs(8)
PLAIN = PAIRS.select_columns(["source", "target"])
OTHERS = PAIRS.add_column("other", ["sun"] * 8).select_columns(["other", "source", "target"])
QUESTIONS = PAIRS.rename_columns(
    {"source": "query", "target": "positive", "source_language": "language"}
).remove_columns("target_language")
NEGATIVES = QUESTIONS.add_column("negative_1", ["a star"] * 8)
NEGATIVES_READ = ["query", "positive", "negative_1", "language"]
SHUFFLED = NEGATIVES.select_columns(["negative_1", "positive", "language", "query"])
BLOCKS = PLAIN.rename_columns({"source": "sentence_0", "target": "sentence_1"}).add_column(
    "document", [1] * 8
)
ONE = tiny.pairs(12).select_columns(["source"])
TITLES = DUMP.select_columns(["title", "sentence", "language", "document"])
WORDS = Dataset.from_list(tiny.word_rows())
OF_DOCUMENTS = ["sentence", "language", "document", "position"]
GRID = PLAIN.add_column("grid", [[[1.0]]] * 8, feature=Array2D((1, 1), "float32"))
MODEL = tiny.static()


def cross(model: Any) -> CCPLoss:
    return CCPLoss(model, cross_language_negatives=True)


def words(model: Any) -> CZNCELoss:
    return CZNCELoss(tiny.transformer(), ContextualEncoder(32))


@pytest.mark.parametrize(
    ("build", "dataset", "columns"),
    [
        (CCPLoss, DUMP, OF_DOCUMENTS),
        (MSMLoss, DUMP.rename_column("sentence", "text"), ["text", *OF_DOCUMENTS[1:]]),
        (MaskedLMLoss, DUMP, ["sentence", "language"]),
        (MaskedLMLoss, PAIRS, PAIRS.column_names),
        (taught, DUMP.add_column("label", [0] * 60), ["sentence", "language", "label"]),
        (cross, DUMP.remove_columns("language"), ["sentence", "document", "position"]),
        (CCPLoss, PAIRS, PAIRS.column_names),
        (CCPLoss, PLAIN.add_column("label", [1] * 8), ["source", "target", "label"]),
        (cross, PLAIN, ["source", "target"]),
        (SemanticContrastiveLoss, PLAIN.add_column("id", [*range(8)]), ["source", "target"]),
        (
            MSMLoss,
            BLOCKS.add_column("language", ["en"] * 8),
            ["sentence_0", "sentence_1", "document", "language"],
        ),
        (
            CZNCELoss,
            PAIRS.remove_columns("source_language"),
            ["source", "target", "target_language"],
        ),
        (words, WORDS, [c for c in WORDS.column_names if not c.endswith("_word")]),
        # Queries come first, and negatives and others last.
        (LangContrastiveLoss, OTHERS, ["source", "target", "other"]),
        (RetrievalContrastiveLoss, SHUFFLED, NEGATIVES_READ),
    ],
)
def test_the_columns_that_a_loss_reads(build: Any, dataset: Dataset, columns: list[str]) -> None:
    loss = build(tiny.transformer() if build is MaskedLMLoss else MODEL)
    assert loss.select(dataset).column_names == columns


@pytest.mark.parametrize(
    ("build", "dataset", "named"),
    [
        (CCPLoss, DOCUMENTS.remove_columns("document"), "'document'"),
        (CCPLoss, DOCUMENTS.remove_columns("language"), "'language'"),
        (CCPLoss, DOCUMENTS.remove_columns("sentence"), r"0 text columns"),
        (MSMLoss, DOCUMENTS.remove_columns(["position", "document"]), "'document', 'position'"),
        (SemanticContrastiveLoss, DOCUMENTS, r"\['sentence'\]"),
        (words, PAIRS, "'source_start', 'source_end', 'target_start', 'target_end'"),
        (taught, DOCUMENTS, "'label'"),
        (CCPLoss, DOCUMENTS.to_iterable_dataset(), "IterableDataset"),
        # Texts that would be read as ids, instead of as a column of negatives.
        (
            RetrievalContrastiveLoss,
            QUESTIONS.add_column("document", ["sun"] * 8),
            "'document' would not be read",
        ),
        # Further texts, which are neither negatives nor others.
        (CCPLoss, BODY, r"\['body'\] are, among"),
        (MSMLoss, BODY.remove_columns("url"), r"\['body'\] are, among"),
        (cross, DUMP.remove_columns("document"), "'document'"),
        (RetrievalContrastiveLoss, QUESTIONS.add_column("answer", ["a star"] * 8), "'answer'"),
        (LangContrastiveLoss, PAIRS.add_column("title", ["a star"] * 8), "'title'"),
        # Lists of texts.
        (
            RetrievalContrastiveLoss,
            QUESTIONS.add_column("negatives", [["a star"]] * 8),
            r"\['negatives'\]",
        ),
        (
            CCPLoss,
            DUMP.remove_columns("sentence").add_column("sentence", [["a star"]] * 60),
            "'sentence' has no strings",
        ),
        # Languages in the place of texts.
        (SemanticContrastiveLoss, ONE.add_column("lang", ["English"] * 12), r"\['lang'\] are"),
        (SemanticContrastiveLoss, ONE.add_column("iso", ["eng", "fra"] * 6), r"\['iso'\]"),
        (
            cross,
            PAIRS.select_columns(["source"]).add_column("locale", ["pt-br", None] * 4),
            r"\['locale'\]",
        ),
        (
            CCPLoss,
            DOCUMENTS.remove_columns("language").add_column("language", ["english"] * 60),
            "row 0",
        ),
        # Labels that would not be read.
        (
            RetrievalContrastiveLoss,
            QUESTIONS.add_column("gold_score", [0.5, 0.1] * 4),
            r"\['gold_score'\]",
        ),
        (
            SemanticContrastiveLoss,
            PLAIN.add_column("is_duplicate", [0, 1] * 4),
            r"\['is_duplicate'\]",
        ),
        (
            RetrievalContrastiveLoss,
            QUESTIONS.add_column("negative_ids", [[7]] * 8),
            r"\['negative_ids'\]",
        ),
        (RetrievalContrastiveLoss, QUESTIONS.add_column("neg_pid", [*range(8)]), r"\['neg_pid'\]"),
        (
            RetrievalContrastiveLoss,
            QUESTIONS.add_column("negative_id", list("abcdefgh")),
            r"\['negative_id'\] are",
        ),
        (
            SemanticContrastiveLoss,
            PLAIN.rename_column("target", "negative"),
            "2 text columns do not fit",
        ),
        (SemanticContrastiveLoss, GRID, r"\['grid'\]"),
        (CCPLoss, PAIRS.add_column("label", [0, 1] * 4), "'label' would not be read"),
        (
            RetrievalContrastiveLoss,
            QUESTIONS.add_column("label", [1] * 8),
            "'label' would not be read",
        ),
        (SemanticContrastiveLoss, PAIRS.add_column("pair_id", [*range(8)]), r"\['pair_id'\]"),
        (
            SemanticContrastiveLoss,
            PAIRS.rename_column("target", "other"),
            "2 text columns do not fit|target_language",
        ),
        (
            RetrievalContrastiveLoss,
            NEGATIVES.add_column("negative_id", list("abcdefgh")),
            r"\['negative_id'\]",
        ),
        (cross, DUMP.rename_column("language", "lang"), r"\['lang'\]"),
    ],
)
def test_what_is_missing_or_unclear_is_named(build: Any, dataset: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        build(MODEL).select(dataset)


def test_batches_and_modules_are_changed_by_mappings() -> None:
    model = tiny.transformer()
    for build, batches in (
        (CCPLoss, Windows()),
        (MSMLoss, Blocks()),
        (SemanticContrastiveLoss, Rows()),
    ):
        assert build(MODEL).batches == batches
        assert build(MODEL, batches={"language_smoothing": 0.3}).batches == type(batches)(
            language_smoothing=0.3
        )
        assert build(MODEL, batches=Rows(language_mixing=0.5)).batches == Rows(language_mixing=0.5)
    assert taught(MODEL).batches == Rows() and taught(model).batches == LengthGroupedBatches(
        model.tokenizer
    )
    loss = CCPLoss(
        MODEL, {"out_features": 3, "normalization": "batch"}, {"scope": "per_language"}, bank_size=5
    )
    assert (loss.head.out_features, loss.head.normalization) == (3, "batch")
    assert loss.bank is not None and (loss.bank.size, loss.bank.scope) == (5, "per_language")
    assert len(MSMLoss(MODEL, {"layers": 1, "max_sentences": 7}).document_encoder.layers) == 1


@pytest.mark.parametrize(
    ("build", "dataset", "collator", "named"),
    [
        (RetrievalContrastiveLoss, QUESTIONS, OfHost, "language"),
        (MSMLoss, TEXTS, OfHost, "language"),
        (SemanticContrastiveLoss, PAIRS, OfHost, "source_language"),
        (SemanticContrastiveLoss, ONE.add_column("ID", ["abc"] * 12), OfHost, r"\['ID'\]"),
        (
            SemanticContrastiveLoss,
            ONE.add_column("lang", ["abc"] * 12),
            CrossLingualDataCollator,
            r"\['lang'\]",
        ),
        (
            LangContrastiveLoss,
            PLAIN.add_column("label", [1] * 8).add_column("title", ["a star"] * 8),
            OfHost,
            r"\['title'\]",
        ),
        (SemanticContrastiveLoss, PLAIN.add_column("score", [0.5, 0.1] * 4), OfHost, "labels"),
        (CCPLoss, TEXTS.remove_columns("language"), OfHost, "come without"),
        (CCPLoss, TITLES, CrossLingualDataCollator, r"\['title'\]"),
        (CCPLoss, TITLES.remove_columns("document"), CrossLingualDataCollator, r"\['title'\]"),
        (
            MSMLoss,
            TITLES.rename_column("sentence", "body"),
            CrossLingualDataCollator,
            r"\['title', 'body'\]",
        ),
    ],
)
def test_what_a_collator_takes_for_texts(
    tmp_path: Path, build: Any, dataset: Any, collator: Any, named: str
) -> None:
    loss = build(tiny.static())
    options = {
        "max_steps": 1,
        "per_device_train_batch_size": 4,
        "report_to": "none",
        "save_strategy": "no",
    }
    args = SentenceTransformerTrainingArguments(str(tmp_path), **options)
    collate = collator(loss.model.preprocess)
    for start in (SentenceTransformerTrainer.train, SentenceTransformerTrainer.evaluate):
        trainer = SentenceTransformerTrainer(
            loss.model, args, dataset, dataset, loss=loss, data_collator=collate
        )
        with pytest.raises(ValueError, match=f"{named}.*CrossLingualTrainer"):
            start(trainer)


def test_a_forgotten_callback_and_a_batch_that_teaches_nothing_are_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [tiny.features(MODEL, tiny.window_rows(4))]
    of_one_document = [tiny.features(MODEL, tiny.window_rows(1) * 2)]
    loss = CCPLoss(MODEL)
    kept = CCPLoss(MODEL)
    kept.state_is_kept = True
    with caplog.at_level(logging.WARNING):
        with torch.no_grad():
            loss(of_one_document)
        loss.eval()(of_one_document)
        kept(columns)
        SemanticContrastiveLoss(MODEL)([MODEL.preprocess(["sun", "moon"])] * 2)
        assert not caplog.text
        for _ in range(2):
            loss.train()(of_one_document)
    assert (
        caplog.text.count("LossStateCallback(loss)")
        == caplog.text.count("CCPLoss teaches nothing")
        == 1
    )
    monkeypatch.setattr("st_xlret.losses.base.get_world_size", lambda: 2)
    with pytest.raises(ValueError, match="LossStateCallback"):
        CCPLoss(MODEL)(columns)


OUT_OF_RANGE: list[tuple[Any, dict[str, Any]]] = [
    (CCPLoss, {"temperature": 0}),
    (CCPLoss, {"bank_size": -1}),
    (CCPLoss, {"mini_batch_size": 0}),
    (CCPLoss, {"weight": -1.0}),
    (CCPLoss, {"ratio": float("nan")}),
    (MSMLoss, {"temperature": -0.1}),
    (MSMLoss, {"mu": -1}),
    (MSMLoss, {"num_negatives": 0}),
    (SemanticContrastiveLoss, {"temperature": 0}),
    (SemanticContrastiveLoss, {"mini_batch_num_tokens": -5}),
    (RetrievalContrastiveLoss, {"temperature": float("inf")}),
    (CZNCELoss, {"mlm_weight": -0.1}),
]


@pytest.mark.parametrize(("kind", "options"), OUT_OF_RANGE)
def test_numbers_out_of_range_are_refused_by_name(kind: Any, options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} {options[name]}: it has to be"):
        kind(MODEL, **options)
