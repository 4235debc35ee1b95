"""`st-xlret recipe`: the training scripts out of the installed package."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from st_xlret.commands import main, recipe

SCRIPTS, OPTIONS = recipe.scripts_and_options()


def packaged(repository: Path) -> dict[str, str]:
    """What the wheel takes from outside the package: file of the repository -> file of the wheel."""
    text = (repository / "pyproject.toml").read_text(encoding="utf-8")
    table = text.partition("[tool.hatch.build.targets.wheel.force-include]")[2].partition("\n[")[0]
    return dict(re.findall(r'^"(.+)" = "(.+)"$', table, re.MULTILINE))


def test_the_wheel_has_every_training_script(repository: Path) -> None:
    expected = {
        f"training_scripts/{file.name}": f"st_xlret/recipes/{file.name}.txt"
        for file in (repository / "training_scripts").glob("train_*.py")
    }
    assert packaged(repository) == {**expected, "training_scripts/recipes": "st_xlret/recipes"}


def test_the_list_has_every_script_and_file_of_options(capsys: pytest.CaptureFixture[str]) -> None:
    main(["recipe"])
    printed = capsys.readouterr().out
    assert all(re.search(rf"^{name} ", printed, re.MULTILINE) for name in SCRIPTS)
    assert all(name in printed for name in OPTIONS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_printed_as_it_is_but_for_the_paths_of_the_repository(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["recipe", name])
    printed, original = capsys.readouterr().out, SCRIPTS[name].read_text(encoding="utf-8")
    ast.parse(printed)
    assert not re.search(r"training_scripts/(recipes/)?[\w-]+\.(py|yaml)", printed)
    assert len(printed.splitlines()) == len(original.splitlines())


@pytest.mark.parametrize("name", OPTIONS)
def test_a_file_of_options_is_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["recipe", name])
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load(OPTIONS[name].read_text(encoding="utf-8"))


def test_a_script_and_its_options_are_written(tmp_path: Path) -> None:
    given = ["recipe", "ccp", "--output", str(tmp_path / "mine.py")]
    main(given)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "ccp.yaml",
        "documents.yaml",
        "mine.py",
        "two-cores.yaml",
    ]
    (tmp_path / "ccp.yaml").write_text("edited")
    with pytest.raises(SystemExit, match=r"mine\.py.*--overwrite"):
        main(given)
    assert (tmp_path / "ccp.yaml").read_text() == "edited"
    main([*given, "--overwrite"])
    assert (tmp_path / "ccp.yaml").read_text() != "edited"


def test_an_unknown_recipe_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="'dpr'.*ccp, "):
        main(["recipe", "dpr", "--output", str(tmp_path / "dpr.py")])
    assert not list(tmp_path.iterdir())


def test_the_installed_package_has_the_scripts(tmp_path: Path, repository: Path) -> None:
    """The files are laid out as the wheel lays them out, away from the repository."""
    site = tmp_path / "site"
    shutil.copytree(repository / "st_xlret", site / "st_xlret", ignore=shutil.ignore_patterns("__pycache__"))
    for source, target in packaged(repository).items():
        copy = shutil.copytree if (repository / source).is_dir() else shutil.copyfile
        (site / target).parent.mkdir(exist_ok=True)
        copy(repository / source, site / target, **({"dirs_exist_ok": True} if copy is shutil.copytree else {}))
    environment = {"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)}

    def run(*command: str) -> str:
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert str(site) in run("-c", "import st_xlret; print(st_xlret.__file__)")
    compile(run("-m", "st_xlret", "recipe", "ccp"), "my_ccp.py", "exec")
    assert "window_size" in yaml.safe_load(run("-m", "st_xlret", "recipe", "ccp.yaml"))
