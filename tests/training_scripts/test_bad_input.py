"""What cannot work is named before anything is trained or lost."""

import json
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.modules import with_two_encoders
from st_xlret.training.run import run_script
from tests.data.files import write_jsonl
from tests.training_scripts.scripts import Runner

BAD = [
    ("ccp", "--model --from_scratch", "--model .* --from_scratch"),
    ("ccp", "--documents --pairs", "texts"),
    ("ccp", "--pairs --ccp_ratio 0", "ratio"),
    ("ccp", "--keep_trained 1.5", "1.5"),
    ("ml-ctl", "--lr_drops 0.5 2", "2.0"),
    ("ccp", "--documents nowhere.jsonl", "nowhere.jsonl"),
    ("ccp", '--loss_options {"cpp":{}}', "cpp"),
    ("msm", "--documents --pairs_ratio 0", "--pairs_ratio"),
    ("msm", '--mlm_ratio 0 --loss_options {"mlm":{}}', "mlm"),
    ("ml-ctl", "--pairs", "--pairs"),
    ("ml-ctl", "--from_scratch static", "ML-CTL-CZ.*Transformer"),
    ("language-agnostic-ir", "--pairs", "--pairs"),
    ("language-agnostic-ir", "--language_weight 0", "--documents"),
    ("retriever", "--retrieval", "questions"),
    ("search", "--pairs", "--pairs"),
    ("search", "--pivot de", "'de'"),
    ("search", "--model nowhere/at/all", "nowhere/at/all"),
    ("search", "--from_scratch static", "texts"),
    ("queries", "--documents", "min_texts"),
    ("queries", "--lora_rank 4 --keep_trained 1 --max_seq_length 8", "4.*8"),
    ("queries", "--queries asked.txt --pairs translated.tsv", "asked.txt"),
]


@pytest.mark.parametrize(("name", "options", "named"), BAD)
def test_what_cannot_work_is_refused_before_training(
    name: str, options: str, named: str, train: Runner, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, OSError), match=named):
        train(name, "--max_steps 1", options)
    assert (
        not list((tmp_path / "run").rglob("*.safetensors"))
        and not (tmp_path / "run" / "results.json").exists()
    )


@pytest.mark.parametrize("options", [{"wieght": 2}, {"batches": {"language_smothing": 1}}])
def test_an_argument_that_a_loss_does_not_have_is_named(options: dict, train: Runner) -> None:
    of_losses = json.dumps({"ccp": options}, separators=(",", ":"))
    with pytest.raises(SystemExit, match="^error: .*(CCPLoss.*'wieght'|'language_smothing')$"):
        run_script(lambda: train("ccp", "--max_steps 1 --loss_options", of_losses))


def test_bad_lines_are_named_or_skipped(train: Runner, tmp_path: Path) -> None:
    lines = (train.data / "documents.jsonl").read_text().splitlines()
    documents = write_jsonl(
        tmp_path / "documents.jsonl", [*lines[:2], '{"language": "en", "sentences": [', *lines[2:]]
    )
    with pytest.raises(
        SystemExit, match=f"^error: {documents}, line 3"
    ):  # of a program, the error alone
        run_script(lambda: train("ccp", "--pairs --max_steps 1 --documents", documents))
    options = "--pairs --max_steps 1 --skip_bad_lines --save_strategy no --documents"
    assert train("ccp", options, documents)["sentences"] == 96


def test_a_search_encoder_with_routes_is_refused(train: Runner, tmp_path: Path) -> None:
    with_two_encoders(SentenceTransformer(str(train.data / "encoder"))).save_pretrained(
        str(tmp_path / "two")
    )
    with pytest.raises(ValueError, match="two.*Router"):
        train("search", "--max_steps 2 --model", tmp_path / "two")
    assert not (tmp_path / "run" / "teacher").exists(), "the teacher worked"
