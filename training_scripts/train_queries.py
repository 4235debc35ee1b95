r"""Train an encoder of queries beside yours, which goes on embedding documents: the index stays.

    python training_scripts/train_queries.py --model ENCODER --documents documents/ --queries questions.jsonl \
        --output_dir runs/queries

A query learns from the best that you have:

- --pairs, translations: it is to have the place, and the neighbours, that your encoder gives their side in English, or
  in another --pivot, as in `st-xlret train search`;
- --queries, questions that were asked, in any languages, without labels: it is to rank the documents as your encoder
  does with calibrated queries (`st-xlret calibrate --queries_only`), at half the temperature, which corrects mistakes;
- neither: sentences of the documents take the place of questions, and gain less.

Thousands of translations take more steps (--max_steps 300 --keep_trained 1), tens of thousands an hour of two cores
(--max_steps 1000 --per_device_train_batch_size 128 --keep_trained 1). With translations and questions, train twice:
first from the translations, then with --model runs/first/model from the questions. Documents, which --pairs do
not need, are embedded as before.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers.base.modules import Router, Transformer

from st_xlret import CrossLingualTrainer, SimilarityDistillationLoss, VectorCalibration
from st_xlret.batches import LengthGroupedBatches, Rows
from st_xlret.calibration.model import (
    embed_by_language,
    sample_questions,
    sample_texts,
    weak_language_phrases,
)
from st_xlret.modules import with_two_encoders
from st_xlret.options import option, parse
from st_xlret.training.data import PairOptions
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.script import (
    Run,
    ScriptArguments,
    keep_best_checkpoint,
    loss_options_field,
    run_script,
)
from st_xlret.training.teacher import distillation_data


@dataclass
class DataArguments:
    """The collection, and what queries learn from."""

    _argument_group_name = "data"

    documents: list[str] = option(
        [], "What is searched: JSON lines, folders of them, or a folder in BEIR's layout."
    )
    queries: list[str] = option(
        [], "Questions without labels: JSON lines, text files, a folder in BEIR's layout."
    )
    pairs: list[str] = option(
        [], "Translations: JSON lines, Moses, WikiMatrix, or two columns (X.en-fr.tsv)."
    )
    pivot: str = option("en", "The language that pairs translate from or into.")
    languages: list[str] = option(
        [], "Languages of documents, or of both sides of pairs, to keep. Default: all."
    )
    documents_per_language: int = option(
        1500, "Texts of the documents to rank, of each language, at most."
    )
    queries_per_language: int = option(300, "Queries of each language to learn from, at most.")
    pairs_per_language: int | None = option(
        None, "Translations of each language pair to learn from, at most."
    )
    evaluation_pairs: int = option(
        20, "Translations of each language pair to hold out: they measure queries."
    )
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

    # 1. Data: translations; or questions, or sentences of the documents, and documents to rank.
    if data.pairs and (others := [*data.queries, *data.documents]):
        raise ValueError(f"--pairs or {others}: train twice, first from the translations alone")
    unfit = {
        "lora_rank": args.lora_rank,
        "pooling": encoder.pooling,
        "max_seq_length": encoder.max_seq_length,
    }
    if unfit := {name: value for name, value in unfit.items() if value}:
        raise ValueError(f"documents are to stay, and a stopped run to go on: leave out {unfit}")
    names = ("pairs", "languages", "pairs_per_language", "evaluation_pairs")
    pairs, evaluator = PairOptions(**{name: getattr(data, name) for name in names}).load_pairs(
        args.seed, "query"
    )
    collection: dict[str, list[str]] = {}
    if pairs is not None:
        learned = distillation_data(pairs, pivot=data.pivot, query_share=1.0, seed=args.seed)
        queries, asked = learned.datasets["query"], {data.pivot: learned.texts["query"]}
    else:
        few: Any = {"texts_per_language": data.queries_per_language, "seed": args.seed}
        kept: Any = {**few, "languages": data.languages}
        drawn = sample_texts(
            data.documents,
            **kept | {"texts_per_language": data.documents_per_language},
            min_texts=50,
        )
        sentences = {} if data.queries else sample_texts(data.documents, unit="sentence", **kept)
        collection, asked = (
            {code: part.texts for code, part in each.items()} for each in (drawn, sentences)
        )
        asked = asked or sample_questions(data.queries, None, **few)
        rows = [
            {"query": text, "language": code} for code, texts in asked.items() for text in texts
        ]
        queries = Dataset.from_list([{**row, "label": label} for label, row in enumerate(rows)])

    # 2. The teacher's vectors: of the translations' other side, or of mapped queries and of what they are to rank.
    model = encoder.load_encoder([], args)
    model = model if isinstance(model[0], Router) else with_two_encoders(model)
    embed: Any = partial(embed_by_language, model, precision=args.precision, show_progress_bar=True)
    vectors, goal = embed(asked, role="query"), dict[str, Any]()
    teacher = torch.cat([*vectors.values()])
    if pairs is None:
        documents = embed(collection, role="document")
        phrases = {"mul": torch.cat([*embed(weak_language_phrases(), role="query").values()])}
        joining = {code: rows for code, rows in vectors.items() if len(rows) >= 5} or None
        # It keeps less of the mean than search does by the map alone: its student finds more.
        how: Any = {"queries_only": True, "keep_mean": 0.2, "queries": joining, "phrases": phrases}
        teacher = torch.from_numpy(
            VectorCalibration.fit(documents, **how).transform(teacher, "query")
        )
        goal = {
            "documents": torch.cat([*documents.values()]),
            "teacher_temperature": 0.01,
            "cosine_weight": 0.0,
        }

    # 3. The encoder of documents stays; batches of similar lengths, and the loss.
    for part in (model[0].get_submodule("sub_modules.document"), *list(model.children())[1:]):
        part.requires_grad_(False)
    query: Any = model[0].get_submodule("sub_modules.query.0")
    batches = (
        LengthGroupedBatches(query.tokenizer, texts_per_batch=True)
        if isinstance(query, Transformer)
        else Rows()
    )
    loss = SimilarityDistillationLoss(
        model, teacher, **run.loss_arguments("query", batches=batches, **goal)
    )
    keep_best_checkpoint(args, None)

    # 4. Train, go part of the way back and save.
    trainer = CrossLingualTrainer(model, args, queries, loss=loss)
    about = {"languages": queries.unique("language"), "queries": len(queries)}
    return run.train_and_save(trainer, about, evaluators=[evaluator], tag="self-distillation")


if __name__ == "__main__":
    run_script(main)
