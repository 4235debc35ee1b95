r"""Train an encoder of queries beside yours, from the collection that is searched: no labels, and the index stays.

    python training_scripts/train_queries.py --model intfloat/multilingual-e5-small --documents documents/ \
        --queries questions.jsonl --output_dir runs/queries

The teacher is your encoder with calibrated queries, as `st-xlret calibrate --queries_only` makes it. A query is to rank
the documents of the collection as the teacher ranks them, and to be surer of it (--teacher_temperature), which corrects
some of the teacher's mistakes. Questions that were asked (--queries) are best, in any languages; without them,
sentences of the documents take their place, and gain less. Documents are embedded as before. Where you have
translations, take `st-xlret train search --queries_only`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers.base.modules import Router, Transformer

from st_xlret import CrossLingualTrainer, SimilarityDistillationLoss, VectorCalibration
from st_xlret.batches import LengthGroupedBatches, Rows
from st_xlret.calibration.model import embed_by_language, sample_questions, sample_texts, weak_language_phrases
from st_xlret.modules import with_two_encoders
from st_xlret.options import option, parse
from st_xlret.training import script
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.script import Run, keep_best_checkpoint, loss_options_field, run_script


@dataclass
class DataArguments:
    """The collection, and questions."""

    _argument_group_name = "data"

    documents: list[str] = option([], "What is searched: JSON lines, folders of them, or a folder in BEIR's layout.")
    queries: list[str] = option([], "Questions without labels: JSON lines, text files, a folder in BEIR's layout.")
    documents_per_language: int = option(1500, "Documents of each language to rank, at most.")
    queries_per_language: int = option(300, "Queries of each language to learn from, at most.")


@dataclass
class QueryArguments:
    """The method."""

    _argument_group_name = "method"

    teacher_temperature: float = option(0.01, "Temperature of the teacher; the student's is 0.02, and less sure.")
    loss_options: str = loss_options_field("query", '{"query": {"temperature": 0.05}}')


@dataclass
class TrainingArguments(script.ScriptArguments):
    """The host's training arguments, for minutes on a laptop."""

    max_steps: int = option(60, "Optimizer steps.")
    per_device_train_batch_size: int = option(64, "Queries in a batch, per device.")
    learning_rate: float = option(1e-4, "Peak learning rate.")
    adam_beta2: float = option(0.98, "Decay of Adam's second moment; short runs need a small one.")
    keep_trained: float = option(0.7, "Final weights: the original ones (0), the trained ones (1), or between them.")
    dropout: float | None = option(0.0, "Dropout of the encoder's layers. Goals that are fixed vectors need none.")
    freeze_embeddings: bool = option(True, "Leave the word embeddings as they are: less memory, and faster steps.")
    logging_steps: float = option(20, "Steps between two lines of losses.")


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns the content of results.json."""
    groups = [EncoderArguments, DataArguments, QueryArguments, TrainingArguments]
    encoder, data, method, args = parse(groups, arguments, description=__doc__)
    run = Run(args, encoder, data, method)

    # 1. Data: documents to rank, and questions, or sentences of the documents.
    few: Any = {"texts_per_language": data.queries_per_language, "seed": args.seed}
    collection = sample_texts(data.documents, texts_per_language=data.documents_per_language, seed=args.seed)
    if data.queries:
        asked = sample_questions(data.queries, None, **few)
    else:
        asked = {code: part.texts for code, part in sample_texts(data.documents, unit="sentence", **few).items()}
    rows = [{"query": text, "language": code} for code, texts in asked.items() for text in texts]
    queries = Dataset.from_list([{**row, "label": label} for label, row in enumerate(rows)])

    # 2. The teacher's vectors of queries, and those of documents, which both encoders share.
    model = encoder.load_encoder([], args)
    if isinstance(model[0], Router):
        raise ValueError(f"{encoder.model} has a Router: give the encoder without one that its documents come from")
    embed: Any = partial(embed_by_language, model, precision=args.precision, show_progress_bar=True)
    documents = embed({code: part.texts for code, part in collection.items()}, role="document")
    vectors, phrases = embed(asked, role="query"), embed(weak_language_phrases(), role="query")
    joining: Any = {"phrases": {"mul": torch.cat([*phrases.values()])}, "queries": vectors if data.queries else None}
    teacher = VectorCalibration.fit(documents, queries_only=True, **joining)
    goals = torch.from_numpy(teacher.transform(torch.cat([*vectors.values()]), "query"))
    pool = torch.cat([*documents.values()])

    # 3. Two encoders, of which that of documents stays, and the loss, in batches of similar lengths.
    lengths = isinstance(model[0], Transformer)
    batches = LengthGroupedBatches(model.tokenizer, texts_per_batch=True) if lengths else Rows()
    model = with_two_encoders(model)
    model[0].get_submodule("sub_modules.document").requires_grad_(False)
    common: Any = {"teacher_temperature": method.teacher_temperature, "cosine_weight": 0.0, "batches": batches}
    loss = SimilarityDistillationLoss(model, goals, documents=pool, **run.loss_arguments("query", **common))
    keep_best_checkpoint(args, None)

    # 4. Train, go part of the way back and save.
    trainer = CrossLingualTrainer(model, args, queries, loss=loss)
    about = {"languages": sorted(asked), "queries": len(queries), "ranked": len(pool)}
    return run.train_and_save(trainer, about, tag="self-distillation")


if __name__ == "__main__":
    run_script(main)
