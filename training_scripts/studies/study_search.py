"""What makes the search of a multilingual encoder better: rows from the same checkpoint, with the same steps.

    python -m training_scripts.studies.study_search --model M --data ../shared/data --output runs/study-search

Every row starts from --model and takes --steps optimizer steps on batches of as many texts; tokens are counted and
shown. Rows with translations read the same ones, rows with questions the same questions, rows with documents the same
documents. Each model is measured on XQuAD-R: mAP@20 and language preference (the share of candidates in the question's
language among the best 20) in one pool of all languages, mAP@20 among the candidates of the question's own language,
and on Tatoeba; as it is, and calibrated on the pool without labels (`st-xlret calibrate`). With --paragraphs, the pool
is made of the sentences of some paragraphs of XQuAD-R, which is easier than the whole. Finished parts are kept: the
same command continues an interrupted study. The table is in OUTPUT/study.md, all figures in OUTPUT/study.json.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from st_xlret.data.reading.jsonl import read_jsonl
from st_xlret.evaluation import markdown_table
from st_xlret.files import atomic_directory, write_json_atomically, write_text_atomically
from st_xlret.options import option, parse
from training_scripts.studies.common import (
    DOCUMENTS,
    PAIRS,
    TATOEBA_LANGUAGES,
    folders_in,
    keep_command,
    run_all,
    run_logged,
    run_name,
)

SEARCH = "training_scripts.studies.train_search_ablation"
LANGUAGES = ["en", "ar", "de", "el", "es", "hi", "ru", "th", "tr", "vi", "zh"]
TABLE_1 = ["ar", "bg", "de", "el", "es", "fr", "hi", "ru", "sw", "th", "tr", "vi", "zh"]
# The program that trains a row, and its options; None for the checkpoint itself.
ROWS: dict[str, tuple[str, str] | None] = {
    "checkpoint": None,
    "distilled vectors (MSELoss)": (SEARCH, "--objective vectors --questions_ratio 0"),
    "InfoNCE on pairs": (SEARCH, "--objective pairs --questions_ratio 0"),
    "distilled similarities": (SEARCH, "--questions_ratio 0"),
    "English questions": (SEARCH, "--questions_ratio 1"),
    "similarities + questions": (SEARCH, "--questions_ratio 0.3"),
    "CCP (documents)": ("training_scripts.train_ccp", "--mlm_ratio 0 --pairs_ratio 0 --temperature 0.1"),
    "MSM (documents)": ("training_scripts.train_msm", "--mlm_ratio 0 --pairs_ratio 0"),
}
# Without tensorflow_docs and ebible, which would be most of the pairs of the languages that they have.
FEW_PAIRS = [name for name in PAIRS if not name.startswith("tensorflow")]


@dataclass
class Arguments:
    """What to run."""

    model: str = field(metadata={"help": "The checkpoint that all rows start from."})
    data: str = field(metadata={"help": "Folder of the real data: documents, pairs, squad_v1.1, xquad_r, tatoeba."})
    output: str = field(metadata={"help": "Folder for the runs and the table."})
    rows: list[str] = field(
        default_factory=lambda: list(ROWS),
        metadata={"help": "Rows to run, each in quotes.", "choices": list(ROWS), "metavar": "ROW"},
    )
    seeds: list[int] = field(default_factory=lambda: [0], metadata={"help": "Seeds of each row."})
    steps: int = option(100, "Optimizer steps of each row.", minimum=1)
    batch_size: int = option(128, "Texts in a batch.", minimum=2)
    learning_rate: float = option(1e-4, "Peak learning rate of rows with translations or questions.", above=0)
    documents_learning_rate: float = option(3e-5, "Peak learning rate of rows with documents alone.", above=0)
    keep_trained: float = option(
        0.7, "Rows of train_search.py: share of the way to the trained weights.", minimum=0, maximum=1
    )
    pairs_per_language: int = option(4500, "Translations of each language.", minimum=1)
    paragraphs: int | None = option(
        None, "Paragraphs of XQuAD-R to measure on, of 240; all by default.", minimum=2, maximum=240
    )
    no_tatoeba: bool = option(False, "Leave Tatoeba out.")
    table_only: bool = option(False, "Only tabulate finished runs.")
    further: str = option("", "Further options of the training programs.")


def main(given: Sequence[str] | None = None) -> None:
    """Run what is missing, and print the table."""
    given = list(sys.argv[1:] if given is None else given)
    (arguments,) = parse([Arguments], given, description=__doc__)
    output = Path(arguments.output)
    output.mkdir(parents=True, exist_ok=True)
    if not arguments.table_only:
        write_test_set(arguments)
        plan = [(row, seed) for row in arguments.rows for seed in (arguments.seeds if ROWS[row] else [0])]
        run_all(plan, partial(run_one, arguments), 1)
        keep_command(__file__, given, output)
    figures = {name: found for name in models(arguments) if (found := figures_of(output / name))}
    write_json_atomically(output / "study.json", figures)
    table = table_of(figures)
    write_text_atomically(output / "study.md", table)
    print(table)


def models(arguments: Arguments) -> list[str]:
    """Names of all models of the study, in the order of the rows."""
    return [run_name(row, seed) for row in arguments.rows for seed in (arguments.seeds if ROWS[row] else [0])]


def run_one(arguments: Arguments, row: str, seed: int) -> None:
    """Train and measure a row, in processes of its own."""
    folder = Path(arguments.output) / run_name(row, seed)
    trained = ROWS[row] is not None
    commands = []
    if trained and not (folder / "results.json").is_file():
        commands.append(training_command(arguments, row, seed, folder))
    model = folder / "model" if trained else Path(arguments.model)
    run_logged([*commands, *measuring_commands(arguments, model, folder)], folder, 1, append=True)
    print(f"{folder.name}: {figures_of(folder)}", flush=True)


def training_command(arguments: Arguments, row: str, seed: int, folder: Path) -> list[str]:
    """The command that trains a row."""
    known = ROWS[row]
    assert known is not None
    program, options = known
    data, steps = Path(arguments.data), arguments.steps
    command = [sys.executable, "-m", program, "--model", arguments.model, *options.split()]
    if program == SEARCH:
        languages = ["en", *TATOEBA_LANGUAGES]
        command += ["--pairs", *folders_in(data, FEW_PAIRS), "--languages", *languages]
        command += ["--pairs_per_language", str(arguments.pairs_per_language), "--exclude", str(excluded(arguments))]
        # Never the dev part: it holds the English text of XQuAD-R.
        if not options.endswith("--questions_ratio 0"):
            command += ["--retrieval", str(data / "squad_v1.1/train")]
        command += ["--per_device_train_batch_size", str(arguments.batch_size)]
        command += ["--learning_rate", str(arguments.learning_rate), "--train_seq_length", "160"]
        command += ["--keep_trained", str(arguments.keep_trained)]
        command += ["--teacher_cache", str(Path(arguments.output) / "teacher")]
    else:
        command += ["--documents", *folders_in(data, DOCUMENTS), "--languages", *LANGUAGES, "--freeze_embeddings"]
        # A window of CCP has two texts, a block of MSM 16.
        size = max(1, arguments.batch_size // (2 if "ccp" in program else 16))
        command += ["--per_device_train_batch_size", str(size), "--train_seq_length", "160"]
        command += ["--learning_rate", str(arguments.documents_learning_rate)]
        command += [] if "ccp" in program else ["--block_sentences", "16"]
    command += ["--max_steps", str(steps), "--seed", str(seed), "--evaluation_pairs", "20", "--save_strategy", "no"]
    return [*command, "--overwrite", *arguments.further.split(), "--output_dir", str(folder)]


def measuring_commands(arguments: Arguments, model: Path, folder: Path) -> list[list[str]]:
    """The commands that measure a model, as it is and calibrated, of which no result exists yet."""
    program = [sys.executable, "-m", "st_xlret"]
    pool, precision = test_set(arguments), ["--precision", "auto"]
    commands = []
    if not (folder / "calibrated").is_dir():
        fit = ["calibrate", "--model", str(model), "--corpus", str(pool), "--output", str(folder / "calibrated")]
        commands.append([*program, *fit, *precision])
    for name, measured in (("raw", model), ("calibrated", folder / "calibrated")):
        tests = {"pool": ["--benchmark", "lareqa", "--data", str(pool)]}
        tests["own"] = [*tests["pool"], "--split", "test-same-language"]
        tatoeba = str(Path(arguments.data) / "tatoeba/v1")
        if not arguments.no_tatoeba:
            tests["tatoeba"] = ["--benchmark", "tatoeba", "--data", tatoeba, "--languages", *TATOEBA_LANGUAGES]
        for test, options in tests.items():
            file = folder / f"{name}-{test}.json"
            if not file.is_file():
                given = ["--model", str(measured), *options, "--output", str(file), *precision]
                commands.append([*program, "evaluate", *given, "--quiet"])
    return commands


def test_set(arguments: Arguments) -> Path:
    """The folder of the pool that rows are measured on."""
    whole = Path(arguments.data) / "xquad_r"
    return whole if arguments.paragraphs is None else Path(arguments.output) / f"xquad-{arguments.paragraphs}"


def excluded(arguments: Arguments) -> Path:
    """The file of the test sets' English sentences, which are not trained on."""
    return Path(arguments.output) / "test-sentences.txt"


