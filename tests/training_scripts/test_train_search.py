"""From a trained encoder, translations and questions to a model whose languages are together, in one command."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from st_xlret import RetrievalContrastiveLoss, SemanticContrastiveLoss, SimilarityDistillationLoss
from st_xlret.modules import static_encoder, train_tokenizer, transformer_encoder, with_two_encoders
from st_xlret.training.teacher import make_lesson
from tests import tiny
from tests.data.files import write_jsonl
from tests.training_scripts.scripts import Train, load_script, runner
from tests.training_scripts.train_ccp_runs import (
    LISTS,
    Stop,
    add_callback,
    assert_equal_weights,
    names,
    sentence,
    weights,
)

SIZES = "--per_device_train_batch_size 16 --learning_rate 2e-3 --bank_size 64 --evaluation_pairs 4 --use_cpu"
PROMPTS = {"query": "query: ", "document": "passage: "}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer([" ".join(LISTS.values()) + " query: passage: ?."] * 4, vocabulary=200)


@pytest.fixture
def checkpoint(tmp_path: Path, tokenizer: Any) -> Path:
    torch.manual_seed(0)
    model = transformer_encoder(tokenizer, "tiny", max_seq_length=24)
    model.prompts = dict(PROMPTS)
    model.save_pretrained(str(tmp_path / "encoder"))
    return tmp_path / "encoder"


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    dice = random.Random(3)
    meanings = [dice.choices(range(12), k=4) for _ in range(160)]
    languages = {"source_language": "en", "target_language": "fr"}
    records = [{**languages, "source": sentence("en", m), "target": sentence("fr", m)} for m in meanings]
    return write_jsonl(tmp_path / "pairs.jsonl", records)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """SQuAD's format: paragraphs of three sentences; the answer is the number at the end of one of them."""
    dice = random.Random(5)
    paragraphs = []
    for i in range(40):
        texts = [f"{sentence('en', dice.choices(range(12), k=4)).capitalize()} {i}{n}." for n in range(3)]
        context = " ".join(texts)
        qas = [
            {
                "id": f"{i}-{n}",
                "question": f"{text.split()[0].lower()} {text.split()[1]}?",
                "answers": [{"text": f"{i}{n}", "answer_start": context.index(f"{i}{n}.")}],
            }
            for n, text in enumerate(texts)
        ]
        paragraphs.append({"context": context, "qas": qas})
    file = tmp_path / "squad.json"
    file.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    return file


