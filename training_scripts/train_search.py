r"""Train the encoder that you have for search across languages: other languages come to English, English stays.

    python training_scripts/train_search.py training_scripts/recipes/search.yaml \
        --model intfloat/multilingual-e5-small --pairs pairs/ --retrieval squad/train --output_dir runs/search
    st-xlret calibrate --model runs/search/model --corpus corpus/ --output runs/calibrated

The encoder's own vectors of English texts, computed once, are the goal (multilingual knowledge distillation, Reimers
and Gurevych, EMNLP 2020). A step encodes one side of translations, and asks that each has the same neighbours among
thousands of English vectors as its English side has (`SimilarityDistillationLoss`). With English questions, other
batches teach to find the sentence that answers among the other sentences of its paragraph; with --contrastive_ratio,
others draw the two texts of a pair together. At the end the weights go part of the way back to the original ones, which
keeps what the encoder could do before (--keep_trained).

Pairs need English, or another --pivot, on one side. Questions are optional: their paragraphs are in English, and what
they teach carries over to the other languages. Calibration after it removes the language bias that is left.
Interrupted? The same command with --resume repeats what the uninterrupted run would have done. The model is in
OUTPUT_DIR/model, the scores in OUTPUT_DIR/results.json, the curves in OUTPUT_DIR/training.png.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.base.modules import Router, Transformer
from torch import Tensor, nn

from st_xlret import (
    CrossLingualDataCollator,
    InterleavedBatches,
    LengthGroupedBatches,
    LossMonitorCallback,
    LossStateCallback,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
    SimilarityDistillationLoss,
    TokenCountCallback,
    load_retrieval,
)
from st_xlret.data.holdout import hold_out_questions
from st_xlret.data.reading.jsonl import Limits
from st_xlret.hub import set_card_data
from st_xlret.options import option, parse
from st_xlret.training import arguments as shared
from st_xlret.training import run as runs
from st_xlret.training.arguments import DataArguments, RunArguments
from st_xlret.training.encoders import PretrainingEncoderArguments
from st_xlret.training.held_out import compare, keep_best
from st_xlret.training.questions import question_evaluator
from st_xlret.training.script import command, run_script
from st_xlret.training.teacher import ROLES, Lesson, Role, make_lesson, pairs_of, teacher_vectors

_QUESTIONS_IN_BANK = 10_000  # questions, and sentences that answer them, beside the English sides of the pairs


@dataclass
class CheckpointArguments(PretrainingEncoderArguments):
    """The encoder to train: a trained one, since its vectors of English texts are the goal."""

    from_scratch: str | None = field(default=None, init=False)
    tokenizer: str | None = field(default=None, init=False)
    vocabulary: int = field(default=60_000, init=False)
    features: int = field(default=256, init=False)
    lora_rank: int | None = field(default=None, init=False)
    freeze_embeddings: bool = option(
        True,
        "Leave the word embeddings as they are: less memory, and faster steps. --no_freeze_embeddings trains them.",
    )


@dataclass
class SearchDataArguments(DataArguments):
    """Translations, and questions where there are any."""

    documents: list[str] = field(default_factory=list, init=False)
    retrieval: list[str] = option(
        [],
        "Questions in the pivot language with passages and answers: BEIR folders whose queries name their answers "
        "(their training split), or JSON files of DPR or SQuAD.",
    )
    pivot: str = option("en", "The language whose vectors stay, and that the pairs translate from or into.")
    teacher_cache: str | None = option(
        None, "Folder that keeps the vectors of English texts, for several runs. By default OUTPUT_DIR/teacher."
    )


@dataclass
class SearchArguments:
    """The method."""

    _argument_group_name = "method"

    temperature: float = option(0.02, "Temperature of both losses. The encoder's own is best: 0.01 to 0.05.", above=0)
    cosine_weight: float = option(
        10.0, "Factor on the distance to the English vector itself, beside its neighbours.", minimum=0
    )
    bank_size: int = option(8192, "English vectors that each translation is compared with.", minimum=0, maximum=2**24)
    english_share: float = option(
        0.15, "Share of English texts among the translations, so that they keep their place.", minimum=0, below=1
    )
    questions_ratio: float = option(
        0.3,
        "Share of batches of questions (--retrieval), the others are translations. 0 leaves questions out.",
        minimum=0,
        maximum=1,
    )
    contrastive_ratio: float = option(
        0.0,
        "Share of the batches of translations in which both texts are encoded and drawn together by InfoNCE, apart "
        "from the other pairs of the batch. Translations are then found better. 1 takes no other batches of "
        "translations, and needs no English vectors.",
        minimum=0,
        maximum=1,
    )
    questions_weight: float = option(1.0, "Factor on the loss of questions.", minimum=0)
    negatives: int = option(
        4, "Other sentences of its paragraph that each question is to tell from the answer.", minimum=1
    )


@dataclass
class TrainingArguments(shared.TrainingArguments):
    """The host's training arguments, for minutes on a laptop."""

    max_steps: int = option(300, "Optimizer steps.")
    per_device_train_batch_size: int = option(
        128, "Texts in a batch, per device; a question with its sentences counts as several."
    )
    learning_rate: float = option(1e-4, "Peak learning rate.")
    adam_beta2: float = option(
        0.98, "Decay of Adam's second moment: short runs need a short memory.", minimum=0, below=1
    )
    keep_trained: float = option(
        0.7,
        "How far the final weights are from the original (0) to the trained ones (1): between the two is a model "
        "with most of what both can do.",
        minimum=0,
        maximum=1,
    )
    dropout: float | None = option(
        0.0,
        "Share of the values that the encoder's layers drop out in training. The goals are fixed vectors, which a "
        "net with random holes cannot reach.",
        minimum=0,
        below=1,
    )
    save_steps: float = option(100, "Steps between two checkpoints. --save_strategy no writes none.")
    logging_steps: float = option(20, "Steps between two lines of losses.")


