"""The study's commands, test set and table; the runs themselves are those of the training scripts."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from st_xlret.options import parse
from st_xlret.training.arguments import DataArguments, LazyAdamArguments, RunArguments, TrainingArguments
from st_xlret.training.encoders import PretrainingEncoderArguments
from tests.data.files import write_jsonl
from tests.training_scripts.scripts import load_script
from training_scripts import train_ccp, train_msm
from training_scripts import train_search as recipe
from training_scripts.studies.train_search_ablation import AblationArguments


@pytest.fixture
def study(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(repository, "study_search", monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    for name in ("tico19/pairs", "tico19/documents", "tensorflow_docs/pairs", "tatoeba/v1", "xquad_r/qrels"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "tatoeba/v1/tatoeba.fra-eng.eng").write_text("Good  morning.\n", encoding="utf-8")
    corpus, queries, same, every = [], [], ["query-id\tcorpus-id\tscore"], ["query-id\tcorpus-id\tscore"]
    for paragraph in range(4):
        for code in ("en", "fr"):
            corpus += [{"_id": f"{code}-0{paragraph}-0-{n}", "text": f"{code} {paragraph} {n}"} for n in range(2)]
            queries.append({"_id": f"q-{code}-{paragraph}", "text": f"{code} {paragraph}?"})
            same.append(f"q-{code}-{paragraph}\t{code}-0{paragraph}-0-1\t1")
            every += [f"q-{code}-{paragraph}\t{other}-0{paragraph}-0-1\t1" for other in ("en", "fr")]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "xquad_r" / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "xquad_r/qrels/test.tsv.gz").write_bytes(gzip.compress("\n".join(every).encode()))
    (folder / "xquad_r/qrels/test-same-language.tsv").write_text("\n".join(same))
    return folder


@pytest.fixture
def arguments(study: ModuleType, data: Path, tmp_path: Path) -> object:
    (tmp_path / "study").mkdir()
    return study.Arguments(model="m", data=str(data), output=str(tmp_path / "study"), paragraphs=2)


def options_of(command: list[str]) -> list[str]:
    return command[command.index("-m") + 2 :]


def test_rows_differ_in_what_they_learn_alone(study: ModuleType, arguments, tmp_path: Path) -> None:
    trained = [row for row, known in study.ROWS.items() if known]
    for row in trained:
        command = study.training_command(arguments, row, 3, tmp_path / "run")
        given = options_of(command)
        if "train_search" in command[2]:
            groups = [recipe.CheckpointArguments, recipe.SearchDataArguments, AblationArguments]
            groups += [recipe.RunArguments, recipe.TrainingArguments]
            encoder, texts, method, _, training = parse(groups, [*given, "--use_cpu"])
            assert texts.pairs == [str(Path(arguments.data) / "tico19/pairs")]
            assert bool(texts.retrieval) == (method.questions_ratio > 0)
            assert not [path for path in texts.retrieval if "dev" in path]
            assert training.per_device_train_batch_size == 128
        else:
            ccp = "ccp" in command[2]
            method = train_ccp.CCPArguments if ccp else train_msm.MSMArguments
            host = TrainingArguments if ccp else train_msm.TrainingArguments
            groups = [PretrainingEncoderArguments, DataArguments, method, LazyAdamArguments, RunArguments, host]
            encoder, texts, *_, training = parse(groups, [*given, "--use_cpu"])
            assert texts.documents and not texts.pairs
        assert encoder.model == "m" and encoder.freeze_embeddings and encoder.train_seq_length == 160
        assert training.max_steps == 100 and training.seed == 3


def test_the_test_set_is_whole_paragraphs_with_their_questions(study: ModuleType, arguments) -> None:
    study.write_test_set(arguments)
    folder = study.test_set(arguments)
    corpus = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    queries = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    paragraphs = {row["_id"].split("-")[1] for row in corpus}
    assert len(paragraphs) == 2 and len(corpus) == 8 and len(queries) == 4
    judgements = (folder / "qrels/test.tsv").read_text().splitlines()
    assert len(judgements) == 1 + 8 and len((folder / "qrels/test-same-language.tsv").read_text().splitlines()) == 5
    known, asked = {row["_id"] for row in corpus}, {row["_id"] for row in queries}
    assert all(line.split("\t")[0] in asked and line.split("\t")[1] in known for line in judgements[1:])
    sentences = study.excluded(arguments).read_text().splitlines()
    assert "Good morning." in sentences and "en 0 1" in sentences and "fr 3?" in sentences


def test_what_is_measured_already_is_not_measured_again(study: ModuleType, arguments, tmp_path: Path) -> None:
    model, folder = tmp_path / "model", tmp_path / "run"
    every = study.measuring_commands(arguments, model, folder)
    assert [command[3] for command in every] == ["calibrate"] + ["evaluate"] * 6
    (folder / "calibrated").mkdir(parents=True)
    write_jsonl(folder / "raw-pool.json", [{}])
    assert study.measuring_commands(arguments, model, folder) == [*every[2:]]


def test_the_table_has_the_models_in_percent(
    study: ModuleType, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if "evaluate" in command:
            scores = {code: {"accuracy": 0.9} for code in study.TATOEBA_LANGUAGES}
            content = {"scores": scores, "average": {"map_at_20": 0.125, "language_preference": 0.25}}
            Path(command[command.index("--output") + 1]).write_text(json.dumps(content))
        elif "calibrate" not in command:
            target = Path(command[command.index("--output_dir") + 1])
            content = {"steps": 7, "tokens": 8000, "seconds": 2.0, "command": "python"}
            (target / "results.json").write_text(json.dumps(content))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr("training_scripts.studies.common.subprocess.run", run)
    output = tmp_path / "study"
    given = ["--model", "m", "--data", str(data), "--output", str(output), "--rows", "checkpoint"]
    study.main([*given, "distilled similarities", "--seeds", "0", "1", "--paragraphs", "2"])
    printed = capsys.readouterr().out
    assert "8,000" in printed and "12.5" in printed and "25.0" in printed and "90.0" in printed
    figures = json.loads((output / "study.json").read_text())
    assert list(figures) == ["checkpoint-0", "distilled-similarities-0", "distilled-similarities-1"]
    assert (output / "study.md").read_text() in printed
