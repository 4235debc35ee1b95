r"""Run a training script, or list the scripts with their recipes (files of options).

st-xlret train                                      lists scripts and recipes, and where they are to read and copy
st-xlret train ccp --help                           shows the options of a script
st-xlret train ccp ccp.yaml --documents documents/ --output_dir runs/ccp
"""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import st_xlret


def main(arguments: Sequence[str], *, prog: str = "st-xlret train") -> None:
    """Run a script by its name, `ml-ctl` for `train_ml_ctl.py`, or list all. A recipe is found by its file's name."""
    package = Path(st_xlret.__file__).parent
    folders = (
        package / "training_scripts",
        package.parent / "training_scripts",
    )  # the latter in a checkout
    folder = next(filter(Path.is_dir, folders))
    scripts = {file.stem[6:].replace("_", "-"): file for file in sorted(folder.glob("train_*.py"))}
    recipes = sorted((folder / "recipes").glob("*.yaml"))
    if arguments and arguments[0] not in (*scripts, "-h", "--help"):
        sys.exit(
            f"error: there is no training script {arguments[0]!r}; there are: {', '.join(scripts)}"
        )
    if not arguments or arguments[0] not in scripts:
        lines = [f"{name:22}{_first_line(file)}" for name, file in scripts.items()]
        lines += ["", "recipes:", *(f"{file.name:28}{_first_line(file)}" for file in recipes)]
        return print(
            "\n".join(
                [
                    str(__doc__),
                    *lines,
                    "",
                    f"They are in {folder}: read them, copy them, change them.",
                ]
            )
        )
    here = {file.name: str(file) for file in recipes if not Path(file.name).is_file()}
    file = scripts[arguments[0]]
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # dataclasses look their types up here
    spec.loader.exec_module(module)

    from st_xlret.training.run import run_script

    run_script(lambda: module.main([here.get(word, word) for word in arguments[1:]]))


def _first_line(file: Path) -> str:
    return file.read_text(encoding="utf-8").partition("\n")[0].lstrip('r"# ')
