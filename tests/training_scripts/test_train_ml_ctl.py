"""From parallel sentences and dictionaries to a model, in one command."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from st_xlret.data import DataError
from st_xlret.losses import MaskedLMLoss
from st_xlret.modules import ContextualEncoder, first_last_encoder
from st_xlret.options import own_options, parse
from tests import tiny
from tests.training_scripts.scripts import Train, load_script, runner
from tests.training_scripts.train_ccp_runs import WORDS, Stop, add_callback, assert_equal_weights, names

SIZES = "--vocabulary 150 --features 16 --per_device_train_batch_size 4 --learning_rate 1e-2 --max_seq_length 16"

PAPER = {
    "model": "bert-base-multilingual-cased",  # section 4.1: mBERT
    "from_scratch": None,
    "mode": "ML-CTL-CZ",  # section 4.2
    "temperature": 0.07,  # section 2.3
    "mlm_weight": 0.1,  # section 4.1: "set alpha as 0.1"
    "stop_words": ["default"],  # section 2.1: a dictionary without stop words
    "languages": ["ar", "en", "es", "fr", "ru", "zh"],  # section 4.1: the six official languages of the UN
    "samples_per_pair": None,  # section 2.3: one pair of sentences with several words
    "language_mixing": 0,  # section 2.3: "each batch of parallel WPSs in two languages"
    "language_smoothing": 0,  # section 4.1: "evenly distributed over six languages"
    "per_device_train_batch_size": 64,  # section 4.1
    "gradient_accumulation_steps": 1,
    "learning_rate": 2e-6,  # section 4.1
    "weight_decay": 0,  # section 4.1: Adam
    "optim": "adamw_torch",
}


@pytest.fixture
def dictionary(tmp_path: Path) -> Path:
    file = tmp_path / "my-words.en-fr.tsv"
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
    return runner(script, tmp_path, f"{SIZES} --use_cpu --pairs {pairs}", "--from_scratch tiny")


def test_pairs_and_a_dictionary_give_a_plain_model_that_knows_translations(
    train_words: Train, dictionary: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    options = "--max_steps 60 --eval_steps 30 --logging_steps 10 --save_steps 30"
    results = train_words("--dictionaries", dictionary, options)
    run = tmp_path / "run"
    expected = {"checkpoint-30", "checkpoint-60", "model", "results.json", "tokenizer", "training.png"}
    assert expected <= set(names(run))
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
    state = json.loads((run / "checkpoint-60" / "trainer_state.json").read_text())
    logged = {key for line in state["log_history"] for key in line}
    assert {"cz_nce", "mlm"} <= logged or {"loss_cz_nce", "loss_mlm"} <= logged, logged

    assert "--pooling checkpoint" not in caplog.text  # there was no checkpoint

    # What was trained is trained on.
    results = train_words("--model", run / "model", "--mode CZ-snt --max_steps 2", output="second")
    assert results["mode"] == "CZ-snt" and results["word_samples"] is None
    assert f"--pooling checkpoint keeps that of {run / 'model'}" in caplog.text


@pytest.mark.parametrize("mode", ["CZ-snt", "ML-CTL-CZ"])
def test_the_sentence_vector_of_a_checkpoint_can_be_kept(
    train_words: Train, dictionary: Path, tmp_path: Path, mode: str
) -> None:
    checkpoint = tiny.transformer()
    checkpoint[1].pooling_mode = "cls"
    checkpoint.append(Normalize())
    checkpoint.save(str(tmp_path / "checkpoint"))
    words = () if mode == "CZ-snt" else ("--dictionaries", dictionary)
    options = f"--mode {mode} --max_steps 1 --learning_rate 1e-12 --save_strategy no --evaluation_pairs 0"
    train_words(*words, "--model", tmp_path / "checkpoint", "--pooling checkpoint", options)
    model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling", "Normalize"]
    torch.testing.assert_close(
        torch.from_numpy(model.encode(tiny.WORDS)), torch.from_numpy(checkpoint.encode(tiny.WORDS))
    )


@pytest.mark.parametrize("mode", ["info-snt", "CZ-snt"])
def test_sentences_alone_need_no_dictionary_and_no_transformer(train_words: Train, tmp_path: Path, mode: str) -> None:
    options = "--from_scratch static --token_dropout 0.1 --lazy_adam --max_grad_norm 0 --max_steps 2"
    results = train_words(f"--mode {mode} --save_strategy no --evaluation_pairs 0 {options}")
    assert results["word_samples"] is None and "held_out_pairs" not in results
    modules = json.loads((tmp_path / "run" / "model" / "modules.json").read_text())
    assert [module["type"].rpartition(".")[2] for module in modules] == ["StaticEmbedding"]


@pytest.mark.parametrize("mode", ["info-snt", "CZ-snt", "ML-CTL-info", "ML-CTL-CZ"])
def test_a_mode_is_an_objective_with_or_without_words(script: ModuleType, mode: str) -> None:
    model = first_last_encoder(tiny.transformer())
    loss = script.build_loss(model, script.MLCTLArguments(mode=mode, temperature=0.2, mlm_weight=0.3))
    assert (loss.objective, loss.temperature, loss.mlm_weight) == (
        "info_nce" if "info" in mode else "cz_nce",
        0.2,
        0.3,
    )
    assert isinstance(loss.contextual_encoder, ContextualEncoder) == mode.startswith("ML-CTL")
    assert isinstance(loss.mlm, MaskedLMLoss)
    assert script.build_loss(model, script.MLCTLArguments(mode=mode, mlm_weight=0)).mlm is None


def test_the_options_reach_the_batches(
    script: ModuleType, train_words: Train, dictionary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: dict[str, Any] = {}
    batches = script.CrossLingualBatches
    monkeypatch.setattr(script, "CrossLingualBatches", lambda **options: used.update(options) or batches(**options))
    options = "--language_mixing 0 --language_smoothing 0.2 --samples_per_pair 1 --max_steps 1 --save_strategy no"
    counts = train_words("--dictionaries", dictionary, options)["word_samples"]["en>fr"]
    assert used == {"pairs_language_mixing": 0, "language_smoothing": 0.2}
    assert counts["samples"] == counts["used"]


def test_a_stopped_run_is_resumed_as_if_nothing_had_been(
    script: ModuleType, train_words: Train, dictionary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--dictionaries", dictionary, "--max_steps 6 --save_steps 2")
    train_words(*options, output="whole")
    with monkeypatch.context() as patch:
        add_callback(script, patch, Stop(5))
        with pytest.raises(SystemExit, match=r"step 5(.|\n)*checkpoint-4(.|\n)*--resume"):
            train_words(*options)
    with pytest.raises(FileExistsError, match="--resume"):
        train_words(*options)
    train_words(*options, "--resume")
    assert_equal_weights(tmp_path / "run" / "model", tmp_path / "whole" / "model")


def test_pairs_come_in_every_format(script: ModuleType, pairs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pairs"
    folder.mkdir()
    pairs.rename(folder / "a.jsonl")
    (folder / "x.en-fr.en").write_text("The sun.\nThe rain.\n", encoding="utf-8")
    (folder / "x.en-fr.fr").write_text("Le soleil.\nLa pluie.\n", encoding="utf-8")
    (folder / "WikiMatrix.en-fr.tsv").write_text("1.2\tA star.\tUn astre.\n", encoding="utf-8")
    (folder / "words.en-de.tsv").write_text("sun\tSonne\n", encoding="utf-8")
    unit = '<tu><tuv xml:lang="{}"><seg>{}</seg></tuv><tuv xml:lang="{}"><seg>{}</seg></tuv></tu>'
    unit = unit.format("en", "The moon.", "fr", "La lune.")
    (folder / "m.tmx").write_text(f"<tmx><header/><body>{unit}</body></tmx>", encoding="utf-8")
    loaded = script.ParallelArguments(pairs=[str(folder)], languages=["EN", "fr"]).load_pairs()
    assert {"The sun.", "A star.", "The moon."} < set(loaded["source"]) and "sun" not in loaded["source"][:]


def test_dictionaries_are_named_after_their_languages(
    script: ModuleType, train_words: Train, dictionary: Path, tmp_path: Path
) -> None:
    german = tmp_path / "words.en-de.tsv"
    german.write_text("sun\tSonne\n", encoding="utf-8")

    def load(*languages: str, files: tuple[Path, ...] = (dictionary, german)) -> list[tuple[str, str]]:
        data = script.ParallelArguments(
            pairs=["p"], dictionaries=list(map(str, files)), languages=list(languages)
        ).load_dictionaries()
        return [(found.source_language, found.target_language) for found in data]

    assert load() == [("en", "fr"), ("en", "de")]
    assert load("en", "fr") == load("EN", "fr") == load("eng", "fra") == [("en", "fr")]
    # A hyphen elsewhere in the name, and codes in capitals, must not lose the dictionary.
    results = train_words("--dictionaries", dictionary, "--languages EN fr --max_steps 1 --save_strategy no")
    assert results["languages"] == ["en", "fr"] and results["word_samples"]["en>fr"]["samples"] > 90
    with pytest.raises(DataError, match="en, ja"):
        load("en", "ja")
    with pytest.raises(ValueError, match="--dictionaries.*--mode CZ-snt"):
        load(files=())


def test_stop_words_are_left_out_as_told(train_words: Train, dictionary: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.en.txt"
    own.write_text("\n".join(WORDS["en"][::2]), encoding="utf-8")

    def words(*options: str | Path, output: str) -> dict[str, int]:
        given = ("--dictionaries", dictionary, "--max_steps 1 --save_strategy no --evaluation_pairs 0", *options)
        return train_words(*given, output=output)["word_samples"]["en>fr"]

    all_words, other_half = words("--stop_words none", output="none"), words("--stop_words", own, output="own")
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
        ([tmp_path / "en.txt"], r"en\.txt"),
        (["none", own], "--stop_words .*none .*own.en.txt"),
        ([own.rename(tmp_path / "de.txt")], r"--stop_words.* de.*\['en', 'fr'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            given(*files)


def test_bad_input_is_named_and_nothing_is_written(
    script: ModuleType, train_words: Train, dictionary: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="--pairs"):
        script.main(["--from_scratch", "tiny", "--output_dir", str(tmp_path / "run")])
    with pytest.raises(ValueError, match="--dictionaries.*--mode CZ-snt"):
        train_words()
    with pytest.raises(ValueError, match="--pooling checkpoint.*--model"):
        train_words("--pooling checkpoint")
    with pytest.raises(ValueError, match="ML-CTL-CZ.*StaticEmbedding.*CZ-snt"):
        train_words("--dictionaries", dictionary, "--from_scratch static")
    with pytest.raises(ValueError, match="--per_device_train_batch_size.* 1"):
        train_words("--dictionaries", dictionary, "--per_device_train_batch_size 1")
    swapped = tmp_path / "words.fr-en.tsv"
    swapped.write_bytes(dictionary.read_bytes())
    with pytest.raises(DataError, match="swap"):
        train_words("--dictionaries", swapped)
    latin = tmp_path / "latin.en-fr.tsv"
    latin.write_bytes("summer\tété\n".encode("latin1"))
    with pytest.raises(DataError, match=r"latin\.en-fr\.tsv, line 1.*UTF-8.*iconv"):
        train_words("--dictionaries", latin)
    assert not (tmp_path / "run" / "results.json").exists() and not any((tmp_path / "run").glob("model/*"))


def test_the_recipe_is_the_papers(script: ModuleType, repository: Path, tmp_path: Path) -> None:
    groups = [script.EncoderArguments, script.ParallelArguments, script.MLCTLArguments, script.TrainingArguments]
    file = repository / "training_scripts" / "recipes" / "ml-ctl.yaml"
    options: dict[str, Any] = {}
    for group in parse(groups, [str(file), "--pairs", "p", "--output_dir", str(tmp_path), "--use_cpu"]):
        options |= vars(group)
    assert {name: options[name] for name in PAPER} == PAPER
    # Section 4.1: 250 million samples.
    assert options["max_steps"] * options["per_device_train_batch_size"] == 250_000_000


def test_the_defaults_are_the_papers_but_for_the_batches_of_languages(script: ModuleType, tmp_path: Path) -> None:
    method, args = script.MLCTLArguments(), script.TrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    defaults = vars(method) | vars(args)
    same = set(PAPER) & set(defaults) - {"language_mixing", "language_smoothing", "optim"}
    assert {name: defaults[name] for name in same} == {name: PAPER[name] for name in same}
    # Where they differ, the help says so.
    helps = {option.name: option.metadata["help"] for option in fields(method)}
    assert all("0" in helps[name] and "paper" in helps[name] for name in ("language_mixing", "language_smoothing"))


def test_the_script_has_few_options_of_its_own(script: ModuleType) -> None:
    groups = [script.EncoderArguments, script.ParallelArguments, script.MLCTLArguments, script.TrainingArguments]
    names_of = own_options([*groups, script.LazyAdamArguments, script.RunArguments])
    assert len(names_of) <= 30 and "documents" not in names_of
