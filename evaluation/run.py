"""Evaluates a Sentence Transformer on a published benchmark and shows its scores beside the papers'.

Tatoeba (nearest-neighbour accuracy between 112 languages and English), from a local copy:

    python evaluation/run.py --model runs/ccp/model --benchmark tatoeba --data LASER/data/tatoeba/v1 \
        --languages fr de zh --output tatoeba.json

Without --data the benchmark is loaded from the Hugging Face Hub (or its cache, with HF_HUB_OFFLINE=1).
The CCP paper averages the hidden states of layer 14 of its 24-layer model: --layer 14.
A calibrated model that st-xlret exported takes the language as its task: --language-as-task.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from transformers import HfArgumentParser

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from st_xlret.evaluation import BenchmarkResult


@dataclass
class Arguments:
    """What to evaluate, on what, and how."""

    model: str = field(metadata={"help": "A model: a folder, or a name on the Hugging Face Hub."})
    output: str = field(
        metadata={"help": "JSON file for the scores (fractions in [0, 1]); an existing one is replaced at the end."}
    )
    benchmark: str = field(default="tatoeba", metadata={"help": "The benchmark. So far: tatoeba."})
    data: str | None = field(
        default=None,
        metadata={
            "help": "Folder of the benchmark's data; for tatoeba the one with tatoeba.fra-eng.fra and so on. "
            "Default: load it from the Hub."
        },
    )
    languages: list[str] | None = field(
        default=None, metadata={"help": "Languages, such as fr de zh. Default: all of the benchmark's."}
    )
    layer: int | None = field(
        default=None,
        metadata={
            "help": "Embed with the hidden states of this layer (0: input embeddings, n: output of layer n) "
            "in place of the model's own output. The CCP paper uses 14 for 24-layer models."
        },
    )
    pooling: Literal["auto", "model", "mean"] = field(
        default="auto",
        metadata={
            "help": "mean: average the hidden states under the attention mask; model: the model's own; "
            "auto: mean with --layer, model without."
        },
    )
    language_as_task: bool = field(
        default=False,
        metadata={"help": "Call encode(texts, task=LANGUAGE), which routes texts through a calibrated model's maps."},
    )
    calibration: str | None = field(
        default=None, metadata={"help": "Folder of a saved CalibrationLayer to apply to the embeddings."}
    )
    batch_size: int = field(default=128, metadata={"help": "Texts per forward pass."})
    max_sentences: int | None = field(
        default=None,
        metadata={
            "help": "Only the first so many sentences per language: quicker, but easier than the benchmark, "
            "so that no published figure is comparable."
        },
    )
    device: str | None = field(default=None, metadata={"help": "cpu, cuda, cuda:1, mps. Default: the best there is."})
    quiet: bool = field(default=False, metadata={"help": "No progress bar."})


class HelpFormat(RawDescriptionHelpFormatter, ArgumentDefaultsHelpFormatter):
    """Keeps the line breaks of the examples and shows defaults."""


class BenchmarkEvaluator(Protocol):
    """What this program needs of an evaluator."""

    def evaluate(self, model: SentenceTransformer) -> BenchmarkResult: ...


def tatoeba(arguments: Arguments) -> BenchmarkEvaluator:
    from st_xlret.evaluation import TatoebaEvaluator

    options: dict[str, Any] = {
        "layer": arguments.layer,
        "pooling": None if arguments.pooling == "auto" else arguments.pooling,
        "language_as_task": arguments.language_as_task,
        "calibration": load_calibration(arguments.calibration),
        "batch_size": arguments.batch_size,
        "max_sentences": arguments.max_sentences,
        "show_progress_bar": not arguments.quiet,
    }
    if arguments.data is None:
        return TatoebaEvaluator.from_hub(arguments.languages, **options)
    return TatoebaEvaluator.from_directory(arguments.data, arguments.languages, **options)


BENCHMARKS: dict[str, Callable[[Arguments], BenchmarkEvaluator]] = {"tatoeba": tatoeba}
# The published average that is over a benchmark's whole number of languages.
WHOLE_BENCHMARK = {"tatoeba": (112, "average_112")}


def load_calibration(path: str | None) -> Any:
    if path is None:
        return None
    from st_xlret.modules.calibration_layer import CalibrationLayer

    if not os.path.isdir(path):
        raise ValueError(f"--calibration {path}: no such folder; give one that CalibrationLayer.save wrote.")
    return CalibrationLayer.load(path)


def load_model(name: str, device: str | None) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    looks_local = name.startswith((".", "/", "~")) or name.count("/") > 1
    if looks_local and not os.path.isdir(os.path.expanduser(name)):
        raise ValueError(f"--model {name}: no such folder.")
    if os.path.isdir(name) and not any(
        os.path.isfile(os.path.join(name, file)) for file in ("modules.json", "config.json")
    ):
        raise ValueError(f"--model {name}: the folder holds no model (neither modules.json nor config.json).")
    try:
        return SentenceTransformer(os.path.expanduser(name), device=device)
    except (OSError, ValueError) as error:
        offline = " HF_HUB_OFFLINE is set: only folders and cached models can be loaded."
        hint = offline if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") else ""
        raise ValueError(f"--model {name} cannot be loaded: {error}{hint}") from error


def tables(arguments: Arguments, result: BenchmarkResult) -> str:
    from st_xlret.evaluation import published_rows, results_table, scores_table

    published = published_rows(result.benchmark)
    shared = [language for language in result.scores if any(language in row.scores for row in published)]
    size, average = WHOLE_BENCHMARK.get(result.benchmark, (0, ""))
    name = os.path.basename(os.path.normpath(arguments.model))
    parts = [f"{result.benchmark}, {arguments.model}, in percent", scores_table(result)]
    parts.append("\n".join(f"{key}: {value}" for key, value in result.protocol.items()))
    if shared and arguments.max_sentences is None:
        whole = average if len(result.scores) == size else None
        comparison = results_table(
            result, model_name=name, published=published, languages=shared, published_average=whole
        )
        parts += ["Beside published figures (the papers' own; other training data and sizes):", comparison]
    return "\n\n".join(parts)


def main(arguments: Arguments) -> None:
    if arguments.benchmark not in BENCHMARKS:
        raise ValueError(f"--benchmark {arguments.benchmark}: unknown; there are {sorted(BENCHMARKS)}.")
    if os.path.isdir(arguments.output):
        raise ValueError(f"--output {arguments.output} is a folder: give the name of a JSON file.")
    evaluator = BENCHMARKS[arguments.benchmark](arguments)
    model = load_model(arguments.model, arguments.device)
    result = evaluator.evaluate(model)

    from st_xlret.hub.saving import write_json_atomically

    write_json_atomically(
        arguments.output,
        {
            "benchmark": result.benchmark,
            "model": arguments.model,
            "scores": result.scores,
            "average": result.average,
            "protocol": result.protocol,
        },
    )
    print(tables(arguments, result))
    print(f"\nWritten to {arguments.output}")


if __name__ == "__main__":
    parser = HfArgumentParser(Arguments, description=__doc__, formatter_class=HelpFormat)  # type: ignore[arg-type]
    try:
        main(parser.parse_args_into_dataclasses()[0])
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
