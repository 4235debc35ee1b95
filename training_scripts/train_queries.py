r"""Train an encoder of queries beside yours, which goes on embedding documents: the index stays.

    python training_scripts/train_queries.py --model ENCODER --documents documents/ \
        --queries questions.jsonl --output_dir runs/queries

A query learns from the best that you have:

- --pairs, translations: it is to have the place, and the neighbours, that your encoder gives their
  side in English, or in another --pivot, as in `st-xlret train search`;
- --queries, questions that were asked, in any languages, without labels: it is to rank the
  documents as your encoder does with calibrated queries (`st-xlret calibrate --queries_only`), at
  half the temperature, which corrects mistakes;
- --further_queries, questions of others, likewise, such as MIRACL's: alone, or beside yours, which
  are half of a batch then;
- none of these: sentences of the documents take the place of questions, and gain less.

Thousands of translations take more steps (--max_steps 300 --keep_trained 1), tens of thousands an
hour of two cores (--max_steps 1000 --per_device_train_batch_size 128 --keep_trained 1). With
translations and questions, train twice: first from the translations, then with
--model runs/first/model from the questions. Documents, which --pairs do not need, are embedded as
before.
"""

from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router, Transformer

from st_xlret import CrossLingualTrainer, SimilarityDistillationLoss
from st_xlret.batches import BatchFactory, LengthGroupedBatches, Rows
from st_xlret.calibration.embedding import RoleEncoder
from st_xlret.modules import with_two_encoders
from st_xlret.options import option, parse
from st_xlret.training.arguments import ScriptArguments
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.loss_options import loss_options_field
from st_xlret.training.queries import QueryOptions, calibrated_query_vectors
from st_xlret.training.run import Run, run_script
from st_xlret.training.teacher import distillation_data


@dataclass
class DataArguments(QueryOptions):
    """The collection, and what queries learn from."""

    loss_options: str = loss_options_field("query", '{"query": {"teacher_temperature": 0.02}}')


@dataclass
class TrainingArguments(ScriptArguments):
    """The host's training arguments, for minutes on a laptop."""

    max_steps: int = option(60, "Optimizer steps.")
    per_device_train_batch_size: int = option(64, "Queries in a batch, per device.")
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
    logging_steps: float = option(20, "Steps between two lines of losses.")


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns the content of results.json."""
    groups = [EncoderArguments, DataArguments, TrainingArguments]
    encoder, data, args = parse(groups, arguments, description=__doc__)
    run = Run(args, encoder, data)
    check_options(encoder, args)

    # 1. Data: translations; or questions, or sentences in their place, and documents to rank.
    pairs, evaluator = data.pairs_and_evaluator(args.seed)
    if pairs is not None:
        translations = distillation_data(pairs, pivot=data.pivot, query_share=1.0, seed=args.seed)
        queries = translations.datasets["query"]
    else:
        documents = data.load_documents(args.seed)
        questions = data.load_questions(args.seed)
        queries = questions.rows()

    # 2. The encoder of queries, and that of documents, which stays; they start alike.
    model = encoder.load_encoder([], args)
    if not isinstance(model[0], Router):
        model = with_two_encoders(model)

    # 3. The loss, by what the encoder knows already.
    if pairs is not None:
        goals = {data.pivot: translations.texts["query"]}
        loss = place_loss(model, goals, run)
    else:
        loss = ranking_loss(model, questions.by_language(), documents, run)

    # 4. Train the encoder of queries, go part of the way back, and save both.
    freeze_documents(model)
    args.keep_best_checkpoint(None)
    trainer = CrossLingualTrainer(model, args, queries, loss=loss)
    entries = {"languages": queries.unique("language"), "queries": len(queries)}
    return run.train_and_save(trainer, entries, evaluators=[evaluator], tag="self-distillation")


def check_options(encoder: EncoderArguments, args: TrainingArguments) -> None:
    """Refuse what would change the documents, or could not be resumed."""
    options = {
        "lora_rank": args.lora_rank,
        "pooling": encoder.pooling,
        "max_seq_length": encoder.max_seq_length,
    }
    unfit = {name: value for name, value in options.items() if value}
    if unfit:
        raise ValueError(f"documents are to stay, and a stopped run to go on: leave out {unfit}")


def place_loss(
    model: SentenceTransformer, goals: dict[str, list[str]], run: Run
) -> SimilarityDistillationLoss:
    """Each query is to have the place, and the neighbours, of its translation.

    The labels of the data set number `goals`, by their language.
    """
    before = RoleEncoder.of_model(model, precision=run.args.precision)
    (teacher,) = before.embed(goals, "query").values()
    options = run.loss_arguments("query", batches=similar_lengths(model))
    return SimilarityDistillationLoss(model, teacher, **options)


def ranking_loss(
    model: SentenceTransformer,
    questions: dict[str, list[str]],
    documents: dict[str, list[str]],
    run: Run,
) -> SimilarityDistillationLoss:
    """Each query is to rank the documents as its calibrated vector does.

    The labels of the data set number `questions`, language after language.
    """
    before = RoleEncoder.of_model(model, precision=run.args.precision)
    vectors = before.embed(documents, "document")
    teacher = calibrated_query_vectors(before, questions, vectors)
    options = run.loss_arguments(
        "query",
        documents=torch.cat(list(vectors.values())),
        teacher_temperature=0.01,
        cosine_weight=0.0,
        batches=similar_lengths(model),
    )
    return SimilarityDistillationLoss(model, teacher, **options)


def similar_lengths(model: SentenceTransformer) -> BatchFactory:
    """Batches of queries of similar lengths, of which a static encoder has no need."""
    encoder = model[0].get_submodule("sub_modules.query.0")
    if isinstance(encoder, Transformer):
        return LengthGroupedBatches(encoder.tokenizer, texts_per_batch=True)
    return Rows()


def freeze_documents(model: SentenceTransformer) -> None:
    """Leave the encoder of documents, and what both encoders share, as they are.

    It is called before the training, whose optimizer takes what is not frozen.
    """
    router, *shared = model.children()
    router.get_submodule("sub_modules.document").requires_grad_(False)
    for module in shared:
        module.requires_grad_(False)


if __name__ == "__main__":
    run_script(main)
