r"""Write a training script of st-xlret, to read, to edit and to run. The scripts are in the installed package.

st-xlret recipe                           lists the scripts and their files of options
st-xlret recipe ccp > my_ccp.py           writes the script
st-xlret recipe ccp.yaml > my_ccp.yaml    writes a file of options for it
st-xlret recipe ccp --output my_ccp.py    writes the script, and its files of options into the same folder

python my_ccp.py ccp.yaml --documents documents/ --output_dir runs/ccp
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import yaml

from st_xlret.files import check_output_file, write_text_atomically
from st_xlret.options import name_leading_words, option, parse

_IN_THE_REPOSITORY = re.compile(r"\btraining_scripts/(recipes/)?(?=[\w-]+\.(py|yaml))")


@dataclass
class Arguments:
    """Which script, and where to."""

    recipe: str | None = option(None, "Name of the script, such as ccp, or of a file of options, such as ccp.yaml.")
    output: str | None = option(None, "File of the script instead of the terminal; its options go beside it.")
    overwrite: bool = option(False, "Replace files that are there.")


def main(arguments: Sequence[str], *, prog: str = "st-xlret recipe") -> None:
    """Run the command `recipe`."""
    given = list(arguments)
    if not given or not given[0].endswith(".yaml"):
        given = name_leading_words(given, "recipe")
    else:  # the first word is no file of options for this command, but what it writes
        given = ["--recipe", *given]
    (options,) = parse([Arguments], given, description=__doc__, prog=prog)
    recipe(options)


def recipe(options: Arguments) -> None:
    """Print or write a script or a file of options, or list them.

    Raises:
        ValueError: If there is none of this name. The message lists all names.
        FileExistsError: If a file is there already.
    """
    scripts, files = scripts_and_options()
    if options.recipe is None:
        _list(scripts, files)
        return
    text = _text(options.recipe, {**scripts, **files})
    if options.output is None:
        sys.stdout.write(text)
        return
    output = check_output_file(options.output)
    written = {output: text}
    if options.recipe in scripts:
        of_script = [name for name in files if options.recipe in _scripts_of(files[name], scripts)]
        written |= {output.with_name(name): _text(name, files) for name in of_script}
    there = [file for file in written if file.exists()]
    if there and not options.overwrite:
        raise FileExistsError(f"{there[0]} exists: use --overwrite to replace it, or give another --output")
    for file, content in written.items():
        write_text_atomically(file, content)
    print(f"written: {', '.join(map(str, written))}")


def scripts_and_options() -> tuple[dict[str, Path], dict[str, Path]]:
    """Name of each training script, and of each file of options, to its file.

    They are in the installed package, or in `training_scripts` of the repository that it is run from.
    """
    package = Path(str(resources.files("st_xlret")))
    scripts, options = package / "recipes", package / "recipes"
    if not scripts.is_dir():
        scripts = package.parent / "training_scripts"
        options = scripts / "recipes"
    found = {_name(file): file for file in sorted(scripts.glob("train_*.py*"))}
    return found, {file.name: file for file in sorted(options.glob("*.yaml"))}


def _name(script: Path) -> str:
    return script.name.partition(".")[0].removeprefix("train_").replace("_", "-")


def _text(name: str, files: dict[str, Path]) -> str:
    """A script or a file of options, in whose comments the files are in the current folder."""
    if name not in files:
        raise ValueError(f"there is no recipe {name!r}; there are: {', '.join(files)}")
    return _IN_THE_REPOSITORY.sub("", files[name].read_text(encoding="utf-8"))


def _scripts_of(options: Path, scripts: dict[str, Path]) -> list[str]:
    """The scripts that a file of options is for: those that its comments name, or the one that it is named after."""
    text = options.read_text(encoding="utf-8")
    named = [name for name, script in scripts.items() if re.search(rf"\b{script.name.partition('.')[0]}\.py\b", text)]
    return named or [name for name in scripts if options.stem == name or options.stem.startswith(f"{name}-")]


def _list(scripts: dict[str, Path], files: dict[str, Path]) -> None:
    width = max(map(len, scripts))
    for name, script in scripts.items():
        text = script.read_text(encoding="utf-8")
        first_line = re.search(r'"""(.+)', text)
        print(f"{name:{width}}  {first_line[1] if first_line else ''}")
        for options, file in files.items():
            if name in _scripts_of(file, scripts):
                count = len(yaml.safe_load(file.read_text(encoding="utf-8")))
                print(f"{'':{width}}    {options} ({count} options)")
    print("\nst-xlret recipe NAME > my_script.py")
