"""The methods that MSM and CCP are compared with, on the same documents.

    python -m training_scripts.studies.train_rival --objective ict --model M --documents docs/ --output_dir runs/ict

- ict: a sentence and its context are a positive pair (inverse cloze task, Lee et al., 2019, section 4);
- contriever: two random spans of a document are a positive pair, as in mContriever (Izacard et al., 2021, section 3.1:
  5 % to 50 % of up to 256 tokens, drawn independently); its queue of a second, slowly moving encoder is not here;
- mlm: masked language modelling alone, with a new head. It disturbs a trained encoder.

The MSM paper's CROP is CCP (section 5.3): train_ccp.py. A batch has --per_device_train_batch_size documents of
--span_sentences sentences; of masked words, that many sentences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from datasets import Dataset

from st_xlret import CrossLingualTrainer, MaskedLMLoss, SemanticContrastiveLoss
from st_xlret.batches import Blocks
from st_xlret.options import option, parse
from st_xlret.training.data import DataArguments
from st_xlret.training.encoders import PretrainingEncoderArguments
from st_xlret.training.script import Run, TrainingArguments, run_script
from training_scripts.studies.spans import SpanDataCollator


@dataclass
class RivalArguments:
    """The method."""

    objective: str = option("ict", "What is learned.", choices=["ict", "contriever", "mlm"])
    span_sentences: int = option(10, "Sentences of a document that both texts are taken from.")
    temperature: float = option(0.05, "Temperature.")
    language_smoothing: float = option(0.7, "Languages are sampled in proportion to their size raised to this power.")


class SpanLoss(SemanticContrastiveLoss):
    """The loss of translations on the two texts that `SpanDataCollator` makes of each document."""

    def default_batches(self) -> Blocks:
        """Whole blocks of documents."""
        return Blocks()

    def select(self, dataset: Dataset) -> Dataset:
        """The columns that the collator reads."""
        return dataset.select_columns(["sentence", "language", "document", "position"])


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns the content of results.json."""
    groups = [PretrainingEncoderArguments, DataArguments, RivalArguments, TrainingArguments]
    encoder, data, method, args = parse(groups, arguments, description=__doc__)
    run = Run("-m training_scripts.studies.train_rival", arguments, args, encoder, data, method)
    documents = data.load_documents()
    if documents is None:
        raise ValueError("there is nothing to train on: give --documents")
    model = encoder.load([(documents, "sentence", "language")], args)
    batches: dict[str, Any] = {"language_smoothing": method.language_smoothing}
    collator = None
    if method.objective == "mlm":
        loss: Any = MaskedLMLoss(model, fresh_head=True, batches=batches)
    else:
        batches["block_size"] = method.span_sentences
        loss = SpanLoss(model, temperature=method.temperature, batches=batches)
        length = min(args.train_seq_length or math.inf, model.max_seq_length or math.inf)
        collator = SpanDataCollator(
            model.preprocess,
            max_length=None if length == math.inf else int(length),
            token_dropout=args.token_dropout,
            kind="ict" if method.objective == "ict" else "crop",
            tokenizer=model.tokenizer,
        )
    trainer = CrossLingualTrainer(model, args, documents, loss=loss, data_collator=collator)
    about = {"languages": sorted(documents.unique("language")), "sentences": len(documents)}
    return run.train_and_save(trainer, about, tag=method.objective)


if __name__ == "__main__":
    run_script(main)
