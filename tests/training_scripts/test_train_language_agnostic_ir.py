"""From questions, translations and text to a model, in one command."""

from __future__ import annotations

import json
import random
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from datasets import load_from_disk
from sentence_transformers import SentenceTransformer

from st_xlret import JointBatches, JointTrainer
from st_xlret.options import own_options, parse
from tests import tiny
from tests.data.files import write_jsonl
from tests.training.ir_runs import questions as tiny_questions
from tests.training_scripts.scripts import Train, load_script, runner
from tests.training_scripts.train_ccp_runs import Stop, assert_equal_weights, names, sentence

SIZES = "--per_device_train_batch_size 4 --learning_rate 1e-2 --max_seq_length 16 --evaluation_pairs 2 --use_cpu"
# The settings of the paper (Hu et al., Findings of ACL 2023), with their places in it.
PAPER = {
    "pooling": "cls",  # not stated: DPR, which section 2 builds on
    "two_encoders": True,  # section 2: "a dual-encoder structure"
    "hard_negatives": 0,  # Eq. 1: "all other passages in the batch"
    "temperature": 1.0,  # Eq. 1 divides by none
    "semantic_weight": 0.01,  # section 4
    "language_weight": 0.001,  # section 4
    "pairs_per_language": 50_000,  # section 5.1.2
    "languages": ["ar", "bn", "en", "fi", "id", "ja", "ko", "ru", "sw", "te", "th"],  # section 5.1.1
    "documents": [],  # section 5.3: parallel sentences alone
    "per_device_train_batch_size": 48,  # section 4, Table 1
    "max_steps": 24_540,  # Table 1
    "learning_rate": 1e-5,  # section 4
    "adam_beta1": 0.9,  # section 4
    "adam_beta2": 0.999,
    "max_seq_length": 256,  # DPR's, on which section 2 builds
}


