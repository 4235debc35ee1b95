"""Messages without secrets: passwords, keys and tokens that errors of libraries repeat."""

import re

_NAMES = r"pass(?:phrase|w(?:or)?d)|pwd|secret|credential|\bauth(?:orization)?|api.?key|[-_]token"
_NAMES_BEFORE_EQUALS = r"pass|token|key|sig(?:nature)?"
_SCHEME = r"(?:(?:bearer|basic|token)\s+)?"
_VALUE = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[^\s&'"]+"""

# Of a setting, a parameter or a header: what stands before its value.
_SETTING = (
    rf"""((?:(?:{_NAMES})['"]?\s*[=:]|(?:{_NAMES_BEFORE_EQUALS})\s*=)\s*{_SCHEME})(?:{_VALUE})"""
)
_LOGIN_OF_URL = r"""(\w{2,}:/*)[^\s'"]*(@)"""
_TOKEN_OF_HUB = r"\b(hf_)\w{9,}"

_SECRETS = re.compile(f"{_SETTING}|{_LOGIN_OF_URL}|{_TOKEN_OF_HUB}", re.IGNORECASE)
_ESCAPES_OF_TERMINALS = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f]")


def without_secrets(text: str) -> str:
    """A message without the users, passwords and keys of URLs, settings and headers.

    Escapes of terminals become spaces.
    """
    printable = _ESCAPES_OF_TERMINALS.sub(" ", text)
    return _SECRETS.sub(_hide, printable)


def _hide(match: re.Match[str]) -> str:
    setting, scheme, at, token = match.groups()
    before = setting or scheme or token
    return f"{before}***{at or ''}"
