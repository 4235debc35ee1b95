from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import fields

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


@pytest.mark.parametrize("given", [None, "ACTIVE"])
def test_threads_wait_passively_unless_the_environment_says_otherwise(given: str | None) -> None:
    program = """
import os, sys, st_xlret.commands as commands
commands.import_module = lambda name: sys.exit(f"{os.environ['OMP_WAIT_POLICY']} {'torch' in sys.modules}")
commands.main(["evaluate"])
"""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {} if given is None else {"OMP_WAIT_POLICY": given}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stderr.strip() == f"{given or 'PASSIVE'} False"


def test_an_error_is_one_line(tmp_path) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", "--model", str(tmp_path / "none"), "--benchmark", "bucket", "--output", str(tmp_path / "a")])
    assert str(stop.value).startswith("error: ") and "bucket" in str(stop.value)


def test_an_interrupted_command_ends_in_one_line(monkeypatch) -> None:
    def interrupted(*_, **__) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("st_xlret.commands.train.main", interrupted)
    with pytest.raises(SystemExit, match="^stopped$"):
        main(["train"])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_under_its_own_name(command, capsys) -> None:
    with contextlib.suppress(SystemExit):
        main([command, "--help"])
    assert f"st-xlret {command}" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_no_heavy_library(command, repository) -> None:
    program = (
        "import sys\n"
        "from st_xlret.commands import main\n"
        "try:\n"
        f"    main([{command!r}, '--help'])\n"
        "except SystemExit as stop:\n"
        "    assert stop.code == 0\n"
        "heavy = {'torch', 'datasets', 'sentence_transformers', 'mteb'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=repository, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_help_of_evaluate_names_every_benchmark(capsys) -> None:
    from st_xlret.evaluation import BENCHMARKS

    with pytest.raises(SystemExit):
        main(["evaluate", "--help"])
    printed = "".join(capsys.readouterr().out.split())  # names are broken at their hyphens
    assert all(name in printed for name in BENCHMARKS)


def test_the_steps_of_calibrate_are_those_of_the_package() -> None:
    from st_xlret.calibration import STEPS
    from st_xlret.commands.calibrate import Method

    (steps,) = (field for field in fields(Method) if field.name == "steps")
    assert set(steps.metadata["choices"]) == set(STEPS)


def test_the_package_runs_as_a_program_and_starts_lightly(repository) -> None:
    program = "import sys; from st_xlret.commands import main; main(['--help']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], cwd=repository, check=True, capture_output=True)
    done = subprocess.run(
        [sys.executable, "-m", "st_xlret", "--version"], cwd=repository, capture_output=True, text=True
    )
    assert done.stdout.startswith("st-xlret ")
