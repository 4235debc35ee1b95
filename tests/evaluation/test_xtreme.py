"""XNLI and PAWS-X: the readers of the published files, and the program that fine-tunes on English."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from evaluation import xtreme
from evaluation.xtreme import PAIR_TASKS, LabelledPair, read_evaluation_pairs, read_training_pairs
from tests import tiny
from tests.evaluation.samples import write

XNLI, PAWS_X = PAIR_TASKS["xnli"], PAIR_TASKS["paws-x"]
WORDS = {"en": ("sun", "moon", "star"), "de": ("rain", "wind", "snow"), "zh": ("tree", "leaf", "root")}


def write_xnli(folder: Path) -> Path:
    """The release: XNLI-MT's English training file and XNLI's dev and test files with all languages in one."""
    labels = ("entailment", "neutral", "contradictory")
    lines = ["premise\thypo\tlabel", *(f"sun moon\t{WORDS['en'][i % 3]}\t{labels[i % 3]}" for i in range(4))]
    write(folder / "XNLI-MT-1.0" / "multinli" / "multinli.train.en.tsv", "\n".join(lines))
    lines = ["language\tgold_label\tsentence1_binary_parse\tsentence1\tsentence2"]
    for code in XNLI.languages:
        words = WORDS.get(code, WORDS["en"])
        golds = enumerate(("entailment", "neutral", "contradiction"))
        lines += [f'{code}\t{gold}\t\tsaid "{words[i]}\t{words[0]}' for i, gold in golds]
    for split in ("dev", "test"):
        write(folder / "XNLI-1.0" / f"xnli.{split}.tsv", "\n".join(lines))
    return folder


def write_paws_x(folder: Path) -> Path:
    rows = "".join(f'{i}\t{WORDS["en"][i]} "sun\tsun\t{i % 2}\n' for i in range(3))
    names = [f"{code}/{split}_2k.tsv.gz" for code in PAWS_X.languages for split in ("dev", "test")]
    for name in ("en/train.tsv", *names):
        write(folder / "x-final" / name, f"id\tsentence1\tsentence2\tlabel\n{rows}")
    return folder


def test_both_are_read_as_published(tmp_path: Path) -> None:
    write_xnli(tmp_path)
    training = read_training_pairs(XNLI, tmp_path)
    assert training[0] == LabelledPair("sun moon", "sun", XNLI.labels.index("entailment"))
    assert training[2].label == XNLI.labels.index("contradiction")  # written "contradictory" there
    test = read_evaluation_pairs(XNLI, tmp_path, "test")
    assert list(test) == list(XNLI.languages) and len(XNLI.languages) == 15
    assert test["de"][1] == LabelledPair('said "wind', "rain", XNLI.labels.index("neutral"))
    assert list(read_evaluation_pairs(XNLI, tmp_path / "XNLI-1.0", "dev", ["zh", "en"])) == ["zh", "en"]
    write_paws_x(tmp_path)
    assert read_training_pairs(PAWS_X, tmp_path)[1] == LabelledPair('moon "sun', "sun", 1)
    test = read_evaluation_pairs(PAWS_X, tmp_path / "x-final", "test")
    assert list(test) == list(PAWS_X.languages) and [pair.label for pair in test["ko"]] == [0, 1, 0]


@pytest.mark.parametrize("line", ["sun\tmoon", "sun\tmoon\tmaybe", "sun\tmoon\tneutral\tmore"])
def test_bad_lines_and_missing_languages_are_named(tmp_path: Path, line: str) -> None:
    file = write_xnli(tmp_path) / "XNLI-MT-1.0" / "multinli" / "multinli.train.en.tsv"
    file.write_text(f"{file.read_text()}\n{line}\n")
    with pytest.raises(ValueError, match="line 6"):
        read_training_pairs(XNLI, tmp_path)
    dev = tmp_path / "XNLI-1.0" / "xnli.dev.tsv"
    dev.write_text("\n".join(row for row in dev.read_text().splitlines() if not row.startswith("sw")))
    for languages, message in ((["xx"], "'xx'"), (None, "'sw'")):
        with pytest.raises(ValueError, match=message):
            read_evaluation_pairs(XNLI, tmp_path, "dev", languages)


def test_accuracy_takes_the_first_of_equal_scores() -> None:
    class Scores:
        def predict(self, pairs, **_):
            return np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 0.0]])

    pairs = [LabelledPair("a", "b", label) for label in (0, 2, 0)]
    assert xtreme.accuracy(Scores(), pairs, 8) == pytest.approx(2 / 3)


@pytest.mark.parametrize("task", ["xnli", "paws-x"])
def test_the_program_fine_tunes_and_measures(tmp_path: Path, task: str, capsys) -> None:
    tiny.transformer().save_pretrained(str(tmp_path / "model"))
    folder = write_xnli(tmp_path) if task == "xnli" else write_paws_x(tmp_path)
    command = ["--model", tmp_path / "model", "--task", task, "--data", folder, "--output", tmp_path / "scores.json"]
    length = ["--num_train_epochs", 1] if task == "xnli" else ["--max_steps", 2]
    xtreme.main([str(word) for word in [*command, *length, "--max_seq_length", 16, "--device", "cpu"]])
    result = json.loads((tmp_path / "scores.json").read_text())
    assert set(result) == {"benchmark", "model", "scores", "average", "protocol"} and result["benchmark"] == task
    accuracies = [scores["accuracy"] for scores in result["scores"].values()]
    assert result["average"]["accuracy"] == pytest.approx(np.mean(accuracies)) and min(accuracies) >= 0
    table = (tmp_path / "scores.md").read_text()
    assert "ML-CTL-CZ" in table and "published: ML-CTL paper, Table 1" in table and table in capsys.readouterr().out


def test_a_model_without_a_transformer_is_refused(tmp_path: Path) -> None:
    tiny.static().save_pretrained(str(tmp_path / "model"))
    command = ["--model", tmp_path / "model", "--data", write_xnli(tmp_path), "--output", tmp_path / "scores.json"]
    with pytest.raises(ValueError, match="StaticEmbedding"):
        xtreme.main([str(word) for word in command])
    assert not (tmp_path / "scores.json").exists()