@pytest.fixture
def program(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return load_script(repository, "train_language_agnostic_ir", monkeypatch)


@pytest.fixture
def train(program: ModuleType, tmp_path: Path) -> Train:
    """Run the script on a static encoder; further options override."""
    return runner(program, tmp_path, SIZES, "--from_scratch static")


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
    write_jsonl(folder / "corpus.jsonl", corpus)
    write_jsonl(folder / "queries.jsonl", queries)
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
    return write_jsonl(tmp_path / "pairs.jsonl", records)


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    dice = random.Random(4)
    records = [
        {"language": "de", "sentences": [f"der {sentence('fr', dice.choices(range(12), k=4))}" for _ in "1234"]}
        for _ in range(12)
    ]
    return write_jsonl(tmp_path / "documents.jsonl", records)


def test_a_model_scores_and_curves(
    train: Train, questions: Path, pairs: Path, documents: Path, xquad: Path, tmp_path: Path
) -> None:
    options = "--max_steps 40 --save_steps 20 --logging_steps 10 --max_grad_norm 0 --learning_rate 5e-2"
    weights = "--semantic_weight 1 --language_weight 0.5"
    results = train(
        "--retrieval", questions, "--pairs", pairs, "--documents", documents, options, weights, "--test", xquad
    )
    run = tmp_path / "run"
    assert {"model", "results.json", "tokenizer", "training.png"} < {*names(run)}
    assert json.loads((run / "results.json").read_text()) == results
    # A tenth of the 80 questions is put aside.
    assert results["steps"] == 40 and results["questions"] == 72 and results["others"] == 48 and results["tokens"] > 0
    assert results["languages"] == {
        "with_parallel": ["de", "en", "fr"],
        "without_parallel": [],
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
    state = json.loads((run / "checkpoint-40" / "trainer_state.json").read_text())
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
    options = "--max_steps 8 --save_steps 4 --evaluation_pairs 0 --token_dropout 0.2"
    train(*given, options, output="whole")
    stop = Stop(6)

    class Stopped(JointTrainer):
        def __init__(self, *args: Any, callbacks: list[Any], **options: Any) -> None:
            super().__init__(*args, callbacks=[*callbacks, stop], **options)

    monkeypatch.setattr(program, "JointTrainer", Stopped)
    with pytest.raises(SystemExit, match="(?s)step 6.*checkpoint-4.*--resume"):
        train(*given, options)
    with pytest.raises(FileExistsError, match="--resume.*--overwrite"):
        train(*given, options)
    train(*given, options, "--resume")
    assert_equal_weights(tmp_path / "run" / "model", tmp_path / "whole" / "model")


def test_two_encoders_from_a_checkpoint(train: Train, questions: Path, pairs: Path, tmp_path: Path) -> None:
    english = ["--max_steps 2 --semantic_weight 0 --language_weight 0", "--pairs", pairs]
    results = train("--retrieval", questions, "--from_scratch tiny", *english, output="first")
    assert results["pairs"] == 0 and results["languages"]["with_parallel"] == []
    first = tmp_path / "first" / "model"
    train("--retrieval", questions, "--pairs", pairs, "--two_encoders --max_steps 2", "--model", first, output="second")
    second = tmp_path / "second" / "model"
    # Two encoders are trained on as they are.
    train("--retrieval", questions, "--pairs", pairs, "--max_steps 2", "--model", second)
    model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    query, passage = model.encode_query(["sun"]), model.encode_document(["sun"])
    assert query.shape == passage.shape == (1, 32) and not torch.equal(torch.tensor(query), torch.tensor(passage))


def test_hard_negatives_are_mined_by_the_checkpoint(train: Train, questions: Path, tmp_path: Path) -> None:
    english = "--max_steps 2 --semantic_weight 0 --language_weight 0 --save_strategy no"
    with pytest.raises(ValueError, match="--hard_negatives 2.*--model"):
        train("--retrieval", questions, english, "--hard_negatives 2")
    train("--retrieval", questions, english, output="first")
    train("--retrieval", questions, english, "--hard_negatives 2", "--model", tmp_path / "first" / "model")
    mined = load_from_disk(str(tmp_path / "run" / "negatives"))
    assert {"negative_1", "negative_2"} < {*mined.column_names}


def test_missing_data_is_named(train: Train, questions: Path, documents: Path, pairs: Path) -> None:
    with pytest.raises(ValueError, match="--retrieval"):
        train("--pairs", pairs)
    with pytest.raises(ValueError, match="--pairs.*--semantic_weight and --language_weight"):
        train("--retrieval", questions, "--documents", documents)
    with pytest.raises(ValueError, match="--language_weight.*-1"):
        train("--retrieval", questions, "--pairs", pairs, "--language_weight -1")


def chosen(program: ModuleType, pairs: Any = None, others: Any = None, **options: Any) -> list[str]:
    return list(program.build_datasets(tiny_questions(), pairs, others, program.IRArguments(**options)))


def test_the_data_and_the_weights_decide_what_is_trained(program: ModuleType) -> None:
    pairs, others = tiny.pairs(), tiny.texts()
    assert chosen(program, pairs, others) == ["semantic", "language", "retrieval"]
    assert chosen(program, pairs, others, language_weight=0) == ["semantic", "retrieval"]
    assert chosen(program, pairs, semantic_weight=0) == ["language", "retrieval"]
    assert chosen(program, None, others, semantic_weight=0, language_weight=0) == ["retrieval"]


def test_losses_and_batches_are_as_the_options_say(program: ModuleType) -> None:
    options = program.IRArguments(
        temperature=0.2, semantic_weight=0.3, language_weight=0.4, pairs_batch_size=7, language_smoothing=0.5
    )
    datasets = dict.fromkeys(["semantic", "language", "retrieval"])
    losses: Any = program.build_losses(tiny.static(), datasets, options)
    assert (losses["semantic"].weight, losses["semantic"].temperature) == (0.3, 0.07)
    assert (losses["language"].weight, losses["language"].reduction) == (0.4, "paper")
    assert (losses["retrieval"].weight, losses["retrieval"].temperature) == (1.0, 0.2)
    assert program.build_batches(options) == JointBatches(pairs_batch_size=7, language_smoothing=0.5)


def test_languages_with_and_without_parallel_sentences(program: ModuleType) -> None:
    nothing: dict[str, list[str]] = {"with_parallel": [], "without_parallel": [], "parallel_only": []}
    assert program.describe_languages(None, None) == nothing
    assert program.describe_languages(tiny.pairs(), None)["parallel_only"] == ["en", "fr"]


def groups(program: ModuleType) -> list[type]:
    names = ["RetrieverArguments", "RetrievalDataArguments", "IRArguments"]
    names += ["LazyAdamArguments", "RunArguments", "TrainingArguments"]
    return [getattr(program, name) for name in names]


def test_the_recipe_is_the_papers(program: ModuleType, repository: Path, tmp_path: Path) -> None:
    file = repository / "training_scripts" / "recipes" / "language-agnostic-ir.yaml"
    found: dict[str, Any] = {}
    given = ["--retrieval", "nq.json", "--pairs", "WikiMatrix", "--output_dir", str(tmp_path), "--use_cpu"]
    for group in parse(groups(program), [str(file), *given]):
        found |= vars(group)
    assert {name: found[name] for name in PAPER} == PAPER
    # Without options, batches mix the language pairs (section 3.1), and the language loss has the scale of Eq. 3.
    options = program.IRArguments()
    assert program.build_batches(options).pairs_language_mixing == 1.0
    losses = program.build_losses(tiny.static(), ["language"], options)
    assert losses["language"].reduction == "paper"


def test_defaults_that_are_not_the_papers_say_so(program: ModuleType) -> None:
    options = program.IRArguments()
    help_texts = {option.name: option.metadata["help"] for option in fields(program.IRArguments)}
    for name in ("temperature", "semantic_weight", "language_weight", "two_encoders"):
        assert getattr(options, name) == PAPER[name] or "paper" in help_texts[name], name


def test_help_explains_every_option(
    program: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit) as stopped:
        program.main(["--help"])
    assert stopped.value.code == 0
    printed = " ".join(capsys.readouterr().out.split())
    own = own_options(groups(program))
    assert len(own) <= 30 and all(f"--{name}" in printed for name in own)
    for option in (option for group in groups(program)[1:3] for option in fields(group) if option.init):
        assert " ".join(option.metadata["help"].split()) in printed, option.name
