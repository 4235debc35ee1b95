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
    ("https://me:it's@host/a", "https://***@host/a"),
    ("of hf_abcdefghijkl here", "of hf_*** here"),
    ("of ghp_abcdefghijkl here", "of ghp_*** here"),
    ("of sk-proj-abcdefgh12345678 here", "of sk-*** here"),
    ("of AIzaSyD-abcdefghijklmnopqrstuvwxyz0 here", "of AIza*** here"),
    ("of AKIAIOSFODNN7EXAMPLE here", "of AKIA*** here"),
    ("of eyJhbGciOiJI.eyJzdWIi.abc here", "of eyJ*** here"),
    ("bearer abcdefgh12345678", "bearer ***"),
    (
        "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY----- .",
        "-----BEGIN PRIVATE KEY-----*** .",
    ),
    ("aws_secret_access_key: abc/def", "aws_secret_access_key: ***"),
    ("private_key: abc", "private_key: ***"),
    ('{"token": "abc def"}', '{"token": ***}'),
    ("('api-key', 'abc')", "('api-key', ***)"),
    ("token: abcdefgh12345678", "token: ***"),
    ("pw=abc&d rest", "pw=*** rest"),
    ("pw: abc", "pw: ***"),
    ("access key: abc", "access key: ***"),
    ("my_key: abcdefgh12345678", "my_key: ***"),
    ("Set-Cookie: id=abc", "Set-Cookie: ***"),
    ("cannot reach m:abc@host:5432", "cannot reach ***@host:5432"),
    ("password='it''s' rest", "password=*** rest"),
    ('password="it is open', "password=***"),
    ("--password abc --n 1", "--password *** --n 1"),
    ("--hub_token abc", "--hub_token ***"),
    ("?sv=2020&sig=ab%2Fc&se=3", "?sv=2020&sig=***&se=3"),
    (
        "?X-Amz-Credential=a/b&X-Amz-Signature=abc&n=3",
        "?X-Amz-Credential=***&X-Amz-Signature=***&n=3",
    ),
    ("AccountName=a;AccountKey=abc==", "AccountName=a;AccountKey=***"),
    ("client_secret%3Dabc", "client_secret%3D***"),
]

SHOWN = [
    "key: abc",  # a name of everyday language
    "the author: Mrs Dalloway",
    "C:/me@home",
    "hf_short",
    "WikiMatrix.sk-en.tsv, /data/sk-en_2019.tsv",
    "max_tokens=5, a token: 3, pad_token_id: 0",
    "secretary: Mrs Dalloway",
    "--hub_token is given twice",
    "no option --push_to_hub_token; the nearest is --hub_token",
    "no option --password; --help lists all",
    "the field 'token' is missing",
]


@pytest.mark.parametrize(("message", "shown"), HIDDEN)
def test_values_of_secrets_are_hidden_and_their_names_stay(message: str, shown: str) -> None:
    assert without_secrets(message) == shown


@pytest.mark.parametrize("message", SHOWN)
def test_other_messages_stay(message: str) -> None:
    assert without_secrets(message) == message


def test_escapes_of_terminals_become_spaces() -> None:
    assert without_secrets("red \x1b[31m\x9b, tab\tand line\n") == "red  [31m , tab\tand line\n"
