"""What makes the search of a multilingual encoder better: rows from the same checkpoint, with the same steps.

    python -m training_scripts.studies.study_search --model M --data ../shared/data --output runs/study-search

Every row starts from --model and takes --steps optimizer steps of --batch_size texts; tokens are counted and shown.
Rows with translations read the same ones, rows with questions the same questions, rows with documents the same
documents. Word embeddings are frozen in all of them. Each model is measured on XQuAD-R and Tatoeba, as it is and
calibrated, see measure_search.py. With --paragraphs, the pool is made of the sentences of some paragraphs of XQuAD-R,
which is easier than the whole. Finished parts are kept: the same command continues an interrupted study. The table is
in OUTPUT/study.md, with the mean and the spread of the seeds; all figures are in OUTPUT/study.json.
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

LANGUAGES = ["en", "ar", "de", "el", "es", "hi", "ru", "th", "tr", "vi", "zh"]
SEARCH, IR, MERGE = "train_search_ablation", "train_ir_ablation", "merge_models"
CCP, MSM, RIVAL = "train_ccp_ablation", "train_msm_ablation", "train_rival"
# The program that trains a row, and its options; None for the checkpoint itself. Merged rows are made of other rows of
# the same seed, with the share of each one's change of the weights.
ROWS: dict[str, tuple[str, str] | None] = {
    "checkpoint": None,
    "translations: MSELoss": (SEARCH, "--objective vectors --questions_ratio 0"),
    "translations: InfoNCE": (SEARCH, "--objective pairs --questions_ratio 0"),
    "translations: similarities": (SEARCH, "--questions_ratio 0"),
    "ML-CTL, CZ-NCE of sentences": ("train_ml_ctl", "--mode CZ-snt"),
    "ML-CTL, CZ-NCE with words": ("train_ml_ctl", "--mode ML-CTL-CZ"),
    "English questions": (SEARCH, "--questions_ratio 1"),
    "questions, similarities": (SEARCH, "--questions_ratio 0.3"),
    "questions, semantic loss": (IR, "--semantic_weight 1 --language_weight 0"),
    "questions, semantic and language loss": (IR, "--semantic_weight 1 --language_weight 0.001"),
    "questions, semantic and language loss 1": (IR, "--semantic_weight 1 --language_weight 1"),
    "questions, both losses, other languages": (
        IR,
        "--semantic_weight 1 --language_weight 1 --others_without_parallel --no_parallel ru sw th hi",
    ),
    "CCP": (CCP, ""),
    "CCP, usual BN": (CCP, "--normalization batch"),
    "CCP, no BN": (CCP, "--normalization none"),
    "CCP, no bank": (CCP, "--bank_size 0"),
    "CCP, temperature 0.02": (CCP, "--temperature 0.02"),
    "CCP, negatives of all languages": (CCP, "--cross_language_negatives --language_mixing 1"),
    "MSM": (MSM, ""),
    "MSM, no bias": (MSM, "--mu 0"),
    "MSM, no projection": (MSM, "--projection none"),
    "random spans (mContriever)": (RIVAL, "--objective contriever"),
    "ICT": (RIVAL, "--objective ict"),
    "0.3 of CCP": (MERGE, "CCP:0.3"),
    "0.5 of CCP": (MERGE, "CCP:0.5"),
    "0.5 of ICT": (MERGE, "ICT:0.5"),
    "0.7 of translations: similarities": (MERGE, "translations: similarities:0.7"),
    "0.7 of questions, similarities": (MERGE, "questions, similarities:0.7"),
    "0.7 of questions, similarities; 0.3 of CCP": (MERGE, "questions, similarities:0.7;CCP:0.3"),
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
        plan = [(row, seed) for row in arguments.rows for seed in seeds_of(arguments, row)]
        run_all(plan, partial(run_one, arguments), 1)
        keep_command(__file__, given, output)
    figures = {name: found for name in models(arguments) if (found := figures_of(output / name))}
    write_json_atomically(output / "study.json", figures)
    table = table_of(arguments, figures)
    write_text_atomically(output / "study.md", table)
    print(table)


def models(arguments: Arguments) -> list[str]:
    """Names of all models of the study, in the order of the rows."""
    return [run_name(row, seed) for row in arguments.rows for seed in seeds_of(arguments, row)]


def seeds_of(arguments: Arguments, row: str) -> list[int]:
    """The seeds of a row: the checkpoint, which is not trained, has one."""
    return arguments.seeds if ROWS[row] else [0]


def run_one(arguments: Arguments, row: str, seed: int) -> None:
    """Train and measure a row, in processes of its own."""
    folder = Path(arguments.output) / run_name(row, seed)
    trained = ROWS[row] is not None
    model = folder / "model" if trained else Path(arguments.model)
    commands = []
    if trained and not model.is_dir():
        commands.append(training_command(arguments, row, seed, folder))
    if not (folder / "measured.json").is_file():
        commands.append(measuring_command(arguments, model, folder))
    run_logged(commands, folder, 1, append=True)
    print(f"{folder.name}: {figures_of(folder)}", flush=True)


def training_command(arguments: Arguments, row: str, seed: int, folder: Path) -> list[str]:
    """The command that trains a row."""
    known = ROWS[row]
    assert known is not None
    program, options = known
    module = f"training_scripts.{'' if program == 'train_ml_ctl' else 'studies.'}{program}"
    command = [sys.executable, "-m", module, "--model", arguments.model]
    if program == MERGE:
        parts = [part.rsplit(":", 1) for part in options.split(";")]
        models = [f"{Path(arguments.output) / run_name(name.strip(), seed) / 'model'}:{share}" for name, share in parts]
        return [*command, "--add", *models, "--output", str(folder / "model"), "--overwrite"]
    command += [*options.split(), *data_options(arguments, program, options)]
    rate = arguments.learning_rate if program in (SEARCH, IR, "train_ml_ctl") else arguments.documents_learning_rate
    command += ["--learning_rate", str(rate), "--freeze_embeddings", "--adam_beta2", "0.98"]
    command += ["--max_steps", str(arguments.steps), "--seed", str(seed), "--save_strategy", "no", "--overwrite"]
    return [*command, *arguments.further.split(), "--output_dir", str(folder)]


def data_options(arguments: Arguments, program: str, options: str) -> list[str]:
    """The data that a row is trained on, and its batches, which have --batch_size texts in every row."""
    data, texts = Path(arguments.data), arguments.batch_size
    pairs = ["--pairs", *folders_in(data, FEW_PAIRS), "--languages", "en", *TATOEBA_LANGUAGES]
    pairs += ["--pairs_per_language", str(arguments.pairs_per_language), "--exclude", str(excluded(arguments))]
    # Never the dev part: it holds the English text of XQuAD-R.
    questions = ["--retrieval", str(data / "squad_v1.1/train")]
    documents = ["--documents", *folders_in(data, DOCUMENTS)]
    size = "--per_device_train_batch_size"
    if program == SEARCH:
        given = [*pairs, *([] if options.endswith("--questions_ratio 0") else questions), size, str(texts)]
        given += ["--keep_trained", "1", "--teacher_cache", str(Path(arguments.output) / "teacher")]
        return [*given, "--train_seq_length", "160", "--evaluation_pairs", "20"]
    if program == "train_ml_ctl":
        given = [*pairs, size, str(texts // 2), "--evaluation_pairs", "20"]
        words = sorted(map(str, (data / "dictionaries").glob("enwiktionary.*"))) if "ML-CTL" in options else []
        return [*given, "--dictionaries", *words, "--stop_words", "none"] if words else given
    if program == IR:
        given = [*pairs, *questions, "--positives", "sentence", "--evaluation_pairs", "20"]
        given += ["--max_seq_length", "160"]
        if options.endswith("--language_weight 0"):
            return [*given, size, str(texts // 4), "--pairs_batch_size", str(texts // 4)]
        # Questions with answers, pairs for one loss, and pairs and as many other sentences for the other one.
        given += [*documents, size, str(texts // 4), "--pairs_batch_size", str(texts // 10)]
        return [*given, "--others_batch_size", str(texts // 10)]
    # A window of CCP has two texts, a block of MSM 16; its rivals read as much text as MSM. Sentences of documents are
    # longer than translations: cut to 64 tokens, a batch has about as many tokens.
    blocks = [] if program == CCP else ["--block_sentences", "16"]
    given = [*documents, "--languages", *LANGUAGES, *blocks, "--train_seq_length", "64", "--mlm_ratio", "0"]
    return [*given, size, str(max(1, texts // (2 if program == CCP else 16)))]


def measuring_command(arguments: Arguments, model: Path, folder: Path) -> list[str]:
    """The command that measures a model."""
    command = [sys.executable, "-m", "training_scripts.studies.measure_search", "--model", str(model)]
    command += ["--pool", str(test_set(arguments)), "--output", str(folder / "measured.json")]
    return command if arguments.no_tatoeba else [*command, "--tatoeba", str(Path(arguments.data) / "tatoeba/v1")]


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
    if (file := folder / "measured.json").is_file():
        found |= json.loads(file.read_text())
        for kind in ("raw", "calibrated"):
            if scores := [score for name, score in found.items() if name.startswith(f"{kind} tatoeba ")]:
                found[f"{kind} Tatoeba"] = sum(scores) / len(scores)
    if (file := folder / "results.json").is_file():
        results = json.loads(file.read_text())
        found |= {name: results[name] for name in ("steps", "tokens", "seconds", "command") if name in results}
    return found


def table_of(arguments: Arguments, figures: dict[str, dict[str, Any]]) -> str:
    """The study as a Markdown table, in percent: the mean of the seeds, and half of their range."""
    columns = ["raw pool", "raw preference", "raw own", "raw Tatoeba", "calibrated pool", "calibrated own"]
    columns += ["aligned pool", "aligned own"]
    rows = []
    for row in arguments.rows:
        found = [figures[name] for seed in seeds_of(arguments, row) if (name := run_name(row, seed)) in figures]
        if not found:
            continue
        tokens = sum(entry.get("tokens", 0) for entry in found) // len(found)
        cells = [mean_and_spread([100 * entry[name] for entry in found if name in entry]) for name in columns]
        rows.append([row, str(len(found)), f"{tokens:,}", *cells])
    return markdown_table(["row", "seeds", "tokens", *columns], rows)


def mean_and_spread(values: list[float]) -> str:
    """The mean of some values and half of their range.

    Example:
        >>> mean_and_spread([50.0, 52.0]), mean_and_spread([50.0]), mean_and_spread([])
        ('51.0 ± 1.0', '50.0', '')
    """
    if not values:
        return ""
    mean = f"{sum(values) / len(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {(max(values) - min(values)) / 2:.1f}"


def _judgements(folder: Path, split: str) -> list[str]:
    for file in (folder / "qrels" / f"{split}.tsv", folder / "qrels" / f"{split}.tsv.gz"):
        if file.is_file():
            content = file.read_bytes()
            return (gzip.decompress(content) if file.suffix == ".gz" else content).decode().splitlines()
    raise FileNotFoundError(f"{folder / 'qrels'} has no {split}.tsv")


if __name__ == "__main__":
    main()