@pytest.fixture
def program(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return load_script(repository, "train_search", monkeypatch)


@pytest.fixture
def train(program: ModuleType, checkpoint: Path, tmp_path: Path) -> Train:
    return runner(program, tmp_path, SIZES, f"--model {checkpoint}")


def test_a_language_comes_to_english_and_english_stays(
    train: Train, pairs: Path, questions: Path, checkpoint: Path, tmp_path: Path
) -> None:
    # An encoder of random weights knows its words by their vectors alone.
    vectors = "--no_freeze_embeddings --learning_rate 5e-3 --english_share 0.4 --keep_trained 1"
    options = "--max_steps 120 --save_steps 60 --logging_steps 10"
    results = train("--pairs", pairs, "--retrieval", questions, vectors, options)
    run = tmp_path / "run"
    assert {"model", "results.json", "teacher", "training.png"} < {*names(run)}
    assert json.loads((run / "results.json").read_text()) == results
    assert results["steps"] == 120 and results["tokens"] > 0 and results["languages"] == ["en", "fr"]
    # A tenth of the 120 questions is put aside, and the rows that have their answers as negatives are left out.
    assert 80 <= results["questions"] <= 100
    before, after = results["held_out_before"], results["held_out"]
    assert after["pairs_average_accuracy"] >= before["pairs_average_accuracy"]
    assert "questions_cosine_mrr@10" in after
    raw, model = (SentenceTransformer(str(path), device="cpu") for path in (checkpoint, run / "model"))
    assert model.prompts == raw.prompts
    dice = random.Random(7)
    meanings = [dice.choices(range(12), k=4) for _ in range(50)]
    english, french = ([sentence(language, m) for m in meanings] for language in ("en", "fr"))
    target = raw.encode_query(english)
    distance = {
        (name, language): 1 - raw.similarity_pairwise(target, encoder.encode_query(texts)).mean().item()
        for name, encoder in (("raw", raw), ("trained", model))
        for language, texts in (("en", english), ("fr", french))
    }
    assert distance["trained", "fr"] < 0.7 * distance["raw", "fr"], distance
    assert distance["trained", "en"] < 0.05, distance
    modules = json.loads((run / "model" / "modules.json").read_text())
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    assert "Knowledge Distillation" in (run / "model" / "README.md").read_text()
    state = json.loads((run / "checkpoint-120" / "trainer_state.json").read_text())
    logged = {key for line in state["log_history"] for key in line}
    assert {"loss_query", "loss_document", "loss_questions"} <= logged


def test_the_weights_go_part_of_the_way_back(train: Train, pairs: Path, checkpoint: Path, tmp_path: Path) -> None:
    options = "--max_steps 3 --save_strategy no"
    train("--pairs", pairs, options, "--keep_trained 1", output="whole")
    train("--pairs", pairs, options, "--keep_trained 0.25", output="part")
    train("--pairs", pairs, options, "--keep_trained 0", output="none")
    raw, whole, part = (weights(path) for path in (checkpoint, tmp_path / "whole/model", tmp_path / "part/model"))
    for name, tensor in part.items():
        torch.testing.assert_close(tensor, 0.75 * raw[name] + 0.25 * whole[name])
    assert_equal_weights(tmp_path / "none" / "model", checkpoint)
    frozen = [name for name in raw if "word_embeddings" in name]
    assert frozen and all(torch.equal(raw[name], whole[name]) for name in frozen)
    assert any(not torch.equal(raw[name], whole[name]) for name in raw)


def test_pairs_are_drawn_together_in_some_batches_or_in_all(
    train: Train, pairs: Path, questions: Path, tmp_path: Path
) -> None:
    def kinds(output: str) -> set[str]:
        state = json.loads((tmp_path / output / "checkpoint-12" / "trainer_state.json").read_text())
        return {key for line in state["log_history"] for key in line if key.startswith("loss_")}

    options = "--max_steps 12 --logging_steps 6 --save_steps 12"
    train("--pairs", pairs, "--retrieval", questions, options, "--contrastive_ratio 0.5", output="some")
    assert kinds("some") == {"loss_pairs", "loss_query", "loss_document", "loss_questions"}
    assert (tmp_path / "some" / "teacher").is_dir()
    train("--pairs", pairs, options, "--contrastive_ratio 1", output="all")
    results = json.loads((tmp_path / "all" / "results.json").read_text())
    assert kinds("all") <= {"loss_pairs"} and results["steps"] == 12 and results["pairs"] > 0
    assert not (tmp_path / "all" / "teacher").exists()  # no goal, no vectors


@pytest.mark.parametrize(
    ("contrastive", "asked", "expected"),
    [
        (0.0, 0.3, {"query": 0.35, "document": 0.35, "questions": 0.3}),
        (0.25, 0.2, {"pairs": 0.2, "query": 0.3, "document": 0.3, "questions": 0.2}),
        (1.0, 0.2, {"pairs": 0.8, "questions": 0.2}),
        (1.0, 0.0, {"pairs": 1.0}),
    ],
)
def test_each_kind_of_batch_has_its_share_its_loss_and_its_prompts(
    program: ModuleType, contrastive: float, asked: float, expected: dict[str, float]
) -> None:
    options = program.SearchArguments(contrastive_ratio=contrastive, questions_ratio=asked)
    rows = {"source": ["a", "b", "c", "d"], "target": ["e", "f", "g", "h"]}
    languages = {"source_language": ["en"] * 4, "target_language": ["fr"] * 4}
    lesson = make_lesson(Dataset.from_dict({**rows, **languages}), {}, english_share=0.2)
    texts = {"query": ["a"], "positive": ["b"], "negative_1": ["c"], "language": ["en"]}
    datasets = program.build_datasets(lesson, Dataset.from_dict(texts) if asked else None, options)
    assert dict(zip(datasets, program.ratios_of(datasets, options), strict=True)) == pytest.approx(expected)
    model = tiny.static(features=8)
    model.prompts = {"query": "ask: ", "document": "tell: "}
    vectors = torch.randn(8, 8) if contrastive < 1 else None
    losses = program.build_losses(model, datasets, vectors, options)
    kinds = {"pairs": SemanticContrastiveLoss, "questions": RetrievalContrastiveLoss}
    assert {name: type(loss) for name, loss in losses.items()} == {
        name: kinds.get(name, SimilarityDistillationLoss) for name in expected
    }
    for name, prompts in program.prompts_of(model, datasets).items():
        columns = set(datasets[name].column_names) - {"label", "language"}
        of_documents = {"document": columns, "questions": columns - {"query"}}.get(name, set())
        assert prompts == {column: "tell: " if column in of_documents else "ask: " for column in columns}


def test_an_interrupted_run_is_repeated(
    program: ModuleType, train: Train, pairs: Path, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["--pairs", pairs, "--retrieval", questions, "--max_steps 8 --save_steps 4"]
    train(*given, output="whole")
    add_callback(program, monkeypatch, Stop(6))
    with pytest.raises(SystemExit, match="(?s)step 6.*checkpoint-4.*--resume"):
        train(*given)
    train(*given, "--resume")
    assert_equal_weights(tmp_path / "run" / "model", tmp_path / "whole" / "model")


def test_a_static_encoder_with_trained_vectors(train: Train, pairs: Path, tokenizer: Any, tmp_path: Path) -> None:
    static_encoder(tokenizer, features=8).save_pretrained(str(tmp_path / "static"))
    options = "--max_steps 2 --save_strategy no --no_freeze_embeddings"
    assert train("--pairs", pairs, options, "--model", tmp_path / "static")["steps"] == 2


def test_an_encoder_with_routes_is_refused_before_its_teacher_works(
    train: Train, pairs: Path, checkpoint: Path, tmp_path: Path
) -> None:
    with_two_encoders(SentenceTransformer(str(checkpoint), device="cpu")).save_pretrained(str(tmp_path / "two"))
    with pytest.raises(ValueError, match="two.*Router"):
        train("--pairs", pairs, "--max_steps 2", "--model", tmp_path / "two")
    assert not (tmp_path / "run" / "teacher").exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--max_steps 2", "--pairs"),
        ("--max_steps 2 --pivot de --pairs {pairs}", "(?s)'de'.*en.*fr.*--pivot"),
        ("--keep_trained 1.5 --pairs {pairs}", "--keep_trained.*1.5"),
        ("--questions_ratio -0.1 --pairs {pairs}", "--questions_ratio.*-0.1"),
        ("--negatives 0 --pairs {pairs}", "--negatives.*0"),
        ("--temperature 0 --pairs {pairs}", "--temperature.*0"),
        ("--model nowhere/at/all --pairs {pairs}", "nowhere/at/all"),
    ],
)
def test_what_cannot_work_is_said_before_training(
    train: Train, pairs: Path, tmp_path: Path, options: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises((ValueError, SystemExit, OSError)) as caught:
        train(options.format(pairs=pairs))
    assert re.search(named, f"{caught.value} {capsys.readouterr().err}")
    assert not list((tmp_path / "run").rglob("*.safetensors"))


def test_it_trains_without_dropout_by_default(program: ModuleType, tmp_path: Path) -> None:
    assert program.TrainingArguments(output_dir=str(tmp_path)).dropout == 0
