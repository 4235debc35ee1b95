"""Messages without secrets."""

import pytest

from st_xlret.secrets import without_secrets

HIDDEN = [
    ("password=abc rest", "password=*** rest"),
    ("PASSWD: abc", "PASSWD: ***"),
    ("'api_key': 'a b', 'n': 1", "'api_key': ***, 'n': 1"),
    ('"secret": "a\\"b" rest', '"secret": *** rest'),
    ("?api-key=abc&size=3", "?api-key=***&size=3"),
    ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
    ("x-auth-token: abc", "x-auth-token: ***"),
    ("token=abc", "token=***"),
    ("signature = abc", "signature = ***"),
    ("postgresql://me:pass@host/db", "postgresql://***@host/db"),
    ("of hf_abcdefghijkl here", "of hf_*** here"),
]

SHOWN = [
    "key: abc",  # a name of everyday language
    "the author: Mrs Dalloway",
    "C:/me@home",
    "hf_short",
]


@pytest.mark.parametrize(("message", "shown"), HIDDEN)
def test_values_of_secrets_are_hidden_and_their_names_stay(message: str, shown: str) -> None:
    assert without_secrets(message) == shown


@pytest.mark.parametrize("message", SHOWN)
def test_other_messages_stay(message: str) -> None:
    assert without_secrets(message) == message


def test_escapes_of_terminals_become_spaces() -> None:
    assert without_secrets("red \x1b[31m\x9b, tab\tand line\n") == "red  [31m , tab\tand line\n"
