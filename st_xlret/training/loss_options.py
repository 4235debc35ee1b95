"""`--loss_options`: arguments of a script's losses, by the names of the losses."""

import json
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from typing import Any

from st_xlret.options import option


def loss_options_field(losses: str, example: str) -> Any:
    """The field of `--loss_options` for the options of a script.

    `losses` has the names for which the script asks `Run.loss_arguments`.
    """
    return option(
        "{}",
        f"Arguments of the losses ({losses}), as '{example}'; their docstrings name all.",
    )


class LossOptions:
    """The arguments of losses that a user gives.

    Args:
        text: A mapping of arguments for each loss, as JSON; a `ValueError` for what is none.
    """

    def __init__(self, text: str) -> None:
        try:
            by_loss = json.loads(text)
        except ValueError as error:
            raise ValueError(f"--loss_options {text}: {error}") from error
        is_mapping = isinstance(by_loss, dict)
        if not is_mapping or not all(isinstance(each, dict) for each in by_loss.values()):
            raise ValueError(f"--loss_options {text}: give a mapping of arguments for each loss")
        self._by_loss: dict[str, dict[str, Any]] = by_loss
        self._unread = set(by_loss)

    def arguments_of(self, name: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a loss: the script's defaults, changed as the user says."""
        self._unread.discard(name)
        arguments = dict(defaults)
        for key, value in self._by_loss.get(name, {}).items():
            default = defaults.get(key)
            if isinstance(value, dict) and default is not None:
                arguments[key] = _with_changes(default, value)
            else:
                arguments[key] = value
        return arguments

    def check_all_read(self) -> None:
        """Refuse options of losses whose arguments nobody has asked for."""
        if self._unread:
            raise ValueError(f"--loss_options: this run has no losses {sorted(self._unread)}")


def _with_changes(default: Any, changes: dict[str, Any]) -> Any:
    """A group of options, of which some are changed."""
    if is_dataclass(default) and not isinstance(default, type):
        return replace(default, **changes)
    return {**default, **changes}
