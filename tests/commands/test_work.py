"""The folders in which stopped commands go on: what is not ours in them stays."""

from pathlib import Path

import numpy as np
import pytest

from st_xlret.commands import main
from st_xlret.commands.work import WorkFolder

OUTPUTS = {"index": "output.parquet", "mine": "output.tsv"}


@pytest.fixture(params=OUTPUTS)
def command(request: pytest.FixtureRequest, model: Path, tmp_path: Path) -> list[str]:
    for name, words in {"a": "sun\nmoon", "b": "soleil\nlune"}.items():
        (tmp_path / f"{name}.txt").write_text(words)
    texts = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    output = str(tmp_path / OUTPUTS[request.param])
    return [request.param, *texts, "--model", str(model), "--output", output]


def work_of(command: list[str]) -> Path:
    output = Path(command[-1])
    return output.with_name(f".{output.name}.embeddings")


def started(command: list[str]) -> WorkFolder:
    """The folder of a run that has embedded something, and was stopped."""
    work = WorkFolder(Path(command[-1]))
    work.keep_vectors("a key", [""], lambda rows: np.zeros((1, 2)))
    return work


@pytest.mark.parametrize("name", ["thesis.txt", "0" * 32 + "/000000.npy", "st-xlret.txt"])
def test_a_folder_that_is_not_ours_is_refused_and_stays(command: list[str], name: str) -> None:
    file = work_of(command) / name
    file.parent.mkdir(parents=True)
    file.write_text("years of work")
    with pytest.raises(SystemExit, match=r"output\.\w+\.embeddings is not of this command"):
        main(command)
    assert file.read_text() == "years of work"
    assert not Path(command[-1]).exists()


def test_a_link_and_a_file_in_its_place_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / ".a.embeddings").symlink_to(tmp_path / "thesis")
    (tmp_path / ".b.embeddings").write_text("years of work")
    (tmp_path / ".c.embeddings").symlink_to(tmp_path / "nothing")
    for name in "abc":
        with pytest.raises(FileExistsError, match="not of this command"):
            WorkFolder(tmp_path / name)


def test_a_removal_that_is_stopped_leaves_a_folder_of_ours(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = started(command)
    removed = []

    def stop(path: Path, missing_ok: bool) -> None:
        removed.append(path.name)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", stop)
        with pytest.raises(KeyboardInterrupt):
            work.remove()
    assert removed == ["000000.npy"]
    main(command)
    assert not work.path.exists()


@pytest.mark.parametrize("name", ["thesis.txt", "0" * 32 + "/notes.txt", "notes/000000.npy"])
def test_what_else_stands_in_our_folder_stays(
    command: list[str], name: str, recwarn: pytest.WarningsRecorder
) -> None:
    work = started(command)
    theirs = work.path / name
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text("years of work")
    main(command)
    assert theirs.read_text() == "years of work"
    assert any(f"also holds {name}" in str(each.message) for each in recwarn)


def test_what_a_killed_run_left_is_removed(command: list[str]) -> None:
    work = started(command)
    part = work.path / ("0" * 32) / ".000000.npy.0123abcd.st-xlret-tmp"
    part.mkdir(parents=True)
    (part / "000000.npy").write_text("half")
    main(command)
    assert Path(command[-1]).exists()
    assert not work.path.exists()
