"""From parallel sentences and dictionaries to a model."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from st_xlret.data import DataError
from st_xlret.losses import MaskedLMLoss
from st_xlret.modules import ContextualEncoder
from tests import tiny
from tests.data.files import write_text
from tests.training_scripts.scripts import WORDS, Runner, script
from tests.training_scripts.test_recipes import RECIPES


def modules_of(model: Path) -> list[str]:
    return [type(module).__name__ for module in SentenceTransformer(str(model), device="cpu").children()]


def test_translations_come_together_and_the_model_is_trained_on(train: Runner, tmp_path: Path) -> None:
    results = train("ml-ctl", "--max_steps 60 --save_steps 30")
    counts = results["word_samples"]["en>fr"]
    assert counts["pairs"] == results["pairs"] >= counts["used"] > 90 and counts["samples"] > counts["used"]
    assert results["mode"] == "ML-CTL-CZ" and results["held_out"]["pairs_average_accuracy"] > 0.3
    model = tmp_path / "run" / "model"
    assert modules_of(model) == ["Transformer", "WeightedLayerPooling", "Pooling"]
    results = train("ml-ctl", "--mode CZ-snt --max_steps 2 --dictionaries --model", model, output="second")
    assert results["mode"] == "CZ-snt" and results["word_samples"] is None
    assert modules_of(tmp_path / "second" / "model") == modules_of(model)


@pytest.mark.parametrize("mode", ["CZ-snt", "ML-CTL-CZ"])
def test_the_sentence_vector_of_a_checkpoint_can_be_kept(mode: str, train: Runner, tmp_path: Path) -> None:
    checkpoint = tiny.transformer()
    checkpoint[1].pooling_mode = "cls"
    checkpoint.append(Normalize())
    checkpoint.save(str(tmp_path / "checkpoint"))
    options = f"--mode {mode} --max_steps 1 --learning_rate 1e-12 --save_strategy no --evaluation_pairs 0"
    train("ml-ctl", "--model", tmp_path / "checkpoint", "--pooling checkpoint", options)
    assert modules_of(tmp_path / "run" / "model") == ["Transformer", "Pooling", "Normalize"]
    model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    torch.testing.assert_close(
        torch.from_numpy(model.encode(tiny.WORDS)), torch.from_numpy(checkpoint.encode(tiny.WORDS))
    )


@pytest.mark.parametrize("mode", ["info-snt", "CZ-snt"])
def test_sentences_alone_need_no_dictionary_and_no_transformer(mode: str, train: Runner, tmp_path: Path) -> None:
    options = "--from_scratch static --token_dropout 0.1 --dictionaries --save_strategy no --evaluation_pairs 0"
    results = train("ml-ctl", f"--mode {mode} --max_steps 2 {options}")
    assert results["word_samples"] is None and "held_out" not in results
    assert modules_of(tmp_path / "run" / "model") == ["StaticEmbedding"]


@pytest.mark.parametrize("mode", ["info-snt", "CZ-snt", "ML-CTL-info", "ML-CTL-CZ"])
def test_options_reach_the_loss_and_its_batches(mode: str, train: Runner) -> None:
    options = f"--mode {mode} --temperature 0.2 --mlm_weight 0.3 --language_mixing 0 --language_smoothing 0.2"
    loss = train.built("ml-ctl", options).loss
    objective = "info_nce" if "info" in mode else "cz_nce"
    assert (loss.objective, loss.temperature, loss.mlm_weight) == (objective, 0.2, 0.3)
    assert isinstance(loss.contextual_encoder, ContextualEncoder) == mode.startswith("ML-CTL")
    assert isinstance(loss.mlm, MaskedLMLoss)
    assert (loss.batches.language_mixing, loss.batches.language_smoothing) == (0, 0.2)
    assert train.built("ml-ctl", f"--mode {mode} --mlm_weight 0").loss.mlm is None


def test_dictionaries_are_named_after_their_languages(train: Runner, tmp_path: Path) -> None:
    german = write_text(tmp_path / "words.en-de.tsv", "sun\tSonne\n")
    # A hyphen elsewhere in the name, and codes in capitals, must not lose the dictionary.
    french = write_text(tmp_path / "my-own-words.EN-FR.tsv", (train.data / "words.en-fr.tsv").read_text())
    options = f"--dictionaries {french} {german} --languages EN fra --samples_per_pair 1 --max_steps 1"
    results = train("ml-ctl", options, "--save_strategy no")
    counts = results["word_samples"]["en>fr"]
    assert results["languages"] == ["en", "fr"] and counts["samples"] == counts["used"] > 90
    with pytest.raises(DataError, match="en, fr"):
        train("ml-ctl", f"--dictionaries {german} --languages en fr", output="second")


def test_words_beyond_the_tokens_read_in_training_make_no_samples(train: Runner) -> None:
    options = "--max_steps 2 --save_strategy no --evaluation_pairs 0"
    read, cut = (
        train("ml-ctl", options, *more, output=f"run{len(more)}")["word_samples"]["en>fr"]
        for more in ([], ["--train_seq_length 9"])
    )
    assert 0 < cut["samples"] < read["samples"]


def test_stop_words_are_left_out_as_told(train: Runner, tmp_path: Path) -> None:
    pytest.importorskip("stopwordsiso")
    own = write_text(tmp_path / "own.en.txt", "\n".join(WORDS["en"][::2]).upper())

    def words(stop_words: str | Path, output: str) -> dict[str, int]:
        given = ("--max_steps 1 --save_strategy no --evaluation_pairs 0 --stop_words", stop_words)
        return train("ml-ctl", *given, output=output)["word_samples"]["en>fr"]  # type: ignore[no-any-return]

    all_words, other_half = words("none", "none"), words(own, "own")
    assert other_half["samples"] < 0.7 * all_words["samples"]
    assert other_half["stop_word"] > 0 and "stop_word" not in all_words


def test_the_defaults_are_the_papers_but_for_the_batches_of_languages(tmp_path: Path) -> None:
    paper, program = RECIPES["ml-ctl"][1], script("ml-ctl")
    method, args = program.MLCTLArguments(), program.TrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    defaults = vars(method) | vars(args)
    same = set(paper) & set(defaults) - {"language_mixing", "language_smoothing", "optim", "max_steps"}
    assert {name: defaults[name] for name in same} == {name: paper[name] for name in same}
    # Where they differ, the help says so.
    helps = {option.name: option.metadata["help"] for option in fields(method)}
    assert all("0" in helps[name] and "paper" in helps[name] for name in ("language_mixing", "language_smoothing"))
