"""Everything in a few minutes on two CPU cores, on text that is generated here: train, calibrate, measure, save.

    python training_scripts/demo.py --output runs/demo

Six languages have documents; French, Russian and Arabic have 300 sentences with an English translation besides, German
and Chinese have none. A small Transformer from random weights is trained on these few pairs alone, then, from the same
weights and with as many batches of pairs, with masked language modelling and contrastive context prediction on the
documents between them; the second model is calibrated step by step, on documents where a language has no pairs. The
table is bilingual retrieval among sentences that occur nowhere in training, between every two languages, both ways.
OUTPUT gets model/ (for plain Sentence Transformers, with its card), results.json and PNG plots.
"""

from __future__ import annotations

import copy
import logging
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
from st_xlret.training.plots import plot_training
from st_xlret.training.run_arguments import HelpFormat, RunArguments

PIVOT, WITHOUT_PARALLEL = "en", ("de", "zh")
STAGES = {"pairs": "few pairs only", "ccp": "+ CCP", "shift": "+ shift", "scale": "+ scale", "rotate": "+ rotate"}
GROUPS = ("all", "with_parallel", "without_parallel")
NOTE = (
    "Each figure is the mean over pairs of languages and both directions; a language's own column, over its pairs "
    "with the others. 'With parallel' are pairs of languages that both have sentences with an English translation, "
    "'without' those with de or zh. Both trainings start from the same weights and see as many batches of pairs."
)
OPTIONS = CCPOptions(ccp_weight=3.0, mlm_weight=1.0, pairs_weight=1.0, bank_size=0)
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
    steps: int = 1500
    batch_size: int = 96
    learning_rate: float = 4e-3
    calibration_sentences: int = 5000


QUICK = Sizes(60, 40, 40, "tiny", 1000, 12, 16, 3e-3, 300)


@dataclass(frozen=True)
class Corpus:
    """What is trained and tested on."""

    documents: Dataset
    pairs: Dataset
    test: dict[str, list[str]]


def make_corpus(folder: Path, sizes: Sizes, seed: int) -> Corpus:
    """Generate the text, write it as files of the kind that every program here reads, and read them."""
    write_toy_corpus(
        folder,
        documents_per_language=sizes.documents,
        pairs_per_language=sizes.pairs,
        languages_without_pairs=WITHOUT_PARALLEL,
        test_sentences=sizes.test_sentences,
        seed=seed,
    )
    read = {language: (folder / "test" / f"{language}.txt").read_text(encoding="utf-8") for language in TOY_LANGUAGES}
    return Corpus(
        load_documents([folder / "documents"], cache_dir=folder / "cache", show_progress=False),
        load_pairs([folder / "pairs"], show_progress=False),
        {language: text.splitlines() for language, text in read.items()},
    )


def new_encoder(corpus: Corpus, sizes: Sizes, folder: Path, seed: int) -> SentenceTransformer:
    """An encoder of random weights, with a tokenizer made of the training text: the same one at every call."""
    set_seed(seed)
    arguments = EncoderArguments(
        from_scratch=sizes.encoder, vocabulary=sizes.vocabulary, tokenizer_characters=1_500_000, max_seq_length=32
    )
    texts = [(corpus.documents, "sentence", "language")]
    texts += [(corpus.pairs, side, f"{side}_language") for side in ("source", "target")]
    return arguments.build(texts, tokenizer_folder=folder, keep_tokenizer=False, seed=seed).to("cpu")


def train(
    model: SentenceTransformer, corpus: Corpus, sizes: Sizes, given: DemoArguments, *, pair_batches: int | None = None
) -> tuple[list[dict[str, Any]], int]:
    """Train the model in place.

    Args:
        model: The encoder.
        corpus: What to train on.
        sizes: How much.
        given: The command line.
        pair_batches: Train on pairs alone, for so many batches.

    Returns:
        The Trainer's log, and how many batches were of pairs.
    """
    set_seed(given.seed)
    steps = sizes.steps if pair_batches is None else pair_batches
    run = RunArguments(
        output=given.output,
        max_steps=steps,
        batch_size=sizes.batch_size,
        learning_rate=sizes.learning_rate,
        warmup_ratio=0.05,
        precision="no",
        save_steps=0,
        logging_steps=max(1, steps // 12),
        seed=given.seed,
    )
    documents = corpus.documents if pair_batches is None else None
    trainer = build_ccp_trainer(model, documents, corpus.pairs, OPTIONS, run.to_host())
    of_pairs: list[int] = []
    trainer.loss["pairs"].register_forward_hook(lambda *_: of_pairs.append(1))
    trainer.train()
    return trainer.state.log_history, len(of_pairs)


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
    rows = {STAGES[stage]: scores for stage, scores in results["stages"].items()}
    pairs = f"{sizes.pairs} pairs with English for each of fr, ru and ar"
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

    print("\n== Text in six languages, and a tokenizer made of it", flush=True)
    corpus = make_corpus(output / "corpus", sizes, given.seed)
    trained = new_encoder(corpus, sizes, output / "tokenizer", given.seed)
    pairs_only = copy.deepcopy(trained)
    print(f"{len(corpus.documents)} sentences in documents, {len(corpus.pairs)} pairs; e.g. {corpus.pairs[0]}")
    finished("text")

    print("\n== Training on documents and pairs: masked words, context, translations", flush=True)
    history, pair_batches = train(trained, corpus, sizes, given)
    finished("training")
    print(f"\n== Training the same weights on the pairs alone, for as many batches of them: {pair_batches}", flush=True)
    train(pairs_only, corpus, sizes, given, pair_batches=pair_batches)
    finished("training on pairs alone")

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

    tests = {"pairs": embed(pairs_only, corpus.test), "ccp": embed(trained, corpus.test)}
    for stage, layer in layers.items():
        tests[stage] = {language: layer.transform(rows, language) for language, rows in tests["ccp"].items()}
    stages = {stage: summarise(embeddings) for stage, embeddings in tests.items()}
    header = ["accuracy (%)", *(name.replace("_", " ") for name in stages["pairs"])]
    rows = [[STAGES[stage], *map(percent, scores.values())] for stage, scores in stages.items()]
    print(f"\n== Bilingual retrieval among {sizes.test_sentences} unseen sentences\n\n{markdown_table(header, rows)}")
    print(f"\n{NOTE}")

    model = save_model_atomically(export(trained, layers["rotate"]), output / "model", overwrite=True)
    finished("evaluation and saving")
    results = {
        "seconds": round(time.perf_counter() - started, 1),
        "stages": stages,
        "seconds_by_part": seconds,
        "pair_batches": pair_batches,
        "notes": dict(layers["rotate"].notes),
    }
    write_json_atomically(output / "results.json", results)
    write_card(model, results, corpus, sizes, "python training_scripts/demo.py " + " ".join(arguments or sys.argv[1:]))
    plot_training(history, output / "training.png")
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
