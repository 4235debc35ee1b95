"""The settings of a study of search, which stay the same when it is continued."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from st_xlret.files import write_json_atomically

_FREE = ("data", "output", "rows", "seeds", "jobs", "table_only", "no_tatoeba")
_RATES = ("learning_rates", "documents_learning_rates")
# What decides which models the table is made of.
_OF_THE_TABLE = (*_RATES, "further_rates", "the first of --seeds")


def check_settings(given: Mapping[str, Any]) -> None:
    """Refuse to continue a study with other settings: its finished parts would stand beside parts of another kind.

    Args:
        given: Option -> value. With `table_only`, the settings that do not decide what the table shows may be others.

    Raises:
        ValueError: If a setting is another one than before, or two learning rates would have the same folders.
    """
    for name in _RATES:
        rates = set(given[name])
        if len({f"{rate:g}" for rate in rates}) < len(rates):
            raise ValueError(f"--{name} {sorted(rates)}: two rates are the same to six digits; leave one of them out")
    now = {name: value for name, value in given.items() if name not in _FREE}
    now["the first of --seeds"] = given["seeds"][0]
    file = Path(given["output"]) / "settings.json"
    # Studies from before the option of further rates tried the given ones alone.
    then = {"further_rates": 0, **json.loads(file.read_text(encoding="utf-8"))} if file.is_file() else now
    checked = _OF_THE_TABLE if given["table_only"] else now
    changed = [f"{name} was {then.get(name)!r}, is {now[name]!r}" for name in checked if then.get(name) != now[name]]
    if changed:
        raise ValueError(f"{file.parent} holds a study with other settings: {'; '.join(changed)}; use another --output")
    if not given["table_only"]:
        write_json_atomically(file, now)