def load_questions(data: SearchDataArguments, options: SearchArguments) -> Dataset | None:
    """Questions with the sentence that answers, and other sentences of its paragraph."""
    if not data.retrieval or not options.questions_ratio:
        return None
    return load_retrieval(
        data.retrieval,
        positives="sentence",
        negatives=options.negatives,
        titles=False,
        language=data.pivot,
        exclude=data.exclude,
        skip_bad_lines=data.skip_bad_lines,
        limits=Limits.parse(data.limits),
    )


def build_datasets(lesson: Lesson, questions: Dataset | None, options: SearchArguments) -> DatasetDict:
    """Translations as queries and as documents, each with the goal that it is to reach; pairs of them; questions."""
    datasets = DatasetDict()
    if options.contrastive_ratio:
        datasets["pairs"] = pairs_of(lesson)
    if options.contrastive_ratio < 1:
        datasets |= lesson.datasets
    if questions is not None and len(questions):
        datasets["questions"] = questions
    return datasets


def ratios_of(datasets: DatasetDict, options: SearchArguments) -> list[float]:
    """The share of the batches of each data set, in their order."""
    questions = options.questions_ratio if "questions" in datasets else 0.0
    roles = sum(name in ROLES for name in datasets)
    shares = {"questions": questions, "pairs": (1 - questions) * options.contrastive_ratio}
    rest = (1 - questions) * (1 - options.contrastive_ratio) / max(1, roles)
    return [shares.get(name, rest) for name in datasets]


def build_losses(
    model: SentenceTransformer, datasets: DatasetDict, vectors: Tensor | None, options: SearchArguments
) -> dict[str, nn.Module]:
    """Translations reach the teacher's vectors or are drawn together; questions find their answers.

    `vectors` are those of the teacher (M, d), None where no data set has rows of them as goals.
    """
    losses: dict[str, nn.Module] = {}
    if "pairs" in datasets:
        losses["pairs"] = SemanticContrastiveLoss(model, temperature=options.temperature)
    if vectors is not None:
        losses |= {
            role: SimilarityDistillationLoss(
                model,
                vectors,
                bank_size=options.bank_size,
                temperature=options.temperature,
                cosine_weight=options.cosine_weight,
            )
            for role in ROLES
            if role in datasets
        }
    if "questions" in datasets:
        losses["questions"] = RetrievalContrastiveLoss(
            model, temperature=options.temperature, weight=options.questions_weight
        )
    return losses


def prompts_of(model: SentenceTransformer, datasets: DatasetDict) -> dict[str, Any]:
    """The prompt of each text column: the encoder's own for queries and documents."""

    def role_of(name: str, column: str) -> str:
        is_document = name == "document" or (name == "questions" and column != "query")
        return "document" if is_document else "query"

    return {
        name: {
            column: model.prompts.get(role_of(name, column)) or ""
            for column in rows.column_names
            if column not in ("language", "label")
        }
        for name, rows in datasets.items()
    }


