"""A smoke test of the whole chain in minutes on two CPU cores: generate text, train, calibrate, measure, save.

    python -m training_scripts.demo.demo --output runs/demo

It shows that every part works together, not how good a method is: its world is generated and tiny. Six languages have
documents; French, German, Russian and Arabic have 300 sentences with an English translation besides, Chinese has none.
A small Transformer from random weights is trained on these few pairs alone, then, from the same weights and with as
many batches of pairs, with masked language modelling and contrastive context prediction on the documents between
them; the second model is calibrated step by step, on documents where a language has no pairs. Each training is a run
of train_ccp.py, whose command is printed; both run at the same time. The table is bilingual retrieval among sentences
that occur nowhere in training, between every two languages, in both directions. OUTPUT gets model/ (for plain Sentence
Transformers, with its card), results.json and PNG plots.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import HfArgumentParser

from st_xlret.calibration import (
    CalibrationOptions,
    RotationOptions,
    embed_documents,
    embed_pairs,
    fit_calibration_stages,
)
from st_xlret.data import load_documents, load_pairs
from st_xlret.evaluation import bilingual_accuracies, markdown_table
from st_xlret.evaluation.reporting.plots import plot_language_planes, plot_stages
from st_xlret.evaluation.reporting.tables import percent
from st_xlret.files import save_model_atomically, write_json_atomically
from st_xlret.hub.export import export
from st_xlret.losses.ccp import CITATION as CCP_CITATION
from st_xlret.options import HelpFormat
from training_scripts.demo.corpus import TOY_LANGUAGES, write_toy_corpus
from training_scripts.studies.cards.rendering import DataSource, ResultTable, write_model_card
from training_scripts.studies.common import shared_tokenizer

PIVOT, WITHOUT_PARALLEL = "en", ("zh",)
STAGES = {"pairs": "few pairs only", "ccp": "+ CCP", "shift": "+ shift", "scale": "+ scale", "rotate": "+ rotate"}
GROUPS = ("all", "with_parallel", "without_parallel")
NOTE = (
    "Each figure is the mean over pairs of languages and both directions; a language's own column, over its pairs "
    "with the others. 'With parallel' are pairs of languages that both have sentences with an English translation, "
    "'without' those with zh. Both trainings start from the same weights and see about as many batches of pairs; with "
    "CCP the batches of documents come on top, so that it takes almost six times as many optimizer steps."
)
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

    output: str = field(default="runs/demo", metadata={"help": "Folder for the model, results and plots."})
    quick: bool = field(
        default=False, metadata={"help": "Go through everything in seconds, at sizes too small to learn anything."}
    )
    seed: int = field(default=0, metadata={"help": "Seed of everything random."})


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


QUICK = Sizes(60, 40, 40, "tiny", 1000, 12, 16, 3e-3, 300)


def training_commands(output: Path, sizes: Sizes, seed: int) -> dict[str, list[str]]:
    """The command of each training. Both start from the same weights and see as many batches of pairs."""
    pair_steps = round(sizes.steps * PAIRS_RATIO / (CCP_RATIO + MLM_RATIO + PAIRS_RATIO))
    shared = f"--from_scratch {sizes.encoder} --max_seq_length 32 --learning_rate {sizes.learning_rate} --seed {seed} "
    shared += f"--per_device_train_batch_size {sizes.batch_size} --pairs_temperature {TEMPERATURE_OF_PAIRS} "
    shared += "--bank_size 0 --save_strategy no --evaluation_pairs 0 --use_cpu --overwrite"
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
    """Start a training in a process and a thread of its own; its words go to OUTPUT/trained/NAME.log."""
    print("python", shlex.join(command), flush=True)
    log = output / "trained" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    script = Path(__file__).resolve().parents[2] / command[0]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_DATASETS_CACHE": str(output / "cache")}
    with open(log, "wb") as words:
        # The bar of the longest training stays on the terminal.
        bar = None if name == "ccp" else subprocess.STDOUT
        return subprocess.Popen([sys.executable, str(script), *command[1:]], env=environment, stdout=words, stderr=bar)


def finish(name: str, process: subprocess.Popen[bytes], output: Path) -> SentenceTransformer:
    """Wait for a training; returns its model."""
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
    accuracies = bilingual_accuracies(embeddings)

    def mean(belongs: Callable[[set[str]], bool]) -> float:
        chosen = [accuracy for pair, accuracy in accuracies.items() if belongs(set(pair))]
        return sum(chosen) / len(chosen)

    return {
        "all": mean(lambda pair: True),
        "with_parallel": mean(lambda pair: not pair & {*WITHOUT_PARALLEL}),
        "without_parallel": mean(lambda pair: bool(pair & {*WITHOUT_PARALLEL})),
        **{language: mean(lambda pair, own=language: own in pair) for language in embeddings},  # type: ignore[misc]
    }


def show_search(model: SentenceTransformer, english: list[str]) -> None:
    """Find English sentences by queries in other languages, with what is in the model's folder alone."""
    passages = model.encode(english, task=PIVOT, show_progress_bar=False)
    for language, query in QUERIES.items():
        scores = model.similarity(model.encode([query], task=language, show_progress_bar=False), passages)[0]
        print(f"\n{language}: {query}")
        for index in scores.argsort(descending=True)[:3].tolist():
            print(f"    {scores[index]:.2f}  {english[index]}")


