r"""Train a retriever in English, and carry it to other languages by translations and plain text.

L = L_IR + w_s L_sema + w_l L_lang (Hu et al., 2023): questions find their English passages; translations are
drawn together; and every sentence, of languages without translations too, is to be as near to the one side of
a translation as to the other. The paper's setting, on one or several GPUs:

    torchrun --nproc-per-node 8 training_scripts/train_language_agnostic_ir.py --model xlm-roberta-base \
        --retrieval biencoder-nq-train.json --hard-negatives 1 --wikimatrix WikiMatrix.*.tsv.gz \
        --pairs-per-language 50000 --documents docs/ --output runs/ir --batch-size 6 --learning-rate 1e-5

On one CPU core in minutes, with parallel sentences for some languages only (Table 5):

    python training_scripts/train_language_agnostic_ir.py --from-scratch static --retrieval squad/train \
        --pairs pairs/ --no-parallel th hi --documents docs/ --output runs/static --batch-size 256 \
        --learning-rate 1e-2 --max-grad-norm 0 --max-steps 1500 --semantic-weight 1 --language-weight 1

Every step takes a batch of each kind and sums the weighted losses, one backward pass at a time: the memory is
that of the largest part. --model takes any checkpoint, such as what train_ccp.py wrote; --two-encoders makes
it one for questions and one for passages. --connections names the language pairs of Table 4. With
--test, the finished model is measured on XQuAD-R, zero-shot, and none of its questions is trained on.

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

from datasets import Dataset
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from transformers import HfArgumentParser, set_seed

from st_xlret.data import hold_out_pairs
from st_xlret.data.pairs.holdout import by_language
from st_xlret.data.retrieval.holdout import hold_out_questions
from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.evaluation.lareqa import LAReQAEvaluator, read_lareqa
from st_xlret.files import check_output_directory
from st_xlret.hub import PushError, check_push, set_card_data
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.finish import finish_training
from st_xlret.training.hard_negatives import NegativeArguments
from st_xlret.training.ir_data import IRDataArguments, describe_languages
from st_xlret.training.ir_run import IROptions, build_ir_trainer, with_two_encoders
from st_xlret.training.lazy_adam import use_lazy_adam
from st_xlret.training.run_arguments import HelpFormat, RunArguments
from st_xlret.training.running import train

logger = logging.getLogger("train_language_agnostic_ir")


@dataclass
class EvaluationArguments:
    """What the finished model is measured on."""

    test: str | None = field(
        default=None,
        metadata={"help": "XQuAD-R, as a BEIR folder or LAReQA's release; its questions are not trained on."},
    )


@dataclass
class IRRunArguments(RunArguments):
    """Where a run writes, how long it trains and with what; the paper's numbers where it says."""

    batch_size: int = field(
        default=48, metadata={"help": "Questions per device and step; the paper's 48 are over all of 8 devices."}
    )
    learning_rate: float = field(
        default=1e-5,
        metadata={"help": "Peak learning rate. 1e-5 is the paper's for XLM-R, 1e-3 suits mini, 1e-2 static."},
    )


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns what results.json holds."""
    parser = HfArgumentParser(
        [EncoderArguments, IRDataArguments, NegativeArguments, IROptions, EvaluationArguments, IRRunArguments],
        description=__doc__,
        formatter_class=HelpFormat,
    )
    encoder, data, negatives, options, test, run = parser.parse_args_into_dataclasses(arguments)
    if data.connections == "none":
        options.semantic_weight = options.language_weight = 0.0
    run.refuse_foreign_checkpoints()
    check_output_directory(Path(run.output) / "model", overwrite=run.overwrite)
    if run.push_to_hub:
        check_push(run.push_to_hub)
    set_seed(run.seed)

    retrieval = data.load_retrieval(read_lareqa(test.test).queries.texts if test.test else ())
    pairs = data.load_pairs() if options.semantic_weight or options.language_weight else None
    others = data.load_others(run.seed) if options.language_weight else None
    keep = run.resume or not run.overwrite
    questions = None
    if data.evaluation_questions:
        retrieval, questions = hold_out_questions(retrieval, data.evaluation_questions, seed=run.seed)
    held_out = None
    if pairs is not None and data.evaluation_pairs:
        pairs, held_out = hold_out_pairs(pairs, data.evaluation_pairs, seed=run.seed)
    retrieval = negatives.mine(retrieval, encoder.model, Path(run.output) / "negatives", keep=keep)
    languages = describe_languages(pairs, others)
    for kind, codes in languages.items():
        logger.info("%s: %s", kind.replace("_", " "), ", ".join(codes) or "none")

    texts = [(retrieval, side, "language") for side in ("query", "positive")]
    if pairs is not None:
        texts += [(pairs, side, f"{side}_language") for side in ("source", "target")]
    if others is not None:
        texts.append((others, "sentence", "language"))
    model = encoder.build(texts, tokenizer_folder=Path(run.output) / "tokenizer", keep_tokenizer=keep, seed=run.seed)
    if options.two_encoders:
        model = with_two_encoders(model)
    codes = sorted({data.pivot, *languages["with_parallel"], *languages["without_parallel"]})
    set_card_data(model, languages=codes, tags=["language-agnostic-retrieval"])

    evaluators = make_evaluators(questions, held_out)
    metric = "eval_questions_cosine_mrr@10" if questions is not None and len(questions) else None
    args = run.to_host(metric=metric)
    trainer = build_ir_trainer(model, retrieval, pairs, others, options, args, evaluator=evaluators if metric else None)
    if run.lazy_adam:
        use_lazy_adam(trainer)
    started = time.perf_counter()
    train(trainer, run)
    results: dict[str, Any] = {
        "command": shlex.join(
            ["python", "training_scripts/train_language_agnostic_ir.py", *(arguments or sys.argv[1:])]
        ),
        "seconds": round(time.perf_counter() - started, 1),
        "steps": trainer.state.global_step,
        "languages": languages,
        "questions": len(retrieval),
        "pairs": 0 if pairs is None else len(pairs),
        "others": 0 if others is None else len(others),
    }
    if trainer.is_world_process_zero():
        for evaluator in evaluators:
            results.setdefault("held_out", {}).update(evaluator(model))
        if test.test:
            result = LAReQAEvaluator.from_directory(test.test).evaluate(model)
            results["xquad_r"] = {"scores": result.scores, "average": result.average, "protocol": result.protocol}
        finish_training(model, trainer, run, results)
    return results


def make_evaluators(questions: Dataset | None, pairs: Dataset | None) -> list[BaseEvaluator]:
    """Retrieval of the passages of held-out questions, and of the translations of held-out sentences."""
    evaluators: list[BaseEvaluator] = []
    if questions is not None and len(questions):
        passages = {text: f"p{i}" for i, text in enumerate(dict.fromkeys(questions["positive"]))}
        evaluators.append(
            InformationRetrievalEvaluator(
                queries={f"q{i}": text for i, text in enumerate(questions["query"])},
                corpus={name: text for text, name in passages.items()},
                relevant_docs={f"q{i}": {passages[text]} for i, text in enumerate(questions["positive"])},
                name="questions",
                write_csv=False,
            )
        )
    if pairs is not None and len(pairs):
        evaluators.append(TatoebaEvaluator(by_language(pairs), name="pairs", language_metrics=False))
    return evaluators


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        main()
    except (ValueError, OSError, PushError) as error:
        sys.exit(f"error: {error}")
