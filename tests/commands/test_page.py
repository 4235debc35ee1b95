"""The page of `st-xlret search --serve`, over HTTP."""

import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.commands.page import make_server
from st_xlret.commands.search_pool import SearchArguments, SearchPool


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[int]:
    """The port of the page of two pools, served on this machine."""
    file = str(tmp_path_factory.mktemp("page") / "<i>x.parquet")
    texts = ["sun <b>star</b> & wolf", "moon star", "<script>soleil</script>", "wind"]
    vectors = SentenceTransformer(str(model), device="cpu").encode(texts).tolist()
    beside = {
        "language": ["en", "en", "<b>", None],
        "document": ["<b>1"] * 4,
        "source": ["<b>"] * 4,
    }
    pq.write_table(pa.table({"text": texts, "vector": vectors, **beside}), file)
    with make_server(
        [SearchPool(file, SearchArguments(model=str(model), top_k=4))] * 2, "127.0.0.1", 0
    ) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield served.server_address[1]
        served.shutdown()
        thread.join()


def asked(port: int, method: str, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, headers=headers)
    answer: Any = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status != 200 or "default-src 'none'" in answer.headers["Content-Security-Policy"]
    return answer.status, text


def test_a_query_is_answered_by_both_pools_with_everything_from_outside_escaped(port: int) -> None:
    status, opening = asked(port, "GET", "/")
    assert status == 200 and opening.count("<section>") == 2 and 'class="result"' not in opening
    status, page = asked(port, "GET", "/?q=star+%22x%22")
    assert status == 200 and page.count('class="result"') == 8
    assert "sun &lt;b&gt;star&lt;/b&gt; &amp; wolf" in page and 'value="star &quot;x&quot;"' in page
    assert (
        not any(mark in page for mark in ("<script", "<b>", "<i>")) and "&lt;i&gt;x.parquet" in page
    )
    assert (
        page.index(">en 2<") < page.index(">&lt;b&gt; 1<") and "http" not in page
    )  # nothing of other machines


def test_what_the_page_does_not_do(port: int) -> None:
    requests: list[tuple[int, str, str, dict[str, str]]] = [
        (403, "GET", "/", {"Host": "evil.example"}),
        *(
            (200, "GET", "/", {"Host": host})
            for host in ("localhost:80", "192.168.1.2:7860", "[::1]:7860")
        ),
        (400, "GET", "/", {"Host": "["}),
        (404, "GET", "/upload", {}),
        (501, "POST", "/", {"Origin": "http://evil.example"}),
        (400, "GET", "/?q=" + "x" * 2_001, {}),
    ]
    for status, method, path, headers in requests:
        assert asked(port, method, path, **headers)[0] == status, (method, path, headers)
    with socket.create_connection(("127.0.0.1", port)):  # an idle connection keeps nobody out
        assert asked(port, "GET", "/?q=star")[0] == 200


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_the_page_is_served_at_an_address_of_ipv6() -> None:
    with make_server([], "::1", 0) as served:
        assert served.server_address[0] == "::1"
