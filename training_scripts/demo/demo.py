"""A smoke test of the whole chain in minutes on two CPU cores: generate text, train, calibrate, measure, save.

    python -m training_scripts.demo.demo --output runs/demo

The demo shows that the parts work together. It does not show how good a method is, because its corpus is generated and
tiny. Six languages have documents. French, German, Russian and Arabic also have 300 sentences with an English
translation, and Chinese has none. A small Transformer is trained from random weights on these few pairs alone. A second
one starts from the same weights, sees about as many batches of pairs, and is also trained on the documents, with masked
language modelling and contrastive context prediction. The second model is then calibrated step by step, on documents
where a language has no pairs. Each training is a run of train_ccp.py, whose command is printed; both run at the same
time. The table shows bilingual retrieval among sentences that do not occur in training, between every two languages and
in both directions. The demo writes OUTPUT/model (for plain Sentence Transformers, with a model card),
OUTPUT/results.json and PNG plots.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.calibration import (
    CalibrationOptions,
    RotationOptions,
    embed_documents,
    embed_pairs,
    fit_calibration_stages,
)
from st_xlret.data import load_documents, load_pairs
from st_xlret.evaluation import bilingual_accuracies, markdown_table, summarise_accuracies
from st_xlret.evaluation.reporting.plots import plot_language_planes, plot_stages
from st_xlret.evaluation.reporting.tables import percent
from st_xlret.files import save_model_atomically, write_json_atomically
from st_xlret.hub.export import export
from st_xlret.modules.from_scratch import train_tokenizer
from st_xlret.options import option, parse
from st_xlret.training.encoders import balanced_texts
from training_scripts.demo.card import NOTE, describe
from training_scripts.demo.corpus import TOY_LANGUAGES, write_toy_corpus

PIVOT, WITHOUT_PARALLEL = "en", ("zh",)
STAGES = {"pairs": "few pairs only", "ccp": "+ CCP", "shift": "+ shift", "scale": "+ scale", "rotate": "+ rotate"}
GROUPS = ("all", "with_parallel", "without_parallel")
TEMPERATURE_OF_PAIRS = 0.05
CCP_RATIO, MLM_RATIO, PAIRS_RATIO = 3.0, 0.3, 0.7
CCP = f"--ccp_ratio {CCP_RATIO} --mlm_ratio {MLM_RATIO} --pairs_ratio {PAIRS_RATIO} --temperature 0.04 --window_size 3"
QUERIES = {
    "fr": "L'infirmière a examiné la plaie.",
    "de": "Der Lehrer las das Buch in der Bibliothek.",
    "ar": "غسل الطباخ القدر في المطبخ.",
    "ru": "Медсестра осмотрела рану.",
}


@dataclass
class DemoArguments:
    """Where to write and how much to do."""

    output: str = option("runs/demo", "Folder for the model, results and plots.")
    quick: bool = option(False, "Run everything in seconds, at sizes that are too small to learn anything.")
    seed: int = option(0, "Seed of the corpus, the trainings and the calibration.", minimum=0, maximum=2**32 - 1)


@dataclass(frozen=True)
class Sizes:
    """How much is generated and trained."""

    documents: int = 2000
    pairs: int = 300
    test_sentences: int = 500
    encoder: str = "mini"
    vocabulary: int = 8000
    steps: int = 1300
    batch_size: int = 96
    learning_rate: float = 4e-3
    calibration_sentences: int = 5000


QUICK = Sizes(
    documents=60,
    pairs=40,
    test_sentences=40,
    encoder="tiny",
    vocabulary=1000,
    steps=12,
    batch_size=16,
    learning_rate=3e-3,
    calibration_sentences=300,
)


def training_commands(output: Path, sizes: Sizes, seed: int) -> dict[str, list[str]]:
    """Commands of the two trainings, which start from the same weights and see about as many batches of pairs."""
    pair_steps = round(sizes.steps * PAIRS_RATIO / (CCP_RATIO + MLM_RATIO + PAIRS_RATIO))
    shared = f"--from_scratch {sizes.encoder} --max_seq_length 32 --learning_rate {sizes.learning_rate} --seed {seed} "
    shared += f"--per_device_train_batch_size {sizes.batch_size} --pairs_temperature {TEMPERATURE_OF_PAIRS} "
    shared += "--bank_size 0 --save_strategy no --evaluation_pairs 0 --use_cpu --overwrite "
    shared += "--precision fp32"  # the same figures on every processor
    documents = ["--documents", str(output / "corpus" / "documents"), *CCP.split(), "--dataloader_num_workers", "1"]
    return {
        name: [
            *("training_scripts/train_ccp.py", *shared.split()),
            *("--tokenizer", str(output / "tokenizer"), "--pairs", str(output / "corpus" / "pairs"), *more),
            *f"--max_steps {steps} --warmup_steps {int(0.05 * steps)} --logging_steps {max(1, steps // 12)}".split(),
            *("--output_dir", str(output / "trained" / name)),
        ]
        for name, steps, more in (("ccp", sizes.steps, documents), ("pairs", pair_steps, []))
    }


def start(name: str, command: list[str], output: Path) -> subprocess.Popen[bytes]:
    """Start a training in its own process with one thread. Its output goes to OUTPUT/trained/NAME.log."""
    print("python", shlex.join(command), flush=True)
    log = output / "trained" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    script = Path(__file__).resolve().parents[2] / command[0]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_DATASETS_CACHE": str(output / "cache")}
    with open(log, "wb") as log_file:
        # The progress bar of the longest training is shown in the terminal.
        bar = None if name == "ccp" else subprocess.STDOUT
        return subprocess.Popen(
            [sys.executable, str(script), *command[1:]], env=environment, stdout=log_file, stderr=bar
        )


def finish(name: str, process: subprocess.Popen[bytes], output: Path) -> SentenceTransformer:
    """Wait for a training and return its model."""
    if process.wait():
        raise SystemExit(f"the training of {name!r} failed: {output / 'trained' / name}.log says why")
    return SentenceTransformer(str(output / "trained" / name / "model"), device="cpu")


def embed(model: SentenceTransformer, texts: Mapping[str, list[str]]) -> dict[str, Tensor]:
    """Embeddings of each language's texts."""
    return {
        language: torch.from_numpy(model.encode(sentences, batch_size=128, show_progress_bar=False))
        for language, sentences in texts.items()
    }


