r"""Fine-tune an encoder on English pairs and measure it in other languages: XNLI and PAWS-X.

    python evaluation/xtreme.py --model runs/ml-ctl/model --task xnli --data XNLI --output xnli.json
    python evaluation/xtreme.py --model runs/ml-ctl/model --task paws-x --data x-final \
        --output paws-x.json

The ML-CTL paper (Table 1) reports both in XTREME's setting, zero-shot: a classifier that reads both
sentences at once is fine-tuned on English pairs, the epoch with the best accuracy on English dev
pairs is kept, and accuracy is measured on the test sets of all languages and averaged. The defaults
are XTREME's for base models. Of the model, only the Transformer is used. The output holds the
accuracies as fractions in [0, 1], and a table beside it the published ones.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from datasets import Dataset
from sentence_transformers import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder.losses import CrossEntropyLoss

from st_xlret.data.reading import DataError, read_lines
from st_xlret.data.sources import find_file
from st_xlret.evaluation import BenchmarkResult, macro_average, published_rows, results_table
from st_xlret.evaluation.base import chosen_names, name_file_in_errors
from st_xlret.files import PathLike, check_output_file, file_beside, write_json, write_text
from st_xlret.hub.loading import load_model
from st_xlret.options import check_options, option, parse
from st_xlret.precision import PRECISIONS, resolve_precision

_ENGLISH = "en"


class LabelledPair(NamedTuple):
    """Two sentences and the number of their label."""

    first: str
    second: str
    label: int


@dataclass(frozen=True)
class PairTask:
    """A task on pairs of sentences.

    Attributes:
        training: Its training file.
        columns: Those of the sentences and the label in that file.
    """

    name: str
    labels: tuple[str, ...]
    languages: tuple[str, ...]
    training: str
    columns: tuple[str, str, str]


_XNLI = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")
_PAWS_X = ("de", "en", "es", "fr", "ja", "ko", "zh")
PAIR_TASKS = {
    "xnli": PairTask(  # XNLI-MT-1.0 and XNLI-1.0
        name="xnli",
        labels=("contradiction", "entailment", "neutral"),
        languages=_XNLI,
        training="multinli.train.en.tsv",
        columns=("premise", "hypo", "label"),
    ),
    "paws-x": PairTask(  # x-final
        name="paws-x",
        labels=("0", "1"),
        languages=_PAWS_X,
        training="en/train.tsv",
        columns=("sentence1", "sentence2", "label"),
    ),
}

Pairs: TypeAlias = dict[str, list[LabelledPair]]
"""Language to pairs."""


def read_training_pairs(task: PairTask, folder: PathLike) -> list[LabelledPair]:
    """The English training pairs, from the folder of the published files or one above it."""
    file = _find_task_file(folder, task.training)
    return _read_pairs(task, file, task.columns)[_ENGLISH]


def read_evaluation_pairs(
    task: PairTask, folder: PathLike, split: str, languages: Sequence[str] | None = None
) -> Pairs:
    """The pairs of a split, `"dev"` or `"test"`, in each language."""
    chosen = chosen_names(languages, task.languages, task.name)
    if task.name == "xnli":
        file = _find_task_file(folder, f"xnli.{split}.tsv")
        columns = ("sentence1", "sentence2", "gold_label", "language")
        in_all = _read_pairs(task, file, columns)
        return {code: in_all[code] for code in chosen_names(chosen, in_all, str(file))}
    files = {code: _find_task_file(folder, f"{code}/{split}_2k.tsv") for code in chosen}
    pairs: Pairs = {}
    for code, file in files.items():
        pairs[code] = _read_pairs(task, file, task.columns)[_ENGLISH]
    return pairs


def _read_pairs(task: PairTask, file: Path, columns: Sequence[str]) -> Pairs:
    """The pairs of a table with a header; quotation marks are part of the text.

    Without a fourth column, which has the language, all are English.
    """
    number_of = {label: number for number, label in enumerate(task.labels)}
    if "contradiction" in number_of:  # as the training file of XNLI-MT writes it
        number_of["contradictory"] = number_of["contradiction"]
    header: list[str] = []
    pairs: Pairs = {}
    for number, line in read_lines(file):
        cells = line.split("\t")
        if not header:
            header = cells
            continue
        with name_file_in_errors(file, number):
            row = dict(zip(header, cells, strict=True))
            first, second, label, *language = [row[column] for column in columns]
            pair = LabelledPair(first, second, number_of[label])
        code = language[0] if language else _ENGLISH
        pairs.setdefault(code, []).append(pair)
    if not pairs:
        raise DataError("no pairs", file=file)
    return pairs


def _find_task_file(folder: PathLike, name: str) -> Path:
    """A file of the task in the folder, or in one of those inside it, plain or gzip."""
    return find_file(folder, name, f"*/{name}", f"*/*/{name}")


@dataclass
class Arguments:
    """What to fine-tune, on what, and how."""

    model: str = option(None, "Encoder: a folder, or a name on the Hugging Face Hub.")
    data: str = option(None, "Folder of the published files of the task.")
    output: str = option(None, "JSON file for the accuracies.")
    task: str = option("xnli", "Task.", list(PAIR_TASKS))
    languages: list[str] | None = option(
        None, "Languages of the test sets. Default: all of the task."
    )
    num_train_epochs: float = option(5.0, "Epochs over the English pairs.")
    max_steps: int = option(-1, "Batches instead of epochs; the last state is then kept.")
    learning_rate: float = option(2e-5, "Learning rate at the beginning.")
    batch_size: int = option(32, "Pairs in a batch.")
    max_seq_length: int = option(128, "Tokens of a pair; longer ones are truncated.")
    precision: str = option(
        "fp32", "Number format: auto is bf16 where the device computes in it.", PRECISIONS
    )
    seed: int = option(0, "Seed of the new classification layer and of the order of the batches.")
    device: str | None = option(None, "cpu, cuda, cuda:1, mps. Default: the best there is.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the data, fine-tune, measure, and write the result."""
    (options,) = parse([Arguments], arguments, description=__doc__)
    check_options(options, "model", "data", "output")
    output = Path(options.output)
    tables = file_beside(output, ".md")
    for file in (output, tables):
        check_output_file(file, ours="xtreme")
    task = PAIR_TASKS[options.task]
    training = read_training_pairs(task, options.data)
    dev = read_evaluation_pairs(task, options.data, "dev", [_ENGLISH])[_ENGLISH]
    test = read_evaluation_pairs(task, options.data, "test", options.languages)

    model = build_classifier(options, task)
    fine_tune(model, options, training, dev)
    scores: dict[str, dict[str, float]] = {}
    for code, pairs in test.items():
        scores[code] = {"accuracy": accuracy(model, pairs, options.batch_size)}
    protocol = protocol_of(options, task, model, len(training))
    result = BenchmarkResult(task.name, scores, macro_average(scores), protocol)

    table = table_of(result, task, options.model)
    print(table, flush=True)
    write_json(output, result.as_json(options.model), ours="xtreme")
    write_text(tables, f"{table}\n", ours="xtreme")


