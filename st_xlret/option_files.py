"""Option files: YAML, in which a value is the text that stands there.

YAML itself reads `2024_01` as 202401, `no` as False, `12:30` as 750 and `1e-4` as a text. Here an
option's own type says what its text means, as on the command line.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from st_xlret.strict_json import finite_number, object_of_pairs

_NULL = ("", "~", "null")
_OLD_BOOLEANS = ("yes", "no", "on", "off", "y", "n")
_WHOLE_NUMBER = re.compile(r"[-+]?\d+")
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")


@dataclass(frozen=True)
class FileOption:
    """An option of a file: a text as it is written, a list of texts, or nothing."""

    name: str
    value: str | list[str] | None
    place: str

    def words(self) -> list[str]:
        """The option as words of a command line; none where it keeps its default."""
        if self.value is None or self.value == []:
            return []
        if isinstance(self.value, list):
            return [f"--{self.name}", *self.value]
        return [f"--{self.name}={self.value}"]


def is_option_file(word: str) -> bool:
    """Whether a word before the options of a command line names an option file."""
    return word.endswith((".yaml", ".yml"))


def read_option_file(file: str) -> list[FileOption]:
    """The options of a file, in its order; a `ValueError` names the file and the line."""
    mapping = _compose(file)
    if not isinstance(mapping, yaml.MappingNode):
        raise ValueError(f"{file}: an option file is a mapping of names to values")
    options = {}
    for key, value in mapping.value:
        name = str(key.value).replace("-", "_")
        place = f"{file}, line {key.start_mark.line + 1}"
        if name in options:
            raise ValueError(f"{place}: {name} is given twice")
        try:
            options[name] = FileOption(name, _value_of(value), place)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error
    return list(options.values())


def _compose(file: str) -> yaml.Node | None:
    """The nodes of a YAML file, whose values are texts still; None of an empty one."""
    try:
        text = Path(file).expanduser().read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: no text in UTF-8 ({error})") from error
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{file}, line {mark.line + 1}" if mark else file
        raise ValueError(f"{place}: {error.problem}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = f"U+{error.character:04X}"
        raise ValueError(f"{file}, line {line}: {character}: {error.reason}") from error


def _value_of(node: yaml.Node) -> str | list[str] | None:
    """A value as the command line takes it: a text, several, a mapping in JSON; None for null."""
    if isinstance(node, yaml.MappingNode):
        return json.dumps(_as_json(node), ensure_ascii=False)
    if isinstance(node, yaml.SequenceNode):
        return [_text_of(each) for each in node.value]
    if _is_null(node):
        return None
    return str(node.value)


def _text_of(node: yaml.Node) -> str:
    """An entry of a list as it is written; a `ValueError` for anything but a text."""
    is_text = isinstance(node, yaml.ScalarNode) and not _is_null(node)
    if not is_text:
        raise ValueError("a list has texts alone")
    return str(node.value)


def _is_null(node: yaml.Node) -> bool:
    """Whether a value stands for nothing; in quotes it is a text."""
    is_quoted = node.style is not None
    return not is_quoted and node.value.lower() in _NULL


def _as_json(node: yaml.Node) -> Any:
    """A mapping that is one option's value, with the numbers and constants of JSON."""
    if isinstance(node, yaml.MappingNode):
        return object_of_pairs([(str(key.value), _as_json(value)) for key, value in node.value])
    if isinstance(node, yaml.SequenceNode):
        return [_as_json(each) for each in node.value]
    is_quoted = node.style is not None
    text = str(node.value)
    return text if is_quoted else _constant_or_text(text)


def _constant_or_text(text: str) -> Any:
    """What an unquoted text in a mapping is, as JSON has it: null, a truth, a number, or itself."""
    word = text.lower()
    if word in _NULL:
        return None
    if word in ("true", "false"):
        return word == "true"
    if word in _OLD_BOOLEANS:
        raise ValueError(f'{text} may be a text or not: write "{text}", true or false')
    if _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return finite_number(text)
    return text
