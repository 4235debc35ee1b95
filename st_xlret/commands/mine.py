r"""Mine parallel sentences from two collections of texts by margin (Artetxe and Schwenk, 2019).

    st-xlret mine english.txt french.txt.gz --model intfloat/multilingual-e5-small --output pairs.tsv

A line of the output is score, source and target, separated by tabs, best first; each text is in one pair at most. The
ratio margin divides the cosine of a pair by the mean cosine of both texts with their nearest neighbours: 1 is a pair
that is as similar as any other, and good pairs are above about 1.05. Collections are files with lines of text, tables
(.tsv, .csv), JSON lines, documents or Parquet files, folders of them, or Hugging Face data sets
(NAME[:CONFIG[:SPLIT]][=LANGUAGE]).
Texts and embeddings are kept on the disk while the command runs. Interrupted? The same command continues where it
stopped. A file with the languages in its name, such as mined.en-fr.tsv, can be trained on as it is (--pairs).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from st_xlret.commands import working_folder
from st_xlret.files import atomic_file, check_output_file
from st_xlret.options import name_leading_words, option, parse

if TYPE_CHECKING:
    from datasets import Dataset

    from st_xlret.search import MinedPairs

_SHARD = 4_096  # texts that an interrupted run has to encode again at most
_PAIRS_AT_A_TIME = 10_000
_READ_AT_A_TIME = 1_000
_LONG_SEARCH = 10**12  # comparisons; a processor core does about 10^8 in a second


@dataclass
class Arguments:
    """What to mine, by which model."""

    source: str = option(None, "Texts in one language: a file or a data set.")
    target: str = option(None, "Texts in the other language.")
    model: str = option(None, "The encoder: a folder or a name on the Hub.")
    output: str = option(None, "File of the pairs: .tsv (score, source, target), or .jsonl.")
    source_column: str | None = option(
        None,
        "Column of a table (its number from 1, or its name), or field of JSON lines or of a data set.",
    )
    target_column: str | None = option(None, "The same for the target.")
    source_language: str | None = option(None, "Language of the source, for a model with a map per language.")
    target_language: str | None = option(None, "The same for the target.")
    margin: str = option(
        "ratio",
        "How the cosine is set off against the neighbours'.",
        choices=["ratio", "distance", "absolute", "csls"],
    )
    k: int = option(4, "Nearest neighbours in each direction.")
    threshold: float | None = option(None, "Lowest score of a pair. By default all pairs are written.")
    approximate: bool = option(
        False,
        "Search most of the nearest neighbours by a faiss index: for more than about a million texts a side.",
    )
    embedding_cache: str | None = option(
        None,
        "Folder that keeps texts and embeddings for later runs. By default they are removed at the end.",
    )
    prompt_name: str | None = option(None, "Prompt of the model for both sides. By default the model's default prompt.")
    batch_size: int = option(64, "Size of a forward pass, in texts of 64 tokens.")
    device: str | None = option(None, "cpu, cuda, cuda:1, mps. By default the best there is.")

    def __post_init__(self) -> None:
        for name in ("source", "target", "model", "output"):
            if not getattr(self, name):
                raise ValueError(f"--{name} is missing: st-xlret mine SOURCE TARGET --model MODEL --output FILE")
        if not self.output.endswith((".tsv", ".jsonl")):
            raise ValueError(f"--output {self.output}: name a .tsv or a .jsonl file")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise ValueError(f"--threshold must be a number, got {self.threshold}")


def main(arguments: Sequence[str], *, prog: str = "st-xlret mine") -> None:
    """Run the command `mine`."""
    given = name_leading_words(arguments, "source", "target")
    (options,) = parse([Arguments], given, description=__doc__, prog=prog)
    from st_xlret.data.documents import find_documents

    output = check_output_file(options.output)
    for source, column in ((options.source, options.source_column), (options.target, options.target_column)):
        find_documents(source, language="und", column=column)
        if output.exists() and Path(source).expanduser().exists() and output.samefile(Path(source).expanduser()):
            raise ValueError(f"--output {options.output} is what is mined: name another file, or its texts are lost")
    work = Path(options.embedding_cache or output.with_name(f".{output.name}.embeddings"))
    with working_folder(work, keep=options.embedding_cache is not None):
        _mine(options, output, work)


def _mine(options: Arguments, output: Path, work: Path) -> None:
    from st_xlret.evaluation.embedding_cache import EmbeddingCache
    from st_xlret.hub.loading import load_model
    from st_xlret.search import mine_pairs

    model = load_model(options.model, options.device)
    if options.prompt_name is not None and options.prompt_name not in model.prompts:
        known = ", ".join(model.prompts) or "none"
        raise ValueError(f"--prompt_name {options.prompt_name}: the model has no such prompt; it has: {known}")
    sides = []
    for source, column, language in (
        (options.source, options.source_column, options.source_language),
        (options.target, options.target_column, options.target_language),
    ):
        texts = TextTable.of(_texts(source, column), work / "texts", _key_of(source, column), language or "")
        if not len(texts):
            raise ValueError(f"{source} holds no text")
        sides.append(texts)
    print(f"{len(sides[0])} distinct source texts, {len(sides[1])} target texts", flush=True)
    cache = EmbeddingCache(work, shard_size=_SHARD)
    how: dict[str, Any] = {"batch_size": options.batch_size, "prompt_name": options.prompt_name}
    embeddings = [cache.encode(model, texts, role=None, **how) for texts in sides]
    if not options.approximate and len(sides[0]) * len(sides[1]) > _LONG_SEARCH:
        print("Comparing all texts with each other takes long: see the time left, and --approximate.", flush=True)
    found = mine_pairs(
        *embeddings,
        k=options.k,
        margin=options.margin,  # type: ignore[arg-type]
        threshold=options.threshold,
        approximate=options.approximate,
        device="cuda" if model.device.type == "cuda" else "cpu",
        show_progress_bar=True,
    )
    with atomic_file(output) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(_lines(found, *sides, as_table=output.suffix == ".tsv"))
    print(f"{len(found.scores)} pairs in {options.output}")


class TextTable:
    """The distinct texts of a source in a memory-mapped table, in the order of their first occurrence.

    Eight bytes for each text are in memory, and while the table is made a few times as much.

    Args:
        dataset: Columns `text` and `hash`.
        language: Language of the texts, if it is known.
    """

    def __init__(self, dataset: Dataset, language: str = "") -> None:
        self.language = language
        self.texts = dataset.select_columns(["text"])
        import numpy as np

        _, first = np.unique(dataset.data.column("hash").to_numpy(), return_index=True)
        self.rows = np.sort(first)

    @classmethod
    def of(cls, texts: Iterable[str], folder: Path, key: str | None = None, language: str = "") -> TextTable:
        """Write texts as they come, or use what is there under a key.

        Args:
            texts: The texts. They are only read if there is no table under the key.
            folder: Where the table is kept.
            key: Identifies what the texts are from; see `key_of`. None: the texts are read in any case.
            language: Language of the texts.
        """
        from st_xlret.data.cache import cached_dataset

        rows = ((text, _hash(text)) for text in texts)
        columns = {"text": "string", "hash": "int64"}
        return cls(cached_dataset("texts", columns, rows, key=key, cache_dir=folder), language)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """(text, language) of every text, as `EmbeddingCache` takes them."""
        for start in range(0, len(self), _READ_AT_A_TIME):
            found = self[range(start, min(start + _READ_AT_A_TIME, len(self)))]
            yield from ((text, self.language) for text in found)

    def __getitem__(self, numbers: Sequence[int]) -> list[str]:
        """Some of the texts."""
        return list(self.texts[self.rows[list(numbers)]]["text"])


def _texts(source: str, column: str | None) -> Iterator[str]:
    """The texts of a source as they stand, whatever their language; what was cut of them is said."""
    from st_xlret.data import BadLines, read_documents

    bad_lines = BadLines()
    for document in read_documents(source, language="und", unit="text", column=column, bad_lines=bad_lines):
        yield from filter(None, document.sentences)
    print("".join(f"{line}\n" for line in bad_lines.losses()), end="")


def _key_of(source: str, *options: str | None) -> str | None:
    """What identifies the texts of a file as it is now; None for a folder or a data set, whose changes are not seen."""
    path = Path(source).expanduser()
    if not path.is_file():
        return None
    state = path.stat()
    identity = [os.fspath(path.resolve()), state.st_size, state.st_mtime_ns, *options]
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:32]


def _hash(text: str) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _lines(found: MinedPairs, source: TextTable, target: TextTable, *, as_table: bool) -> Iterator[str]:
    """The pairs as lines of a table or as JSON lines."""
    for part in zip(*(column.split(_PAIRS_AT_A_TIME) for column in found), strict=True):
        if not len(part[0]):
            continue
        texts = source[part[1].tolist()], target[part[2].tolist()]
        for score, one, other in zip(part[0].tolist(), *texts, strict=True):
            if as_table:
                yield f"{score:.6f}\t{one}\t{other}\n"
            else:
                yield json.dumps({"score": score, "source": one, "target": other}, ensure_ascii=False) + "\n"
