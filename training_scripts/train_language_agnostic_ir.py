r"""Train a retriever on English questions, and carry it to other languages by translations and plain text.

The loss is L = L_IR + w_s L_sema + w_l L_lang (Hu et al., Findings of ACL 2023, Eq. 4). Questions find their English
passages; the semantic loss draws translations together; the language loss makes every sentence, also of languages
without translations, as similar to the one side of a translation as to the other. The paper's setting, on 8 GPUs:

    torchrun --nproc-per-node 8 training_scripts/train_language_agnostic_ir.py \
        training_scripts/recipes/language-agnostic-ir.yaml --per_device_train_batch_size 6 \
        --retrieval biencoder-nq-train.json --pairs WikiMatrix/ --output_dir runs/ir

On two CPU cores in minutes, a static encoder:

    python training_scripts/train_language_agnostic_ir.py --from_scratch static --retrieval squad/train --pairs pairs/ \
        --documents documents/ --output_dir runs/static --per_device_train_batch_size 256 --learning_rate 1e-2 \
        --max_grad_norm 0 --lazy_adam --token_dropout 0.15 --max_steps 1500 --semantic_weight 1

Every step takes a batch of each kind and runs backward on one loss after the other, so that the memory is that of the
largest part. --model takes any checkpoint, such as the model of train_ccp.py. With --test, the finished model is
measured on XQuAD-R, zero-shot, and none of its questions is trained on. Interrupted? The same command with --resume
repeats what the uninterrupted run would have done. The model is in OUTPUT_DIR/model, the scores in
OUTPUT_DIR/results.json, the curves in OUTPUT_DIR/training.png.

training_scripts/studies/train_ir_ablation.py has the paper's ablations (Tables 4 and 5, Figure 4), and these options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import nn

from st_xlret import (
    JointBatches,
    JointTrainer,
    LangContrastiveLoss,
    LossMonitorCallback,
    LossStateCallback,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
    TokenCountCallback,
)
from st_xlret.data.batches.joint import MixedRowsDataCollator, pairs_and_others
from st_xlret.hub import set_card_data
from st_xlret.modules.two_encoders import freeze_unused, router_mapping, with_two_encoders
from st_xlret.options import option, parse
from st_xlret.training import arguments as shared
from st_xlret.training import run as runs
from st_xlret.training.arguments import LazyAdamArguments, RunArguments
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.held_out import compare, keep_best
from st_xlret.training.lazy_adam import use_lazy_adam
from st_xlret.training.questions import RetrievalDataArguments
from st_xlret.training.script import command, run_script


@dataclass
class RetrieverArguments(EncoderArguments):
    """The encoder to train. One from scratch has the default size: it is there to try things out."""

    vocabulary: int = field(default=60_000, init=False)
    features: int = field(default=256, init=False)


@dataclass
class IRArguments:
    """The method; its defaults are the paper's, but for --temperature, --two_encoders and --language_smoothing."""

    _argument_group_name = "method"

    temperature: float = option(
        0.05,
        "Temperature of the retrieval loss. The paper's Eq. 1 has none, which is 1; 0.05 is the host's default.",
        above=0,
    )
    semantic_weight: float = option(
        0.01,
        "Factor w_s on the loss that draws translations together. 0 leaves it out. From scratch, 1 is better.",
        minimum=0,
    )
    language_weight: float = option(
        0.001,
        "Factor w_l on the language loss: as in Eq. 3, the sum of its terms divided by R (R - 2) for R sentences in a "
        "batch. With a trained encoder, whose cosines lie close together, 1 is still too small to count. 0 leaves it "
        "out.",
        minimum=0,
    )
    pairs_batch_size: int | None = option(
        None,
        "Parallel sentences in a batch, per device. By default --per_device_train_batch_size.",
        minimum=1,
        per_device=True,
    )
    language_smoothing: float = option(
        0.7,
        "Languages are sampled in proportion to their size raised to this power. 0 samples all alike.",
        minimum=0,
        maximum=1,
    )
    two_encoders: bool = option(
        False,
        "Train an encoder of questions and another of passages, as the paper does, instead of a shared one. The losses "
        "on translations act on that of passages only. A shared one has half the parameters.",
    )


@dataclass
class TrainingArguments(shared.TrainingArguments):
    """The host's training arguments, with the paper's batch size and learning rate."""

    per_device_train_batch_size: int = option(
        48, "Questions in a batch, per device; the paper has 48 on all 8 devices."
    )
    learning_rate: float = option(1e-5, "Peak learning rate. 1e-5 suits XLM-R, 1e-3 --from_scratch mini, 1e-2 static.")


def load_texts(data: RetrievalDataArguments, options: IRArguments, seed: int) -> tuple[Dataset | None, Dataset | None]:
    """Parallel sentences and sentences without translations, where a loss takes them."""
    pairs = data.load_pairs() if options.semantic_weight or options.language_weight else None
    others = data.load_documents() if options.language_weight else None
    return pairs, others


def build_datasets(
    questions: Dataset, pairs: Dataset | None, others: Dataset | None, options: IRArguments
) -> DatasetDict:
    """One data set for each loss. Retrieval comes last: its loss uses both encoders, which DDP needs at the end."""
    if pairs is None and (options.semantic_weight or options.language_weight):
        raise ValueError(
            "the cross-lingual losses need parallel sentences of some languages: give --pairs, or set "
            "--semantic_weight and --language_weight to 0"
        )
    datasets = DatasetDict()
    if options.semantic_weight:
        datasets["semantic"] = pairs_and_others(pairs, None)
    if options.language_weight:
        datasets["language"] = pairs_and_others(pairs, others)
    datasets["retrieval"] = questions
    return datasets


