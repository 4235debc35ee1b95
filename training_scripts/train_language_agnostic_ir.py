r"""Train a retriever on English questions, translations and plain text, for other languages too.

The loss is L = L_IR + w_s L_sema + w_l L_lang (Hu et al., Findings of ACL 2023, Eq. 4). Questions
find their English passages; the semantic loss draws translations together; the language loss makes
every sentence, also of languages without translations, as similar to the one side of a translation
as to the other. The paper's setting, on 8 GPUs:

    torchrun --nproc-per-node 8 training_scripts/train_language_agnostic_ir.py \
        training_scripts/recipes/language-agnostic-ir.yaml --per_device_train_batch_size 6 \
        --retrieval nq.jsonl --pairs WikiMatrix/ --output_dir runs/ir
"""

from dataclasses import dataclass
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import nn

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
from st_xlret.training.arguments import ScriptArguments
from st_xlret.training.data import PAIRS_SCORE, DocumentOptions
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.loss_options import loss_options_field
from st_xlret.training.questions import QuestionOptions, questions_score
from st_xlret.training.run import Run, run_script
from st_xlret.training.texts import data_entries, text_and_language_columns

TAG = "language-agnostic-retrieval"


@dataclass
class DataArguments(QuestionOptions, DocumentOptions):
    """Questions with passages, translations, and sentences without translations."""


@dataclass
class IRArguments:
    """The method.

    Its defaults are the paper's, but for --temperature, --two_encoders and --language_smoothing.
    """

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
    """The host's training arguments, with the paper's batch size and learning rate.

    The losses of a step are summed.
    """

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

    # 1. Data: questions and translations, some held out, and sentences without translations.
    questions = None
    question_evaluator = None
    if data.retrieval:
        kept = [*data.languages, "en"] if data.languages else None
        questions, question_evaluator = data.questions_and_evaluator(
            encoder.model, args, languages=kept
        )
    pairs, pair_evaluator = data.pairs_and_evaluator(args.seed)
    others = data.load_documents()
    check_data(questions, pairs, others, method)

    # 2. The encoder, or two of them, which start alike.
    texts = text_and_language_columns(questions=questions, pairs=pairs, others=others)
    model = encoder.load_encoder(texts, args)
    if method.two_encoders:
        model = with_two_encoders(model)

    # 3. A loss for each kind of batch. Retrieval uses both encoders: DDP needs it at the end.
    datasets: dict[str, Dataset] = {}
    losses: dict[str, nn.Module] = {}
    if method.semantic_weight:
        datasets["semantic"] = pairs_and_others(pairs, None)
        losses["semantic"] = semantic_loss(model, run, method)
    if method.language_weight:
        datasets["language"] = pairs_and_others(pairs, others, args.seed)
        losses["language"] = language_loss(model, run, method)
    if questions is not None:
        datasets["retrieval"] = questions
        losses["retrieval"] = retrieval_loss(model, run, method)

    # 4. Train, measure and save.
    args.keep_best_checkpoint(score_to_choose_by(question_evaluator, pair_evaluator))
    evaluators = [each for each in (question_evaluator, pair_evaluator) if each is not None]
    trainer = CrossLingualTrainer(model, args, datasets, loss=losses, evaluator=evaluators or None)
    entries = data_entries(questions=questions, pairs=pairs, others=others)
    test = data.lareqa_evaluator()
    return run.train_and_save(trainer, entries, evaluators=evaluators, test=test, tag=TAG)


def check_data(
    questions: Dataset | None,
    pairs: Dataset | None,
    others: Dataset | None,
    method: IRArguments,
) -> None:
    """Refuse data that leave nothing to train on, and weights of losses without data."""
    needs_pairs = method.semantic_weight or method.language_weight
    if questions is None and not needs_pairs:
        raise ValueError("nothing to train on: give --retrieval, or --pairs and a weight above 0")
    if pairs is None and needs_pairs:
        raise ValueError(
            "there are no translations: give --pairs, "
            "or set --semantic_weight and --language_weight to 0"
        )
    if others is not None and not method.language_weight:
        raise ValueError("--documents are for the language loss: set --language_weight above 0")


def semantic_loss(
    model: SentenceTransformer, run: Run, method: IRArguments
) -> SemanticContrastiveLoss:
    """L_sema: each sentence is to find its translation."""
    batches = {"language_smoothing": method.language_smoothing}
    options = run.loss_arguments(
        "semantic", temperature=0.07, weight=method.semantic_weight, batches=batches
    )
    return SemanticContrastiveLoss(model, **options)


def language_loss(model: SentenceTransformer, run: Run, method: IRArguments) -> LangContrastiveLoss:
    """L_lang: every sentence is to be as similar to both sides of a translation."""
    batches = {"language_smoothing": method.language_smoothing}
    options = run.loss_arguments(
        "language", reduction="paper", weight=method.language_weight, batches=batches
    )
    return LangContrastiveLoss(model, **options)


def retrieval_loss(
    model: SentenceTransformer, run: Run, method: IRArguments
) -> RetrievalContrastiveLoss:
    """L_IR: each question is to find its passage."""
    batches = Rows(method.language_smoothing)
    options = run.loss_arguments("retrieval", temperature=method.temperature, batches=batches)
    return RetrievalContrastiveLoss(model, **options)


def score_to_choose_by(questions: object | None, pairs: object | None) -> str | None:
    """The score of the best checkpoint: by questions, where there are any."""
    if questions is not None:
        return questions_score()
    if pairs is not None:
        return PAIRS_SCORE
    return None


if __name__ == "__main__":
    run_script(main)