def summarise(embeddings: Mapping[str, Tensor]) -> dict[str, float]:
    """Mean accuracy over all pairs of languages, those with and without parallel text, and those of each language."""
    means = summarise_accuracies(
        bilingual_accuracies(embeddings),
        {"without_parallel": WITHOUT_PARALLEL},
        within={"with_parallel": [language for language in embeddings if language not in WITHOUT_PARALLEL]},
    )
    groups = {"all": means["accuracy"]} | {group: means[f"{group}_accuracy"] for group in GROUPS[1:]}
    return groups | {language: means[f"{language}_accuracy"] for language in embeddings}


def show_search(model: SentenceTransformer, english: list[str]) -> None:
    """Search English sentences with queries in other languages, using only the saved model."""
    passages = model.encode(english, task=PIVOT, show_progress_bar=False)
    for language, query in QUERIES.items():
        scores = model.similarity(model.encode([query], task=language, show_progress_bar=False), passages)[0]
        print(f"\n{language}: {query}")
        for index in scores.argsort(descending=True)[:3].tolist():
            print(f"    {scores[index]:.2f}  {english[index]}")


def draw(stages: Mapping[str, Mapping[str, float]], tests: Mapping[str, Mapping[str, Tensor]], output: Path) -> None:
    """Draw accuracies by stage, and two pairs of languages before and after calibration."""
    shutil.copy(output / "trained" / "ccp" / "training.png", output)
    plot_stages({STAGES[s]: {g: stages[s][g] for g in GROUPS} for s in stages}, output / "stages.png")
    for other in ("fr", "de"):
        panels = {
            title: {language: tests[stage][language] for language in (PIVOT, other)}
            for title, stage in (("before calibration", "ccp"), ("after calibration", "rotate"))
        }
        plot_language_planes(panels, output / f"pca-{PIVOT}-{other}.png")


