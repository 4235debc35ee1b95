"""Everything in a few minutes on two CPU cores, on text that is generated here: train, calibrate, measure, save.

    python training_scripts/demo.py --output runs/demo

Six languages have documents; French, German, Russian and Arabic have 300 sentences with an English translation
besides, Chinese has none. A small Transformer from random weights is trained on these few pairs alone, then, from the
same weights and with as many batches of pairs, with masked language modelling and contrastive context prediction on
the documents between them; the second model is calibrated step by step, on documents where a language has no pairs. A
third is trained with the masked sentence model in place of context prediction. Two trainings run at a time, each in a
process of its own. The table is bilingual retrieval among sentences that occur nowhere in training, between every two
languages, both ways. OUTPUT gets model/ (for plain Sentence Transformers, with its card), results.json and PNG plots.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import HfArgumentParser, set_seed

from st_xlret.calibration import (
    CalibrationOptions,
    RotationOptions,
    embed_documents,
    embed_pairs,
    fit_calibration_stages,
)
from st_xlret.data import load_documents, load_pairs
from st_xlret.data.toy_corpus import TOY_LANGUAGES, write_toy_corpus
from st_xlret.evaluation import bilingual_accuracies, markdown_table
from st_xlret.evaluation.plots import plot_language_planes, plot_stages
from st_xlret.evaluation.tables import percent
from st_xlret.hub import DataSource, ResultTable, save_model_atomically, write_json_atomically, write_model_card
from st_xlret.hub.export import export
from st_xlret.losses.ccp import CITATION as CCP_CITATION
from st_xlret.training import CCPOptions, build_ccp_trainer
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.msm_options import MSMOptions
from st_xlret.training.msm_run import build_msm_trainer
from st_xlret.training.plots import plot_training
from st_xlret.training.run_arguments import HelpFormat, RunArguments

PIVOT, WITHOUT_PARALLEL = "en", ("zh",)
STAGES = {"pairs": "few pairs only", "ccp": "+ CCP", "shift": "+ shift", "scale": "+ scale", "rotate": "+ rotate"}
RIVAL = "few pairs + MSM, in place of CCP"
GROUPS = ("all", "with_parallel", "without_parallel")
NOTE = (
    "Each figure is the mean over pairs of languages and both directions; a language's own column, over its pairs "
    "with the others. 'With parallel' are pairs of languages that both have sentences with an English translation, "
    "'without' those with zh. All trainings start from the same weights and see about as many batches of pairs."
)
OPTIONS = CCPOptions(
    ccp_weight=3.0, mlm_weight=0.3, pairs_weight=0.7, temperature=0.04, pairs_temperature=0.05, window=3, bank_size=0
)
MSM_OPTIONS = MSMOptions(
    objective_weight=1.0,
    mlm_weight=OPTIONS.mlm_weight,
    pairs_weight=OPTIONS.pairs_weight,
    pairs_temperature=OPTIONS.pairs_temperature,
    pooling="mean",
    block_sentences=14,
)
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
    train: str | None = field(
        default=None,
        metadata={
            "help": "Train one of the models on the text that is in OUTPUT, and stop: the demo calls itself so, two "
            "at a time.",
            "choices": ["pairs", "ccp", "msm"],
        },
    )


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
    msm_steps: int = 500
    learning_rate: float = 4e-3
    document_encoder_rate: float = 4e-4
    calibration_sentences: int = 5000


QUICK = Sizes(60, 40, 40, "tiny", 1000, 12, 16, 12, 3e-3, 3e-4, 300)


@dataclass(frozen=True)
class Corpus:
    """What is trained and tested on."""

    documents: Dataset
    pairs: Dataset
    test: dict[str, list[str]]


def write_corpus(folder: Path, sizes: Sizes, seed: int) -> None:
    """Generate the text and write it as files of the kind that every program here reads."""
    write_toy_corpus(
        folder,
        documents_per_language=sizes.documents,
        pairs_per_language=sizes.pairs,
        languages_without_pairs=WITHOUT_PARALLEL,
        test_sentences=sizes.test_sentences,
        seed=seed,
    )


def read_corpus(folder: Path) -> Corpus:
    """Read those files."""
    read = {language: (folder / "test" / f"{language}.txt").read_text(encoding="utf-8") for language in TOY_LANGUAGES}
    return Corpus(
        load_documents([folder / "documents"], cache_dir=folder / "cache", show_progress=False),
        load_pairs([folder / "pairs"], show_progress=False),
        {language: text.splitlines() for language, text in read.items()},
    )


def new_encoder(corpus: Corpus, sizes: Sizes, folder: Path, seed: int) -> SentenceTransformer:
    """An encoder of random weights, with a tokenizer made of the training text: the same one in every process."""
    set_seed(seed)
    arguments = EncoderArguments(
        from_scratch=sizes.encoder, vocabulary=sizes.vocabulary, tokenizer_characters=1_500_000, max_seq_length=32
    )
    texts = [(corpus.documents, "sentence", "language")]
    texts += [(corpus.pairs, side, f"{side}_language") for side in ("source", "target")]
    return arguments.build(texts, tokenizer_folder=folder, seed=seed).to("cpu")


def train(given: DemoArguments, sizes: Sizes) -> None:
    """Train one of the models and write it to OUTPUT/trained, with the Trainer's log."""
    output, name = Path(given.output), str(given.train)
    folder = output / "trained"
    corpus = read_corpus(output / "corpus")
    model = new_encoder(corpus, sizes, output / "tokenizer", given.seed)
    # The pairs alone are trained last, for as many batches of them as the others had.
    steps = {"ccp": sizes.steps, "msm": sizes.msm_steps}.get(name) or read_log(given, "ccp")["pair_batches"]
    # At the encoder's rate the document encoder and its heads collapse to one answer for all places.
    rates = {"networks": sizes.document_encoder_rate} if name == "msm" else {}
    run = RunArguments(
        output=str(folder / f"{name}-checkpoints"),
        max_steps=steps,
        batch_size=sizes.batch_size if name != "msm" else max(2, 2 * sizes.batch_size // MSM_OPTIONS.block_sentences),
        learning_rate=sizes.learning_rate,
        workers=int(name == "ccp"),
        warmup_ratio=0.05,
        precision="no",
        save_steps=0,
        logging_steps=max(1, steps // 12),
        seed=given.seed,
        training_arguments=json.dumps({"learning_rate_mapping": rates}),
    )
    set_seed(given.seed)
    if name == "msm":
        trainer = build_msm_trainer(model, corpus.documents, corpus.pairs, MSM_OPTIONS, run.to_host())
    else:
        documents = corpus.documents if name == "ccp" else None
        trainer = build_ccp_trainer(model, documents, corpus.pairs, OPTIONS, run.to_host())
    of_pairs: list[int] = []
    trainer.loss["pairs"].register_forward_hook(lambda *_: of_pairs.append(1))
    trainer.train()
    save_model_atomically(model, folder / name, overwrite=True)
    log = {"history": trainer.state.log_history, "pair_batches": len(of_pairs)}
    write_json_atomically(folder / f"{name}.json", log)


def start(name: str, given: DemoArguments) -> subprocess.Popen[bytes]:
    """Start the training of one model in a process and a thread of its own; its words go to OUTPUT/trained."""
    command = [sys.executable, str(Path(__file__).resolve()), "--output", given.output, "--seed", str(given.seed)]
    command += ["--train", name, *(["--quick"] if given.quick else [])]
    log = Path(given.output) / "trained" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as words:
        # The bar of the longest training stays on the terminal.
        bar = None if name == "ccp" else subprocess.STDOUT
        return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=words, stderr=bar)


def finish(name: str, process: subprocess.Popen[bytes], given: DemoArguments) -> dict[str, Any]:
    """Wait for a training; returns its log."""
    if process.wait():
        raise SystemExit(f"the training of {name!r} failed: {Path(given.output) / 'trained' / name}.log says why")
    return read_log(given, name)


def read_log(given: DemoArguments, name: str) -> dict[str, Any]:
    """What a finished training wrote: the Trainer's log, and how many batches were of pairs."""
    return json.loads((Path(given.output) / "trained" / f"{name}.json").read_text())


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


def write_card(model: Path, results: Mapping[str, Any], corpus: Corpus, sizes: Sizes, command: str) -> None:
    """The model's card, from the run's results."""
    rows = {STAGES[stage]: scores for stage, scores in results["stages"].items()} | {RIVAL: results["msm"]}
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
            DataSource("toy corpus", "Apache-2.0", f"documents: {len(corpus.documents)} sentences"),
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
    sizes, output = QUICK if given.quick else Sizes(), Path(given.output)
    started = time.perf_counter()
    seconds: dict[str, float] = {}

    def finished(part: str) -> None:
        seconds[part] = round(time.perf_counter() - started - sum(seconds.values()), 1)

    if given.train:
        train(given, sizes)
        return {}
    print("\n== Text in six languages, and a tokenizer made of it", flush=True)
    for earlier in ("corpus", "tokenizer", "trained"):
        shutil.rmtree(output / earlier, ignore_errors=True)
    write_corpus(output / "corpus", sizes, given.seed)
    corpus = read_corpus(output / "corpus")
    new_encoder(corpus, sizes, output / "tokenizer", given.seed)
    print(f"{len(corpus.documents)} sentences in documents, {len(corpus.pairs)} pairs; e.g. {corpus.pairs[0]}")
    finished("text")

    print("\n== Training on documents and pairs: masked words, context (or masked sentences), translations", flush=True)
    running = {name: start(name, given) for name in ("ccp", "msm")}
    log = finish("ccp", running["ccp"], given)
    finished("training, CCP")
    pair_batches = log["pair_batches"]
    print(f"\n== Training the same weights on the pairs alone, for as many batches of them: {pair_batches}", flush=True)
    running["pairs"] = start("pairs", given)
    for name in ("pairs", "msm"):
        finish(name, running[name], given)
    models = {name: SentenceTransformer(str(output / "trained" / name), device="cpu") for name in running}
    trained = models["ccp"]
    finished("training, the others")

    print("\n== Calibrating: on documents, and on pairs where there are any", flush=True)
    clouds = embed_documents(
        trained,
        corpus.documents,
        sentences_per_language=sizes.calibration_sentences,
        seed=given.seed,
        show_progress=True,
    )
    pairs = embed_pairs(trained, corpus.pairs, pivot=PIVOT)
    # From the identity: the adversarial start takes minutes, and from random weights it finds nothing to hold on to.
    options = CalibrationOptions(rotation=RotationOptions(initial="identity", prior=1.0), min_sentences=20)
    layers = fit_calibration_stages(clouds, pivot=PIVOT, pairs=pairs, seed=given.seed, options=options)
    for note in layers["rotate"].notes.items():
        print("{}: {}".format(*note))
    finished("calibration")

    tests = {"pairs": embed(models["pairs"], corpus.test), "ccp": embed(trained, corpus.test)}
    for stage, layer in layers.items():
        tests[stage] = {language: layer.transform(rows, language) for language, rows in tests["ccp"].items()}
    stages = {stage: summarise(embeddings) for stage, embeddings in tests.items()}
    rival = summarise(embed(models["msm"], corpus.test))
    header = ["accuracy (%)", *(name.replace("_", " ") for name in rival)]
    rows = [[STAGES[stage], *map(percent, scores.values())] for stage, scores in stages.items()]
    rows.append([RIVAL, *map(percent, rival.values())])
    print(f"\n== Bilingual retrieval among {sizes.test_sentences} unseen sentences\n\n{markdown_table(header, rows)}")
    print(f"\n{NOTE}")

    model = save_model_atomically(export(trained, layers["rotate"]), output / "model", overwrite=True)
    finished("evaluation and saving")
    results = {
        "seconds": round(time.perf_counter() - started, 1),
        "stages": stages,
        "msm": rival,
        "seconds_by_part": seconds,
        "pair_batches": pair_batches,
        "notes": dict(layers["rotate"].notes),
    }
    write_json_atomically(output / "results.json", results)
    write_card(model, results, corpus, sizes, "python training_scripts/demo.py " + " ".join(arguments or sys.argv[1:]))
    plot_training(log["history"], output / "training.png")
    plot_stages({STAGES[s]: {g: stages[s][g] for g in GROUPS} for s in stages}, output / "stages.png")
    for other in ("fr", "de"):
        panels = {
            title: {language: tests[stage][language] for language in (PIVOT, other)}
            for title, stage in (("before calibration", "ccp"), ("after calibration", "rotate"))
        }
        plot_language_planes(panels, output / f"pca-{PIVOT}-{other}.png")

    print("\n== The saved model, by Sentence Transformers alone: queries in other languages, English answers")
    show_search(SentenceTransformer(str(model)), corpus.test[PIVOT])
    print(f"\n{results['seconds']:.0f} seconds. {output} holds model/, results.json and PNG plots.")
    return results


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    main()
