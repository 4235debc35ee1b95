"""The page of `st-xlret search --serve`, as HTML and in a headless browser."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import BoW

pytest.importorskip("language_data", reason="needs the extra app")

from st_xlret.commands import main  # noqa: E402
from st_xlret.commands.search_page import answer, colours_of, language_name  # noqa: E402

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
RESULTS = [
    {"score": 0.9, "language": "en", "text": "a <b>cat</b> & a dog"},
    {"score": 0.8, "language": "fr", "text": "un chat"},
    {"score": 0.7, "language": "en", "text": "<script>alert(1)</script>"},
]


def test_everything_from_outside_is_escaped() -> None:
    page = answer("<i>index</i>", "<i>note</i>", RESULTS, colours_of(["en", "fr"]))
    assert "<script" not in page and "<b>" not in page and "<i>" not in page
    assert "a &lt;b&gt;cat&lt;/b&gt; &amp; a dog" in page


def test_the_bar_shows_how_often_each_language_answers() -> None:
    page = answer("index", "note", RESULTS, colours_of(["en", "fr"]))
    assert "flex: 2;" in page and "English: 2 of 3" in page and "flex: 1;" in page and "French: 1 of 3" in page
    assert page.index("English: 2") < page.index("French: 1")


def test_a_language_has_the_same_colour_in_every_column() -> None:
    colours = colours_of(["fr", "en", "fr", "de"])
    assert list(colours) == ["de", "en", "fr"] and len(set(colours.values())) == 3


def test_names_of_languages() -> None:
    assert [language_name(code) for code in ("zh", "und")] == ["Chinese", "unknown language"]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Any]:
    """The page of two indexes, served on this machine."""
    from st_xlret.commands import search_page
    from st_xlret.commands.search_index import SearchIndex

    words = {"en": ["cat", "dog"], "fr": ["chat", "chien"]}
    documents = tmp_path / "documents.jsonl"
    records = [{"language": code, "sentences": [f"{word} <b>{word}</b>"]} for code in words for word in words[code]]
    documents.write_text("".join(json.dumps(record) + "\n" for record in records))
    for name in ("raw", "calibrated"):
        vocabulary = [word for pair in words.values() for word in pair]
        model = SentenceTransformer(modules=[BoW(vocab=vocabulary)], device="cpu")
        model.save(str(tmp_path / f"model-{name}"))
        main(["index", str(documents), "--model", str(tmp_path / f"model-{name}"), "--output", str(tmp_path / name)])
    indexes = [SearchIndex(str(tmp_path / name)) for name in ("calibrated", "raw")]
    served = search_page.serve(indexes, top_k=3, language=None, host="127.0.0.1", port=None, block=False)
    yield served
    served.close()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("gradio") is None, reason="needs gradio (the extra app)")
@pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="needs playwright")
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_a_query_is_answered_in_a_browser(page: Any) -> None:
    from playwright.sync_api import sync_playwright

    assert page.local_url.startswith("http://127.0.0.1:")
    requested: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.on("request", lambda request: requested.append(request.url))
        tab.goto(page.local_url)
        tab.locator(".xl-head").nth(1).wait_for()
        field = tab.get_by_label("Query in any language")
        field.fill("chien")
        field.press("Enter")
        tab.locator(".xl-result").nth(5).wait_for()
        assert tab.locator(".xl-text").first.inner_text() == "chien <b>chien</b>"
        assert tab.locator(".xl-tag").first.inner_text() == "fr"
        assert tab.locator(".xl-bar").count() == 2
        browser.close()
    elsewhere = [url for url in requested if not url.startswith((page.local_url, "data:", "blob:"))]
    assert not elsewhere, f"the page asks other machines: {elsewhere}"
