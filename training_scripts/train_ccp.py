"""Train a cross-lingual encoder by contrastive context prediction: documents in, a Sentence Transformer out.

The paper's setting, from a checkpoint, on one or several GPUs:

    torchrun --nproc-per-node 4 training_scripts/train_ccp.py --model xlm-roberta-base \
        --documents docs/*.jsonl.gz --output runs/ccp --batch-size 32 --max-steps 20000

On two CPU cores in minutes, with some parallel sentences:

    python training_scripts/train_ccp.py --from-scratch static --documents docs/ --pairs pairs/ \
        --output runs/static --batch-size 512 --learning-rate 1e-2 --max-grad-norm 0 --max-steps 3000

Documents are JSON lines {"language": "fr", "sentences": [...]} or {"language": "fr", "text": "..."}, pairs
are {"source_language", "target_language", "source", "target"}; both may be gzipped, or folders of such files.
Interrupted? The same command with --resume goes on from the last checkpoint and repeats what an uninterrupted
run would have done. The model is in OUTPUT/model, the curves in OUTPUT/training.png, the scores in
OUTPUT/results.json.
"""

from __future__ import annotations

import logging
import shlex
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, concatenate_datasets
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import HfArgumentParser, set_seed

from st_xlret.data import (
    hold_out_pairs,
    load_documents_with_report,
    load_hub_documents,
    load_pairs_with_report,
    normalise_text,
    pairs_from_dictionary,
    pairs_from_parallel_documents,
)
from st_xlret.data.holdout import by_language
from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.hub import PushError, check_output_directory, check_push, set_card_data
from st_xlret.hub.finish import finish_run
from st_xlret.training import CCPOptions, build_ccp_trainer
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.run_arguments import (
    HelpFormat,
    RunArguments,
    last_complete_checkpoint,
    remove_checkpoints,
    remove_unfinished_checkpoint,
    restore_finished_run,
)

logger = logging.getLogger("train_ccp")


@dataclass
class DataArguments:
    """What to train on."""

    documents: list[str] = field(default_factory=list, metadata={"help": "Document files or folders."})
    hub_documents: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Hugging Face datasets of texts: NAME:CONFIG=LANGUAGE, such as wikimedia/wikipedia:20231101.fr=fr."
        },
    )
    pairs: list[str] = field(default_factory=list, metadata={"help": "Files or folders of parallel sentences."})
    parallel_documents: list[str] = field(
        default_factory=list,
        metadata={"help": "Documents with verse references: equal references are parallel sentences."},
    )
    dictionaries: list[str] = field(
        default_factory=list,
        metadata={"help": "Word lists, two columns; the languages are read off names like WORDS.en-fr.tsv.gz."},
    )
    languages: list[str] = field(default_factory=list, metadata={"help": "Languages to keep (ISO 639-1); default all."})
    pairs_per_language: int | None = field(
        default=None,
        metadata={"help": "At most so many pairs per language pair; the 500 are among the 5000."},
    )
    exclude: list[str] = field(
        default_factory=list,
        metadata={"help": "Text files whose lines must not be in the pairs, such as a test set's English side."},
    )
    skip_bad_lines: bool = field(default=False, metadata={"help": "Count bad lines instead of stopping at the first."})
    evaluation_pairs: int = field(
        default=200,
        metadata={"help": "Pairs per language to put aside, to evaluate and choose the best model by."},
    )

    def __post_init__(self) -> None:
        if not (self.documents or self.hub_documents or self.pairs or self.parallel_documents or self.dictionaries):
            raise ValueError(
                "nothing to train on: give --documents, --hub-documents, --pairs, --parallel-documents or "
                "--dictionaries"
            )

    def load_pairs(self) -> Dataset | None:
        """All parallel data as one dataset."""
        lines = (line for file in self.exclude for line in Path(file).read_text(encoding="utf-8").splitlines())
        options: dict[str, Any] = {
            "per_language": self.pairs_per_language,
            "exclude": {normalise_text(line) for line in lines},
            "skip_bad_lines": self.skip_bad_lines,
        }
        languages = self.languages or None
        parts = []
        if self.pairs:
            part, report = load_pairs_with_report(self.pairs, languages=languages, **options)
            logger.info("%s", report)
            parts.append(part)
        if self.parallel_documents:
            parts.append(pairs_from_parallel_documents(self.parallel_documents, languages=languages, **options))
        for file in self.dictionaries:
            source, target = languages_of_dictionary(file)
            if not languages or {source, target} <= set(languages):
                parts.append(pairs_from_dictionary([file], source, target, **options))
        return concatenate_datasets(parts) if parts else None

    def load_documents(self) -> Dataset | None:
        """All documents as one dataset of sentences."""
        sources = [*self.documents, *(load_hub_documents(name) for name in self.hub_documents)]
        if not sources:
            return None
        dataset, report = load_documents_with_report(
            sources, languages=self.languages or None, skip_bad_lines=self.skip_bad_lines
        )
        logger.info("%s", report)
        return dataset


