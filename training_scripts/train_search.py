r"""Train the encoder that you have for search across languages: all follow its English.

    python training_scripts/train_search.py training_scripts/recipes/search.yaml \
        --model intfloat/multilingual-e5-small --pairs pairs/ --retrieval squad/train \
        --output_dir runs/search
    st-xlret calibrate --model runs/search/model --corpus corpus/ --output runs/calibrated

The encoder's own vectors of English texts, computed once, are the goal (multilingual knowledge
distillation, Reimers and Gurevych, EMNLP 2020): each translation is to have the neighbours among
thousands of English vectors that its English side has. English questions (--retrieval) teach in
other batches to find the sentence that answers among those of its paragraph. At the end the weights
go part of the way back to the original ones (--keep_trained), which keeps what the encoder could do
before. Pairs need English, or another --pivot, on one side. To keep the index that you have, take
`st-xlret train queries`.
"""

from dataclasses import dataclass
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router, Transformer
from torch import nn

from st_xlret import (
    CrossLingualTrainer,
    RetrievalContrastiveLoss,
    SemanticContrastiveLoss,
    SimilarityDistillationLoss,
)
from st_xlret.batches import BatchFactory, LengthGroupedBatches, Rows
from st_xlret.options import option, parse
from st_xlret.training.arguments import ScriptArguments
from st_xlret.training.data import PairOptions
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.loss_options import loss_options_field
from st_xlret.training.questions import AnswerOptions
from st_xlret.training.run import Run, run_script
from st_xlret.training.teacher import DistillationData, distillation_data, teacher_vectors
from st_xlret.training.texts import data_entries


@dataclass
class DataArguments(PairOptions, AnswerOptions):
    """Translations, and questions where there are any."""


@dataclass
class SearchArguments:
    """The method."""

    _argument_group_name = "method"

    pivot: str = option(
        "en", "The language whose vectors stay, and that the pairs translate from or into."
    )
    temperature: float = option(
        0.02, "Temperature of all losses. The encoder's own is best: 0.01 to 0.05."
    )
    bank_size: int = option(8192, "English vectors to compare with.")
    english_share: float = option(0.15, "Share of English texts, by which they keep their place.")
    questions_ratio: float = option(
        0.3, "Share of batches of questions (--retrieval); the others are translations."
    )
    contrastive_ratio: float = option(
        0.0, "Share of the batches of translations that draw pairs together (InfoNCE)."
    )
    negatives: int = option(4, "Sentences of its paragraph that a question tells from the answer.")
    mini_batch_num_tokens: int = option(
        0, "Tokens to embed at a time, by gradient caching; 0: all."
    )
    teacher_cache: str | None = option(
        None, "Folder of English vectors for several runs. Default: OUTPUT_DIR/teacher."
    )
    loss_options: str = loss_options_field(
        "pairs, query, document, questions", '{"query": {"cosine_weight": 0}}'
    )


