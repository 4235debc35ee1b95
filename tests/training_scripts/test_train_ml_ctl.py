"""From parallel sentences and dictionaries to a model, in one command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.data import DataError
from tests.training_scripts.scripts import load_script
from tests.training_scripts.train_ccp_runs import WORDS, Stop, assert_equal_weights, names

Train = Callable[..., dict[str, Any]]
SIZES = "--vocabulary 150 --features 16 --batch-size 4 --learning-rate 1e-2 --max-seq-length 16"


@pytest.fixture
def dictionary(tmp_path: Path) -> Path:
    file = tmp_path / "words.en-fr.tsv"
    lines = [f"{one}\t{other}\n" for one, other in zip(WORDS["en"], WORDS["fr"], strict=True)]
    file.write_text("".join(lines), encoding="utf-8")
    return file


@pytest.fixture
def script(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return load_script(repository, "train_ml_ctl", monkeypatch)


@pytest.fixture
def train_words(script: ModuleType, pairs: Path, tmp_path: Path) -> Train:
    """Run the script on a tiny encoder; further options, a string of several or paths, override."""

    def run(*options: str | Path, output: str = "run") -> dict[str, Any]:
        given = [*SIZES.split(), "--pairs", str(pairs), "--output", str(tmp_path / output)]
        given += ["--training-arguments", '{"use_cpu": true}']
        for option in options:
            given += option.split() if isinstance(option, str) else [str(option)]
        if not {"--model", "--from-scratch"} & set(given):
            given += ["--from-scratch", "tiny"]
        return script.main(given)

    return run


def test_pairs_and_a_dictionary_give_a_plain_model_that_knows_translations(
    train_words: Train, dictionary: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    options = "--max-steps 60 --eval-steps 30 --logging-steps 10 --save-steps 30"
    results = train_words("--dictionaries", dictionary, options)
    run = tmp_path / "run"
    assert names(run) == ["checkpoints", "model", "results.json", "tokenizer", "training.png"]
    assert json.loads((run / "results.json").read_text()) == results
    assert (results["mode"], results["steps"], results["languages"]) == ("ML-CTL-CZ", 60, ["en", "fr"])
    counts = results["word_samples"]["en>fr"]
    assert counts["pairs"] == results["pairs"] >= counts["used"] > 90 and counts["samples"] > counts["used"]
    assert "more than once" in caplog.text
    assert results["held_out_pairs"]["average"]["accuracy"] > 0.3

    modules = json.loads((run / "model" / "modules.json").read_text())
    assert [module["type"].rpartition(".")[2] for module in modules] == [
        "Transformer",
        "WeightedLayerPooling",
        "Pooling",
    ]
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    model = SentenceTransformer(str(run / "model"), device="cpu")
    assert model.encode(["the sun", "le soleil"]).shape == (2, 32)
    card = (run / "model" / "README.md").read_text(encoding="utf-8")
    assert "mlctl2022" in card and "ml-ctl" in card
    state = json.loads((run / "checkpoints" / "checkpoint-60" / "trainer_state.json").read_text())
    logged = {key for line in state["log_history"] for key in line}
    assert {"cz_nce", "mlm"} <= logged or {"loss_cz_nce", "loss_mlm"} <= logged, logged

    # What was trained is trained on.
    results = train_words("--model", run / "model", "--mode CZ-snt --max-steps 2", output="second")
    assert results["mode"] == "CZ-snt" and results["word_samples"] is None


@pytest.mark.parametrize("mode", ["info-snt", "CZ-snt"])
def test_sentences_alone_need_no_dictionary_and_no_transformer(train_words: Train, tmp_path: Path, mode: str) -> None:
    results = train_words(f"--mode {mode} --from-scratch static --max-steps 2 --save-steps 0 --evaluation-pairs 0")
    assert results["word_samples"] is None and "held_out_pairs" not in results
    modules = json.loads((tmp_path / "run" / "model" / "modules.json").read_text())
    assert [module["type"].rpartition(".")[2] for module in modules] == ["StaticEmbedding"]


def test_a_stopped_run_is_resumed_as_if_nothing_had_been(
    script: ModuleType, train_words: Train, dictionary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--dictionaries", dictionary, "--max-steps 6 --eval-steps 2 --save-steps 2")
    train_words(*options, output="whole")
    build = script.build_ml_ctl_trainer
    with monkeypatch.context() as patch:
        stop = Stop(5)
        patch.setattr(script, "build_ml_ctl_trainer", lambda *a, **o: build(*a, **o, callbacks=(stop,)))
        with pytest.raises(SystemExit, match=r"stopped at step 5(.|\n)*checkpoint-4 is whole"):
            train_words(*options)
    with pytest.raises(FileExistsError, match="--resume"):
        train_words(*options)
    train_words(*options, "--resume")
    assert_equal_weights(tmp_path / "run" / "model", tmp_path / "whole" / "model")


def test_stop_words_are_left_out_as_told(train_words: Train, dictionary: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.en.txt"
    own.write_text("\n".join(WORDS["en"][::2]), encoding="utf-8")

    def words(*options: str | Path, output: str) -> dict[str, int]:
        given = ("--dictionaries", dictionary, "--max-steps 1 --save-steps 0 --evaluation-pairs 0", *options)
        return train_words(*given, output=output)["word_samples"]["en>fr"]

    all_words, other_half = words("--stop-words none", output="none"), words("--stop-words", own, output="own")
    assert other_half["samples"] < 0.7 * all_words["samples"]
    assert other_half["stop_word"] > all_words["stop_word"] == 0


def test_stop_words_by_language(script: ModuleType, dictionary: Path, tmp_path: Path) -> None:
    def given(*stop_words: str | Path) -> Any:
        data = script.ParallelArguments(
            pairs=["p"], dictionaries=[str(dictionary)], stop_words=list(map(str, stop_words or ["default"]))
        )
        return data.load_stop_words(data.load_dictionaries())

    assert given() is None and given("none") == {}
    own = tmp_path / "own.en.txt"
    own.write_text("Sun\n", encoding="utf-8")
    lists = given(own)
    assert lists.keys() == {"en", "fr"} and lists["en"] == {"sun"} and "le" in lists["fr"]
    for files, message in (
        ([tmp_path / "en.txt"], "no such file of stop words"),
        (["none", own], "--stop-words takes default, none or files, got none .*own.en.txt"),
        ([own.rename(tmp_path / "de.txt")], r"no dictionary has de; they have \['en', 'fr'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            given(*files)


def test_bad_input_is_named_and_nothing_is_written(train_words: Train, dictionary: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no dictionaries to find words by: give --dictionaries, or --mode CZ-snt"):
        train_words()
    with pytest.raises(ValueError, match="needs the token vectors of a Transformer"):
        train_words("--dictionaries", dictionary, "--from-scratch static")
    with pytest.raises(ValueError, match="batch size must be at least 2"):
        train_words("--dictionaries", dictionary, "--batch-size 1")
    swapped = tmp_path / "words.fr-en.tsv"
    swapped.write_bytes(dictionary.read_bytes())
    with pytest.raises(DataError, match="did you mean to swap"):
        train_words("--dictionaries", swapped)
    latin = tmp_path / "latin.en-fr.tsv"
    latin.write_bytes("summer\tété\n".encode("latin1"))
    with pytest.raises(DataError, match=r"latin\.en-fr\.tsv, line 1: not UTF-8.*iconv"):
        train_words("--dictionaries", latin)
    assert names(tmp_path / "run") == ["model", "tokenizer"] and not names(tmp_path / "run" / "model")


def test_the_defaults_are_the_papers_and_the_help_explains(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    run = script.MLCTLRunArguments(output="x")
    assert (run.batch_size, run.learning_rate, run.weight_decay) == (64, 2e-6, 0.0)
    with pytest.raises(SystemExit):
        script.main(["--help"])
    shown = capsys.readouterr().out
    assert all(
        word in shown
        for word in ("--dictionaries", "--mode", "ML-CTL-CZ", "--stop-words", "st-xlret[words]", "--resume")
    )
