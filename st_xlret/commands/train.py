r"""Run a training script, or list the scripts with their option files.

st-xlret train                      lists both, and where they are to read and copy
st-xlret train ccp --help           shows the options of a script
st-xlret train ccp ccp.yaml --documents documents/ --output_dir runs/ccp
"""

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from st_xlret.options import program_name


def main(arguments: Sequence[str], *, prog: str = "st-xlret train") -> None:
    """Run a script by its name, `ml-ctl` for `train_ml_ctl.py`, or list all.

    An option file of the package is found by its name.
    """
    folder = _folder_of_scripts()
    scripts = _scripts_in(folder)
    option_files = sorted((folder / "recipes").glob("*.yaml"))
    name, *words = arguments or ["--help"]
    if name in ("-h", "--help"):
        print(_list_in_words(scripts, option_files, folder))
        return
    if name not in scripts:
        sys.exit(f"error: there is no training script {name!r}; there are: {', '.join(scripts)}")
    module = _load_module(scripts[name])

    from st_xlret.training.run import run_script

    with program_name(f"{prog} {name}"):
        run_script(lambda: module.main(_with_paths(words, option_files)))


def _folder_of_scripts() -> Path:
    """The scripts in the installed package, or those of a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "training_scripts"
    return installed if installed.is_dir() else package.parent / "training_scripts"


def _scripts_in(folder: Path) -> dict[str, Path]:
    """The scripts by the names that the command gives them."""
    scripts = {}
    for file in sorted(folder.glob("train_*.py")):
        name = file.stem.removeprefix("train_")
        scripts[name.replace("_", "-")] = file
    return scripts


def _list_in_words(scripts: Mapping[str, Path], option_files: Sequence[Path], folder: Path) -> str:
    """The scripts and option files, each with the first line of its file: what it does."""
    lines = [str(__doc__)]
    for name, file in scripts.items():
        lines.append(f"{name:22}{_first_line(file)}")
    lines += ["", "option files:"]
    for file in option_files:
        lines.append(f"{file.name:28}{_first_line(file)}")
    lines += ["", f"They are in {folder}: read them, copy them, change them."]
    return "\n".join(lines)


def _load_module(file: Path) -> ModuleType:
    """Run a file as a module, under the name of the file; its `main` takes words."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # dataclasses look their types up here
    spec.loader.exec_module(module)
    return module


def _with_paths(words: Sequence[str], option_files: Sequence[Path]) -> list[str]:
    """The words with the paths of option files that are named; a file of the user's comes first."""
    shipped = {file.name: str(file) for file in option_files if not Path(file.name).is_file()}
    return [shipped.get(word, word) for word in words]


def _first_line(file: Path) -> str:
    """The first line of a script's docstring, or of an option file's comment."""
    return file.read_text(encoding="utf-8").partition("\n")[0].lstrip('r"# ')
