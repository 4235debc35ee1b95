"""Files of options: YAML, in which a value is the text that stands there.

YAML itself reads `2024_01` as 202401, `no` as False, `12:30` as 750 and `1e-4` as a text. Here an
option's own type says what its text means, as on the command line.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_NULL = ("", "~", "null")
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}
_OLD_BOOLEANS = ("yes", "no", "on", "off", "y", "n")
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")


@dataclass(frozen=True)
class FileOption:
    """An option of a file, as it is written: a text, a list of texts, or nothing."""

    name: str
    value: str | list[str] | None
    place: str

    def words(self) -> list[str]:
        """The option as words of a command line; none where it keeps its default."""
        if not self.value:
            return [] if self.value is None or isinstance(self.value, list) else [f"--{self.name}="]
        if isinstance(self.value, list):
            return [f"--{self.name}", *self.value]
        return [f"--{self.name}={self.value}"]


def is_option_file(word: str) -> bool:
    """Whether a word before the options of a command line names a file of options."""
    return word.endswith((".yaml", ".yml"))


def read_option_file(file: str) -> list[FileOption]:
    """The options of a file, in its order; a `ValueError` names the file and the line."""
    text = Path(file).expanduser().read_text(encoding="utf-8-sig")
    try:
        mapping = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ValueError(f"{file}, line {line}: {error.problem}") from error
    if not isinstance(mapping, yaml.MappingNode):
        raise ValueError(f"{file}: a file of options is a mapping of names to values")

    options: dict[str, FileOption] = {}
    for key, value in mapping.value:
        place = f"{file}, line {key.start_mark.line + 1}"
        name = str(key.value)
        if name in options:
            raise ValueError(f"{place}: {name} is given twice")
        options[name] = FileOption(name, _value_of(value, place), place)
    return list(options.values())


def _value_of(node: yaml.Node, place: str) -> str | list[str] | None:
    if isinstance(node, yaml.MappingNode):
        return json.dumps(_as_json(node, place), ensure_ascii=False)
    if isinstance(node, yaml.SequenceNode):
        return [_text_of(each, place) for each in node.value]
    return None if _is_null(node) else str(node.value)


def _text_of(node: yaml.Node, place: str) -> str:
    if not isinstance(node, yaml.ScalarNode) or _is_null(node):
        raise ValueError(f"{place}: a list has texts alone")
    return str(node.value)


def _is_null(node: yaml.Node) -> bool:
    return node.style is None and node.value.lower() in _NULL


def _as_json(node: yaml.Node, place: str) -> Any:
    """A mapping that is one option's value, with the numbers and constants of JSON."""
    if isinstance(node, yaml.MappingNode):
        return {str(key.value): _as_json(value, place) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_as_json(each, place) for each in node.value]
    return _constant_or_text(node, place)


def _constant_or_text(node: yaml.Node, place: str) -> Any:
    text = str(node.value)
    is_quoted = node.style is not None
    if is_quoted:
        return text
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    if text.lower() in _OLD_BOOLEANS:
        raise ValueError(f'{place}: {text} may be a text or not: write "{text}", true or false')
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)