def languages_of_dictionary(file: str) -> tuple[str, str]:
    """The two languages in a name like WORDS.en-fr.tsv.gz."""
    for part in Path(file).name.split(".")[:-1]:
        source, dash, target = part.partition("-")
        if dash and 2 <= len(source) <= 3 and 2 <= len(target) <= 7:
            return source, target
    raise ValueError(f"{file!r} does not name its languages, as WORDS.en-fr.tsv.gz does")


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns what results.json holds."""
    parser = HfArgumentParser(
        [EncoderArguments, DataArguments, CCPOptions, RunArguments],
        description=__doc__,
        formatter_class=HelpFormat,
    )
    encoder, data, options, run = parser.parse_args_into_dataclasses(arguments)
    run.refuse_foreign_checkpoints()
    check_output_directory(Path(run.output) / "model", overwrite=run.overwrite)
    if run.push_to_hub:
        check_push(run.push_to_hub)
    set_seed(run.seed)

    documents, pairs = data.load_documents(), data.load_pairs()
    if documents is None and pairs is None:
        raise ValueError(f"no word list is of the languages {', '.join(data.languages)}")
    evaluator = None
    if pairs is not None and data.evaluation_pairs:
        pairs, held_out = hold_out_pairs(pairs, data.evaluation_pairs, seed=run.seed)
        if len(held_out):
            evaluator = TatoebaEvaluator(by_language(held_out), name="pairs", language_metrics=False)
    texts = [] if documents is None else [(documents, "sentence", "language")]
    if pairs is not None:
        texts += [(pairs, side, f"{side}_language") for side in ("source", "target")]
    model = encoder.build(
        texts,
        tokenizer_folder=Path(run.output) / "tokenizer",
        keep_tokenizer=run.resume or not run.overwrite,
        seed=run.seed,
    )
    languages = sorted({code for dataset, _, column in texts for code in dataset.unique(column)})
    set_card_data(model, languages=languages, tags=["ccp"])

    args = run.to_host(metric="eval_pairs_average_accuracy" if evaluator else None)
    trainer = build_ccp_trainer(model, documents, pairs, options, args, evaluator=evaluator)
    started = time.perf_counter()
    train(trainer, run)
    results: dict[str, Any] = {
        "command": shlex.join(["python", "training_scripts/train_ccp.py", *(arguments or sys.argv[1:])]),
        "seconds": round(time.perf_counter() - started, 1),
        "steps": trainer.state.global_step,
        "languages": languages,
        "sentences": 0 if documents is None else len(documents),
        "pairs": 0 if pairs is None else len(pairs),
    }
    if trainer.is_world_process_zero():
        if evaluator is not None:
            evaluation = evaluator.evaluate(model)
            results["held_out_pairs"] = {"scores": evaluation.scores, "average": evaluation.average}
        try:
            path = finish_run(
                model,
                run.output,
                results,
                history=trainer.state.log_history,
                overwrite=run.overwrite,
                repo_id=run.push_to_hub,
            )
        except OSError as error:
            raise SystemExit(f"the training is done, but: {error}\n{way_on(run)}") from error
        show_example(model, path)
    return results


def train(trainer: SentenceTransformerTrainer, run: RunArguments) -> None:
    """Train, from the last complete checkpoint on if asked to; say how to go on where it stops early."""
    checkpoint = last_complete_checkpoint(run.checkpoints) if run.resume else None
    if run.resume:
        logger.info("going on from %s", checkpoint or "the start: there is no complete checkpoint")
    elif trainer.is_world_process_zero():
        remove_checkpoints(run.checkpoints)
    if checkpoint and restore_finished_run(trainer, checkpoint):
        return
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except (Exception, KeyboardInterrupt) as error:
        step, reason = trainer.state.global_step, str(error) or type(error).__name__
        # A full disk shows itself as OSError, SafetensorError or RuntimeError, as the file is.
        if trainer.is_world_process_zero() and remove_unfinished_checkpoint(run.checkpoints, step):
            reason = f"its checkpoint could not be written: is the disk full? {reason}"
        elif not isinstance(error, OSError | FloatingPointError | KeyboardInterrupt):
            raise
        raise SystemExit(f"stopped at step {step}: {reason}\n{way_on(run)}") from error


def way_on(run: RunArguments) -> str:
    """How to go on after a run that stopped."""
    kept = last_complete_checkpoint(run.checkpoints)
    if kept is None:
        return "there is no checkpoint to go on from"
    return f"{kept} is whole: the same command with --resume goes on from it"


def show_example(model: SentenceTransformer, path: Path) -> None:
    """Say where the model is and how to use it."""
    kind = "static" if isinstance(model[0], StaticEmbedding) else "Transformer"
    print(f"\nThe {kind} model is in {path}. Use it with Sentence Transformers alone:\n")
    print(f'    from sentence_transformers import SentenceTransformer\n    model = SentenceTransformer("{path}")')
    print('    model.similarity(model.encode(["good morning"]), model.encode(["bonjour"]))\n')


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        main()
    except (ValueError, OSError, PushError) as error:
        sys.exit(f"error: {error}")