def main(
    arguments: list[str] | None = None,
    options_class: type[SearchArguments] = SearchArguments,
    build_datasets: Callable[..., DatasetDict] = build_datasets,
    build_losses: Callable[..., dict[str, nn.Module]] = build_losses,
    program: str = "training_scripts/train_search.py",
    description: str | None = __doc__,
) -> dict[str, Any]:
    """Train as the command line says; returns the content of results.json."""
    groups = [CheckpointArguments, SearchDataArguments, options_class, RunArguments, TrainingArguments]
    encoder, data, options, run, args = parse(groups, arguments, description=description)
    runs.start(args, run, encoder, data, options)

    # 1. Data: translations and questions, some of which are held out.
    pairs, pair_evaluator = data.hold_out_pairs(data.load_pairs(), args.seed)
    if pairs is None:
        raise ValueError("there is nothing to learn from: give --pairs, translations from or into English")
    questions, questions_evaluator = load_questions(data, options), None
    if questions is not None:
        questions, held_out = hold_out_questions(questions, 5 * data.evaluation_pairs, seed=args.seed)
        questions_evaluator = question_evaluator(held_out)
        questions = questions.shuffle(seed=args.seed)
        # No more than the run can read: the tokens of all of them are counted.
        if args.max_steps > 0:
            most = args.max_steps * args.train_batch_size * args.world_size * args.gradient_accumulation_steps
            questions = questions.select(range(min(len(questions), most)))

    # 2. The teacher is the encoder before training: its vectors of English texts are the goal.
    teacher = encoder.load([], args, run)
    if any(isinstance(module, Router) for module in teacher.modules()):
        raise ValueError(
            f"{encoder.model} has a Router, whose routes would move apart: train the encoder without it, and calibrate "
            "the trained one"
        )
    english: dict[Role, list[str]] = {}
    if questions is not None:
        some = questions.select(range(min(len(questions), _QUESTIONS_IN_BANK)))
        english = {"query": list(some["query"]), "document": list(some["positive"])}
    lesson = make_lesson(pairs, english, pivot=data.pivot, english_share=options.english_share, seed=args.seed)
    datasets, vectors = build_datasets(lesson, questions, options), None
    if any(role in datasets for role in ROLES):
        folder = data.teacher_cache or Path(str(args.output_dir)) / "teacher"
        vectors = teacher_vectors(teacher, lesson, folder, "bf16" if args.bf16 else "fp32")
    model = encoder.load([], args, run)
    languages = sorted({*pairs.unique("source_language"), *pairs.unique("target_language")})
    set_card_data(model, languages=languages, tags=["multilingual-knowledge-distillation"])

    # 3. A loss for translations as queries, as documents, and as pairs, and for questions.
    losses = build_losses(model, datasets, vectors, options)
    args.prompts = prompts_of(model, datasets) if args.prompts is None else args.prompts

    # 4. Batches of texts of about the same length, which need little padding; kinds of batches in random order.
    if isinstance(model[0], Transformer):
        args.batch_sampler = LengthGroupedBatches(model.tokenizer, texts_per_batch=True)
    args.multi_dataset_batch_sampler = InterleavedBatches(ratios=ratios_of(datasets, options))
    evaluators = [evaluator for evaluator in (pair_evaluator, questions_evaluator) if evaluator is not None]
    keep_best(args, None)

    # 5. The host's Trainer.
    trainer = SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=datasets,
        loss=losses,
        data_collator=CrossLingualDataCollator(model.preprocess, max_length=encoder.batch_length(model)),
        callbacks=[LossStateCallback(losses), LossMonitorCallback(losses), TokenCountCallback(losses)],
    )

    # 6. Train, go part of the way back (--keep_trained), measure and save.
    results = {
        "command": command(program, arguments),
        "held_out_before": scores_of(evaluators, teacher) if trainer.is_world_process_zero() else {},
        **runs.train(trainer, run),
        "tokens": trainer.state.num_input_tokens_seen,
        "languages": languages,
        "pairs": len(pairs),
        "questions": 0 if questions is None else len(questions),
        "english_texts": sum(map(len, lesson.texts.values())),
    }
    if trainer.is_world_process_zero():
        results["held_out"] = scores_of(evaluators, model)
        compare(results, results["held_out"])
    runs.finish(model, trainer, run, results)
    return results


def scores_of(evaluators: list[Any], model: SentenceTransformer) -> dict[str, float]:
    """The scores on held-out translations and questions."""
    return {name: score for evaluator in evaluators for name, score in evaluator(model).items()}


if __name__ == "__main__":
    run_script(main)