def make_texts(output: Path, sizes: Sizes, seed: int) -> tuple[Dataset, Dataset]:
    """Generate the corpus and train a tokenizer on it; returns the documents and the pairs."""
    for earlier in ("corpus", "cache", "tokenizer", "trained"):
        shutil.rmtree(output / earlier, ignore_errors=True)
    folder, cache = output / "corpus", output / "cache" / "st_xlret"
    write_toy_corpus(
        folder,
        documents_per_language=sizes.documents,
        pairs_per_language=sizes.pairs,
        languages_without_pairs=WITHOUT_PARALLEL,
        test_sentences=sizes.test_sentences,
        seed=seed,
    )
    documents = load_documents([folder / "documents"], cache_dir=cache, show_progress=False)
    pairs = load_pairs([folder / "pairs"], show_progress=False)
    texts = [(documents, "sentence", "language"), *((pairs, x, f"{x}_language") for x in ("source", "target"))]
    tokenizer = train_tokenizer(balanced_texts(texts, 1_500_000), sizes.vocabulary, show_progress=True)
    tokenizer.save_pretrained(output / "tokenizer")
    print(f"{len(documents)} sentences in documents, {len(pairs)} pairs; e.g. {pairs[0]}")
    return documents, pairs


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the demo and return the content of results.json."""
    (given,) = parse([DemoArguments], arguments, description=__doc__)
    output = Path(given.output)
    sizes = QUICK if given.quick else Sizes()
    started = time.perf_counter()
    seconds: dict[str, float] = {}

    def finished(part: str) -> None:
        seconds[part] = round(time.perf_counter() - started - sum(seconds.values()), 1)

    print("\n== Text in six languages, and a tokenizer made of it", flush=True)
    documents, pairs = make_texts(output, sizes, given.seed)
    finished("text")

    print("\n== Training: with context and masked words, and, from the same weights, on the pairs alone", flush=True)
    commands = training_commands(output, sizes, given.seed)
    running = {name: start(name, command, output) for name, command in commands.items()}
    models = {name: finish(name, process, output) for name, process in running.items()}
    trained = models["ccp"]
    finished("training")

    print("\n== Calibrating: on documents, and on pairs where there are any", flush=True)
    clouds = embed_documents(
        trained,
        documents,
        sentences_per_language=sizes.calibration_sentences,
        seed=given.seed,
        show_progress=True,
    )
    embedded_pairs = embed_pairs(trained, pairs, pivot=PIVOT)
    # The adversarial initialisation takes minutes, and finds no useful start for an encoder from random weights.
    options = CalibrationOptions(rotation=RotationOptions(initial="identity", prior=1.0), min_sentences=20)
    layers = fit_calibration_stages(clouds, pivot=PIVOT, pairs=embedded_pairs, seed=given.seed, options=options)
    for note in layers["rotate"].notes.items():
        print("{}: {}".format(*note))
    finished("calibration")

    test = {
        code: (output / "corpus" / "test" / f"{code}.txt").read_text("utf-8").splitlines() for code in TOY_LANGUAGES
    }
    tests = {name: embed(models[name], test) for name in ("pairs", "ccp")}
    for stage, layer in layers.items():
        tests[stage] = {language: layer.transform(rows, language) for language, rows in tests["ccp"].items()}
    stages = {stage: summarise(embeddings) for stage, embeddings in tests.items()}
    header = ["accuracy (%)", *(name.replace("_", " ") for name in stages["ccp"])]
    rows = [[STAGES[stage], *map(percent, scores.values())] for stage, scores in stages.items()]
    print(f"\n== Bilingual retrieval among {sizes.test_sentences} unseen sentences\n\n{markdown_table(header, rows)}")
    print(f"\n{NOTE}")

    finished("evaluation")
    command = shlex.join(["python", "-m", "training_scripts.demo.demo", *(arguments or sys.argv[1:])])
    data = {
        "documents": f"{len(documents)} sentences",
        "pairs": f"{sizes.pairs} with English for each of fr, de, ru and ar; none for {' and '.join(WITHOUT_PARALLEL)}",
    }
    by_name = {STAGES[stage]: scores for stage, scores in stages.items()}
    calibrated = export(trained, layers["rotate"])
    describe(calibrated, by_name, data, seconds, command, row=STAGES["rotate"])
    model = save_model_atomically(calibrated, output / "model", overwrite=True)
    finished("saving")
    results = {
        "seconds": round(time.perf_counter() - started, 1),
        "stages": stages,
        "seconds_by_part": seconds,
        "notes": dict(layers["rotate"].notes),
    }
    write_json_atomically(output / "results.json", results)
    draw(stages, tests, output)

    print("\n== The saved model, by Sentence Transformers alone: queries in other languages, English answers")
    show_search(SentenceTransformer(str(model)), test[PIVOT])
    print(f"\n{results['seconds']:.0f} seconds. {output} holds model/, results.json and PNG plots.")
    return results


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    main()
