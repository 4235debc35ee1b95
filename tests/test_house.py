"""The house: what packaging promises, and rooms that import only rooms below them."""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType

import pytest

import st_xlret
import st_xlret.calibration
import st_xlret.evaluation
import st_xlret.evaluators
import st_xlret.losses
from docs.tools import house
from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "st_xlret"
ROOMS = [name for name, _ in house.ROOMS] + house.FOUNDATION
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
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "id", None) == "import_optional":
            names |= {each.value for each in node.args if isinstance(each, ast.Constant)}
    return names


def imported_rooms(file: Path) -> set[str]:
    rooms = set()
    for name in imported_names(file):
        package, *parts = name.split(".")
        if package == "st_xlret" and parts:
            rooms.add(parts[0])
    return rooms & set(ROOMS)


def run_python(program: str) -> str:
    """What a program prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_is_in_the_picture_of_the_house() -> None:
    modules = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    # What is public: names, and where they are.
    doors = {"__init__", "__main__", "__pycache__", "evaluators"}
    assert modules - doors == set(ROOMS)
    picture = REPOSITORY / "docs" / "assets" / "house.svg"
    assert picture.read_text(encoding="utf-8") == house.house(), "run python -m docs.tools.house"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_below_it(room: str) -> None:
    files = sorted((PACKAGE / room).rglob("*.py")) or [PACKAGE / f"{room}.py"]
    below = set(ROOMS[ROOMS.index(room) :])
    for file in files:
        above = imported_rooms(file) - below
        assert not above, f"{file} imports {above}, which stand above {room}"


def test_the_equations_import_torch_only() -> None:
    for file in (PACKAGE / "functional").rglob("*.py"):
        assert libraries_of(file) <= {"torch", "st_xlret"}
        assert imported_rooms(file) <= {"functional"}


def libraries_of(file: Path) -> set[str]:
    """What a file imports that does not come with Python."""
    roots = {name.partition(".")[0] for name in imported_names(file)}
    return roots - set(sys.stdlib_module_names)


@pytest.mark.slow
def test_import_is_light_touches_no_network_and_needs_no_optional_library(tmp_path: Path) -> None:
    clouds = {"en": [[1.0, 2.0], [3.0, 1.0]], "fr": [[-1.0, 2.0], [-2.0, 3.0]]}
    folder = st_xlret.VectorCalibration.fit(clouds, min_texts=2).save(tmp_path / "map")
    run_python(f"""
import socket, sys

def refuse(*args, **kwargs):
    raise AssertionError("network at import")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
sys.modules.update(dict.fromkeys({OPTIONAL}))
import st_xlret, st_xlret.commands
st_xlret.VectorCalibration.load({str(folder)!r}).transform([1.0, 2.0])
heavy = {{"torch", "pyarrow", "transformers", "sentence_transformers", "datasets"}}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
for name in st_xlret.__all__:
    getattr(st_xlret, name)
""")


def test_a_map_needs_numpy_and_safetensors_alone(tmp_path: Path) -> None:
    clouds = {"en": [[1.0, 2.0], [3.0, 1.0]], "fr": [[-1.0, 2.0], [-2.0, 3.0]]}
    folder = st_xlret.VectorCalibration.fit(clouds, min_texts=2).save(tmp_path / "map")
    run_python(f"""
import importlib.abc, sys

