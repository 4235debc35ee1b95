r"""Run a training script, or list the scripts with their recipes (files of options).

st-xlret train                                      lists scripts and recipes, and where they are to read and copy
st-xlret train ccp --help                           shows the options of a script
st-xlret train ccp ccp.yaml --documents documents/ --output_dir runs/ccp
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import st_xlret


def main(arguments: Sequence[str], *, prog: str = "st-xlret train") -> None:
    """Run the command `train`.

    Raises:
        ValueError: If there is no script of this name.
    """
    given = list(arguments)
    scripts = {name_of(file): file for file in sorted(folder().glob("train_*.py"))}
    if not given or given[0] in ("-h", "--help"):
        print(__doc__)
        _list(scripts)
        return
    if given[0] not in scripts:
        raise ValueError(f"there is no training script {given[0]!r}; there are: {', '.join(scripts)}")
    file, recipes = scripts[given[0]], folder() / "recipes"
    options = [str(recipes / word) if _is_recipe(word, recipes) else word for word in given[1:]]
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # dataclasses look their types up here
    spec.loader.exec_module(module)

    from st_xlret.training.script import run_script

    run_script(lambda: module.main(options))


def folder() -> Path:
    """The folder of the training scripts: in the installed package, or beside it in a checkout."""
    package = Path(st_xlret.__file__).parent
    installed = package / "training_scripts"
    return installed if installed.is_dir() else package.parent / "training_scripts"


def name_of(script: Path) -> str:
    """The name of a script on the command line: `ml-ctl` for `train_ml_ctl.py`."""
    return script.stem.removeprefix("train_").replace("_", "-")


def _is_recipe(word: str, recipes: Path) -> bool:
    return word.endswith(".yaml") and not Path(word).is_file() and (recipes / word).is_file()


def _list(scripts: dict[str, Path]) -> None:
    width = max(map(len, scripts))
    for name, file in scripts.items():
        print(f"{name:{width}}  {_first_line(file, 'r' + 3 * chr(34))}")
    print(f"\nrecipes, in {folder() / 'recipes'}:")
    for file in sorted((folder() / "recipes").glob("*.yaml")):
        print(f"{file.name:26}  {_first_line(file, '# ')}")
    print(f"\nThe scripts are in {folder()}: read them, copy them, change them.")


def _first_line(file: Path, prefix: str) -> str:
    return file.read_text(encoding="utf-8").partition("\n")[0].removeprefix(prefix)