def write_test_set(arguments: Arguments) -> None:
    """Write the English sentences of the test sets, and the smaller pool."""
    data = Path(arguments.data)
    whole = data / "xquad_r"
    corpus, queries = (list(read_jsonl(next(whole.glob(f"{name}.jsonl*")))) for name in ("corpus", "queries"))
    if not excluded(arguments).is_file():
        english = {" ".join(row["text"].split()) for _, row in (*corpus, *queries)}
        for file in sorted((data / "tatoeba/v1").glob("*.eng")):
            english |= {" ".join(line.split()) for line in file.read_text(encoding="utf-8").splitlines()}
        write_text_atomically(excluded(arguments), "\n".join(sorted(english)) + "\n")
    if arguments.paragraphs is None or test_set(arguments).is_dir():
        return
    # The id of a sentence is its language, its paragraph and its number.
    paragraph = {row["_id"]: row["_id"].split("-", 1)[1].rsplit("-", 1)[0] for _, row in corpus}
    kept = set(random.Random(5).sample(sorted(set(paragraph.values())), arguments.paragraphs))
    with atomic_directory(test_set(arguments)) as folder:
        (folder / "qrels").mkdir()
        asked: set[str] = set()
        for split in ("test", "test-same-language"):
            lines = _judgements(whole, split)
            chosen = [line for line in lines[1:] if paragraph[line.split("\t")[1]] in kept]
            asked |= {line.split("\t")[0] for line in chosen}
            (folder / "qrels" / f"{split}.tsv").write_text("\n".join([lines[0], *chosen]) + "\n", encoding="utf-8")
        for name, rows, wanted in (("corpus", corpus, None), ("queries", queries, asked)):
            texts = [
                row for _, row in rows if (paragraph[row["_id"]] in kept if wanted is None else row["_id"] in wanted)
            ]
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in texts)
            (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def figures_of(folder: Path) -> dict[str, Any]:
    """What is known of a model: its scores, as it is and calibrated, its steps and tokens."""
    found: dict[str, Any] = {}
    for kind in ("raw", "calibrated"):
        for test in ("pool", "own", "tatoeba"):
            if not (file := folder / f"{kind}-{test}.json").is_file():
                continue
            content = json.loads(file.read_text())
            if test == "tatoeba":
                scores = {code: score["accuracy"] for code, score in content["scores"].items()}
                found[f"{kind} Tatoeba 18"] = sum(scores.values()) / len(scores)
                found[f"{kind} Tatoeba 13"] = sum(scores[code] for code in TABLE_1) / len(TABLE_1)
            else:
                found[f"{kind} {test}"] = content["average"]["map_at_20"]
                if test == "pool":
                    found[f"{kind} preference"] = content["average"].get("language_preference")
    if (file := folder / "results.json").is_file():
        results = json.loads(file.read_text())
        found |= {name: results[name] for name in ("steps", "tokens", "seconds", "command") if name in results}
    return found


def table_of(figures: dict[str, dict[str, Any]]) -> str:
    """The study as a Markdown table, in percent."""
    columns = [f"{kind} {test}" for kind in ("raw", "calibrated") for test in ("pool", "preference", "own")]
    columns += ["raw Tatoeba 13", "calibrated Tatoeba 13"]
    rows = []
    for name, found in figures.items():
        scores = ["" if found.get(column) is None else f"{100 * found[column]:.1f}" for column in columns]
        rows.append([name, str(found.get("steps", 0)), f"{found.get('tokens', 0):,}", *scores])
    return markdown_table(["model", "steps", "tokens", *columns], rows)


def _judgements(folder: Path, split: str) -> list[str]:
    for file in (folder / "qrels" / f"{split}.tsv", folder / "qrels" / f"{split}.tsv.gz"):
        if file.is_file():
            content = file.read_bytes()
            return (gzip.decompress(content) if file.suffix == ".gz" else content).decode().splitlines()
    raise FileNotFoundError(f"{folder / 'qrels'} has no {split}.tsv")


if __name__ == "__main__":
    main()
