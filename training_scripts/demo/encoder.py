"""An encoder that people use, before and after calibration, on real text: minutes on two CPU cores, no labels.

    make demo MODEL=intfloat/multilingual-e5-small
    python -m training_scripts.demo.encoder --model intfloat/multilingual-e5-small --output runs/demo-encoder

Sentences of TICO-19 in 11 languages, which ship with the demo, are one pool to search. Each question is a sentence in
one language, and the right answers are its translations into the ten others; the question itself is not in the pool.
The demo runs the commands of the package, prints them, and shows how much the encoder prefers the question's language,
what calibration changes, and some searches before and after. It writes OUTPUT/model (for plain Sentence Transformers),
OUTPUT/results.json, and heat maps of the languages of questions and results.
"""

from __future__ import annotations

import json
import logging
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from st_xlret.evaluation import markdown_table
from st_xlret.files import atomic_directory, check_output_directory, write_json_atomically
from st_xlret.options import option, parse
from st_xlret.training.script import run_script

SENTENCES = Path(__file__).parent / "tico19" / "sentences.tsv"
EXAMPLES = {
    "en": "How does the virus spread from one person to another?",
    "ru": "Какие симптомы бывают у больных?",
    "sw": "Je, watu wanapaswa kukaa nyumbani?",
}

logger = logging.getLogger("demo")


@dataclass
class Arguments:
    """What to run."""

    model: str = field(metadata={"help": "The encoder: a Hub name or a folder."})
    output: str = option("runs/demo-encoder", "Folder for the model, the results and the plots. It is replaced.")
    sentences: int = option(200, "Sentences of each language in the pool, at most 500.", minimum=20, maximum=500)


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    """Report, calibrate, measure and search; returns the content of results.json."""
    (arguments,) = parse([Arguments], given, description=__doc__)
    output, started = Path(arguments.output), time.perf_counter()
    check_output_directory(output / "model", overwrite=True)
    pool = write_pool(read_sentences(arguments.sentences), output / "pool")

    run("report", "--model", arguments.model, "--documents", pool, "--output", output / "before.json")
    run("calibrate", "--model", arguments.model, "--corpus", pool, "--output", output / "model", "--overwrite")
    run("report", "--model", output / "model", "--documents", pool, "--output", output / "after.json")
    models = {"before": arguments.model, "after": str(output / "model")}
    scores: dict[str, dict[str, float]] = {}
    for name, model in models.items():
        measured = output / f"search-{name}.json"
        test: list[str | Path] = ["--benchmark", "lareqa", "--data", pool, "--output", measured]
        # What it prints compares with figures of XQuAD-R, which this is not.
        run("evaluate", "--model", model, *test, "--quiet", "--precision", "auto", silent=True)
        run("index", pool / "corpus.jsonl", "--model", model, "--output", output / f"index-{name}", "--overwrite")
        scores[name] = json.loads(measured.read_text())["average"]
    for text in EXAMPLES.values():
        for name in models:
            print(f"\n{name}:", flush=True)
            run("search", output / f"index-{name}", "--query", text, "--top-k", "5")

    results = {"seconds": round(time.perf_counter() - started, 1), "model": arguments.model, "scores": scores}
    write_json_atomically(output / "results.json", results)
    print(f"\nOne pool of {arguments.sentences} sentences in 11 languages:\n\n{table_of(scores)}")
    print(f"{results['seconds']:.0f} seconds. Heat maps: {output}/before.png, {output}/after.png")
    print(f'The calibrated model needs no language: SentenceTransformer("{output / "model"}")')
    return results


def read_sentences(count: int) -> list[dict[str, str]]:
    """The first sentences of the sample, each by language."""
    header, *lines = SENTENCES.read_text(encoding="utf-8").splitlines()
    languages = header.split("\t")
    return [dict(zip(languages, line.split("\t"), strict=True)) for line in lines[:count]]


def write_pool(sentences: list[dict[str, str]], folder: Path) -> Path:
    """Write the pool in BEIR's layout: each sentence asks in one language, and its translations are the answers."""
    corpus, queries, judgements = [], [], ["query-id\tcorpus-id\tscore"]
    for number, row in enumerate(sentences):
        languages = list(row)
        asked = languages[number % len(languages)]
        query = f"{asked}-{number}"
        queries.append({"_id": query, "text": row[asked], "metadata": {"language": asked}})
        for language in languages:
            if language != asked:
                name = f"{language}-{number}"
                corpus.append(
                    {"_id": name, "text": row[language], "language": language, "metadata": {"language": language}}
                )
                judgements.append(f"{query}\t{name}\t1")
    with atomic_directory(folder, overwrite=True) as temporary:
        (temporary / "qrels").mkdir()
        (temporary / "qrels" / "test.tsv").write_text("\n".join(judgements) + "\n", encoding="utf-8")
        for name, rows in (("corpus", corpus), ("queries", queries)):
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (temporary / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


def run(*words: str | Path, silent: bool = False) -> None:
    """Run a command of the package, and show it; if `silent`, without what it prints.

    Raises:
        SystemExit: If it fails; it has said why.
    """
    command = [str(word) for word in words]
    print(f"\n$ st-xlret {shlex.join(command)}", flush=True)
    output = subprocess.DEVNULL if silent else None
    code = subprocess.run([sys.executable, "-m", "st_xlret", *command], stdout=output).returncode
    if code:
        raise SystemExit(f"st-xlret {command[0]} failed with exit code {code}")


def table_of(scores: dict[str, dict[str, float]]) -> str:
    """The scores before and after, in percent."""
    columns = {"map_at_20": "mAP@20", "recall_at_100": "Recall@100", "language_preference": "language preference"}
    rows = [
        [f"{name} calibration", *(f"{100 * found[metric]:.1f}" for metric in columns)] for name, found in scores.items()
    ]
    return markdown_table(["", *columns.values()], rows)


if __name__ == "__main__":
    run_script(main)
