"""The house: what packaging promises, and rooms that import only rooms below them."""

import ast
import os
import re
import shutil
import subprocess
import sys
from importlib import resources
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import st_xlret

ROOMS = [
    "commands",
    "training",
    "stores",
    "calibration",
    "portable",
    "hub",
    "evaluation",
    "losses",
    "batches",
]
ROOMS += [
    "encoding",
    "data",
    "search",
    "modules",
    "functional",
    "languages",
    "columns",
    "precision",
    "options",
    "option_files",
]
ROOMS += ["plots", "tables", "citations", "files", "folders", "marks", "secrets", "optional"]
OPTIONAL = [
    "faiss",
    "icu4py",
    "langcodes",
    "matplotlib",
    "mteb",
    "nltk",
    "sentencex",
    "stopwordsiso",
    "tabulate",
]
"""Libraries that no import of st_xlret needs, though most of them are installed with it."""


def imported_names(file: Path) -> set[str]:
    """All that a file imports, in functions too: `package.module.name`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "id", None) == "import_optional":
            names |= {
                argument.value for argument in node.args[:1] if isinstance(argument, ast.Constant)
            }
    return names


def imported_rooms(file: Path) -> set[str]:
    parts = (name.split(".") for name in imported_names(file))
    return {part[1] for part in parts if part[0] == "st_xlret" and len(part) > 1} & set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_below_it(repository: Path, room: str) -> None:
    package = repository / "st_xlret"
    files = sorted((package / room).rglob("*.py")) or [package / f"{room}.py"]
    below = set(ROOMS[ROOMS.index(room) :])
    for file in files:
        above = imported_rooms(file) - below
        assert not above, (
            f"{file.relative_to(repository)} imports {above}, which stand above {room}"
        )


def test_the_equations_import_torch_only(repository: Path) -> None:
    files = sorted((repository / "st_xlret" / "functional").rglob("*.py"))
    roots = {name.partition(".")[0] for file in files for name in imported_names(file)}
    assert roots - set(sys.stdlib_module_names) == {"torch", "st_xlret"}
    assert all(imported_rooms(file) <= {"functional"} for file in files)


def test_import_is_light_touches_no_network_and_needs_no_optional_library(
    repository: Path, tmp_path: Path
) -> None:
    clouds = {"en": [[1.0, 2.0], [3.0, 1.0]], "fr": [[-1.0, 2.0], [-2.0, 3.0]]}
    folder = st_xlret.VectorCalibration.fit(clouds, min_texts=2).save(tmp_path / "map")
    program = (
        "import socket, sys\n"
        "def refuse(*args, **kwargs): raise AssertionError('network at import')\n"
        "socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse\n"
        f"sys.modules.update(dict.fromkeys({OPTIONAL}))\n"
        "import st_xlret, st_xlret.commands\n"
        f"st_xlret.VectorCalibration.load({str(folder)!r}).transform([1.0, 2.0])\n"
        "heavy = {'torch', 'pyarrow', 'transformers', 'sentence_transformers', 'datasets', 'mteb'} & set(sys.modules)\n"
        f"assert not heavy - {{*{OPTIONAL}}}, f'import st_xlret loads {{heavy}}'\n"
        "for name in st_xlret.__all__: getattr(st_xlret, name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=repository, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


FLOORS = [
    ("from st_xlret import calibrate", ["losses", "batches", "evaluation"]),
    ("from st_xlret.hub import card", ["losses"]),
    ("import st_xlret.training.run", ["stores"]),
]
"""An import, and the rooms of which it loads no module but their lists of names."""

LISTS = {"st_xlret.evaluation", "st_xlret.evaluation.evaluators", "st_xlret.losses"}
"""What `import st_xlret` reads of its rooms."""


@pytest.mark.parametrize(("statement", "rooms"), FLOORS)
def test_an_import_loads_nothing_of_rooms_that_it_does_not_need(
    repository: Path, statement: str, rooms: list[str]
) -> None:
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    modules = set(loaded.stdout.split()) - LISTS
    for room in rooms:
        of_room = [name for name in modules if f"{name}.".startswith(f"st_xlret.{room}.")]
        assert not of_room, f"{statement!r} loads {of_room}"


def test_every_library_that_is_imported_is_declared(repository: Path) -> None:
    text = (repository / "pyproject.toml").read_text(encoding="utf-8")
    tables = text[text.index("\ndependencies = [") : text.index("[project.scripts]")]
    declared = {
        name.lower()
        for name in re.findall(r'"([A-Za-z0-9._-]+)(?:\[[a-z]+\])?[><=~ ][^"]*"', tables)
    }
    distributions = packages_distributions()
    for file in sorted((repository / "st_xlret").rglob("*.py")):
        libraries = {name.partition(".")[0] for name in imported_names(file)} - set(
            sys.stdlib_module_names
        )
        for library in libraries - {"st_xlret"}:
            names = {
                name.lower().replace("_", "-") for name in distributions.get(library, [library])
            }
            assert names & declared, (
                f"{file.relative_to(repository)} imports {library}: declare one of {names}"
            )


@pytest.mark.parametrize(
    "folder", ["st_xlret", "training_scripts", "evaluation", "benchmarks", "tests"]
)
def test_nothing_private_of_other_libraries_is_imported(repository: Path, folder: str) -> None:
    for file in sorted((repository / folder).rglob("*.py")):
        for name in imported_names(file):
            library, *parts = name.split(".")
            is_private = any(part.startswith("_") for part in parts)
            is_ours = library in {"st_xlret", "training_scripts", "tests"}
            assert is_ours or not is_private, f"{file.relative_to(repository)} imports {name}"


def test_the_package_is_typed_and_has_one_version(repository: Path) -> None:
    text = (repository / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{st_xlret.__version__}"\n' in text
    assert resources.files("st_xlret").joinpath("py.typed").is_file()


def test_the_ci_program_runs_all_tests_from_anywhere(repository: Path, tmp_path: Path) -> None:
    tree, elsewhere = (
        tmp_path / "tree",
        tmp_path / "elsewhere",
    )  # a copy: no environment stands in it, none can be made
    shutil.copytree(repository / ".ci", tree / ".ci")
    elsewhere.mkdir()
    for name, line in (("make", 'echo "$PWD: make $*"'), ("python3", "exit 1")):
        (elsewhere / name).write_text(f"#!/bin/sh\n{line}\n")
        (elsewhere / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{elsewhere}:{os.environ['PATH']}"}
    how: dict = {
        "cwd": elsewhere,
        "env": environment,
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
    }
    done = subprocess.run([str(tree / ".ci" / "run")], text=True, check=True, **how)
    assert done.stdout.splitlines() == [
        f"{tree}: make {target}" for target in ("setup engines", "test-all")
    ]
