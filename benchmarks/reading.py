"""What it costs to read a pre-training corpus: seconds and processor seconds per gigabyte, and the most memory in use.

    python -m benchmarks.reading --gigabytes 10 --output runs/reading.json

A file of generated documents is written beside the results, in the format of CCNet (`raw_content`) or CC-100 (text in
`.xz`), and deleted at the end. It repeats a block of about ten megabytes, in six languages. A fresh process reads it by
`load_documents` and then draws a batch of windows from it, as `train_ccp.py` does. Memory is the resident memory of
that process, with its libraries.
"""

from __future__ import annotations

import json
import lzma
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from benchmarks.measuring import CLEAR_REFS, resident
from st_xlret.files import write_json_atomically
from st_xlret.options import option, parse
from training_scripts.demo.corpus import TOY_LANGUAGES
from training_scripts.demo.corpus.generate import generate_documents

FILES = {"ccnet": "ccnet.json", "cc100": "en.txt.xz"}


@dataclass
class ReadingArguments:
    """How much is read."""

    output: str = option("runs/reading.json", "JSON file of the figures.")
    gigabytes: float = option(10.0, "Size of the text, before it is compressed.", above=0)
    format: str = option("ccnet", "Format of the file.", choices=list(FILES))
    folder: str | None = option(None, "Folder for the file and the cache, twice as large as it. By default a new one.")


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Generate, read and measure."""
    (options,) = parse([ReadingArguments], arguments, description=__doc__)
    folder = Path(options.folder or tempfile.mkdtemp(prefix="reading-"))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILES[options.format]
    try:
        size = write_documents(file, int(options.gigabytes * 1e9), options.format)
        with multiprocessing.get_context("spawn").Pool(1) as process:
            figures = process.apply(read, (str(file), str(folder / "cache")))
    finally:
        file.unlink(missing_ok=True)
        shutil.rmtree(folder / "cache", ignore_errors=True)
    gigabytes = size / 1e9
    results = {
        "format": options.format,
        "gigabytes": gigabytes,
        **figures,
        "seconds_per_gigabyte": figures["seconds"] / gigabytes,
        "processor_seconds_per_gigabyte": figures["processor_seconds"] / gigabytes,
    }
    write_json_atomically(options.output, results)
    print(json.dumps(results, indent=1))
    return results


def write_documents(file: Path, size: int, kind: str) -> int:
    """Write documents until the text has a size in bytes; returns it."""
    block = "".join(_documents(kind)).encode()
    opened: Any = lzma.open(file, "wb", preset=0) if kind == "cc100" else open(file, "wb")  # noqa: SIM115
    written = 0
    with opened as stream, tqdm(total=size, desc="Writing", unit="B", unit_scale=True) as bar:
        while written < size:
            stream.write(block)
            written += len(block)
            bar.update(len(block))
    return written


def _documents(kind: str) -> Iterator[str]:
    for language in ("en",) if kind == "cc100" else TOY_LANGUAGES:
        for document in generate_documents(language, 2_000):
            sentences = document["sentences"]
            join = "" if language == "zh" else " "
            text = "\n".join(join.join(sentences[i : i + 4]) for i in range(0, len(sentences), 4))
            record = {"url": "https://example.org", "title": document["title"], "raw_content": text}
            about = {"language": language, "language_score": 0.98, "bucket": "head"}
            yield f"{text}\n\n" if kind == "cc100" else json.dumps({**record, **about}, ensure_ascii=False) + "\n"


def read(file: str, cache: str) -> dict[str, Any]:
    """Read a file in this process, draw a batch of windows from it, and say what both cost."""
    from st_xlret.data import WindowBatchSampler, load_documents

    load_documents([{"language": "en", "text": "A. B."}], cache_dir=cache, show_progress=False)  # loads libraries
    CLEAR_REFS.write_text("5")  # resets the peak to what is resident now
    before, started, processor = resident("VmRSS"), time.perf_counter(), time.process_time()
    dataset = load_documents(file, cache_dir=cache)
    figures: dict[str, Any] = {
        "sentences": len(dataset),
        "seconds": time.perf_counter() - started,
        "processor_seconds": time.process_time() - processor,
        "bytes_before": before,
        "peak_bytes": resident("VmHWM"),
    }
    processor = time.process_time()
    next(iter(WindowBatchSampler(dataset, 256)))
    figures["sampler_processor_seconds"] = time.process_time() - processor
    figures["sampler_peak_bytes"] = resident("VmHWM")
    return figures


if __name__ == "__main__":
    main()