def build_losses(model: SentenceTransformer, datasets: DatasetDict, options: IRArguments) -> dict[str, nn.Module]:
    """The three losses with their weights. With two encoders, the first two act on that of passages."""
    losses: dict[str, nn.Module] = {}
    if "semantic" in datasets:
        losses["semantic"] = SemanticContrastiveLoss(model, temperature=0.07, weight=options.semantic_weight)
    if "language" in datasets:
        losses["language"] = LangContrastiveLoss(model, reduction="paper", weight=options.language_weight)
    losses["retrieval"] = RetrievalContrastiveLoss(model, temperature=options.temperature)
    return losses


def build_batches(options: IRArguments) -> JointBatches:
    """Batches of questions, and batches of all language pairs with as many sentences without translations."""
    return JointBatches(pairs_batch_size=options.pairs_batch_size, language_smoothing=options.language_smoothing)


def main(
    arguments: list[str] | None = None,
    options_class: type[IRArguments] = IRArguments,
    load_texts: Callable[..., tuple[Dataset | None, Dataset | None]] = load_texts,
    build_losses: Callable[..., dict[str, nn.Module]] = build_losses,
    build_batches: Callable[..., JointBatches] = build_batches,
    program: str = "training_scripts/train_language_agnostic_ir.py",
    description: str | None = __doc__,
) -> dict[str, Any]:
    """Train as the command line says; returns the content of results.json."""
    groups = [
        RetrieverArguments,
        RetrievalDataArguments,
        options_class,
        LazyAdamArguments,
        RunArguments,
        TrainingArguments,
    ]
    encoder, data, options, static, run, args = parse(groups, arguments, description=description)
    runs.start(args, run, encoder, data, options, static)

    # 1. Data: questions and translations, some of which are held out, and sentences without translations.
    pairs, others = load_texts(data, options, args.seed)
    questions, question_evaluator = data.hold_out_questions(data.load_questions(), args.seed)
    questions = data.add_hard_negatives(questions, encoder.model, args, run)
    pairs, pair_evaluator = data.hold_out_pairs(pairs, args.seed)
    datasets = build_datasets(questions, pairs, others, options)
    languages = describe_languages(pairs, others)

    # 2. The encoder, or two of them, which start alike.
    texts = [(questions, side, "language") for side in ("query", "positive")]
    texts += [] if pairs is None else [(pairs, side, f"{side}_language") for side in ("source", "target")]
    texts += [] if others is None else [(others, "sentence", "language")]
    model = encoder.load(texts, args, run)
    if options.two_encoders:
        model = with_two_encoders(model)
    if routes := router_mapping(model, datasets):
        freeze_unused(model)
        args.ddp_find_unused_parameters = False
    codes = {*questions.unique("language"), *languages["with_parallel"], *languages["without_parallel"]}
    set_card_data(model, languages=sorted(codes), tags=["language-agnostic-retrieval"])

    # 3. The losses, and the batches of each data set.
    losses = build_losses(model, datasets, options)
    args.batch_sampler = build_batches(options)
    evaluators = {"eval_questions_cosine_mrr@10": question_evaluator, "eval_pairs_average_accuracy": pair_evaluator}
    evaluators = {metric: evaluator for metric, evaluator in evaluators.items() if evaluator is not None}
    keep_best(args, next(iter(evaluators), None))

    # 4. The host's Trainer with the sum of all losses in every step. The callbacks keep the state of the losses, watch
    # them, and count the tokens.
    static_encoder = any(isinstance(module, StaticEmbedding) for module in model.modules())
    trainer = JointTrainer(
        model=model,
        args=args,
        train_dataset=datasets,
        loss=losses,
        evaluator=list(evaluators.values()) or None,
        data_collator=MixedRowsDataCollator(
            model.preprocess,
            router_mapping=routes,
            token_dropout=static.token_dropout if static_encoder else 0.0,
        ),
        callbacks=[LossStateCallback(losses), LossMonitorCallback(losses), TokenCountCallback(losses)],
    )
    if static.lazy_adam:
        use_lazy_adam(trainer)

    # 5. Train, measure and save.
    results = {
        "command": command(program, arguments),
        **runs.train(trainer, run),
        "tokens": trainer.state.num_input_tokens_seen,
        "languages": languages,
        "questions": len(questions),
        "pairs": 0 if pairs is None else len(pairs),
        "others": 0 if others is None else len(others),
    }
    if trainer.is_world_process_zero():
        for evaluator in evaluators.values():
            results.setdefault("held_out", {}).update(evaluator(model))
        compare(results, results.get("held_out", {}))
        if lareqa := data.lareqa():
            result = lareqa.evaluate(model)
            results["xquad_r"] = {"scores": result.scores, "average": result.average, "protocol": result.protocol}
    runs.finish(model, trainer, run, results)
    return results


def describe_languages(pairs: Dataset | None, others: Dataset | None) -> dict[str, list[str]]:
    """Languages with parallel sentences, those with other sentences alone, and those with parallel sentences alone."""
    sides = [] if pairs is None else [*pairs.unique("source_language"), *pairs.unique("target_language")]
    parallel, alone = set(sides), set() if others is None else set(others.unique("language"))
    return {
        "with_parallel": sorted(parallel),
        "without_parallel": sorted(alone - parallel),
        "parallel_only": sorted(parallel - alone),
    }


if __name__ == "__main__":
    run_script(main)
