"""From a trained encoder, translations and questions to a model whose languages are together."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from st_xlret import RetrievalContrastiveLoss, SemanticContrastiveLoss, SimilarityDistillationLoss
from st_xlret.batches import LengthGroupedBatches, Rows
from st_xlret.modules import static_encoder
from tests.training_scripts.scripts import PROMPTS, Runner, translations


def test_a_language_comes_to_english_and_english_stays(train: Runner, tmp_path: Path) -> None:
    # An encoder of random weights knows its words by their vectors alone.
    vectors = "--retrieval --no_freeze_embeddings --learning_rate 5e-3 --english_share 0.4 --keep_trained 1"
    results = train("search", vectors, "--max_steps 120 --save_strategy no --evaluation_pairs 12")
    score = "pairs_average_accuracy"
    assert results["held_out"][score] > 0.6 > 0.3 > results["held_out_before"][score]
    raw = SentenceTransformer(str(train.data / "encoder"), device="cpu")
    model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    assert model.prompts == raw.prompts
    dice = random.Random(7)
    texts = [translations(dice) for _ in range(50)]
    target = raw.encode_query([text["en"] for text in texts])

    def distance(encoder: SentenceTransformer, language: str) -> float:
        got = encoder.encode_query([text[language] for text in texts])
        return 1 - raw.similarity_pairwise(target, got).mean().item()

    assert distance(model, "fr") < 0.2 * distance(raw, "fr") and distance(model, "en") < 0.01


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--questions_ratio 0.3", {"query": 0.35, "document": 0.35, "questions": 0.3}),
        (
            "--contrastive_ratio 0.25 --questions_ratio 0.2 --context",
            {"pairs": 0.2, "query": 0.3, "document": 0.3, "questions": 0.2},
        ),
        ("--contrastive_ratio 1 --questions_ratio 0.2", {"pairs": 0.8, "questions": 0.2}),
        ("--contrastive_ratio 1 --retrieval", {"pairs": 1.0}),
        ("--questions_ratio 0", {"query": 0.5, "document": 0.5}),
    ],
)
def test_each_kind_of_batch_has_its_share_its_loss_and_its_prompts(
    options: str, expected: dict[str, float], train: Runner
) -> None:
    made = train.built("search", options)
    assert list(made.datasets) == list(made.loss) == list(expected)
    assert {name: loss.ratio for name, loss in made.loss.items()} == pytest.approx(expected)
    kinds = {"pairs": SemanticContrastiveLoss, "questions": RetrievalContrastiveLoss}
    for name, loss in made.loss.items():
        assert type(loss) is kinds.get(name, SimilarityDistillationLoss) and loss.temperature == 0.02
        assert isinstance(loss.batches, LengthGroupedBatches)
        columns = set(made.datasets[name].column_names) - {"label", "language"}
        documents = {"document": columns, "questions": columns - {"query"}}.get(name, set())
        of_columns = {column: PROMPTS["document" if column in documents else "query"] for column in columns}
        assert made.args.prompts[name] == of_columns
    if "questions" in expected:
        # A tenth of the 90 questions is put aside, and the rows that have their answers as negatives are left out.
        assert 30 <= len(made.datasets["questions"]) <= 81
    # No goal, no vectors of a teacher.
    assert (train.folder / "built" / "teacher").exists() == ("query" in expected)
    assert made.args.dropout == 0


def test_a_static_encoder_with_trained_vectors(train: Runner, tmp_path: Path) -> None:
    tokenizer = SentenceTransformer(str(train.data / "encoder"), device="cpu").tokenizer
    static_encoder(tokenizer, features=8).save_pretrained(str(tmp_path / "static"))
    options = "--max_steps 2 --save_strategy no --no_freeze_embeddings --model"
    made = train.built("search", options, tmp_path / "static")
    assert all(isinstance(loss.batches, Rows) for loss in made.loss.values())
    assert train("search", options, tmp_path / "static")["steps"] == 2
