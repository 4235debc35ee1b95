"""Addresses of stores: `scheme:PLACE?name=value`."""

from __future__ import annotations

import os
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote


class Address(NamedTuple):
    """An address in its parts.

    Attributes:
        place: The path or URL, with user and password.
        values: What follows the question mark.
        shown: The address for messages: without user, password and key.
        secrets: Passwords and keys in it.
    """

    place: str
    values: dict[str, str]
    shown: str
    secrets: tuple[str, ...]


def parse_address(address: str, *required: str, optional: tuple[str, ...] | None = ()) -> Address:
    """Take an address apart.

    Args:
        address: The address.
        required: Names that have to be given a value.
        optional: Names that may be. None: all names; those that are not required are not shown.

    Raises:
        ValueError: If a name is missing or unknown, or a password is not written as URLs have it.

    Example:
        >>> parse_address("qdrant:http://me:secret@host:6333?collection=docs", "collection").shown
        'qdrant:http://host:6333?collection=docs'
    """
    scheme, _, rest = address.partition(":")
    before, slashes, authority = rest.partition("//")
    user, at, _ = (authority if slashes else before.partition("?")[0]).rpartition("@")
    if not slashes and (os.path.exists(before.partition("?")[0]) or ":" not in user and "/" in user):  # a path
        user = at = ""
    if set(user) & set("/?#@[]"):
        raise ValueError(
            f"{scheme}: the user or password has one of / ? # @ [ ]: write %2F %3F %23 %40 %5B %5D instead, or leave "
            "the password out of the address"
        )
    place, _, query = rest.partition("?")
    values = dict(parse_qsl(query))
    shown_names = {*required, *(optional or ())} - {"api_key"}
    given = "&".join(f"{name}={value}" for name, value in values.items() if name in shown_names)
    shown = f"{scheme}:{place.replace(user + at, '', 1)}?{given}".removesuffix("?")
    if missing := [name for name in required if not values.get(name)]:
        raise ValueError(
            f"{shown}: {missing[0]} is missing; write {scheme}:PLACE?{'&'.join(f'{n}=...' for n in required)}"
        )
    if optional is not None and (unknown := set(values) - {*required, *optional}):
        raise ValueError(
            f"{shown}: unknown {', '.join(sorted(unknown))}; known are {', '.join([*required, *optional])}"
        )
    named = (value for name, value in values.items() if "key" in name or "password" in name)
    secrets = [user.partition(":")[2], *named]
    forms = {form for secret in secrets if secret for form in (secret, unquote(secret))}
    return Address(place, values, shown, tuple(forms))
