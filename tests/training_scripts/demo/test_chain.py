"""Pre-training, fine-tuning, calibration and evaluation, each from the folder of the stage before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer

from st_xlret import commands
from tests.training_scripts.scripts import load_script
from training_scripts.demo import chain_data

pytestmark = pytest.mark.slow
STATIC = "--lazy_adam --max_grad_norm 0 --use_cpu --save_strategy no"
PRETRAINING = {
    "train_ccp": f"{STATIC} --from_scratch static --features 32 --learning_rate 1e-2 --bank_size 64",
    "train_msm": "--from_scratch tiny --use_cpu --save_strategy no --learning_rate 1e-3 --block_sentences 8",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain") / "data"
    return chain_data.main(["--output", str(folder), "--documents", "40", "--questions", "60", "--test", "10"])


@pytest.mark.parametrize("first", PRETRAINING)
def test_four_stages_of_one_command_each(
    first: str, data: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    sizes = "--max_steps 6 --per_device_train_batch_size 8 --vocabulary 800 --evaluation_pairs 5"
    given = [
        "--documents",
        str(data / "documents"),
        "--pairs",
        str(data / "pairs"),
        "--output_dir",
        str(tmp_path / "a"),
    ]
    load_script(repository, first, monkeypatch).main([*given, *sizes.split(), *PRETRAINING[first].split()])

    lazy = STATIC if first == "train_ccp" else "--use_cpu --save_strategy no"
    given = ["--model", str(tmp_path / "a" / "model"), "--retrieval", str(data / "questions.jsonl")]
    given += ["--output_dir", str(tmp_path / "b"), *lazy.split(), "--per_device_train_batch_size", "8"]
    results: dict[str, Any] = load_script(repository, "train_retriever", monkeypatch).main([*given, "--max_steps", "6"])
    assert set(results["languages"]) == {"en", "de"} and "questions_cosine_mrr@10" in results["held_out"]

    calibrated = str(tmp_path / "c")
    given = ["--model", str(tmp_path / "b" / "model"), "--documents", str(data / "documents"), "--output", calibrated]
    commands.run("calibrate", given, prog="st-xlret")

    scores = tmp_path / "lareqa.json"
    given = ["--model", calibrated, "--benchmark", "lareqa", "--data", str(data / "test"), "--output", str(scores)]
    commands.run("evaluate", given, prog="st-xlret")
    found = json.loads(scores.read_text())
    assert set(found["scores"]) == {"ar", "de", "en", "fr", "ru", "zh"} and 0 < found["average"]["map_at_20"] <= 1
    # The last model is a plain one, as all of them are.
    assert SentenceTransformer(calibrated, device="cpu").encode_query(["the key"]).shape[0] == 1


def test_no_question_is_among_the_documents(data: Path) -> None:
    rows = [json.loads(line) for line in (data / "questions.jsonl").read_text().splitlines()]
    assert len(rows) == 120 and all(row["query"] not in row["positive"] for row in rows)
    queries = [json.loads(line) for line in (data / "test" / "queries.jsonl").read_text().splitlines()]
    judged = (data / "test" / "qrels" / "test.tsv").read_text().splitlines()
    assert len(queries) == 60 and len(judged) == 1 + 60 * 5