def protocol_of(
    options: Arguments, task: PairTask, model: CrossEncoder, training_pairs: int
) -> dict[str, str]:
    """What determines the accuracies, apart from the weights of the encoder."""
    length = f"{options.num_train_epochs:g} epochs"
    if options.max_steps > 0:
        length = f"{options.max_steps} batches"
    training = [
        f"{training_pairs} English pairs",
        f"{length} of {options.batch_size}",
        f"learning rate {options.learning_rate:g}",
        f"seed {options.seed}",
    ]
    return {
        "task": f"{task.name}: classification of pairs of sentences, fine-tuned on English alone",
        "split": "test",
        "training": ", ".join(training),
        "precision": resolve_precision(options.precision, model.device),
    }


def table_of(result: BenchmarkResult, task: PairTask, model: str) -> str:
    """The accuracies beside the published ones."""
    average = None
    if len(result.scores) == len(task.languages):
        average = f"average_{len(task.languages)}"
    return results_table(
        result,
        model_name=Path(model).name,
        published=published_rows(task.name),
        published_average=average,
    )


def build_classifier(options: Arguments, task: PairTask) -> CrossEncoder:
    """The Transformer of an encoder with a new classification layer over both sentences."""
    import torch

    encoder = load_model(options.model, "cpu")
    if not isinstance(encoder[0], Transformer):
        first = type(encoder[0]).__name__
        raise ValueError(f"--model {options.model} starts with {first}, not with a Transformer.")
    torch.manual_seed(options.seed)  # of the new layer
    with tempfile.TemporaryDirectory() as folder:
        encoder[0].model.save_pretrained(folder)
        encoder.tokenizer.save_pretrained(folder)
        return CrossEncoder(
            folder,
            num_labels=len(task.labels),
            max_length=options.max_seq_length,
            device=options.device,
            local_files_only=True,
        )


def fine_tune(
    model: CrossEncoder, options: Arguments, training: list[LabelledPair], dev: list[LabelledPair]
) -> None:
    """Train on English pairs, and keep the epoch that is best on the dev pairs."""
    dataset = Dataset.from_list([pair._asdict() for pair in training])
    by_epoch = options.max_steps <= 0
    with tempfile.TemporaryDirectory() as folder:
        arguments = CrossEncoderTrainingArguments(
            output_dir=folder,
            num_train_epochs=options.num_train_epochs,
            max_steps=options.max_steps,
            per_device_train_batch_size=options.batch_size,
            learning_rate=options.learning_rate,
            bf16=resolve_precision(options.precision, model.device) == "bf16",
            use_cpu=model.device.type == "cpu",
            eval_strategy="epoch" if by_epoch else "no",
            save_strategy="epoch" if by_epoch else "no",
            save_total_limit=1,
            load_best_model_at_end=by_epoch,
            metric_for_best_model="eval_dev_accuracy" if by_epoch else None,
            greater_is_better=True,
            report_to="none",
            seed=options.seed,
        )
        evaluator = DevAccuracy(dev, options.batch_size) if by_epoch else None
        loss = CrossEntropyLoss(model)
        trainer = CrossEncoderTrainer(model, arguments, dataset, loss=loss, evaluator=evaluator)
        trainer.train()


class DevAccuracy(BaseEvaluator):
    """Accuracy on English dev pairs, by which the best epoch is chosen."""

    def __init__(self, pairs: Sequence[LabelledPair], batch_size: int) -> None:
        super().__init__()
        self.pairs = pairs
        self.batch_size = batch_size
        self.primary_metric = "dev_accuracy"

    def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:  # type: ignore[override]
        """The metric, as the host's Trainer calls it."""
        return {"dev_accuracy": accuracy(model, self.pairs, self.batch_size)}


def accuracy(model: CrossEncoder, pairs: Sequence[LabelledPair], batch_size: int) -> float:
    """The share of pairs whose label has the highest score; of equal scores, the first counts."""
    sentences = [(pair.first, pair.second) for pair in pairs]
    labels = np.array([pair.label for pair in pairs])
    scores = model.predict(sentences, batch_size=batch_size, show_progress_bar=False)
    return float(np.mean(scores.argmax(axis=1) == labels))


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