class OnlyTwo(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        library = name.partition(".")[0]
        known = {{"st_xlret", "numpy", "safetensors", *sys.stdlib_module_names}}
        if library not in known:
            raise ModuleNotFoundError(f"{{library}} is not installed", name=library)

sys.meta_path.insert(0, OnlyTwo())
from st_xlret import VectorCalibration
calibration = VectorCalibration.load({str(folder)!r})
assert calibration.transform([1.0, 2.0]).shape == (2,)
""")


FLOORS = [
    ("from st_xlret import calibrate", ["losses", "batches", "evaluation"]),
    ("from st_xlret.hub import card", ["losses"]),
    ("import st_xlret.training.run", ["stores"]),
]
"""An import, and the rooms of which it loads no module."""


@pytest.mark.slow
@pytest.mark.parametrize(("statement", "rooms"), FLOORS)
def test_an_import_loads_nothing_of_rooms_that_it_does_not_need(
    statement: str, rooms: list[str]
) -> None:
    loaded = run_python(f"import sys\n{statement}\nprint(*sys.modules)")
    modules = [f"{name}." for name in loaded.split()]
    for room in rooms:
        of_room = [name for name in modules if name.startswith(f"st_xlret.{room}.")]
        assert not of_room, f"{statement!r} loads {of_room}"


DOORS = [
    st_xlret,
    st_xlret.calibration,
    st_xlret.evaluation,
    st_xlret.evaluators,
    st_xlret.losses,
]
"""Packages whose names load on first use."""


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_names_that_load_on_first_use_are_those_that_type_checkers_read(door: ModuleType) -> None:
    read_by_type_checkers = dict(names_under_type_checking(Path(str(door.__file__))))
    read_by_type_checkers.pop("functional", None)  # a module
    modules = st_xlret._all_modules() if door is st_xlret else door.MODULES
    assert read_by_type_checkers == modules
    for name in modules:
        assert getattr(st_xlret if door is st_xlret.evaluators else door, name) is not None


def names_under_type_checking(file: Path) -> Iterator[tuple[str, str]]:
    """Each public name, and the module that it is imported from."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("st_xlret"):
            for alias in node.names:
                if alias.name == "*":
                    listed = importlib.import_module(str(node.module))
                    yield from names_under_type_checking(Path(str(listed.__file__)))
                elif alias.asname and not alias.asname.startswith("_"):
                    yield alias.asname, str(node.module)


CONSUMER = """
from sentence_transformers import SentenceTransformer
import st_xlret.calibration
from st_xlret import CCPLoss, VectorCalibration

CCPLoss(model=SentenceTransformer("a"), temperature=0.1)
VectorCalibration.load("map").transform([1.0], "query", "fr")
CCPLoss(model=SentenceTransformer("a"), temprature=0.1)  # wrong
VectorCalibration.load(3)  # wrong
st_xlret.calibration.calibrates  # wrong
from st_xlret import CCPLos  # wrong
"""


@pytest.mark.slow
def test_a_wrong_name_and_a_wrong_argument_are_errors_of_the_type_checker(tmp_path: Path) -> None:
    consumer = tmp_path / "consumer.py"
    consumer.write_text(CONSUMER)
    settings = tmp_path / "mypy.ini"
    settings.write_text(
        "[mypy]\nignore_missing_imports = true\nexplicit_package_bases = true\n"
        # What takes long to read, and is not asked for.
        "[mypy-torch.*,transformers.*,sentence_transformers.*,datasets.*,pyarrow.*,numpy.*]\n"
        "follow_imports = skip\n"
        "[mypy-st_xlret.*]\nignore_errors = true\n"
    )
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(settings), str(consumer)],
        env={**os.environ, "MYPYPATH": str(REPOSITORY)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    with_errors = {int(line) for line in re.findall(r"consumer.py:(\d+): error", checked.stdout)}
    lines = enumerate(CONSUMER.splitlines(), start=1)
    wrong = {number for number, line in lines if line.endswith("# wrong")}
    assert with_errors == wrong, checked.stdout


def declared_libraries() -> set[str]:
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    tables = text[text.index("\ndependencies = [") : text.index("[project.scripts]")]
    names = re.findall(r'"([A-Za-z0-9._-]+)(?:\[[a-z]+\])?[><=~ ][^"]*"', tables)
    return {name.lower() for name in names}


def test_every_library_that_is_imported_is_declared() -> None:
    declared = declared_libraries()
    distributions = packages_distributions()
    for file in sorted(PACKAGE.rglob("*.py")):
        for library in libraries_of(file) - {"st_xlret"}:
            packages = distributions.get(library, [library])
            names = {package.lower().replace("_", "-") for package in packages}
            assert names & declared, f"{file} imports {library}: declare one of {names}"


@pytest.mark.parametrize(
    "folder", ["st_xlret", "training_scripts", "evaluation", "benchmarks", "tests"]
)
def test_nothing_private_of_other_libraries_is_imported(folder: str) -> None:
    ours = {"st_xlret", "training_scripts", "tests"}
    for file in sorted((REPOSITORY / folder).rglob("*.py")):
        for name in imported_names(file):
            library, *parts = name.split(".")
            is_private = any(part.startswith("_") for part in parts)
            assert library in ours or not is_private, f"{file} imports {name}"


def test_the_package_is_typed_and_has_one_version() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{st_xlret.__version__}"\n' in text
    citation = (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {st_xlret.__version__}\n" in citation
    assert resources.files("st_xlret").joinpath("py.typed").is_file()


@pytest.mark.skipif(sys.platform == "win32", reason="it is a program of the shell")
def test_the_ci_program_runs_all_tests_from_anywhere(tmp_path: Path) -> None:
    # A copy: no environment stands in it, and none can be made.
    tree = tmp_path / "tree"
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(REPOSITORY / ".ci", tree / ".ci")
    elsewhere.mkdir()
    programs = {"make": 'echo "$PWD: make $*"', "python3": "exit 1"}
    for name, line in programs.items():
        (elsewhere / name).write_text(f"#!/bin/sh\n{line}\n")
        (elsewhere / name).chmod(0o755)

    done = subprocess.run(
        [str(tree / ".ci" / "run")],
        cwd=elsewhere,
        env={**os.environ, "PATH": f"{elsewhere}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        f"{tree}: make setup engines",
        f"{tree}: make test-all",
    ]
