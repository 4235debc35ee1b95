r"""Measure a Sentence Transformer on a published benchmark and show its scores beside the papers'.

    st-xlret evaluate --model runs/ccp/model --data LASER/data/tatoeba/v1 --languages fr de zh \
        --output tatoeba.json
    st-xlret evaluate --model runs/ccp/model --benchmark lareqa --data lareqa/xquad-r --context \
        --output lareqa.json
    st-xlret evaluate --model runs/ccp/model --benchmark mrtydi --embedding-cache embeddings \
        --output mrtydi.json
    st-xlret evaluate --compare base=base.json ours=seed1.json ours=seed2.json --output table.md

Without --data, a benchmark is loaded from the Hugging Face Hub if it is there. The output file
holds the scores as fractions in [0, 1], and a file with the ending .md their tables. Published rows
of another protocol are marked. The CCP paper averages the hidden states of layer 14 of its 24-layer
model: --layer 14. --compare writes Markdown and CSV.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from st_xlret.commands.sources import EncoderArguments
from st_xlret.evaluation import BENCHMARKS
from st_xlret.files import atomic_file, file_beside, write_json, write_text
from st_xlret.options import check_options, given_options, option, parse
from st_xlret.precision import PRECISIONS
from st_xlret.ranges import check_range

if TYPE_CHECKING:
    from st_xlret.evaluation import BenchmarkEvaluator
    from st_xlret.modules import CalibrationLayer

_OWN_POOL = "retrieval"
_PUBLISHED = [name for name in BENCHMARKS if name != _OWN_POOL]
_NAMES_OF_EVALUATORS = {"embedding_cache": "keep_vectors"}  # where they have another name


@dataclass
class Arguments(EncoderArguments):
    """What to evaluate, on what, and how."""

    output: str = option(
        None,
        "FILE.json of the scores, new or evaluated before; with --compare, FILE.md of the table.",
    )
    compare: list[str] | None = option(
        None,
        "Instead of a model: results of earlier runs for one table, as file.json or "
        "NAME=file.json. Files with the same NAME are seeds, which are averaged with a 95 %% "
        "interval.",
    )
    benchmark: str = option("tatoeba", f"{', '.join(_PUBLISHED)}, or {_OWN_POOL}: your own pool.")
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
    query_prompt: str | None = option(
        None, "Prompt put before queries, or all texts of bitext. By default the model's."
    )
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


def main(arguments: Sequence[str] | None = None, *, prog: str = "st-xlret evaluate") -> None:
    """Run the command `evaluate`."""
    (options,) = parse([Arguments], arguments, description=__doc__, prog=prog)
    check_options(options, "output")
    check_range(1, batch_size=options.batch_size)
    if options.compare is None:
        needed = ["model"]
        if options.distributed:
            needed.append("embedding_cache")
        check_options(options, *needed)
        _evaluate_model(options)
    else:
        _compare(options)


def _compare(options: Arguments) -> None:
    """Print and write one table of the results of earlier runs."""
    others = [name for name in given_options(options) if name not in ("compare", "output")]
    check_options(options, unread=others, where="with --compare")
    from st_xlret.evaluation.results import write_comparison

    print(write_comparison(options.compare or [], options.output), end="")


def _evaluate_model(options: Arguments) -> None:
    """Measure a model, print its tables, and write these and the scores."""
    from st_xlret.evaluation import evaluator_class, result_text

    kind = evaluator_class(options.benchmark)
    name = options.model or ""
    output = Path(options.output)
    tables = file_beside(output, ".md")
    # All processes that share the corpus have the result; one writes it.
    is_writer = not options.distributed or int(os.environ.get("RANK", "0")) == 0
    with ExitStack() as outputs:
        parts: list[Path] = []
        if is_writer:
            for file in (output, tables):
                parts.append(outputs.enter_context(atomic_file(file, ours="evaluate")))
        settings = _evaluator_settings(options, kind)
        evaluator = kind.from_directory(options.data, options.languages, **settings)
        result = evaluator.evaluate(options.load_model())
        if not is_writer:
            return
        text = result_text(result, name)
        with suppress(BrokenPipeError):  # `| head` takes no scores away
            print(text, flush=True)  # first: neither does a disk that has filled up meanwhile
        part_of_scores, part_of_tables = parts
        write_json(part_of_scores, result.as_json(name))
        write_text(part_of_tables, f"{text}\n")
    print(f"\nWritten to {output} and {tables}")


def _evaluator_settings(options: Arguments, kind: type[BenchmarkEvaluator]) -> dict[str, Any]:
    """What the evaluator is given; an option that it does not read is a `ValueError`.

    `kind.options` are names of fields of `Arguments`; those in `_NAMES_OF_EVALUATORS` have another
    name as arguments of the evaluator.
    """
    _check_benchmark_reads(options, kind)
    pooling = None if options.pooling == "auto" else options.pooling
    settings: dict[str, Any] = {
        "layer": options.layer,
        "pooling": pooling,
        "calibration": _load_calibration(options),
        "query_prompt": options.query_prompt,
        "document_prompt": options.document_prompt,
        "batch_size": options.batch_size,
        "precision": options.precision,
        "show_progress_bar": True,
    }
    for name in kind.options:
        value = getattr(options, name)
        if value is not None:
            settings[_NAMES_OF_EVALUATORS.get(name, name)] = value
    return settings


def _check_benchmark_reads(options: Arguments, kind: type[BenchmarkEvaluator]) -> None:
    """Refuse options that some benchmark reads, and this one does not."""
    of_some: set[str] = set()
    for other in BENCHMARKS.values():
        of_some.update(other.options)
    of_others = of_some - set(kind.options)
    unread = [name for name in given_options(options) if name in of_others]
    read = ", ".join(f"--{name}" for name in kind.options)
    where = f"by --benchmark {options.benchmark}; of the options that some have it reads {read}"
    check_options(options, unread=unread, where=where)


def _load_calibration(options: Arguments) -> CalibrationLayer | None:
    """The layer of `--calibration`; None without the option."""
    if options.calibration is None:
        return None
    from st_xlret.calibration import VectorCalibration

    maps = VectorCalibration.load(options.calibration)
    if maps.query is not None:
        where = "if it maps queries apart: evaluate what st-xlret export makes"
        check_options(options, unread=["calibration"], where=where)
    return maps.layer()
