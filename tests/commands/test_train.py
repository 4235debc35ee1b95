"""`st-xlret train`: the scripts by name, with option files by name."""

from pathlib import Path

import pytest

from st_xlret.commands import main
from tests.training_scripts.scripts import SCRIPTS, command, write_data


def test_scripts_and_option_files_are_listed_and_a_wrong_name_names_them(
    repository: Path, capsys
) -> None:
    folder = repository / "training_scripts" / "recipes"
    option_files = [file.name for file in folder.glob("*.yaml")]
    for arguments in ([], ["--help"]):
        main(["train", *arguments])
        printed = capsys.readouterr().out
        for name in [*SCRIPTS, *option_files]:
            assert f"\n{name} " in printed
    for name in ("cpc", "ml_ctl.py"):
        with pytest.raises(
            SystemExit, match=f"error: .* '{name}'; there are: {', '.join(sorted(SCRIPTS))}"
        ):
            main(["train", name])
    with pytest.raises(SystemExit, match="0"):
        main(["train", "ml-ctl", "--help"])
    printed = capsys.readouterr().out
    assert printed.startswith("usage: st-xlret train ml-ctl [OPTIONS.yaml]")
    assert "--dictionaries" in printed


def test_a_script_runs_by_its_name_with_an_option_file_by_its_name(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    # Options on the command line override the file's.
    words = command(
        "ccp",
        tmp_path,
        tmp_path / "run",
        "--max_steps 2 --save_strategy no --pairs --from_scratch static",
    )
    main(["train", "ccp", "two-cores.yaml", *words])
    assert (tmp_path / "run" / "model" / "modules.json").is_file()
    assert 'SentenceTransformer("' in capsys.readouterr().out
    # An own file of that name comes first.
    (tmp_path / "two-cores.yaml").write_text("widow_size: 3\n")
    with pytest.raises(SystemExit, match="widow_size"):
        main(["train", "ccp", "two-cores.yaml", *words])
