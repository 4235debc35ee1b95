r"""Measure a Sentence Transformer on a published benchmark and show its scores beside the papers'.

Tatoeba (nearest-neighbour accuracy between 112 languages and English), from a local copy:

    st-xlret evaluate --model runs/ccp/model --benchmark tatoeba --data LASER/data/tatoeba/v1 \
        --languages fr de zh --output tatoeba.json

LAReQA (answers in 11 languages from one pool of sentences), from its release, with each sentence read in its
paragraph:

    st-xlret evaluate --model runs/ccp/model --benchmark lareqa --data lareqa/xquad-r --context \
        --output lareqa.json

Mr.TyDi from the Hugging Face Hub, with the embeddings of the passages kept on disk. A run that was interrupted
continues where it stopped. Under torchrun, --distributed shares the work among the processes:

    st-xlret evaluate --model runs/ccp/model --benchmark mrtydi --embedding-cache embeddings \
        --output mrtydi.json

A table of several results, as Markdown, CSV and LaTeX, with the mean and the interval of two seeds:

    st-xlret evaluate --compare base=base.json ours=seed1.json ours=seed2.json --output table.md

Without --data, a benchmark is loaded from the Hugging Face Hub if it is there (with HF_HUB_OFFLINE=1, from its cache).
The CCP paper averages the hidden states of layer 14 of its 24-layer model: --layer 14.
A model with a map per language, as st_xlret.export makes it, is told the language of each text; the output says so.
The output file holds the scores as fractions in [0, 1]. Tables in Markdown are written beside it, with the ending .md.
A published row that was measured on another split or by another protocol is marked, and the differences are listed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from st_xlret.files import check_output_file, write_json, write_text
from st_xlret.options import option, parse


@dataclass
class Arguments:
    """What to evaluate, on what, and how."""

    output: str = field(
        metadata={"help": "JSON file for the scores (fractions in [0, 1]). An existing file is replaced at the end."}
    )
    model: str | None = option(None, "Model: a folder, or a name on the Hugging Face Hub.")
    compare: list[str] | None = option(
        None,
        "Instead of a model: results of earlier runs for one table, as file.json or NAME=file.json. Files with the "
        "same NAME are seeds, which are averaged with a 95 %% interval.",
    )
    benchmark: str = option(
        "tatoeba",
        "One of tatoeba, tatoeba-pairs, bucc, mrtydi, xor-retrieve, nq, lareqa, mewsli-x; or retrieval, which is a "
        "pool of your own in BEIR's layout.",
    )
    data: str | None = option(
        None,
        "Folder with the files of the benchmark, as they were published or in BEIR's layout. Default: load tatoeba, "
        "bucc or mrtydi from the Hub.",
    )
    languages: list[str] | None = option(
        None,
        "Languages (of the questions), such as fr de zh; of tatoeba-pairs, pairs such as de-fr. Default: all that "
        "the benchmark has.",
    )
    split: str | None = option(
        None,
        "Split of the benchmark, such as dev; lareqa also has test-same-language. Default: test; for xor-retrieve dev, "
        "as the answers to its test questions are not published; for bucc from the Hub training, the only one there.",
    )
    threshold_split: str | None = option(
        None,
        "bucc: split whose pairs give the threshold, such as sample. Default: training, also where that is evaluated.",
    )
    layer: int | None = option(
        None,
        "Embed with the hidden states of this layer (0: input embeddings, n: output of layer n) instead of the output "
        "of the model. The CCP paper uses 14 for 24-layer models.",
    )
    pooling: Literal["auto", "model", "mean"] = option(
        "auto",
        "mean: average the hidden states under the attention mask; model: the pooling of the model; auto: mean with "
        "--layer, model without.",
    )
    similarity: str | None = option(None, "Similarity for retrieval, cosine or dot. Default: that of the model.")
    query_prompt: str | None = option(None, "Prompt put before queries. Default: that of the model.")
    document_prompt: str | None = option(None, "Prompt put before documents. Default: that of the model.")
    context: bool = option(
        False,
        "lareqa: candidates are sentences followed by their paragraph, as the models of the papers read them, instead "
        "of sentences alone.",
    )
    calibration: str | None = option(None, "Folder of a saved CalibrationLayer that is applied to the embeddings.")
    embedding_cache: str | None = option(
        None, "Folder that keeps the embeddings of the corpus: a run that was interrupted continues from there."
    )
    distributed: bool = option(False, "With --embedding-cache, under torchrun: share the corpus among the processes.")
    batch_size: int = option(
        128,
        "Size of a forward pass, in texts of 64 tokens: fewer longer texts, or more shorter ones. A CPU takes at most "
        "64.",
    )
    max_sentences: int | None = option(
        None,
        "tatoeba: use only the first sentences of each language, at most this many. The task is then easier than the "
        "benchmark, and published figures are not comparable.",
    )
    precision: Literal["auto", "fp32", "bf16"] = option(
        "fp32",
        "Number format of the model. fp32 is the default here, unlike in other commands, because scores are compared "
        "with those of other machines to the digit. bf16 is two to three times as fast on processors that compute in "
        "it, with hardly another ranking; auto takes it there, and fp32 elsewhere. The search is in fp32.",
    )
    device: str | None = option(None, "Device: cpu, cuda, cuda:1, mps. Default: the best there is.")
    quiet: bool = option(False, "Show no progress bars.")


def main(arguments: Sequence[str] | None = None, *, prog: str = "st-xlret evaluate") -> None:
    """Run the command `evaluate`."""
    (given,) = parse([Arguments], arguments, description=__doc__, prog=prog)
    if given.compare is None:
        evaluate(given)
        return
    if given.model is not None:
        raise ValueError("--compare and --model exclude each other: evaluate the model first, and compare its result.")
    from st_xlret.evaluation.tables import write_comparison

    print(write_comparison(given.compare, given.output), end="")


def evaluate(arguments: Arguments) -> None:
    """Evaluate a model, print the result, and write the scores and the tables.

    Args:
        arguments: What to evaluate, on what, and how.

    Raises:
        ValueError: If the model, the benchmark or an option is unknown, or the data is malformed.
        OSError: If a file is missing or the output cannot be written, which is checked before the evaluation.
    """
    from st_xlret.evaluation import benchmark, report
    from st_xlret.hub.export import load_model

    if arguments.model is None:
        raise ValueError("--model is missing; to join results of earlier runs, give --compare.")
    kind = benchmark(arguments.benchmark)
    tables = Path(arguments.output).with_suffix(".md")
    if tables == Path(arguments.output):
        raise ValueError(f"--output {arguments.output}: this file is for the tables; name the JSON file otherwise.")
    is_writer = int(os.environ.get("RANK", "0")) == 0  # every process of torchrun has the result; one writes it
    for file in (arguments.output, tables) if is_writer else ():
        check_output_file(file)
    options = evaluator_options(arguments)
    evaluator = kind.from_directory(arguments.data, arguments.languages, **options)
    result = evaluator.evaluate(load_model(arguments.model, arguments.device))
    if not is_writer:
        return

    text = report(result, arguments.model)
    print(text, flush=True)  # first: a disk that has filled up meanwhile takes no scores away
    write_json(arguments.output, result.as_json(arguments.model))
    write_text(tables, f"{text}\n")
    print(f"\nWritten to {arguments.output} and {tables}")


def evaluator_options(arguments: Arguments) -> dict[str, Any]:
    """The options of the evaluator: those that every evaluator has, and of the others those that were given."""
    from st_xlret.modules import CalibrationLayer

    if arguments.distributed and arguments.embedding_cache is None:
        raise ValueError("--distributed needs --embedding-cache, the folder that the processes share.")
    asked_for = {
        "split": arguments.split,
        "threshold_split": arguments.threshold_split,
        "similarity": arguments.similarity,
        "query_prompt": arguments.query_prompt,
        "document_prompt": arguments.document_prompt,
        "context": arguments.context or None,
        "max_sentences": arguments.max_sentences,
        "keep_vectors": arguments.embedding_cache,
        "distributed": arguments.distributed or None,
    }
    return {
        "layer": arguments.layer,
        "pooling": None if arguments.pooling == "auto" else arguments.pooling,
        "calibration": arguments.calibration and CalibrationLayer.load(arguments.calibration),
        "batch_size": arguments.batch_size,
        "precision": arguments.precision,
        "show_progress_bar": not arguments.quiet,
        **{name: value for name, value in asked_for.items() if value is not None},
    }
