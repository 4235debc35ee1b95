r"""Measure a Sentence Transformer on a published benchmark and show its scores beside the papers'.

    st-xlret evaluate --model runs/ccp/model --data LASER/data/tatoeba/v1 --languages fr de zh --output tatoeba.json
    st-xlret evaluate --model runs/ccp/model --benchmark lareqa --data lareqa/xquad-r --context --output lareqa.json
    st-xlret evaluate --model runs/ccp/model --benchmark mrtydi --embedding-cache embeddings --output mrtydi.json
    st-xlret evaluate --compare base=base.json ours=seed1.json ours=seed2.json --output table.md

Without --data, a benchmark is loaded from the Hugging Face Hub if it is there. The output file holds the scores as
fractions in [0, 1], and a file with the ending .md their tables. Published rows of another protocol are marked. The CCP
paper averages the hidden states of layer 14 of its 24-layer model: --layer 14. --compare writes Markdown and CSV.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields
from pathlib import Path

from st_xlret.commands import check_options
from st_xlret.files import atomic_file, write_json, write_text
from st_xlret.options import option, parse
from st_xlret.precision import PRECISIONS


@dataclass
class Arguments:
    """What to evaluate, on what, and how."""

    output: str = option(
        None, "JSON file of the scores, new or evaluated before; with --compare, of the table."
    )
    model: str | None = option(None, "Model: a folder, or a name on the Hugging Face Hub.")
    compare: list[str] | None = option(
        None,
        "Instead of a model: results of earlier runs for one table, as file.json or NAME=file.json. Files with the "
        "same NAME are seeds, which are averaged with a 95 %% interval.",
    )
    benchmark: str = option(
        "tatoeba",
        "tatoeba, tatoeba-pairs, bucc, mrtydi, xor-retrieve, lareqa, mewsli-x, or retrieval: your own pool.",
    )
    data: str | None = option(
        None, "Folder with its files, as published or in BEIR's layout. By default the Hub."
    )
    languages: list[str] | None = option(
        None, "Languages of the questions; of tatoeba-pairs, such as de-fr."
    )
    language: str | None = option(None, "retrieval: language of the texts that name none.")
    split: str | None = option(
        None, "Split. By default test; of xor-retrieve dev, of bucc on the Hub training."
    )
    threshold_split: str | None = option(
        None, "bucc: split that gives the threshold. By default training."
    )
    layer: int | None = option(
        None, "Embed by the hidden states of this layer (0: input embeddings)."
    )
    pooling: str = option(
        "auto", "Mean of the hidden states; auto with --layer alone.", ["auto", "model", "mean"]
    )
    similarity: str | None = option(
        None, "Similarity for retrieval. By default the model's.", ["cosine", "dot"]
    )
    query_prompt: str | None = option(None, "Prompt put before queries. By default the model's.")
    document_prompt: str | None = option(
        None, "Prompt put before documents. By default the model's."
    )
    context: bool = option(
        False, "lareqa: candidates are sentences with their paragraph, as the papers read them."
    )
    calibration: str | None = option(
        None, "Folder of a calibration that is applied to the embeddings."
    )
    embedding_cache: str | None = option(
        None, "Folder that keeps embeddings of the corpus, to continue from there."
    )
    distributed: bool = option(
        False, "With --embedding-cache, under torchrun: share the corpus among the processes."
    )
    batch_size: int = option(
        128, "Size of a forward pass, in texts of 64 tokens. A CPU takes at most 64."
    )
    max_sentences: int | None = option(
        None, "tatoeba: the first sentences alone, which no published figure is of."
    )
    precision: str = option(
        "fp32",
        "Number format. fp32 for figures to compare; bf16, auto: faster where computed in.",
        PRECISIONS,
    )
    device: str | None = option(
        None, "Device: cpu, cuda, cuda:1, mps. By default the best there is."
    )


def main(arguments: Sequence[str] | None = None, *, prog: str = "st-xlret evaluate") -> None:
    """Run the command `evaluate`."""
    (options,) = parse([Arguments], arguments, description=__doc__, prog=prog)
    check_options(options, "output")
    if options.compare is None:
        check_options(options, "model", *["embedding_cache"] * options.distributed)
        _evaluate_model(options)
        return
    usual = {
        each.name: each.default
        for each in fields(Arguments)
        if each.name not in ("compare", "output")
    }
    others = [name for name, default in usual.items() if getattr(options, name) != default]
    check_options(options, unread=others, where="with --compare")
    from st_xlret.evaluation.results import write_comparison

    print(write_comparison(options.compare, options.output), end="")


def _evaluate_model(options: Arguments) -> None:
    from st_xlret.calibration import VectorCalibration
    from st_xlret.evaluation import evaluator_class, result_report
    from st_xlret.hub.export import load_model

    kind, name, output = (
        evaluator_class(options.benchmark),
        options.model or "",
        Path(options.output),
    )
    tables = output.with_suffix(".tables.md" if output.suffix == ".md" else ".md")
    is_writer = (
        int(os.environ.get("RANK", "0")) == 0
    )  # every process of torchrun has the result; one writes it
    names = (
        "layer",
        "language",
        "split",
        "threshold_split",
        "similarity",
        "query_prompt",
        "document_prompt",
    )
    settings = {
        each: getattr(options, each)
        for each in (*names, "max_sentences", "batch_size", "precision")
    }
    settings |= {
        "pooling": None if options.pooling == "auto" else options.pooling,
        "show_progress_bar": True,
    }
    settings |= {"context": options.context or None, "distributed": options.distributed or None}
    settings["keep_vectors"] = options.embedding_cache
    with ExitStack() as outputs:
        files = [
            outputs.enter_context(atomic_file(file, ours="evaluate"))
            for file in (output, tables)
            if is_writer
        ]
        if options.calibration is not None:
            maps = VectorCalibration.load(options.calibration)
            unread = [] if maps.query is None else ["calibration"]
            check_options(
                options,
                unread=unread,
                where="if it maps queries apart: evaluate what st-xlret export makes",
            )
            settings["calibration"] = maps.layer()
        settings = {each: value for each, value in settings.items() if value is not None}
        try:
            evaluator = kind.from_directory(options.data, options.languages, **settings)
        except TypeError as error:  # an option that this benchmark does not have
            raise ValueError(f"--benchmark {options.benchmark}: {error}") from error
        result = evaluator.evaluate(load_model(name, options.device))
        if not is_writer:
            return
        text = result_report(result, name)
        with suppress(BrokenPipeError):  # `| head` takes no scores away
            print(text, flush=True)  # first: neither does a disk that has filled up meanwhile
        write_json(files[0], result.as_json(name))
        write_text(files[1], f"{text}\n")
    print(f"\nWritten to {output} and {tables}")
