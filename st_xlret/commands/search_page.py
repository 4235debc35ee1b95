"""A web page on which one or two indexes answer queries side by side, with the languages of their answers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import langcodes  # names need the library language_data, which the extra app installs

from st_xlret.optional import import_optional

if TYPE_CHECKING:
    from st_xlret.commands.search_index import SearchIndex

_COLOURS = (
    "#4269d0", "#efb118", "#ff725c", "#3ca951", "#a463f2", "#6cc5b0",
    "#9c6b4e", "#97bbf5", "#ff8ab7", "#5d8a2f", "#c2577a", "#8a8f98",
)  # fmt: skip

_STYLE = """
.xl-head {font-weight: 600; font-size: 1.05rem; overflow-wrap: anywhere}
.xl-note {color: var(--body-text-color-subdued); font-size: .85rem; margin: .15rem 0 .6rem; overflow-wrap: anywhere}
.xl-bar {margin-bottom: .3rem; display: flex; height: 1.6rem; border-radius: .4rem; overflow: hidden; gap: 2px}
.xl-bar span {color: #fff; font-size: .75rem; font-weight: 600; display: flex; align-items: center;
  justify-content: center; min-width: .3rem; overflow: hidden; text-shadow: 0 0 2px rgba(0,0,0,.55)}
.xl-result {display: flex; gap: .7rem; padding: .55rem 0; border-bottom: 1px solid var(--border-color-primary)}
.xl-result:last-child {border-bottom: none}
.xl-tag {flex: none; align-self: flex-start; width: 2.9rem; text-align: center; border-radius: .35rem; color: #fff;
  font-size: .75rem; font-weight: 600; line-height: 1.35rem; text-shadow: 0 0 2px rgba(0,0,0,.55)}
.xl-text {flex: 1; overflow-wrap: anywhere; line-height: 1.4}
.xl-go {align-self: center; max-height: 3rem}
.xl-score {flex: none; color: var(--body-text-color-subdued); font-variant-numeric: tabular-nums; font-size: .85rem}
"""


def language_name(code: str) -> str:
    """The English name of a language; "unknown language" where it is undetermined."""
    return "unknown language" if code == "und" else langcodes.Language.get(code).display_name()


def colours_of(languages: Sequence[str]) -> dict[str, str]:
    """A colour for each language; there are twelve of them."""
    return {code: _COLOURS[i % len(_COLOURS)] for i, code in enumerate(sorted(set(languages)))}


def answer(title: str, note: str, results: Sequence[dict[str, Any]], colours: dict[str, str]) -> str:
    """One column of the page: what answers, a bar of the languages of its answers, and the answers.

    Everything from outside is escaped: texts, names of folders, and language codes.
    """
    counts = Counter(result["language"] for result in results)
    bar = "".join(
        f'<span style="flex: {count}; background: {colours[code]}" title="{escape(language_name(code))}: {count} of '
        f'{len(results)}">{escape(code)} {count}</span>'
        for code, count in counts.most_common()
    )
    rows = "".join(
        f'<div class="xl-result"><span class="xl-tag" style="background: {colours[result["language"]]}" '
        f'title="{escape(language_name(result["language"]))}">{escape(result["language"])}</span>'
        f'<span class="xl-text" dir="auto">{escape(result["text"])}</span>'
        f'<span class="xl-score">{result["score"]:.3f}</span></div>'
        for result in results
    )
    return (
        f'<div class="xl-head">{escape(title)}</div><div class="xl-note">{escape(note)}</div>'
        f'<div class="xl-bar">{bar}</div>{rows}'
    )


def build_page(indexes: Sequence[SearchIndex], *, top_k: int = 10, language: str | None = None) -> Any:
    """The page: a field for the query, and a column for each index.

    Args:
        indexes: One or two.
        top_k: Results for a query.
        language: Language of the queries, for models with a map per language.

    Returns:
        A `gradio.Blocks`.
    """
    gradio = import_optional("gradio", extra="app", needed_for="the web page (--serve)")
    colours = colours_of([code for index in indexes for code in index.about["languages"]])

    def search(query: str, count: float) -> list[str]:
        if not query.strip():
            return [""] * len(indexes)
        return [
            answer(index.folder, _note(index), index.search([query.strip()], int(count), language=language)[0], colours)
            for index in indexes
        ]

    with gradio.Blocks(title="st-xlret search", analytics_enabled=False) as page:
        gradio.Markdown("# Search across languages")
        with gradio.Row(equal_height=True):
            query = gradio.Textbox(
                label="Query in any language", placeholder="Type a query and press Enter", scale=5, autofocus=True
            )
            count = gradio.Slider(1, max(50, top_k), value=top_k, step=1, label="Results", scale=2)
            button = gradio.Button("Search", variant="primary", scale=1, min_width=120, elem_classes="xl-go")
        with gradio.Row():
            columns = []
            for index in indexes:
                with gradio.Column(min_width=360):
                    columns.append(gradio.HTML(_opening(index)))
        for event in (query.submit, button.click, count.release):
            event(search, [query, count], columns, api_name=False)
    return page


def serve(
    indexes: Sequence[SearchIndex], *, top_k: int, language: str | None, host: str, port: int | None, block: bool = True
) -> Any:
    """Open the page on an address, without a share link, fonts or statistics from elsewhere.

    Returns:
        The page, which is served in the background if it does not block.

    Raises:
        OSError: If the port is taken.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when gradio is imported
    gradio = import_optional("gradio", extra="app", needed_for="the web page (--serve)")
    page = build_page(indexes, top_k=top_k, language=language)
    theme = gradio.themes.Soft(font=["system-ui", "sans-serif"], font_mono=["monospace"])
    page.launch(
        server_name=host,
        server_port=port,
        share=False,
        theme=theme,
        css=_STYLE,
        quiet=True,
        footer_links=[],
        prevent_thread_lock=True,
    )
    print(f"open {page.local_url} in a browser; Ctrl+C ends", flush=True)
    if block:
        page.block_thread()
    return page


def _note(index: SearchIndex) -> str:
    return f"model {index.about['model']}, {len(index.entries):,} texts"


def _opening(index: SearchIndex) -> str:
    languages = ", ".join(map(language_name, index.about["languages"]))
    return (
        f'<div class="xl-head">{escape(index.folder)}</div>'
        f'<div class="xl-note">{escape(_note(index))} in {escape(languages)}</div>'
    )
