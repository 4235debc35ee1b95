"""What a pre-training corpus costs before the first step: the time per gigabyte, and the memory.

    python -m benchmarks.reading --gigabytes 10 --output runs/reading.json

A file of generated documents is written beside the results and deleted at the end: in the format of CCNet
(`raw_content`), which is split into sentences, as lists of sentences (`sentences`), or in that of CC-100 (text in
`.xz`). It repeats a block of about ten megabytes, in six languages. A fresh process reads it by `load_documents`. Two
more take up the table that is then in the cache, as `train_ccp.py` and `train_msm.py` do: they make the batch samplers,
draw batches, and look up the texts of some.

Memory is resident memory, with that of the libraries. Its anonymous part is what a process must have; the rest are
pages of files that are mapped, which the system takes back when it needs them.
"""

from __future__ import annotations

import gzip
import json
import lzma
import multiprocessing
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from benchmarks.measuring import Stages
from st_xlret.files import write_json_atomically
from st_xlret.options import option, parse
from training_scripts.demo.corpus import TOY_LANGUAGES
from training_scripts.demo.corpus.generate import generate_documents

FILES = {
    "ccnet": "ccnet.json",
    "ccnet-gz": "ccnet.json.gz",
    "sentences": "documents.jsonl",
    "sentences-gz": "documents.jsonl.gz",
    "cc100": "en.txt.xz",
}

_LOOKED_UP = 100
"""Batches whose texts are looked up."""


