"""What each script does alone: which losses it makes of which data, and that they learn."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from st_xlret import (
    MaskedLMLoss,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
    SimilarityDistillationLoss,
)
from st_xlret.batches import LengthGroupedBatches, Rows
from st_xlret.columns import column_role
from st_xlret.modules import ContextualEncoder
from tests import tiny
from tests.data.files import write_text
from tests.training_scripts.scripts import WORDS, Runner, translations

SCORE = "pairs_average_accuracy"


@pytest.mark.parametrize(
    ("name", "options", "kinds"),
    [
        ("ccp", "--from_scratch tiny --mlm_ratio 2", {"ccp": 1, "mlm": 2, "pairs": 1}),
        ("ccp", "--from_scratch tiny --mlm_ratio 0 --pairs_ratio 0.5", {"ccp": 1, "pairs": 0.5}),
        ("ccp", "--pairs_ratio 0", {"ccp": 1}),
        ("ccp", "--ccp_ratio 0", {"pairs": 1}),
        ("msm", "", {"msm": 1, "mlm": 1, "pairs": 1}),
        ("msm", "--pairs --sum_mlm", {"msm": 1}),
        ("msm", "--pairs --mlm_ratio 0", {"msm": 1}),
        ("msm", "--documents", {"pairs": 1}),
        # Retrieval comes last: it uses both encoders, which several processes need at the end.
        ("language-agnostic-ir", "", {"semantic": 1, "language": 1, "retrieval": 1}),
        (
            "language-agnostic-ir",
            "--documents --language_weight 0",
            {"semantic": 1, "retrieval": 1},
        ),
        ("language-agnostic-ir", "--retrieval", {"semantic": 1, "language": 1}),
        (
            "language-agnostic-ir",
            "--pairs --documents --semantic_weight 0 --language_weight 0",
            {"retrieval": 1},
        ),
        ("search", "--questions_ratio 0.3", {"query": 0.35, "document": 0.35, "questions": 0.3}),
        (
            *("search", "--contrastive_ratio 0.25 --questions_ratio 0.2 --context"),
            {"pairs": 0.2, "query": 0.3, "document": 0.3, "questions": 0.2},
        ),
        ("search", "--contrastive_ratio 1 --retrieval", {"pairs": 1}),
    ],
)
def test_what_is_given_decides_what_is_trained(
    name: str, options: str, kinds: dict[str, float], train: Runner
) -> None:
    made = train.built(name, options)
    assert list(made.datasets) == list(made.loss) == list(kinds)
    ratios = {kind: loss.ratio for kind, loss in made.loss.items()}
    assert ratios == pytest.approx(kinds)


CLASSES = {
    "pairs": SemanticContrastiveLoss,
    "query": SimilarityDistillationLoss,
    "document": SimilarityDistillationLoss,
    "questions": RetrievalContrastiveLoss,
}
READ_AS_DOCUMENTS = {
    "pairs": set(),
    "query": set(),
    "document": {"passage"},
    "questions": {"positive", *(f"negative_{number}" for number in (1, 2))},
}


def test_each_kind_of_batch_of_a_search_encoder_has_its_loss_and_its_roles(train: Runner) -> None:
    made = train.built("search", "--contrastive_ratio 0.25 --questions_ratio 0.2 --negatives 2")
    for kind, loss in made.loss.items():
        assert type(loss) is CLASSES[kind]
        assert loss.temperature == 0.02
        assert isinstance(loss.batches, LengthGroupedBatches)
        texts = set(made.datasets[kind].column_names) - {"label", "language"}
        documents = {text for text in texts if column_role(text) == "document"}
        assert documents == READ_AS_DOCUMENTS[kind]
    assert (train.folder / "built" / "teacher").exists()


def test_without_goals_there_are_no_vectors_of_a_teacher(train: Runner) -> None:
    train.built("search", "--contrastive_ratio 1 --retrieval")
    assert not (train.folder / "built" / "teacher").exists()


# A tenth of the pairs or questions is put aside, with what shares a sentence or a passage with it.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "least", "counts"),
    [
        (
            "ccp",
            "--max_steps 60 --learning_rate 5e-2 --token_dropout 0.1",
            {SCORE: 0.5},
            {"sentences": 96},
        ),
        ("ml-ctl", "--max_steps 60", {SCORE: 0.3}, {"mode": "ML-CTL-CZ"}),
        (
            "language-agnostic-ir",
            "--max_steps 40 --learning_rate 5e-2 --semantic_weight 1 --language_weight 0.5",
            {SCORE: 0.3, "questions_cosine_mrr@10": 0.6},  # 0.41 by chance, among six
            {"questions": 83, "others": 96},
        ),
    ],
)
def test_translations_come_together_and_questions_find_their_passages(
    name: str, options: str, least: dict[str, float], counts: dict[str, Any], train: Runner
) -> None:
    results = train(name, "--save_strategy no", options)
    for score, value in least.items():
        assert results["held_out"][score] > value
    assert results["held_out"][SCORE] > results["held_out_before"][SCORE]
    assert {figure: results[figure] for figure in counts} == counts


def test_msm_packs_units_and_its_other_batches_have_as_much_text(train: Runner) -> None:
    made = train.built("msm", "--block_sentences 5 --negatives 0 --sum_mlm --pack_tokens 60")
    loss = made.loss["msm"]
    assert loss.num_negatives is None
    assert loss.mini_batch_size == 128
    assert loss.batches.block_size == 5
    assert isinstance(loss.mlm, MaskedLMLoss)
    assert made.loss["pairs"].batches.batch_scale == 2.5
    assert 0 < len(made.datasets["msm"]) < 96  # some sentences share a unit
    assert train.built("msm", "").loss["mlm"].batches.batch_scale == 4


def modules_of(folder: Path) -> list[str]:
    model = SentenceTransformer(str(folder), device="cpu")
    return [type(module).__name__ for module in model.children()]


def test_words_are_counted(train: Runner) -> None:
    results = train("ml-ctl", "--max_steps 1 --save_strategy no")
    counts = results["word_samples"]["en>fr"]
    assert counts["pairs"] == results["pairs"]
    assert 90 < counts["used"] <= counts["pairs"]
    assert counts["samples"] > counts["used"]


@pytest.mark.slow
def test_a_model_of_two_layers_is_trained_on(train: Runner, tmp_path: Path) -> None:
    train("ml-ctl", "--max_steps 1 --save_strategy no")
    model = tmp_path / "run" / "model"
    assert modules_of(model) == ["Transformer", "WeightedLayerPooling", "Pooling"]

    options = "--max_steps 1 --save_strategy no --mode CZ-snt --evaluation_pairs 0 --dictionaries"
    results = train("ml-ctl", options, "--model", model, output="second")

    assert results["word_samples"] is None
    assert modules_of(tmp_path / "second" / "model") == modules_of(model)


def test_the_sentence_vector_of_a_checkpoint_can_be_kept(train: Runner, tmp_path: Path) -> None:
    checkpoint = tiny.transformer()
    checkpoint.append(Normalize())
    checkpoint.save(str(tmp_path / "checkpoint"))
    model = train.built("ml-ctl", "--pooling checkpoint --model", tmp_path / "checkpoint").model
    expected = torch.from_numpy(checkpoint.encode(tiny.WORDS))
    torch.testing.assert_close(torch.from_numpy(model.encode(tiny.WORDS)), expected)


@pytest.mark.parametrize(
    ("mode", "objective", "with_words"),
    [
        ("info-snt", "info_nce", False),
        ("CZ-snt", "cz_nce", False),
        ("ML-CTL-info", "info_nce", True),
        ("ML-CTL-CZ", "cz_nce", True),
    ],
)
@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_modes_reach_the_loss(
    mode: str, objective: str, with_words: bool, weight: float, train: Runner
) -> None:
    loss = train.built("ml-ctl", f"--mode {mode} --mlm_weight {weight}").loss
    assert loss.objective == objective
    assert isinstance(loss.contextual_encoder, ContextualEncoder) == with_words
    assert loss.mlm_weight == weight
    assert (loss.mlm is not None) == (weight > 0)


def test_stop_words_and_words_beyond_what_is_read_make_no_samples(
    train: Runner, tmp_path: Path
) -> None:
    pytest.importorskip("stopwordsiso")
    listed = write_text(tmp_path / "own.en.txt", "\n".join(WORDS["en"][::2]).upper())

    def samples(*options: str | Path) -> int:
        return len(train.built("ml-ctl", "--evaluation_pairs 0 --stop_words", *options).datasets)

    every = samples("none")
    assert samples("none", "--dictionaries", train.data) == every  # a folder
    assert samples(listed) < 0.7 * every
    assert 0 < samples("none", "--train_seq_length 9") < every


@pytest.mark.slow
def test_two_encoders_in_two_stages_by_dot_product(train: Runner, tmp_path: Path) -> None:
    method = "--similarity dot --temperature 1 --max_steps 1 --save_strategy no"
    first = "--two_encoders --hard_negatives 1 --model"
    train("retriever", method, first, train.data / "encoder", output="first")
    start = tmp_path / "first" / "model"

    results = train("retriever", method, "--languages fr --model", start)

    assert list(results["languages"]) == ["fr"]
    assert "questions_dot_mrr@10" in results["held_out"]
    model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    assert model.similarity_fn_name == "dot"
    assert (model.encode_query(["sun"]) != model.encode_document(["sun"])).any()


@pytest.mark.slow
def test_a_language_comes_to_english_and_english_stays(train: Runner, tmp_path: Path) -> None:
    # An encoder of random weights knows its words by their vectors alone.
    results = train(
        "search",
        "--retrieval --no_freeze_embeddings --learning_rate 5e-3 --english_share 0.4",
        "--keep_trained 1 --max_steps 120 --save_strategy no --evaluation_pairs 12",
    )

    assert results["held_out_before"][SCORE] < 0.3
    assert results["held_out"][SCORE] > 0.6
    raw = SentenceTransformer(str(train.data / "encoder"), device="cpu")
    model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    assert model.prompts == raw.prompts
    dice = random.Random(7)
    texts = [translations(dice) for _ in range(50)]
    goals = raw.encode_query([text["en"] for text in texts])

    def distance(encoder: SentenceTransformer, language: str) -> float:
        vectors = encoder.encode_query([text[language] for text in texts])
        return 1 - raw.similarity_pairwise(goals, vectors).mean().item()

    assert distance(model, "fr") < 0.2 * distance(raw, "fr")
    assert distance(model, "en") < 0.01


def test_a_static_encoder_is_aligned_in_batches_of_rows(train: Runner, tmp_path: Path) -> None:
    tiny.static().save_pretrained(str(tmp_path / "static"))
    losses = train.built("search", "--no_freeze_embeddings --model", tmp_path / "static").loss
    assert {type(loss.batches) for loss in losses.values()} == {Rows}
