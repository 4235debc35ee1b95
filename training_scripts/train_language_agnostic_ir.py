r"""Train a retriever on English questions, and carry it to other languages by translations and plain text.

The loss is L = L_IR + w_s L_sema + w_l L_lang (Hu et al., Findings of ACL 2023, Eq. 4). Questions find their English
passages; the semantic loss draws translations together; the language loss makes every sentence, also of languages
without translations, as similar to the one side of a translation as to the other. The paper's setting, on 8 GPUs:

    torchrun --nproc-per-node 8 training_scripts/train_language_agnostic_ir.py \
        training_scripts/recipes/language-agnostic-ir.yaml --per_device_train_batch_size 6 \
        --retrieval nq.jsonl --pairs WikiMatrix/ --output_dir runs/ir
"""

from dataclasses import dataclass
from typing import Any

from st_xlret import (
    CrossLingualTrainer,
    LangContrastiveLoss,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
)
from st_xlret.batches import Rows
from st_xlret.data import pairs_and_others
from st_xlret.modules import with_two_encoders
from st_xlret.options import option, parse
from st_xlret.training.data import (
    DocumentOptions,
    QuestionOptions,
    data_facts,
    text_and_language_columns,
)
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.script import (
    Run,
    ScriptArguments,
    keep_best_checkpoint,
    loss_options_field,
    run_script,
)


@dataclass
class DataArguments(QuestionOptions, DocumentOptions):
    """Questions with passages, translations, and sentences without translations."""


@dataclass
class IRArguments:
    """The method; its defaults are the paper's, but for --temperature, --two_encoders and --language_smoothing."""

    _argument_group_name = "method"

    temperature: float = option(
        0.05, "Temperature of the retrieval loss. The paper's Eq. 1 has none, which is 1."
    )
    semantic_weight: float = option(
        0.01, "Factor w_s on the loss of translations, 0: none. From scratch, 1 is better."
    )
    language_weight: float = option(
        0.001, "Factor w_l on the language loss, Eq. 3 over R (R - 2) of R sentences."
    )
    language_smoothing: float = option(
        0.7, "Languages are sampled in proportion to their size raised to this power."
    )
    two_encoders: bool = option(
        False, "Train an encoder of questions and, with translations, one of passages (paper)."
    )
    loss_options: str = loss_options_field(
        "semantic, language, retrieval", '{"language": {"reduction": "mean"}}'
    )


@dataclass
class TrainingArguments(ScriptArguments):
    """The host's training arguments, with the paper's batch size and learning rate; the losses of a step are summed."""

    per_device_train_batch_size: int = option(
        48, "Questions in a batch, per device; the paper has 48 on all 8."
    )
    learning_rate: float = option(
        1e-5, "Peak learning rate. 1e-5 suits XLM-R, 1e-3 --from_scratch mini, 1e-2 static."
    )
    joint: bool = option(True, "Sum the losses of all kinds of batches in every step.")


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns the content of results.json."""
    groups = [EncoderArguments, DataArguments, IRArguments, TrainingArguments]
    encoder, data, method, args = parse(groups, arguments, description=__doc__)
    run = Run(args, encoder, data, method)

    # 1. Data: questions and translations, some of which are held out, and sentences without translations.
    questions, question_evaluator = (
        data.load_questions(encoder.model, args) if data.retrieval else (None, None)
    )
    pairs, pair_evaluator = data.load_pairs(args.seed)
    others = data.load_documents() if method.language_weight else None
    if questions is None and not (method.semantic_weight or method.language_weight):
        raise ValueError("nothing to train on: give --retrieval, or --pairs and a weight above 0")
    if pairs is None and (method.semantic_weight or method.language_weight):
        raise ValueError(
            "there are no translations: give --pairs, or set --semantic_weight and --language_weight to 0"
        )

    # 2. The encoder, or two of them, which start alike.
    model = encoder.load_encoder(
        text_and_language_columns(questions=questions, pairs=pairs, others=others), args
    )
    model = with_two_encoders(model) if method.two_encoders else model

    # 3. The three losses with their weights. Retrieval comes last: it uses both encoders, which DDP needs at the end.
    datasets, losses, smoothing = {}, {}, {"language_smoothing": method.language_smoothing}
    if method.semantic_weight:
        datasets["semantic"] = pairs_and_others(pairs, None)
        given = run.loss_arguments(
            "semantic", temperature=0.07, weight=method.semantic_weight, batches=smoothing
        )
        losses["semantic"] = SemanticContrastiveLoss(model, **given)
    if method.language_weight:
        datasets["language"] = pairs_and_others(pairs, others, args.seed)
        given = run.loss_arguments(
            "language", reduction="paper", weight=method.language_weight, batches=smoothing
        )
        losses["language"] = LangContrastiveLoss(model, **given)
    if questions is not None:
        given = run.loss_arguments(
            "retrieval", temperature=method.temperature, batches=Rows(method.language_smoothing)
        )
        datasets["retrieval"], losses["retrieval"] = (
            questions,
            RetrievalContrastiveLoss(model, **given),
        )

    # 4. Train, measure and save.
    evaluators = [*filter(None, (question_evaluator, pair_evaluator))]
    of_pairs = "eval_pairs_average_accuracy" if pair_evaluator else None
    keep_best_checkpoint(args, "eval_questions_cosine_mrr@10" if question_evaluator else of_pairs)
    trainer = CrossLingualTrainer(model, args, datasets, loss=losses, evaluator=evaluators or None)
    about, tag = (
        data_facts(questions=questions, pairs=pairs, others=others),
        "language-agnostic-retrieval",
    )
    return run.train_and_save(
        trainer, about, evaluators=evaluators, test=data.lareqa_evaluator(), tag=tag
    )


if __name__ == "__main__":
    run_script(main)