@dataclass
class ReadingArguments:
    """How much is read."""

    output: str = option("runs/reading.json", "JSON file of the figures.")
    gigabytes: float = option(10.0, "Size of the text, before it is compressed.", above=0)
    format: str = option("ccnet", "Format of the file.", choices=list(FILES))
    batches: int = option(1_000, "Batches that are drawn, of 32 windows (CCP) and of 16 documents (MSM).", minimum=1)
    folder: str | None = option(None, "Folder for the file and the cache, thrice as large as it. By default a new one.")


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Generate, read and measure."""
    (options,) = parse([ReadingArguments], arguments, description=__doc__)
    folder = Path(options.folder or tempfile.mkdtemp(prefix="reading-"))
    folder.mkdir(parents=True, exist_ok=True)
    file, cache = folder / FILES[options.format], folder / "cache"
    stages: dict[str, Any] = {}
    try:
        size = write_documents(file, int(options.gigabytes * 1e9), options.format)
        stored = file.stat().st_size
        for part, arguments_ in ((read, ()), (draw_ccp, (options.batches,)), (draw_msm, (options.batches,))):
            with multiprocessing.get_context("spawn").Pool(1) as process:
                stages |= process.apply(part, (str(file), str(cache), *arguments_))
        table = sum(part.stat().st_size for part in cache.glob("*.arrow"))
    finally:
        file.unlink(missing_ok=True)
        shutil.rmtree(cache, ignore_errors=True)
    gigabytes, reading = size / 1e9, stages["read"]
    results = {
        "format": options.format,
        "gigabytes": gigabytes,
        "file_bytes": stored,
        "table_bytes": table,
        "sentences": reading["sentences"],
        "seconds_per_gigabyte": reading["seconds"] / gigabytes,
        "processor_seconds_per_gigabyte": reading["processor_seconds"] / gigabytes,
        "stages": stages,
    }
    write_json_atomically(options.output, results)
    print(json.dumps(results, indent=1))
    return results


def write_documents(file: Path, size: int, kind: str) -> int:
    """Write documents until the text has a size in bytes; returns it."""
    block = "".join(_documents(kind)).encode()
    if kind == "cc100":
        stored = lzma.compress(block, preset=0)
    else:
        stored = gzip.compress(block, compresslevel=6) if kind.endswith("-gz") else block
    written = 0
    with open(file, "wb") as stream, tqdm(total=size, desc="Writing", unit="B", unit_scale=True) as bar:
        while written < size:
            # Compressed parts after one another are a file of their texts after one another.
            stream.write(stored)
            written += len(block)
            bar.update(len(block))
    return written


def _documents(kind: str) -> Iterator[str]:
    for language in ("en",) if kind == "cc100" else TOY_LANGUAGES:
        for document in generate_documents(language, 2_000):
            sentences = document["sentences"]
            join = "" if language == "zh" else " "
            text = "\n".join(join.join(sentences[i : i + 4]) for i in range(0, len(sentences), 4))
            record = {"url": "https://example.org", "title": document["title"], "language": language}
            # The generated sentences are short: two of them are about as long as one of an encyclopaedia.
            longer = [join.join(sentences[i : i + 2]) for i in range(0, len(sentences), 2)]
            record |= {"sentences": longer} if kind.startswith("sentences") else {"raw_content": text}
            yield f"{text}\n\n" if kind == "cc100" else json.dumps(record, ensure_ascii=False) + "\n"


def read(file: str, cache: str) -> dict[str, Any]:
    """Read a file in this process, and say what it cost."""
    from st_xlret.data import load_documents

    load_documents([{"language": "en", "text": "A. B."}], cache_dir=cache, show_progress=False)  # loads libraries
    stages = Stages()
    with stages("read") as figures:
        figures["sentences"] = len(load_documents(file, cache_dir=cache))
    return stages.figures


def draw_ccp(file: str, cache: str, batches: int) -> dict[str, Any]:
    """Draw batches of windows and of sentences with masked words, and texts for a tokenizer, as `train_ccp.py` does."""
    from st_xlret.data import CrossLingualBatches

    columns = {"ccp": ["sentence", "language", "document"], "mlm": ["sentence", "language"]}
    return _draw("ccp", file, cache, columns, CrossLingualBatches(), 32, batches)


def draw_msm(file: str, cache: str, batches: int) -> dict[str, Any]:
    """Draw batches of blocks and of sentences with masked words, as `train_msm.py` does."""
    from st_xlret.data import BlockBatches

    columns = {"msm": ["sentence", "language", "document", "position"], "mlm": ["sentence", "language"]}
    return _draw("msm", file, cache, columns, BlockBatches(), 16, batches)


def _draw(
    name: str, file: str, cache: str, columns: dict[str, list[str]], samplers: Any, size: int, batches: int
) -> dict[str, Any]:
    from torch.utils.data import ConcatDataset

    from st_xlret.data import InterleavedBatches, load_documents
    from st_xlret.training.encoders import TOKENIZER_CHARACTERS, balanced_texts

    load_documents([{"language": "en", "text": "A. B."}], cache_dir=cache, show_progress=False)
    stages = Stages()
    with stages(f"{name}: open the table"):
        documents = load_documents(file, cache_dir=cache)
        parts = [documents.select_columns(chosen) for chosen in columns.values()]
    with stages(f"{name}: list the languages"):
        documents.unique("language")
    if name == "ccp":
        with stages("ccp: texts for a tokenizer"):
            sum(1 for _ in balanced_texts([(documents, "sentence", "language")], TOKENIZER_CHARACTERS))
    with stages(f"{name}: make the samplers"):
        made = [samplers(part, size) for part in parts]
    with stages(f"{name}: draw {batches} batches") as figures:
        together: Any = ConcatDataset(parts)
        drawn = list(islice(InterleavedBatches()(together, made, seed=0), batches))
        figures["rows"] = sum(map(len, drawn))
    with stages(f"{name}: look up the texts of {min(batches, _LOOKED_UP)}") as figures:
        rows = [row for batch in drawn[:_LOOKED_UP] for row in batch]
        figures |= {"rows": len(rows), "characters": sum(len(together[row]["sentence"]) for row in rows)}
    for each in stages.figures.values():
        grown = each["peak_anonymous_bytes"] - stages.anonymous_before
        each["anonymous_bytes_per_sentence"] = grown / len(documents)
    return stages.figures


if __name__ == "__main__":
    main()
