r"""Fine-tune an encoder for retrieval: questions with passages in, in one language or many; a retriever out.

A question is to find its passage among those of the batch (Karpukhin et al., EMNLP 2020). This is the second stage of
the papers, after pre-training by CCP or MSM. On Natural Questions as MSM does it (appendix A.1), on 8 GPUs:

    torchrun --nproc-per-node 8 training_scripts/train_retriever.py training_scripts/recipes/retriever-nq.yaml \
        --per_device_train_batch_size 16 --model runs/msm/model --retrieval biencoder-nq-train.json --output_dir runs/nq

Then on questions and passages of eleven languages, from the model of the stage before:

    torchrun --nproc-per-node 8 training_scripts/train_retriever.py training_scripts/recipes/retriever-mr-tydi.yaml \
        --per_device_train_batch_size 16 --model runs/nq/model --retrieval mr-tydi/ --output_dir runs/mr-tydi

Every row has the language of its question. The negatives are the other passages of the batch, those of the other
devices too, and with --hard_negatives some of each question's own, which the files hold or the model finds before it is
trained. No batch has a passage that answers two of its questions. Two encoders (--two_encoders) train one of questions
and another of passages. With --test, the finished model is measured on XQuAD-R. Interrupted? The same command with
--resume repeats what the uninterrupted run would have done. The model is in OUTPUT_DIR/model, the scores in
OUTPUT_DIR/results.json, the curves in OUTPUT_DIR/training.png.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from sentence_transformers.util import cos_sim, dot_score
from torch import nn

from st_xlret import CrossLingualDataCollator, LossMonitorCallback, LossStateCallback
from st_xlret.data import DistinctBatches
from st_xlret.hub import set_card_data
from st_xlret.modules.two_encoders import freeze_unused, router_mapping, with_two_encoders
from st_xlret.options import option, parse
from st_xlret.training import arguments as shared
from st_xlret.training import run as runs
from st_xlret.training.arguments import LazyAdamArguments, RunArguments
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.held_out import compare, keep_best
from st_xlret.training.lazy_adam import use_lazy_adam
from st_xlret.training.questions import QuestionArguments
from st_xlret.training.script import command, run_script


@dataclass
class RetrieverArguments:
    """The method."""

    _argument_group_name = "method"

    temperature: float = option(
        0.05, "Divisor of the similarities. DPR, which the papers follow, has 1 with --similarity dot.", above=0
    )
    similarity: str = option(
        "cosine",
        "How vectors are compared, in training and by the finished model. DPR, which the papers follow, has dot.",
        choices=["cosine", "dot"],
    )
    mini_batch_size: int | None = option(
        None,
        "Embed so many texts at a time (gradient caching): a large batch fits into memory, at about a fifth more time.",
        minimum=1,
    )
    language_smoothing: float = option(
        1.0,
        "Languages are sampled in proportion to their size raised to this power. 1: every question comes once in an "
        "epoch. 0: all languages are sampled alike.",
        minimum=0,
        maximum=1,
    )
    language_mixing: float = option(
        1.0,
        "1: a batch mixes the languages, as DPR's program does. 0: it is of one, so that negatives are in the language "
        "of the passage.",
        minimum=0,
        maximum=1,
    )
    two_encoders: bool = option(
        False,
        "Train an encoder of questions and another of passages, as DPR does, instead of a shared one. A model that has "
        "two already is trained on as it is.",
    )


@dataclass
class TrainingArguments(shared.TrainingArguments):
    """The host's training arguments with defaults for fine-tuning."""

    max_steps: int = option(-1, "Optimizer steps. By default whole epochs (--num_train_epochs).")
    num_train_epochs: float = option(3.0, "Passes over the questions.", above=0)
    per_device_train_batch_size: int = option(32, "Questions in a batch, per device.", minimum=1, per_device=True)
    learning_rate: float = option(2e-5, "Peak learning rate. 2e-5 suits XLM-R, 5e-4 a small Transformer from scratch.")


def build_loss(model: SentenceTransformer, options: RetrieverArguments) -> nn.Module:
    """The host's contrastive loss over the passages of all devices, with gradient caching if asked for."""
    common: dict[str, Any] = {
        "scale": 1 / options.temperature,
        "similarity_fct": dot_score if options.similarity == "dot" else cos_sim,
        "gather_across_devices": True,
    }
    if options.mini_batch_size is None:
        return MultipleNegativesRankingLoss(model, **common)
    return CachedMultipleNegativesRankingLoss(model, mini_batch_size=options.mini_batch_size, **common)


def build_batches(options: RetrieverArguments) -> DistinctBatches:
    """Batches of questions no two of which have the same passage."""
    return DistinctBatches(language_smoothing=options.language_smoothing, language_mixing=options.language_mixing)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns the content of results.json."""
    groups = [
        EncoderArguments,
        QuestionArguments,
        RetrieverArguments,
        LazyAdamArguments,
        RunArguments,
        TrainingArguments,
    ]
    encoder, data, options, static, run, args = parse(groups, arguments, description=__doc__)
    runs.start(args, run, encoder, data, options, static)

    # 1. Data: questions with passages, some of which are held out, and hard negatives.
    questions, evaluator = data.hold_out_questions(data.load_questions(languages=data.languages), args.seed)
    questions = data.add_hard_negatives(questions, encoder.model, args, run)
    languages = dict(Counter(questions["language"]).most_common())

    # 2. The encoder, or two of them, which start alike.
    model = encoder.load([(questions, side, "language") for side in ("query", "positive")], args, run)
    if options.two_encoders:
        model = with_two_encoders(model)
    model.similarity_fn_name = options.similarity
    if routes := router_mapping(model, {"questions": questions}).get("questions", {}):
        freeze_unused(model)
        args.ddp_find_unused_parameters = False
    set_card_data(model, languages=sorted(languages), tags=["retrieval"])

    # 3. The loss, and batches without false negatives.
    loss = build_loss(model, options)
    args.batch_sampler = build_batches(options)
    metric = f"eval_questions_{options.similarity}_mrr@10"
    keep_best(args, None if evaluator is None else metric)

    # 4. The host's Trainer. The callbacks hand prompts to the collator and watch the weights.
    static_encoder = any(isinstance(module, StaticEmbedding) for module in model.modules())
    trainer = SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=questions,
        loss=loss,
        evaluator=evaluator,
        data_collator=CrossLingualDataCollator(
            model.preprocess,
            router_mapping=routes,
            token_dropout=static.token_dropout if static_encoder else 0.0,
        ),
        callbacks=[LossStateCallback(loss), LossMonitorCallback(loss)],
    )
    if static.lazy_adam:
        use_lazy_adam(trainer)

    # 5. Train, measure and save.
    results = {
        "command": command("training_scripts/train_retriever.py", arguments),
        **runs.train(trainer, run),
        "questions": len(questions),
        "languages": languages,
    }
    if trainer.is_world_process_zero():
        if evaluator is not None:
            results["held_out"] = evaluator(model)
        compare(results, results.get("held_out", {}))
        if lareqa := data.lareqa():
            result = lareqa.evaluate(model)
            results["xquad_r"] = {"scores": result.scores, "average": result.average, "protocol": result.protocol}
    runs.finish(model, trainer, run, results)
    return results


if __name__ == "__main__":
    run_script(main)
