r"""Search an index that `st-xlret index` has built, by a query in any language.

    st-xlret search runs/index --query "Where do storks spend the winter?"

Without --query, queries are read from the terminal, one a line. A result has a score, a language and its text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from st_xlret.calibration import encode
from st_xlret.commands.index import INDEX_FILE, TEXTS_FILE, VECTORS_FILE, is_index
from st_xlret.hub.loading import load_model
from st_xlret.options import name_leading_words, option, parse
from st_xlret.search import top_k


@dataclass
class Arguments:
    """What to search for, and where."""

    index: str = option(None, "Folder of the index.")
    query: list[str] = option([], "Queries, each in quotes. By default they are read from the terminal.")
    language: str | None = option(None, "Language of the queries, for a model with a map per language.")
    top_k: int = option(10, "Results for a query.")
    json: bool = option(False, "Print JSON lines: {query, results: [{score, language, text}]}.")
    model: str | None = option(None, "The encoder, where it is not where it was when the index was built.")
    device: str | None = option(None, "cpu, cuda, cuda:1, mps. By default the best there is.")

    def __post_init__(self) -> None:
        if not self.index:
            raise ValueError('--index is missing: st-xlret search FOLDER --query "..."')
        if self.top_k < 1:
            raise ValueError(f"--top_k must be at least 1, got {self.top_k}")


class Index:
    """An index and its model.

    Args:
        folder: What `st-xlret index` has written.
        model: The encoder, if it is elsewhere now.
        device: Where it runs.

    Raises:
        ValueError: If the folder is no index, or the model is another one than it was built with.
    """

    def __init__(self, folder: str, model: str | None = None, device: str | None = None) -> None:
        path = Path(folder)
        if not is_index(path):
            raise ValueError(
                f"{folder} is no index: build one with st-xlret index DOCUMENTS --model MODEL --output DIR"
            )
        self.about: dict[str, Any] = json.loads((path / INDEX_FILE).read_text(encoding="utf-8"))
        with open(path / TEXTS_FILE, encoding="utf-8") as file:
            self.entries = [json.loads(line) for line in file]
        self.vectors = np.load(path / VECTORS_FILE, mmap_mode="r", allow_pickle=False)
        self.model = load_model(model or self.about["model"], device)
        if len(self.entries) != len(self.vectors):
            raise ValueError(f"{folder}: {len(self.entries)} texts and {len(self.vectors)} vectors; build it again")
        if self.model.get_embedding_dimension() not in (None, self.vectors.shape[1]):
            raise ValueError(
                f"{folder} was built with {self.about['model']} ({self.vectors.shape[1]} dimensions), the model given "
                f"has {self.model.get_embedding_dimension()}"
            )

    def search(self, queries: Sequence[str], k: int = 10, *, language: str | None = None) -> list[list[dict[str, Any]]]:
        """The best texts for each query, as {"score", "language", "text"}."""
        how: dict[str, Any] = {"normalize_embeddings": True, "show_progress_bar": False}
        asked = encode(self.model, list(queries), language, role="query", **how)
        scores, rows = top_k(asked, self.vectors, min(k, len(self.entries)))
        return [
            [{"score": round(score, 4), **self.entries[row]} for score, row in zip(*found, strict=True)]
            for found in zip(scores.tolist(), rows.tolist(), strict=True)
        ]


def main(arguments: Sequence[str], *, prog: str = "st-xlret search") -> None:
    """Run the command `search`."""
    given = name_leading_words(arguments, "index")
    (options,) = parse([Arguments], given, description=__doc__, prog=prog)
    opened = Index(options.index, options.model, options.device)
    for query in options.query or _asked():
        (results,) = opened.search([query], options.top_k, language=options.language)
        if options.json:
            print(json.dumps({"query": query, "results": results}, ensure_ascii=False))
        else:
            print(f"\n{query}")
            for result in results:
                print(f"  {result['score']:.3f}  {result['language']:<3}  {result['text']}")
        sys.stdout.flush()


def _asked() -> Iterable[str]:
    typed = sys.stdin.isatty()
    if typed:
        print("query (an empty line ends):", flush=True)
    for line in sys.stdin:
        if line.strip():
            yield line.strip()
        elif typed:
            return
