r"""Align an encoder on parallel sentences and the words in them (ML-CTL with CZ-NCE).

A sample is a pair of parallel sentences with a dictionary word that occurs once in each. Its vector is made of the
sentence and of the word; translations attract each other, and all other samples of the batch repel, also the same
sentences with another word (Chen et al., ICASSP 2022). The paper's setting, from multilingual BERT, on one GPU:

    python training_scripts/train_ml_ctl.py training_scripts/recipes/ml-ctl.yaml \
        --pairs UNv1.0.en-fr.en UNv1.0.en-es.en --dictionaries en-fr.txt en-es.txt --output_dir runs/ml-ctl

On two CPU cores in minutes, a small Transformer from scratch:

    python training_scripts/train_ml_ctl.py --from_scratch mini --pairs pairs/ --dictionaries words/*.tsv.gz \
        --output_dir runs/mini --learning_rate 1e-3 --max_steps 2000

A Transformer's sentence vector is the mean over the tokens of its first and last layer, also in the model that is
saved, unless --pooling checkpoint keeps that of the checkpoint. Words of Chinese, Japanese and Thai need the extra
st-xlret[words]; so do the default lists of stop words. How many pairs gave samples, and why the others gave none, is
printed before the training. Some pairs are held out to choose the best checkpoint. Interrupted? The same command with
--resume repeats what the uninterrupted run would have done. The model is in OUTPUT_DIR/model, the scores in
OUTPUT_DIR/results.json, the curves in OUTPUT_DIR/training.png.

--mode chooses a system of the paper's Table 1, or ML-CTL-info, which the paper does not have. The systems info-snt and
CZ-snt train on sentences alone: they need no dictionaries, and take --from_scratch static too.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, field
from typing import Any

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.base.modules import Transformer

from st_xlret import (
    ContextualEncoder,
    CrossLingualBatches,
    CrossLingualDataCollator,
    CZNCELoss,
    LossMonitorCallback,
    LossStateCallback,
    MaskedLMLoss,
    TokenCountCallback,
    build_word_samples,
)
from st_xlret.data import Dictionary, WordSampleReport, load_dictionaries
from st_xlret.data.batches.prompts import prompt_tokens
from st_xlret.data.reading.jsonl import Limits
from st_xlret.data.words.segmentation import read_stop_words, stop_words
from st_xlret.hub import carry_card_data, set_card_data
from st_xlret.modules import first_last_encoder
from st_xlret.options import option, parse
from st_xlret.training import arguments as shared
from st_xlret.training import encoders as shared_encoders
from st_xlret.training import run as runs
from st_xlret.training.arguments import DataArguments, LazyAdamArguments, RunArguments
from st_xlret.training.held_out import compare, keep_best
from st_xlret.training.lazy_adam import use_lazy_adam
from st_xlret.training.script import command, run_script

logger = logging.getLogger("train_ml_ctl")

# Objective, and whether there is a word beside each sentence.
MODES = {
    "info-snt": ("info_nce", False),
    "CZ-snt": ("cz_nce", False),
    "ML-CTL-info": ("info_nce", True),
    "ML-CTL-CZ": ("cz_nce", True),
}


@dataclass
class EncoderArguments(shared_encoders.EncoderArguments):
    """The encoder to train. Its pooling is that of the paper by default."""

    pooling: str | None = option(
        "first-last",
        "Sentence vector of a Transformer: first-last (the paper's mean over the tokens of the first and the last "
        "layer) or checkpoint (the checkpoint's own, which keeps more of an encoder that embeds sentences already).",
        choices=["first-last", "checkpoint"],
    )
    first_last: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self.first_last = self.pooling == "first-last"
        if not (self.first_last or self.model):
            raise ValueError("--pooling checkpoint is for a checkpoint (--model): from scratch it is first-last")
        self.pooling = None if self.first_last else self.pooling
        super().__post_init__()


@dataclass
class ParallelArguments(DataArguments):
    """Parallel sentences, and dictionaries to find words in them."""

    documents: list[str] = field(default_factory=list, init=False)
    dictionaries: list[str] = option(
        [],
        "Dictionaries: two columns, named after their languages, such as en-fr.txt (MUSE) or WORDS.en-fr.tsv.gz.",
    )
    stop_words: list[str] = option(
        ["default"],
        "Words to make no samples of: default (the long lists of the library stopwordsiso, 1,298 words for English), "
        "none, or files of your own with one word per line, named after their language, such as en.txt. A language "
        "without a file then has the default list.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pairs:
            raise ValueError("there is nothing to train on: give parallel sentences with --pairs")
        if len(self.stop_words) != 1 and {"default", "none"} & set(self.stop_words):
            raise ValueError(f"--stop_words takes default, none or files, got {' '.join(self.stop_words)}")

    def load_dictionaries(self) -> list[Dictionary]:
        """The dictionaries between languages that are kept."""
        if not self.dictionaries:
            raise ValueError("there are no dictionaries: give --dictionaries, or train on sentences with --mode CZ-snt")
        return load_dictionaries(
            self.dictionaries,
            languages=self.languages or None,
            skip_bad_lines=self.skip_bad_lines,
            limits=Limits.parse(self.limits),
        )

    def load_stop_words(self, dictionaries: list[Dictionary]) -> dict[str, frozenset[str]] | None:
        """Stop words by language, as `build_word_samples` takes them; None for its default."""
        if self.stop_words == ["default"]:
            return None
        if self.stop_words == ["none"]:
            return {}
        codes = {code for found in dictionaries for code in (found.source_language, found.target_language)}
        own = dict(map(read_stop_words, self.stop_words))
        if unknown := sorted(set(own) - codes):
            raise ValueError(f"--stop_words: no dictionary has {', '.join(unknown)}; they have {sorted(codes)}")
        return {code: own[code] if code in own else stop_words(code) for code in codes}


@dataclass
class MLCTLArguments:
    """The method; its defaults are the paper's, but for --language_mixing and --language_smoothing."""

    _argument_group_name = "method"

    mode: str = option(
        "ML-CTL-CZ",
        "ML-CTL-CZ: sentences with a word of each, CZ-NCE. ML-CTL-info: the same with InfoNCE. CZ-snt: sentences "
        "alone, CZ-NCE. info-snt: sentences alone, InfoNCE. Words need --dictionaries and a Transformer.",
        choices=list(MODES),
    )
    temperature: float = option(0.07, "Temperature of the contrastive loss.", above=0)
    mlm_weight: float = option(
        0.1,
        "Factor on masked language modelling of the same sentences, which is added to the contrastive loss. 0 leaves "
        "it out. A static encoder has none.",
        minimum=0,
    )
    samples_per_pair: int | None = option(
        None, "Maximum words of a pair of sentences, chosen at random. By default all that are found.", minimum=1
    )
    language_mixing: float = option(
        1.0,
        "1 mixes all language pairs in a batch. 0 takes each batch from one language pair, as the paper does.",
        minimum=0,
        maximum=1,
    )
    language_smoothing: float = option(
        0.7,
        "Language pairs are sampled in proportion to their size raised to this power. 0 samples all alike, as the "
        "paper does; where sizes differ much, it repeats the pairs of small ones many times.",
        minimum=0,
        maximum=1,
    )


