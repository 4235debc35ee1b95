"""XNLI and PAWS-X: the readers of the published files, and the program that fine-tunes on English."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from evaluation import xtreme
from evaluation.xtreme import PAIR_TASKS, LabelledPair, read_evaluation_pairs, read_training_pairs
from tests import tiny
from tests.data.files import write_text

XNLI, PAWS_X = PAIR_TASKS["xnli"], PAIR_TASKS["paws-x"]


def write_xnli(folder: Path) -> Path:
    """The release: XNLI-MT's English training file and XNLI's dev and test files with all languages in one."""
    training = "sun moon\tsun\tentailment\nsun moon\tmoon\tneutral\nsun moon\tstar\tcontradictory\n"
    write_text(
        folder / "XNLI-MT-1.0" / "multinli" / "multinli.train.en.tsv",
        f"premise\thypo\tlabel\n{training}",
    )
    golds = ("entailment", "neutral", "contradiction")
    rows = tuple(
        f'{code}\t{gold}\t\tsaid "wind\train {code}' for code in XNLI.languages for gold in golds
    )
    header = "language\tgold_label\tsentence1_binary_parse\tsentence1\tsentence2"
    for split in ("dev", "test"):
        write_text(folder / "XNLI-1.0" / f"xnli.{split}.tsv", "\n".join([header, *rows]))
    return folder


def write_paws_x(folder: Path) -> Path:
    rows = "".join(f'{i}\tmoon "sun\tsun\t{i % 2}\n' for i in range(3))
    names = [f"{code}/{split}_2k.tsv.gz" for code in PAWS_X.languages for split in ("dev", "test")]
    for name in ("en/train.tsv", *names):
        write_text(folder / "x-final" / name, f"id\tsentence1\tsentence2\tlabel\n{rows}")
    return folder


def test_both_are_read_as_published(tmp_path: Path) -> None:
    write_xnli(tmp_path)
    words = (("sun", 1), ("moon", 2), ("star", 0))
    assert read_training_pairs(XNLI, tmp_path) == [
        ("sun moon", word, label) for word, label in words
    ]
    test = read_evaluation_pairs(XNLI, tmp_path, "test")
    assert test == {
        code: [('said "wind', f"rain {code}", label) for label in (1, 2, 0)]
        for code in XNLI.languages
    }
    assert list(read_evaluation_pairs(XNLI, tmp_path / "XNLI-1.0", "dev", ["zh", "en"])) == [
        "zh",
        "en",
    ]
    write_paws_x(tmp_path)
    pairs = [('moon "sun', "sun", number) for number in (0, 1, 0)]
    assert read_training_pairs(PAWS_X, tmp_path) == pairs
    assert read_evaluation_pairs(PAWS_X, tmp_path / "x-final", "test") == dict.fromkeys(
        PAWS_X.languages, pairs
    )


@pytest.mark.parametrize("line", ["sun\tmoon", "sun\tmoon\tmaybe", "sun\tmoon\tneutral\tmore"])
def test_bad_lines_and_missing_languages_are_named(tmp_path: Path, line: str) -> None:
    file = write_xnli(tmp_path) / "XNLI-MT-1.0" / "multinli" / "multinli.train.en.tsv"
    write_text(file, f"{file.read_text()}{line}\n")
    with pytest.raises(ValueError, match="line 5"):
        read_training_pairs(XNLI, tmp_path)
    dev = tmp_path / "XNLI-1.0" / "xnli.dev.tsv"
    write_text(dev, dev.read_text().replace("\nsw", "\nen"))
    for languages, message in ((["xx"], "'xx'"), (None, "'sw'")):
        with pytest.raises(ValueError, match=message):
            read_evaluation_pairs(XNLI, tmp_path, "dev", languages)


def test_accuracy_takes_the_first_of_equal_scores() -> None:
    scores = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 0.0]])
    model = SimpleNamespace(predict=lambda pairs, **options: scores)
    pairs = [LabelledPair("a", "b", label) for label in (0, 2, 0)]
    assert xtreme.accuracy(model, pairs, 8) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("task", "length"), [("xnli", "--num_train_epochs 1"), ("paws-x", "--max_steps 2")]
)
def test_the_program_fine_tunes_and_measures(
    tmp_path: Path, task: str, length: str, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny.transformer().save_pretrained("model")
    {"xnli": write_xnli, "paws-x": write_paws_x}[task](tmp_path)
    command = f"--model model --task {task} --data . --output scores.json --max_seq_length 16 --device cpu {length}"
    xtreme.main(command.split())
    result = json.loads(Path("scores.json").read_text())
    assert (
        set(result) == {"benchmark", "model", "scores", "average", "protocol"}
        and result["benchmark"] == task
    )
    accuracies = [scores["accuracy"] for scores in result["scores"].values()]
    assert (
        result["average"]["accuracy"] == pytest.approx(np.mean(accuracies)) and min(accuracies) >= 0
    )
    table = Path("scores.md").read_text()
    assert (
        "ML-CTL-CZ" in table
        and "published: ML-CTL paper, Table 1" in table
        and table in capsys.readouterr().out
    )
    tiny.static().save_pretrained("static")  # has no Transformer
    with pytest.raises(ValueError, match="StaticEmbedding"):
        xtreme.main([*command.split(), "--model", "static"])
    assert json.loads(Path("scores.json").read_text()) == result
