"""From questions, translations and text to a retriever for all their languages."""

from __future__ import annotations

from dataclasses import fields

from tests.training_scripts.scripts import Runner, script
from tests.training_scripts.test_recipes import RECIPES

NAME = "language-agnostic-ir"


def test_questions_find_passages_of_both_languages(train: Runner) -> None:
    options = "--max_steps 40 --save_steps 20 --max_grad_norm 0 --learning_rate 5e-2 --semantic_weight 1"
    results = train(NAME, options, f"--language_weight 0.5 --test {train.data}/xquad")
    # A tenth of the 90 questions is put aside.
    assert results["questions"] == 81 and results["others"] == 96
    assert results["held_out"]["questions_cosine_mrr@10"] > 0.3 < results["held_out"]["pairs_average_accuracy"]
    assert results["xquad_r"]["average"]["mrr_at_100"] > 0.3


def test_the_data_and_the_weights_decide_what_is_trained(train: Runner) -> None:
    def kinds(options: str) -> list[str]:
        return list(train.built(NAME, options).loss)

    # Retrieval comes last: it uses both encoders, which several processes need at the end.
    assert kinds("") == kinds("--documents") == ["semantic", "language", "retrieval"]
    assert kinds("--language_weight 0") == ["semantic", "retrieval"]
    assert kinds("--semantic_weight 0") == ["language", "retrieval"]
    assert kinds("--pairs --semantic_weight 0 --language_weight 0") == ["retrieval"]


def test_options_reach_the_losses_and_their_batches(train: Runner) -> None:
    options = "--temperature 0.2 --semantic_weight 0.3 --language_weight 0.4 --language_smoothing 0.5"
    made = train.built(NAME, options)
    semantic, language, retrieval = made.loss.values()
    assert (semantic.weight, semantic.temperature) == (0.3, 0.07)
    assert (language.weight, language.reduction) == (0.4, "paper")
    assert (retrieval.weight, retrieval.temperature) == (1.0, 0.2)
    assert {loss.batches.language_smoothing for loss in made.loss.values()} == {0.5}
    assert made.args.joint and "other" in made.datasets["language"].column_names


def test_defaults_that_are_not_the_papers_say_so() -> None:
    method = script(NAME).IRArguments()
    paper, helps = RECIPES[NAME][1], {option.name: option.metadata["help"] for option in fields(method)}
    for name in ("temperature", "semantic_weight", "language_weight", "two_encoders"):
        assert getattr(method, name) == paper[name] or "paper" in helps[name], name