@dataclass
class TrainingArguments(ScriptArguments):
    """The host's training arguments, for minutes on a laptop."""

    max_steps: int = option(300, "Optimizer steps.")
    per_device_train_batch_size: int = option(
        128, "Texts in a batch, per device; a question counts as several."
    )
    learning_rate: float = option(1e-4, "Peak learning rate.")
    adam_beta2: float = option(0.98, "Decay of Adam's second moment; short runs need a small one.")
    keep_trained: float = option(
        0.7, "Final weights: the original ones (0), the trained ones (1), or between them."
    )
    dropout: float | None = option(
        0.0, "Dropout of the encoder's layers. Goals that are fixed vectors need none."
    )
    freeze_embeddings: bool = option(
        True, "Leave the word embeddings as they are: less memory, and faster steps."
    )
    save_steps: float = option(
        100, "Steps between two checkpoints. --save_strategy no writes none."
    )
    logging_steps: float = option(20, "Steps between two lines of losses.")


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns the content of results.json."""
    groups = [EncoderArguments, DataArguments, SearchArguments, TrainingArguments]
    encoder, data, method, args = parse(groups, arguments, description=__doc__)
    run = Run(args, encoder, data, method)

    # 1. Data: translations and questions, some of which are held out.
    pairs, pair_evaluator = data.pairs_and_evaluator(args.seed, pivot=method.pivot)
    if pairs is None:
        raise ValueError(
            "there is nothing to learn from: give --pairs, translations from or into English"
        )
    negatives = method.negatives if method.questions_ratio else 0
    questions, question_evaluator = data.answers_and_evaluator(
        args, method.pivot, negatives, 5 * data.evaluation_pairs
    )

    # 2. The encoder, whose own vectors of English texts are the goal.
    model = encoder.load_encoder([], args)
    if isinstance(model[0], Router):
        raise ValueError(
            f"{encoder.model} has a Router, whose routes would move apart: "
            "train an encoder without one"
        )
    goals = distillation_data(
        pairs, questions, pivot=method.pivot, english_share=method.english_share, seed=args.seed
    )

    # 3. A loss for each kind of batch.
    datasets, losses = losses_of_goals(model, goals, run, method, questions)

    # 4. Train, go part of the way back, measure and save.
    args.keep_best_checkpoint(None)
    trainer = CrossLingualTrainer(model, args, datasets, loss=losses)
    entries = {**data_entries(pairs=pairs), "questions": len(questions or ())}
    evaluators = [pair_evaluator, question_evaluator]
    tag = "multilingual-knowledge-distillation"
    return run.train_and_save(trainer, entries, evaluators=evaluators, tag=tag)


def losses_of_goals(
    model: SentenceTransformer,
    goals: DistillationData,
    run: Run,
    method: SearchArguments,
    questions: Dataset | None,
) -> tuple[dict[str, Dataset], dict[str, nn.Module]]:
    """The data sets, and a loss for each: translations as pairs, by their role, and questions."""
    datasets: dict[str, Dataset] = {}
    losses: dict[str, nn.Module] = {}
    of_questions = 0.0 if questions is None else method.questions_ratio
    of_pairs = (1 - of_questions) * method.contrastive_ratio
    of_goals = (1 - of_questions) * (1 - method.contrastive_ratio)
    if method.contrastive_ratio:
        datasets["pairs"] = goals.pairs()
        options = loss_arguments("pairs", of_pairs, model, run, method)
        losses["pairs"] = SemanticContrastiveLoss(model, **options)
    if method.contrastive_ratio < 1:
        folder = method.teacher_cache or run.output / "teacher"
        vectors = teacher_vectors(model, goals, folder, run.args.precision)
        for role, translations in goals.datasets.items():
            datasets[role] = translations
            ratio = of_goals / len(goals.datasets)
            options = loss_arguments(role, ratio, model, run, method, bank_size=method.bank_size)
            losses[role] = SimilarityDistillationLoss(model, vectors, **options)
    if questions is not None:
        datasets["questions"] = questions
        options = loss_arguments("questions", of_questions, model, run, method)
        losses["questions"] = RetrievalContrastiveLoss(model, **options)
    return datasets, losses


def loss_arguments(
    name: str,
    ratio: float,
    model: SentenceTransformer,
    run: Run,
    method: SearchArguments,
    **further: Any,
) -> dict[str, Any]:
    """What all losses have in common, and what one has alone; batches are of similar lengths."""
    batches: BatchFactory = Rows()
    if isinstance(model[0], Transformer):
        batches = LengthGroupedBatches(model.tokenizer, texts_per_batch=True)
    return run.loss_arguments(
        name,
        temperature=method.temperature,
        mini_batch_num_tokens=method.mini_batch_num_tokens or None,
        batches=batches,
        ratio=ratio,
        **further,
    )


if __name__ == "__main__":
    run_script(main)