def write_card(model: Path, results: Mapping[str, Any], sentences: int, sizes: Sizes, command: str) -> None:
    """The model's card, from the run's results."""
    rows = {STAGES[stage]: scores for stage, scores in results["stages"].items()}
    pairs = f"{sizes.pairs} pairs with English for each of fr, de, ru and ar"
    write_model_card(
        model,
        model_name=str(model),
        title="A toy cross-lingual retriever (CCP)",
        summary="A small Transformer that was trained from random weights, in minutes, on a generated corpus of six "
        "languages, to show masked language modelling, contrastive context prediction, few parallel sentences and "
        "cross-lingual calibration at work.",
        languages=TOY_LANGUAGES,
        data=[
            DataSource("toy corpus", "Apache-2.0", f"documents: {sentences} sentences"),
            DataSource("toy corpus", "Apache-2.0", f"{pairs}; none for {' and '.join(WITHOUT_PARALLEL)}"),
        ],
        training_command=command,
        results=[ResultTable("Toy corpus, bilingual retrieval", "accuracy", rows, note=NOTE)],
        citations=[CCP_CITATION],
        limits=["It knows the words and the sentence patterns of the generated corpus, and nothing else."],
        seconds=results["seconds_by_part"],
        hardware=f"CPU, {torch.get_num_threads()} threads",
        task_language="fr",
        license="apache-2.0",
        tags=["ccp"],
    )


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the demo; returns what results.json holds."""
    parser = HfArgumentParser([DemoArguments], description=__doc__, formatter_class=HelpFormat)
    (given,) = parser.parse_args_into_dataclasses(arguments)
    output = Path(given.output)
    sizes = QUICK if given.quick else Sizes()
    started = time.perf_counter()
    seconds: dict[str, float] = {}

    def finished(part: str) -> None:
        seconds[part] = round(time.perf_counter() - started - sum(seconds.values()), 1)

    print("\n== Text in six languages, and a tokenizer made of it", flush=True)
    for earlier in ("corpus", "cache", "tokenizer", "trained"):
        shutil.rmtree(output / earlier, ignore_errors=True)
    write_toy_corpus(
        output / "corpus",
        documents_per_language=sizes.documents,
        pairs_per_language=sizes.pairs,
        languages_without_pairs=WITHOUT_PARALLEL,
        test_sentences=sizes.test_sentences,
        seed=given.seed,
    )
    folder, cache = output / "corpus", output / "cache" / "st_xlret"
    documents = load_documents([folder / "documents"], cache_dir=cache, show_progress=False)
    pairs = load_pairs([folder / "pairs"], show_progress=False)
    texts = [(documents, "sentence", "language"), *((pairs, x, f"{x}_language") for x in ("source", "target"))]
    shared_tokenizer(output / "tokenizer", lambda: texts, sizes.vocabulary, characters=1_500_000)
    print(f"{len(documents)} sentences in documents, {len(pairs)} pairs; e.g. {pairs[0]}")
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
    # From the identity: the adversarial start takes minutes, and from random weights it finds nothing to hold on to.
    options = CalibrationOptions(rotation=RotationOptions(initial="identity", prior=1.0), min_sentences=20)
    layers = fit_calibration_stages(clouds, pivot=PIVOT, pairs=embedded_pairs, seed=given.seed, options=options)
    for note in layers["rotate"].notes.items():
        print("{}: {}".format(*note))
    finished("calibration")

    test = {code: (folder / "test" / f"{code}.txt").read_text("utf-8").splitlines() for code in TOY_LANGUAGES}
    tests = {name: embed(models[name], test) for name in ("pairs", "ccp")}
    for stage, layer in layers.items():
        tests[stage] = {language: layer.transform(rows, language) for language, rows in tests["ccp"].items()}
    stages = {stage: summarise(embeddings) for stage, embeddings in tests.items()}
    header = ["accuracy (%)", *(name.replace("_", " ") for name in stages["ccp"])]
    rows = [[STAGES[stage], *map(percent, scores.values())] for stage, scores in stages.items()]
    print(f"\n== Bilingual retrieval among {sizes.test_sentences} unseen sentences\n\n{markdown_table(header, rows)}")
    print(f"\n{NOTE}")

    model = save_model_atomically(export(trained, layers["rotate"]), output / "model", overwrite=True)
    finished("evaluation and saving")
    results = {
        "seconds": round(time.perf_counter() - started, 1),
        "stages": stages,
        "seconds_by_part": seconds,
        "notes": dict(layers["rotate"].notes),
    }
    write_json_atomically(output / "results.json", results)
    command = shlex.join(["python", "-m", "training_scripts.demo.demo", *(arguments or sys.argv[1:])])
    write_card(model, results, len(documents), sizes, command)
    shutil.copy(output / "trained" / "ccp" / "training.png", output)
    plot_stages({STAGES[s]: {g: stages[s][g] for g in GROUPS} for s in stages}, output / "stages.png")
    for other in ("fr", "de"):
        panels = {
            title: {language: tests[stage][language] for language in (PIVOT, other)}
            for title, stage in (("before calibration", "ccp"), ("after calibration", "rotate"))
        }
        plot_language_planes(panels, output / f"pca-{PIVOT}-{other}.png")

    print("\n== The saved model, by Sentence Transformers alone: queries in other languages, English answers")
    show_search(SentenceTransformer(str(model)), test[PIVOT])
    print(f"\n{results['seconds']:.0f} seconds. {output} holds model/, results.json and PNG plots.")
    return results


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    main()
