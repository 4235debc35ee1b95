"""Addresses of databases, `scheme:PLACE?name=value`: taken apart, and shown without secrets."""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from st_xlret.secrets import without_secrets

_PASSWORD_OF_LIBPQ = re.compile(r"password\s*=\s*'?([^\s']+)")
_RESERVED = frozenset("/?#@[]")  # of URLs: in a user or a password they have to be escaped


@dataclass(frozen=True)
class Address:
    """An address, taken apart.

    Attributes:
        place: A folder or a URL, with user and password.
        options: The values after the question mark.
        shown: The address without user, password and key, for messages.
        secrets: What no message may show.
    """

    place: str
    options: dict[str, str]
    shown: str
    secrets: tuple[str, ...]

    @property
    def is_url(self) -> bool:
        """Whether the place is a server; else it is a folder."""
        return _is_url(self.place)


def parse_address(address: str, *required: str, optional: Sequence[str] | None = ()) -> Address:
    """Take an address apart, whose place is a folder or a URL; a wrong one is a `ValueError`.

    That lacks a `required` option or has an unknown one, names a folder that is not there, or has
    letters in its user or password that have to be escaped. With `optional=None`, any name and any
    place will do; names that are not required are not shown.
    """
    scheme, _, rest = address.partition(":")
    place, _, query = rest.partition("?")
    options = dict(parse_qsl(query))
    login = _login_in(rest)
    if _RESERVED & set(login[:-1]):
        way_out = "write %2F %3F %23 %40 %5B %5D instead"
        raise ValueError(f"{scheme}: the user or password has one of / ? # @ [ ]: {way_out}")
    known = [*required, *(optional or ())]
    shown = f"{scheme}:{without_secrets(place.replace(login, '', 1))}"
    if settings := _shown_options(options, known):
        shown = f"{shown}?{settings}"
    for name in required:
        if not options.get(name):
            form = "&".join(f"{each}=..." for each in required)
            raise ValueError(f"{shown}: {name} is missing; write {scheme}:PLACE?{form}")
    if optional is not None:
        _check_options_and_place(options, known, place, shown)
    return Address(place, options, shown, _secrets_in(place, login, options))


def _login_in(rest: str) -> str:
    """`user:password@` in an address after its scheme; "" where an @ is part of a path."""
    before, slashes, authority = rest.partition("//")
    place = before.partition("?")[0]
    login, at, _ = (authority if slashes else place).rpartition("@")
    if not slashes:
        looks_like_folder = ":" not in login and "/" in login
        if looks_like_folder or os.path.exists(place):
            return ""
    return login + at


def _shown_options(options: Mapping[str, str], known: Collection[str]) -> str:
    """The known options of an address as they are written, without its key."""
    shown = []
    for name, value in options.items():
        if name in known and name != "api_key":
            shown.append(f"{name}={value}")
    return "&".join(shown)


def _check_options_and_place(
    options: Mapping[str, str], known: Sequence[str], place: str, shown: str
) -> None:
    """Refuse unknown options, and a folder that is not there."""
    unknown = sorted(set(options) - set(known))
    if unknown:
        names = ", ".join(unknown)
        raise ValueError(f"{shown}: unknown {names}; known are {', '.join(known)}")
    if not _is_url(place) and not os.path.isdir(place):  # which the client would make
        raise ValueError(f"{shown}: there is no such folder")


def _is_url(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def _secrets_in(place: str, login: str, options: Mapping[str, str]) -> tuple[str, ...]:
    """The passwords and keys of an address, as they are written and as they are meant."""
    passwords = [login[:-1].partition(":")[2], *_PASSWORD_OF_LIBPQ.findall(place)]
    for name, value in options.items():
        if "key" in name or "password" in name:
            passwords.append(value)
    forms = set()
    for password in passwords:
        if password:
            forms |= {password, unquote(password)}
    return tuple(forms)
