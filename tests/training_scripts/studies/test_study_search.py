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
from st_xlret.training.questions import RetrievalDataArguments
from tests.training_scripts.scripts import load_script
from training_scripts import train_language_agnostic_ir as train_ir
from training_scripts import train_ml_ctl, train_msm, train_search
from training_scripts.studies import (
    train_ccp_ablation,
    train_ir_ablation,
    train_msm_ablation,
    train_rival,
    train_search_ablation,
)

DOCUMENTS_ALONE = ("train_ccp_ablation", "train_msm_ablation", "train_rival")


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


def options_classes(program: str) -> list[type]:
    """The groups of options of a program that trains a row."""
    documents = [PretrainingEncoderArguments, DataArguments]
    rest = [LazyAdamArguments, RunArguments]
    msm = train_msm.TrainingArguments
    return {
        "train_search_ablation": [
            train_search.CheckpointArguments,
            train_search.SearchDataArguments,
            train_search_ablation.AblationArguments,
            RunArguments,
            train_search.TrainingArguments,
        ],
        "train_ir_ablation": [
            train_ir.RetrieverArguments,
            RetrievalDataArguments,
            train_ir_ablation.AblationArguments,
            *rest,
            train_ir.TrainingArguments,
        ],
        "train_ml_ctl": [
            train_ml_ctl.EncoderArguments,
            train_ml_ctl.ParallelArguments,
            train_ml_ctl.MLCTLArguments,
            *rest,
            train_ml_ctl.TrainingArguments,
        ],
        "train_ccp_ablation": [*documents, train_ccp_ablation.AblationArguments, *rest, TrainingArguments],
        "train_msm_ablation": [*documents, train_msm_ablation.AblationArguments, *rest, msm],
        "train_rival": [*documents, train_rival.RivalArguments, *rest, msm],
    }[program]


def test_every_row_is_a_command_that_its_program_takes(study: ModuleType, arguments, tmp_path: Path) -> None:
    for row, known in study.ROWS.items():
        if known is None or known[0] == study.MERGE:
            continue
        command = study.training_command(arguments, row, 3, tmp_path / "run")
        program = command[2].split(".")[-1]
        parsed = parse(options_classes(program), [*options_of(command), "--use_cpu"])
        encoder, training = parsed[0], parsed[-1]
        assert encoder.model == "m" and encoder.freeze_embeddings, row
        assert training.max_steps == 100 and training.seed == 3 and training.adam_beta2 == 0.98, row
        assert training.learning_rate == (3e-5 if program in DOCUMENTS_ALONE else 1e-4), row
        data = next(group for group in parsed if isinstance(group, DataArguments))
        assert bool(data.pairs) == (program not in DOCUMENTS_ALONE), row
        assert not [path for path in getattr(data, "retrieval", []) if "dev" in path]


def test_every_row_has_as_many_texts_in_a_batch(study: ModuleType, arguments, tmp_path: Path) -> None:
    texts = {}
    for row, known in study.ROWS.items():
        if known is None or known[0] == study.MERGE:
            continue
        command = study.training_command(arguments, row, 0, tmp_path / "run")
        size = int(command[command.index("--per_device_train_batch_size") + 1])
        of_a_row = {"train_search_ablation": 1, "train_ml_ctl": 2, "train_ir_ablation": 2, "train_ccp_ablation": 2}
        texts[row] = size * of_a_row.get(known[0], 16)
        if "--pairs_batch_size" in command:
            pairs = int(command[command.index("--pairs_batch_size") + 1])
            texts[row] += 2 * pairs
            if "--others_batch_size" in command:  # and the pairs once more, in the batch of the language loss
                texts[row] += 2 * pairs + int(command[command.index("--others_batch_size") + 1])
    assert max(texts.values()) <= 128 and min(texts.values()) >= 120, texts


def test_merged_rows_are_made_of_rows_of_the_same_seed(study: ModuleType, arguments, tmp_path: Path) -> None:
    for row, known in study.ROWS.items():
        if known is None or known[0] != study.MERGE:
            continue
        command = study.training_command(arguments, row, 3, tmp_path / "run")
        first, last = command.index("--add") + 1, command.index("--output")
        folders = {Path(entry.rsplit(":", 1)[0]).parent.name for entry in command[first:last]}
        assert folders <= {study.run_name(other, 3) for other in study.ROWS}, row


def test_the_checkpoint_has_one_seed(study: ModuleType, arguments) -> None:
    arguments.rows, arguments.seeds = ["checkpoint", "CCP"], [1, 2]
    assert study.models(arguments) == ["checkpoint-0", "CCP-1", "CCP-2"]
    figures = {name: {"raw pool": 0.25} for name in study.models(arguments)}
    assert study.table_of(arguments, figures).count("25.0") == 2


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


def test_the_table_has_the_mean_and_the_spread_of_the_seeds(
    study: ModuleType, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if command[2].endswith("measure_search"):
            seed = 0.02 * ("similarities-1" in command[command.index("--output") + 1])
            figures = {"raw pool": 0.5 + seed, "raw own": 0.75, "raw tatoeba fr": 0.9, "raw tatoeba de": 1.0}
            Path(command[command.index("--output") + 1]).write_text(json.dumps(figures))
        else:
            target = Path(command[command.index("--output_dir") + 1])
            (target / "model").mkdir()
            (target / "results.json").write_text(json.dumps({"steps": 7, "tokens": 8000, "seconds": 2.0}))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr("training_scripts.studies.common.subprocess.run", run)
    output = tmp_path / "study"
    given = ["--model", "m", "--data", str(data), "--output", str(output), "--rows", "checkpoint"]
    given += ["translations: similarities", "--seeds", "0", "1", "--paragraphs", "2"]
    study.main(given)
    printed = capsys.readouterr().out
    assert "8,000" in printed and "51.0 ± 1.0" in printed and "95.0" in printed and "75.0 ± 0.0" in printed
    assert len(json.loads((output / "study.json").read_text())) == 3
    assert (output / "study.md").read_text() in printed
    assert len(commands) == 5
    study.main(given)
    assert len(commands) == 5  # what is there is neither trained nor measured again
