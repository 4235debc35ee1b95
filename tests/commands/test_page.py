"""The page of `st-xlret search --serve`, as HTML and over HTTP."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import BoW

from st_xlret.commands import main
from st_xlret.commands.search import Arguments, Pool, Result, answer, server

RESULTS: list[Result] = [
    {"score": 0.9, "language": "en", "text": "a <b>cat</b> & a dog"},
    {"score": 0.8, "language": "fr", "text": "un chat"},
    {"score": 0.7, "language": "en", "text": "<script>alert(1)</script>"},
    {"score": 0.6, "language": None, "text": "?"},
]
COLOURS = {"en": "red", "fr": "blue", "?": "grey"}


def test_everything_from_outside_is_escaped() -> None:
    page = answer("<i>index</i>", "<i>note</i>", RESULTS, COLOURS)
    assert "<script" not in page and "<b>" not in page and "<i>" not in page
    assert "a &lt;b&gt;cat&lt;/b&gt; &amp; a dog" in page


def test_the_bar_shows_how_often_each_language_answers() -> None:
    page = answer("index", "note", RESULTS, COLOURS)
    assert page.index('flex: 2; background: red">en 2') < page.index('flex: 1; background: blue">fr 1')
    assert "grey" in page


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of the page of two indexes, served on this machine."""
    words = {"en": ["cat", "dog"], "fr": ["chat", "chien"]}
    documents = tmp_path / "documents.jsonl"
    records = [{"language": code, "sentences": [f"{word} <b>{word}</b>"]} for code in words for word in words[code]]
    documents.write_text("".join(json.dumps(record) + "\n" for record in records))
    for name in ("raw", "calibrated"):
        vocabulary = [word for pair in words.values() for word in pair]
        model = SentenceTransformer(modules=[BoW(vocab=vocabulary)], device="cpu")
        model.save(str(tmp_path / f"model-{name}"))
        file = str(tmp_path / f"{name}.parquet")
        main(["index", str(documents), "--model", str(tmp_path / f"model-{name}"), "--output", file])
    files = [str(tmp_path / f"{name}.parquet") for name in ("calibrated", "raw")]
    with server([Pool(file, Arguments(file, top_k=3)) for file in files], "127.0.0.1", 0) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield served.server_address[1]
        served.shutdown()
        thread.join()


def asked(port: int, method: str, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request(method, path, headers=headers)
    answered = connection.getresponse()
    found: tuple[int, Any] = answered.status, answered.read().decode()
    connection.close()
    return found


def test_a_query_is_answered_by_both_indexes(port: int) -> None:
    status, opening = asked(port, "GET", "/")
    assert status == 200 and opening.count("<section>") == 2 and 'class="result"' not in opening
    status, found = asked(port, "GET", "/?q=chien+%22x%22")
    assert status == 200 and found.count('class="result"') == 6
    assert "chien &lt;b&gt;chien&lt;/b&gt;" in found and "<b>" not in found
    assert 'value="chien &quot;x&quot;"' in found and "model-calibrated (calibrated.parquet)" in found
    assert "<script" not in found and "http" not in found, "nothing is asked of other machines"


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {"Host": "evil.example"}, 403),
        ("GET", "/", {"Host": "localhost:80"}, 200),
        ("GET", "/", {"Host": "192.168.1.2:7860"}, 200),
        ("GET", "/", {"Host": "[::1]:7860"}, 200),
        ("GET", "/", {"Host": "["}, 400),
        ("GET", "/upload", {}, 404),
        ("POST", "/", {"Origin": "http://evil.example"}, 501),
        ("GET", "/?q=" + "x" * 2_001, {}, 400),
        ("GET", "/?q=" + "x" * 70_000, {}, 414),
    ],
)
def test_what_the_page_does_not_do(port: int, method: str, path: str, headers: dict[str, str], status: int) -> None:
    assert asked(port, method, path, **headers)[0] == status


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_the_page_is_served_at_an_address_of_ipv6() -> None:
    with server([], "::1", 0) as served:
        assert served.server_address[0] == "::1"