@dataclass
class TrainingArguments(shared.TrainingArguments):
    """The host's training arguments, with the paper's batch size, learning rate and optimizer."""

    per_device_train_batch_size: int = option(64, "Pairs in a batch, per device.")
    learning_rate: float = option(2e-6, "Peak learning rate. 2e-6 suits mBERT, 1e-3 --from_scratch mini, 1e-2 static.")
    weight_decay: float = option(0.0, "Weight decay. Without it, the host's AdamW is Adam, the paper's optimizer.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per_device_train_batch_size < 2:
            raise ValueError(
                f"--per_device_train_batch_size must be at least 2, got {self.per_device_train_batch_size}: the "
                "negatives of a pair are the others of its batch"
            )


def build_loss(model: SentenceTransformer, options: MLCTLArguments) -> CZNCELoss:
    """The contrastive loss, with the layer over sentence and word, and masked language modelling of the same texts."""
    objective, words = MODES[options.mode]
    return CZNCELoss(
        model,
        ContextualEncoder(int(model.get_embedding_dimension() or 0)) if words else None,
        objective=objective,  # type: ignore[arg-type]
        temperature=options.temperature,
        mlm=MaskedLMLoss(model) if options.mlm_weight and shared_encoders.learns_masked_words(model) else None,
        mlm_weight=options.mlm_weight,
    )


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns the content of results.json."""
    groups = [EncoderArguments, ParallelArguments, MLCTLArguments, LazyAdamArguments, RunArguments, TrainingArguments]
    encoder, data, options, static, run, args = parse(groups, arguments, description=__doc__)
    runs.start(args, run, encoder, data, options, static)
    _, words = MODES[options.mode]

    # 1. Data: dictionaries, and parallel sentences, some of which are held out.
    dictionaries = data.load_dictionaries() if words else []
    excluded_words = data.load_stop_words(dictionaries) if words else None
    pairs, evaluator = data.hold_out_pairs(data.load_pairs(), args.seed)

    # 2. The encoder, with the paper's sentence vector unless the checkpoint's own is kept.
    texts = [(pairs, side, f"{side}_language") for side in ("source", "target")]
    model = encoder.load(texts, args, run)
    if isinstance(model[0], Transformer) and encoder.first_last:
        if encoder.model:
            logger.info("the sentence vector is the paper's; --pooling checkpoint keeps that of %s", encoder.model)
        loaded, model = model, first_last_encoder(model)
        carry_card_data(loaded, model)
    elif words and not isinstance(model[0], Transformer):
        raise ValueError(
            f"--mode {options.mode} needs the token vectors of a Transformer, and this encoder is a "
            f"{type(model[0]).__name__}: take --from_scratch mini or a checkpoint, or --mode CZ-snt"
        )
    languages = sorted({code for _, _, column in texts for code in pairs.unique(column)})
    set_card_data(model, languages=languages, tags=["ml-ctl"])

    # 3. Word-positioned samples: pairs with the token positions of a word and of its translation.
    samples, report = pairs, WordSampleReport()
    if words:
        samples = build_word_samples(
            pairs,
            dictionaries,
            model.tokenizer,
            max_seq_length=model.max_seq_length - prompt_tokens(model, args.prompts),
            samples_per_pair=options.samples_per_pair,
            seed=args.seed,
            stop_words_by_language=excluded_words,
            report=report,
        )

    # 4. The loss, and the batches.
    loss = build_loss(model, options)
    args.batch_sampler = CrossLingualBatches(
        language_smoothing=options.language_smoothing, pairs_language_mixing=options.language_mixing
    )
    keep_best(args, "eval_pairs_average_accuracy" if evaluator else None)

    # 5. The host's Trainer. The callbacks keep the layer over words across checkpoints, and watch the loss.
    trainer = SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=samples,
        loss=loss,
        evaluator=evaluator,
        data_collator=CrossLingualDataCollator(
            model.preprocess, token_dropout=0.0 if isinstance(model[0], Transformer) else static.token_dropout
        ),
        callbacks=[LossStateCallback(loss), LossMonitorCallback(loss), TokenCountCallback(loss)],
    )
    if static.lazy_adam:
        use_lazy_adam(trainer)

    # 6. Train and save.
    results = {
        "command": command("training_scripts/train_ml_ctl.py", arguments),
        "mode": options.mode,
        **runs.train(trainer, run),
        "tokens": trainer.state.num_input_tokens_seen,
        "languages": languages,
        "pairs": len(pairs),
        "word_samples": {code: asdict(counts) for code, counts in report.languages.items()} if words else None,
    }
    if evaluator is not None and trainer.is_world_process_zero():
        evaluation = evaluator.evaluate(model)
        results["held_out_pairs"] = {"scores": evaluation.scores, "average": evaluation.average}
        compare(results, {"pairs_average_accuracy": evaluation.average["accuracy"]})
    runs.finish(model, trainer, run, results)
    return results


if __name__ == "__main__":
    run_script(main)
