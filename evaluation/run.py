r"""Evaluates a Sentence Transformer on a published benchmark and shows its scores beside the papers'.

Tatoeba (nearest-neighbour accuracy between 112 languages and English), from a local copy:

    python evaluation/run.py --model runs/ccp/model --benchmark tatoeba --data LASER/data/tatoeba/v1 \
        --languages fr de zh --output tatoeba.json

LAReQA (answers in 11 languages from one pool of sentences), from its release, sentences read in their paragraph:

    python evaluation/run.py --model runs/ccp/model --benchmark lareqa --data lareqa/xquad-r --context \
        --output lareqa.json

Mr.TyDi from the Hugging Face Hub, with the passages' embeddings kept on disk: run it again to go on where it
stopped, or under torchrun with --distributed to share the work among processes:

    python evaluation/run.py --model runs/ccp/model --benchmark mrtydi --embedding-cache embeddings \
        --output mrtydi.json

Without --data a benchmark is loaded from the Hugging Face Hub (or its cache, with HF_HUB_OFFLINE=1), if it is there.
The CCP paper averages the hidden states of layer 14 of its 24-layer model: --layer 14.
A calibrated model that st-xlret exported takes the language as its task: --language-as-task.
Scores go to the output file, fractions in [0, 1]; tables in Markdown go beside it, under the same name with .md. A
published row whose split or protocol is another says so, and what differs is said below the table.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transformers import HfArgumentParser

from st_xlret.evaluation.benchmarks import BENCHMARKS, benchmark
from st_xlret.training.run_arguments import HelpFormat

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

ON_HUB = ", ".join(known.name for known in BENCHMARKS.values() if known.hub)
LAYOUTS = "; ".join(f"{known.name}: {known.layout}" for known in BENCHMARKS.values())


@dataclass
class Arguments:
    """What to evaluate, on what, and how."""

    model: str = field(metadata={"help": "A model: a folder, or a name on the Hugging Face Hub."})
    output: str = field(
        metadata={"help": "JSON file for the scores (fractions in [0, 1]); an existing one is replaced at the end."}
    )
    benchmark: str = field(default="tatoeba", metadata={"help": f"One of {', '.join(BENCHMARKS)}."})
    data: str | None = field(
        default=None,
        metadata={"help": f"Folder of the benchmark's files. Default: load {ON_HUB} from the Hub. {LAYOUTS}."},
    )
    languages: list[str] | None = field(
        default=None,
        metadata={"help": "Languages (of the questions), such as fr de zh. Default: all of the benchmark's."},
    )
    split: str | None = field(
        default=None,
        metadata={
            "help": "Part of the benchmark, such as dev; lareqa: test-same-language. Default: test; for xor-retrieve "
            "dev, as the answers to its test questions are not published; for bucc from the Hub training, as that is "
            "what is there."
        },
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
    similarity: str | None = field(
        default=None, metadata={"help": "Retrieval by cosine or dot. Default: the model's own."}
    )
    query_prompt: str | None = field(
        default=None, metadata={"help": "Put before queries. Default: the model's own prompt for queries."}
    )
    document_prompt: str | None = field(
        default=None, metadata={"help": "Put before documents. Default: the model's own prompt for documents."}
    )
    context: bool = field(
        default=False,
        metadata={
            "help": "lareqa: a candidate is the sentence followed by its paragraph, as the papers' models read it, "
            "in place of the sentence alone."
        },
    )
    language_as_task: bool = field(
        default=False,
        metadata={"help": "Call encode(texts, task=LANGUAGE), which routes texts through a calibrated model's maps."},
    )
    calibration: str | None = field(
        default=None, metadata={"help": "Folder of a saved CalibrationLayer to apply to the embeddings."}
    )
    embedding_cache: str | None = field(
        default=None, metadata={"help": "Folder to keep the corpus's embeddings in: a killed run goes on there."}
    )
    devices: list[str] | None = field(
        default=None,
        metadata={"help": "With --embedding-cache: encode with a process on each of these, such as cuda:0 cuda:1."},
    )
    distributed: bool = field(
        default=False, metadata={"help": "With --embedding-cache under torchrun: share the corpus among processes."}
    )
    batch_size: int = field(default=128, metadata={"help": "Texts per forward pass."})
    max_sentences: int | None = field(
        default=None,
        metadata={
            "help": "tatoeba: only the first so many sentences per language: quicker, but easier than the "
            "benchmark, so that published figures are not comparable."
        },
    )
    device: str | None = field(default=None, metadata={"help": "cpu, cuda, cuda:1, mps. Default: the best there is."})
    quiet: bool = field(default=False, metadata={"help": "No progress bar."})


def evaluator_options(arguments: Arguments) -> dict[str, Any]:
    """What every evaluator takes, and what was asked for besides: an evaluator refuses what it does not know."""
    asked_for = {
        "split": arguments.split,
        "similarity": arguments.similarity,
        "query_prompt": arguments.query_prompt,
        "document_prompt": arguments.document_prompt,
        "context": arguments.context or None,
        "max_sentences": arguments.max_sentences,
        "embed_corpus": load_embedding_cache(arguments),
    }
    return {
        "layer": arguments.layer,
        "pooling": None if arguments.pooling == "auto" else arguments.pooling,
        "language_as_task": arguments.language_as_task,
        "calibration": load_calibration(arguments.calibration),
        "batch_size": arguments.batch_size,
        "show_progress_bar": not arguments.quiet,
        **{name: value for name, value in asked_for.items() if value is not None},
    }


def load_embedding_cache(arguments: Arguments) -> Any:
    if arguments.embedding_cache is None:
        if arguments.distributed:
            raise ValueError("--distributed needs --embedding-cache, where the processes put what they encode.")
        if arguments.devices:
            raise ValueError(f"--devices {' '.join(arguments.devices)} needs --embedding-cache.")
        return None
    from st_xlret.evaluation.cache import EmbeddingCache

    return EmbeddingCache(
        arguments.embedding_cache,
        devices=arguments.devices,
        distributed=arguments.distributed,
        show_progress_bar=not arguments.quiet,
    )


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


def main(arguments: Arguments) -> None:
    known = benchmark(arguments.benchmark)
    if os.path.isdir(arguments.output):
        raise ValueError(f"--output {arguments.output} is a folder: give the name of a JSON file.")
    evaluator = known.load(arguments.data, arguments.languages, evaluator_options(arguments))
    result = evaluator.evaluate(load_model(arguments.model, arguments.device))
    if int(os.environ.get("RANK", "0")) > 0:
        return  # every process of torchrun has the result; one writes it

    from st_xlret.evaluation.reporting.report import report, result_as_json
    from st_xlret.files import write_json_atomically, write_text_atomically

    text = report(result, arguments.model)
    write_json_atomically(arguments.output, result_as_json(result, arguments.model))
    tables = Path(arguments.output).with_suffix(".md")
    write_text_atomically(str(tables), f"{text}\n")
    print(text)
    print(f"\nWritten to {arguments.output} and {tables}")


if __name__ == "__main__":
    parser = HfArgumentParser(Arguments, description=__doc__, formatter_class=HelpFormat)  # type: ignore[arg-type]
    try:
        main(parser.parse_args_into_dataclasses()[0])
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
