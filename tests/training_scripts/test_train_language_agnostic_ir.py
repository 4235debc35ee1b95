"""From questions, translations and text to a model, in one command."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback

from tests.data.retrieval_files import write_lines
from tests.training_scripts.scripts import load_script
from tests.training_scripts.train_ccp_runs import Stop, assert_equal_weights, names, sentence

SIZES = (
    "--vocabulary 150 --features 16 --batch-size 4 --learning-rate 1e-2 --max-seq-length 16 --evaluation-questions 8"
)
Train = Callable[..., dict[str, Any]]


@pytest.fixture
def program(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return load_script(repository, "train_language_agnostic_ir", monkeypatch)


@pytest.fixture
def train(program: ModuleType, tmp_path: Path) -> Train:
    """Run the script on a tiny static encoder; further options override."""

    def run(*options: str | Path, output: str = "run") -> dict[str, Any]:
        given = [*SIZES.split(), "--output", str(tmp_path / output), "--training-arguments", '{"use_cpu": true}']
        for option in options:
            given += option.split() if isinstance(option, str) else [str(option)]
        if not {"--model", "--from-scratch"} & set(given):
            given += ["--from-scratch", "static"]
        return program.main(given)

    return run


def write_retrieval(folder: Path, *, split: str, languages: tuple[str, ...], count: int, seed: int) -> Path:
    dice = random.Random(seed)
    meanings = [dice.choices(range(12), k=4) for _ in range(count)]
    corpus, queries, lines = [], [], ["query-id\tcorpus-id\tscore\n"]
    for i, meaning in enumerate(meanings):
        for language in languages:
            about = {"language": language}
            corpus.append({"_id": f"p{language}{i}", "text": sentence(language, meaning), "metadata": about})
            text = f"{seed} {sentence(language, meaning[:3])} ?"
            queries.append({"_id": f"q{language}{i}", "text": text, "metadata": about})
            lines += [f"q{language}{i}\tp{other}{i}\t1\n" for other in languages]
    write_lines(folder / "corpus.jsonl", corpus)
    write_lines(folder / "queries.jsonl", queries)
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "qrels" / f"{split}.tsv").write_text("".join(lines))
    return folder


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return write_retrieval(tmp_path / "squad", split="train", languages=("en",), count=80, seed=1)


@pytest.fixture
def xquad(tmp_path: Path) -> Path:
    return write_retrieval(tmp_path / "xquad", split="test", languages=("en", "fr"), count=12, seed=2)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    dice = random.Random(3)
    records = []
    for i in range(120):
        meaning = dice.choices(range(12), k=4)
        texts = {"source": sentence("en", meaning), "target": sentence("fr", meaning)}
        records.append({"source_language": "en", "target_language": "fr", **texts})
        if i % 2:
            other = {"target_language": "de", "target": f"der {sentence('fr', meaning)}"}
            records.append({**records[-1], **other})
    return write_lines(tmp_path / "pairs.jsonl", records)


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    dice = random.Random(4)
    records = [
        {"language": "de", "sentences": [f"der {sentence('fr', dice.choices(range(12), k=4))}" for _ in "1234"]}
        for _ in range(12)
    ]
    return write_lines(tmp_path / "documents.jsonl", records)


def test_a_model_scores_and_curves(
    train: Train, questions: Path, pairs: Path, documents: Path, xquad: Path, tmp_path: Path
) -> None:
    options = "--max-steps 40 --eval-steps 20 --logging-steps 10 --max-grad-norm 0 --learning-rate 5e-2"
    weights = (
        "--semantic-weight 1 --language-weight 0.5 --language-reduction mean --no-parallel de --others-batch-size 3"
    )
    results = train(
        "--retrieval", questions, "--pairs", pairs, "--documents", documents, options, weights, "--test", xquad
    )
    run = tmp_path / "run"
    assert names(run) == ["checkpoints", "model", "results.json", "tokenizer", "training.png"]
    assert json.loads((run / "results.json").read_text()) == results
    assert results["steps"] == 40 and results["questions"] == 72 and results["others"] == 48
    assert results["languages"] == {
        "with_parallel": ["en", "fr"],
        "without_parallel": ["de"],
        "parallel_only": ["en", "fr"],
    }
    assert set(results["xquad_r"]["scores"]) == {"en", "fr"}
    assert results["xquad_r"]["average"]["mrr_at_100"] > 0.3
    assert results["held_out"]["questions_cosine_mrr@10"] > 0.3
    assert results["held_out"]["pairs_average_accuracy"] > 0.3
    modules = json.loads((run / "model" / "modules.json").read_text())
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    card = (run / "model" / "README.md").read_text()
    assert "Language Agnostic Multilingual Information Retrieval" in card
    state = json.loads((run / "checkpoints" / "checkpoint-40" / "trainer_state.json").read_text())
    logged = {key for line in state["log_history"] for key in line}
    assert {"loss_retrieval", "loss_semantic", "loss_language", "eval_questions_cosine_mrr@10"} <= logged


def test_an_interrupted_run_is_repeated(
    program: ModuleType,
    train: Train,
    questions: Path,
    pairs: Path,
    documents: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = ["--retrieval", questions, "--pairs", pairs, "--documents", documents]
    options = "--max-steps 8 --save-steps 4 --evaluation-questions 0 --token-dropout 0.2"
    train(*given, options, output="whole")
    build = program.build_ir_trainer
    stop: TrainerCallback = Stop(6)
    monkeypatch.setattr(program, "build_ir_trainer", lambda *a, **o: build(*a, **o, callbacks=(stop,)))
    with pytest.raises(
        SystemExit, match="(?s)stopped at step 6.*checkpoint-4 is whole: the same command with --resume"
    ):
        train(*given, options)
    with pytest.raises(FileExistsError, match="use --resume to go on from the last"):
        train(*given, options)
    train(*given, options, "--resume")
    assert_equal_weights(tmp_path / "run" / "model", tmp_path / "whole" / "model")


def test_two_encoders_from_a_checkpoint(train: Train, questions: Path, pairs: Path, tmp_path: Path) -> None:
    english = ["--max-steps 2 --connections none", "--pairs", pairs]
    results = train("--retrieval", questions, "--from-scratch tiny", *english, output="first")
    assert results["pairs"] == 0 and results["languages"]["with_parallel"] == []
    first = tmp_path / "first" / "model"
    train("--retrieval", questions, "--pairs", pairs, "--two-encoders --max-steps 2", "--model", first)
    model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    query, passage = model.encode_query(["sun"]), model.encode_document(["sun"])
    assert query.shape == passage.shape == (1, 32) and not torch.equal(torch.tensor(query), torch.tensor(passage))


def test_hard_negatives_are_mined_once(
    train: Train, questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    english = "--max-steps 2 --semantic-weight 0 --language-weight 0 --mine-negatives 2 --mine-margin 0.01"
    with pytest.raises(ValueError, match="name a trained one with --mine-with"):
        train("--retrieval", questions, english)
    train("--retrieval", questions, "--max-steps 1 --semantic-weight 0 --language-weight 0", output="first")
    first = tmp_path / "first" / "model"
    train("--retrieval", questions, english, "--mine-with", first)
    assert "negatives" in names(tmp_path / "run")
    before = sorted(path.stat().st_mtime_ns for path in (tmp_path / "run" / "negatives").iterdir())
    train("--retrieval", questions, english.replace("steps 2", "steps 4"), "--mine-with", first, "--resume --overwrite")
    assert before == sorted(path.stat().st_mtime_ns for path in (tmp_path / "run" / "negatives").iterdir())


def test_what_the_test_set_was_made_of_is_refused(train: Train, xquad: Path) -> None:
    with pytest.raises(
        ValueError, match="24 of the 24 questions of the test set are among those to train on.*SQuAD's dev"
    ):
        train("--retrieval", xquad, "--split test --semantic-weight 0 --language-weight 0", "--test", xquad)


def test_missing_data_is_named(train: Train, questions: Path, documents: Path, pairs: Path) -> None:
    with pytest.raises(ValueError, match="nothing to train on: give --retrieval"):
        train("--pairs", pairs)
    with pytest.raises(ValueError, match="cross-lingual losses need parallel sentences"):
        train("--retrieval", questions, "--documents", documents)
    with pytest.raises(ValueError, match="--documents holds no sentences in th, which --others-languages names"):
        train("--retrieval", questions, "--pairs", pairs, "--documents", documents, "--others-languages th")
    with pytest.raises(ValueError, match="there are no parallel sentences of en-sw"):
        train("--retrieval", questions, "--pairs", pairs, "--languages en sw fr --connections en-sw")


def test_help_explains_every_option(
    program: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit) as stopped:
        program.main(["--help"])
    assert stopped.value.code == 0
    printed = " ".join(capsys.readouterr().out.split())
    groups = (
        program.EncoderArguments,
        program.IRDataArguments,
        program.NegativeArguments,
        program.IROptions,
        program.EvaluationArguments,
        program.IRRunArguments,
    )
    options = [option for group in groups for option in fields(group)]
    assert len(options) > 60
    for option in options:
        assert f"--{option.name.replace('_', '-')}" in printed
        assert " ".join(option.metadata["help"].replace("%%", "%").split()) in printed, option.name
