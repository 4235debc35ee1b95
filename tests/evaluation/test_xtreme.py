"""XNLI and PAWS-X: readers of the published files, and the program that fine-tunes on English."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from evaluation import xtreme
from evaluation.xtreme import PAIR_TASKS, LabelledPair, read_evaluation_pairs, read_training_pairs
from tests import tiny
from tests.data.files import write_text

XNLI = PAIR_TASKS["xnli"]
PAWS_X = PAIR_TASKS["paws-x"]
TRAINING = "XNLI-MT-1.0/multinli/multinli.train.en.tsv"


def write_xnli(folder: Path) -> Path:
    """The release: an English training file, and dev and test files with all languages in one."""
    lines = [
        "premise\thypo\tlabel",
        "sun moon\tsun\tentailment",
        "sun moon\tmoon\tneutral",
        "sun moon\tstar\tcontradictory",
    ]
    write_text(folder / TRAINING, "\n".join(lines) + "\n")
    lines = ["language\tgold_label\tsentence1_binary_parse\tsentence1\tsentence2"]
    for code in XNLI.languages:
        for label in ("entailment", "neutral", "contradiction"):
            lines.append(f'{code}\t{label}\t\tsaid "wind\train {code}')
    for split in ("dev", "test"):
        write_text(folder / "XNLI-1.0" / f"xnli.{split}.tsv", "\n".join(lines))
    return folder


def write_paws_x(folder: Path) -> Path:
    lines = ["id\tsentence1\tsentence2\tlabel"]
    for row in range(3):
        lines.append(f'{row}\tmoon "sun\tsun\t{row % 2}')
    content = "\n".join(lines) + "\n"
    write_text(folder / "x-final" / "en" / "train.tsv", content)
    for code in PAWS_X.languages:
        for split in ("dev", "test"):
            write_text(folder / "x-final" / code / f"{split}_2k.tsv.gz", content)
    return folder


def test_xnli_is_read_as_published(tmp_path: Path) -> None:
    write_xnli(tmp_path)
    assert read_training_pairs(XNLI, tmp_path) == [
        ("sun moon", "sun", 1),
        ("sun moon", "moon", 2),
        ("sun moon", "star", 0),
    ]
    test = read_evaluation_pairs(XNLI, tmp_path, "test")
    assert list(test) == list(XNLI.languages)
    assert test["sw"] == [('said "wind', "rain sw", label) for label in (1, 2, 0)]
    some = read_evaluation_pairs(XNLI, tmp_path / "XNLI-1.0", "dev", ["zh", "en"])
    assert list(some) == ["zh", "en"]


def test_paws_x_is_read_as_published(tmp_path: Path) -> None:
    write_paws_x(tmp_path)
    pairs = [('moon "sun', "sun", label) for label in (0, 1, 0)]
    assert read_training_pairs(PAWS_X, tmp_path) == pairs
    test = read_evaluation_pairs(PAWS_X, tmp_path / "x-final", "test")
    assert test == dict.fromkeys(PAWS_X.languages, pairs)


@pytest.mark.parametrize("line", ["sun\tmoon", "sun\tmoon\tmaybe", "sun\tmoon\tneutral\tmore"])
def test_bad_lines_are_named(tmp_path: Path, line: str) -> None:
    file = write_xnli(tmp_path) / TRAINING
    write_text(file, f"{file.read_text()}{line}\n")
    with pytest.raises(ValueError, match="line 5"):
        read_training_pairs(XNLI, tmp_path)


def test_a_table_without_pairs_is_named(tmp_path: Path) -> None:
    write_text(write_xnli(tmp_path) / TRAINING, "premise\thypo\tlabel\n")
    with pytest.raises(ValueError, match=r"multinli\.train\.en\.tsv: no pairs"):
        read_training_pairs(XNLI, tmp_path)


@pytest.mark.parametrize(("languages", "message"), [(["xx"], "'xx'"), (None, "'sw'")])
def test_languages_that_are_not_there_are_named(
    tmp_path: Path, languages: list[str] | None, message: str
) -> None:
    dev = write_xnli(tmp_path) / "XNLI-1.0" / "xnli.dev.tsv"
    write_text(dev, dev.read_text().replace("\nsw", "\nen"))
    with pytest.raises(ValueError, match=message):
        read_evaluation_pairs(XNLI, tmp_path, "dev", languages)


def test_accuracy_takes_the_first_of_equal_scores() -> None:
    scores = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 0.0]])
    model = SimpleNamespace(predict=lambda pairs, **options: scores)
    pairs = [LabelledPair("a", "b", label) for label in (0, 2, 0)]
    assert xtreme.accuracy(model, pairs, 8) == pytest.approx(2 / 3)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    tiny.transformer().save_pretrained("model")
    return "--model model --data . --max_seq_length 16 --device cpu"


@pytest.mark.parametrize(
    ("task", "write", "length"),
    [
        ("xnli", write_xnli, "--num_train_epochs 1"),
        ("paws-x", write_paws_x, "--max_steps 2"),
    ],
)
def test_the_program_fine_tunes_and_measures(
    task: str,
    write: Callable[[Path], Path],
    length: str,
    command: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(Path())
    xtreme.main(f"{command} --task {task} --output scores.json {length}".split())
    result = json.loads(Path("scores.json").read_text())
    assert result["benchmark"] == task
    assert list(result["scores"]) == list(PAIR_TASKS[task].languages)
    accuracies = [scores["accuracy"] for scores in result["scores"].values()]
    assert result["average"]["accuracy"] == pytest.approx(np.mean(accuracies))
    table = Path("scores.md").read_text()
    assert "ML-CTL-CZ" in table
    assert "published: ML-CTL paper, Table 1" in table
    assert table in capsys.readouterr().out


def test_a_model_without_a_transformer_is_refused(command: str) -> None:
    write_paws_x(Path())
    tiny.static().save_pretrained("static")
    words = f"{command} --task paws-x --output scores.json --model static".split()
    with pytest.raises(ValueError, match="StaticEmbedding"):
        xtreme.main(words)
    assert not Path("scores.json").exists()
