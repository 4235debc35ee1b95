from __future__ import annotations

import subprocess
import sys

import pytest

from st_xlret.commands import COMMANDS, main


def test_help_lists_every_command(capsys) -> None:
    main(["--help"])
    printed = capsys.readouterr().out
    assert all(name in printed and purpose in printed for name, purpose in COMMANDS.items())


def test_an_unknown_command_names_those_there_are() -> None:
    with pytest.raises(SystemExit) as stop:
        main(["measure"])
    assert "measure" in str(stop.value) and all(name in str(stop.value) for name in COMMANDS)


def test_an_error_is_one_line(tmp_path) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", "--model", str(tmp_path / "none"), "--benchmark", "bucket", "--output", str(tmp_path / "a")])
    assert str(stop.value).startswith("error: ") and "bucket" in str(stop.value)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_under_its_own_name(command, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"st-xlret {command}" in capsys.readouterr().out


def test_the_package_runs_as_a_program_and_starts_lightly(repository) -> None:
    program = "import sys; from st_xlret.commands import main; main(['--help']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], cwd=repository, check=True, capture_output=True)
    done = subprocess.run(
        [sys.executable, "-m", "st_xlret", "--version"], cwd=repository, capture_output=True, text=True
    )
    assert done.stdout.startswith("st-xlret ")
