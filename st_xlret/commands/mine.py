r"""Mine parallel sentences from two files of texts by margin (Artetxe and Schwenk, 2019).

    st-xlret mine english.txt french.txt.gz --model intfloat/multilingual-e5-small --output pairs.tsv

A line of the output is score, source and target, separated by tabs, best first; each text is in one pair at most. The
ratio margin divides the cosine of a pair by the mean cosine of both texts with their nearest neighbours: 1 is a pair
that is as similar as any other, and good pairs are above about 1.05. Files are lines of text, tables (.tsv, .csv) or
JSON lines, gzipped or not. With --embedding_cache, an interrupted run continues where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from st_xlret.commands.texts import read_texts
from st_xlret.evaluation.cache import EmbeddingCache
from st_xlret.files import check_output_file, write_text_atomically
from st_xlret.hub.loading import load_model
from st_xlret.options import name_leading_words, option, parse
from st_xlret.search import mine_bitext


@dataclass
class Arguments:
    """What to mine, by which model."""

    source: str = option(None, "Texts in one language.")
    target: str = option(None, "Texts in the other language.")
    model: str = option(None, "The encoder: a folder or a name on the Hub.")
    output: str = option(None, "File of the pairs: .tsv (score, source, target), or .jsonl.")
    source_column: str | None = option(
        None, "Column of a table (its number from 1, or its name), or field of JSON lines."
    )
    target_column: str | None = option(None, "The same for the target.")
    margin: str = option(
        "ratio", "How the cosine is set off against the neighbours'.", choices=["ratio", "distance", "absolute", "csls"]
    )
    k: int = option(4, "Nearest neighbours in each direction.")
    threshold: float | None = option(None, "Lowest score of a pair. By default all pairs are written.")
    embedding_cache: str | None = option(None, "Folder that keeps the embeddings, so that a second run is quick.")
    prompt_name: str | None = option(None, "Prompt of the model for both sides. By default the model's default prompt.")
    batch_size: int = option(64, "Texts in a forward pass.")
    device: str | None = option(None, "cpu, cuda, cuda:1, mps. By default the best there is.")

    def __post_init__(self) -> None:
        for name in ("source", "target", "model", "output"):
            if not getattr(self, name):
                raise ValueError(f"--{name} is missing: st-xlret mine SOURCE TARGET --model MODEL --output FILE")
        if not self.output.endswith((".tsv", ".jsonl")):
            raise ValueError(f"--output {self.output}: name a .tsv or a .jsonl file")


def main(arguments: Sequence[str], *, prog: str = "st-xlret mine") -> None:
    """Run the command `mine`."""
    given = name_leading_words(arguments, "source", "target")
    (options,) = parse([Arguments], given, description=__doc__, prog=prog)
    mine(options)


def mine(options: Arguments) -> list[tuple[float, str, str]]:
    """Mine pairs and write them.

    Returns:
        (score, source, target), best first.
    """
    check_output_file(options.output)
    sides = [
        read_texts(options.source, options.source_column),
        read_texts(options.target, options.target_column),
    ]
    model = load_model(options.model, options.device)
    print(f"{len(sides[0])} distinct source texts, {len(sides[1])} target texts")
    how: dict[str, Any] = {"batch_size": options.batch_size, "prompt_name": options.prompt_name}
    if options.embedding_cache:
        cache = EmbeddingCache(options.embedding_cache)
        source, target = (cache.encode(model, texts, method="encode", **how)[:] for texts in sides)
    else:
        source, target = (model.encode(texts, show_progress_bar=True, **how).astype(np.float16) for texts in sides)
    found = mine_bitext(
        source,
        target,
        k=options.k,
        margin=options.margin,  # type: ignore[arg-type]
        threshold=options.threshold,
        show_progress_bar=True,
    )
    pairs = [(score, sides[0][i], sides[1][j]) for score, i, j in found]
    write_pairs(pairs, options.output)
    print(f"{len(pairs)} pairs in {options.output}")
    return pairs


def write_pairs(pairs: list[tuple[float, str, str]], file: str) -> None:
    """Write scored pairs as a table or as JSON lines."""
    if Path(file).suffix == ".tsv":
        lines = (f"{score:.6f}\t{_cell(source)}\t{_cell(target)}" for score, source, target in pairs)
    else:
        lines = (
            json.dumps({"score": score, "source": source, "target": target}, ensure_ascii=False)
            for score, source, target in pairs
        )
    write_text_atomically(file, "".join(f"{line}\n" for line in lines))


def _cell(text: str) -> str:
    return " ".join(text.split())
