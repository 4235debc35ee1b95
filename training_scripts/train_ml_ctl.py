r"""Align an encoder on parallel sentences and the words in them (ML-CTL with CZ-NCE).

A sample is a pair of parallel sentences with a dictionary word that occurs once in each. Its vector
is made of the sentence and of the word; translations attract each other, and all other samples of
the batch repel, also the same sentences with another word (Chen et al., ICASSP 2022; their program:
github.com/Mckysse/ML-CTL). As published:

    python training_scripts/train_ml_ctl.py training_scripts/recipes/ml-ctl.yaml \
        --pairs UNv1.0.en-fr.en UNv1.0.en-es.en --dictionaries en-fr.txt en-es.txt \
        --output_dir runs/ml-ctl

A Transformer's sentence vector is the mean over the tokens of its first and last layer, also in the
model that is saved, unless --pooling checkpoint keeps that of the checkpoint. The modes info-snt
and CZ-snt train on sentences alone. Words of Chinese, Japanese and Thai, and the default lists of
stop words, need the extra st-xlret[words].
"""

from dataclasses import dataclass
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer

from st_xlret import ContextualEncoder, CrossLingualTrainer, CZNCELoss, MaskedLMLoss
from st_xlret.modules import first_last_encoder
from st_xlret.options import option, parse
from st_xlret.training.arguments import ScriptArguments
from st_xlret.training.data import PAIRS_SCORE, WordOptions
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.loss_options import loss_options_field
from st_xlret.training.run import Run, run_script
from st_xlret.training.texts import data_entries, text_and_language_columns

MODES = ["info-snt", "CZ-snt", "ML-CTL-info", "ML-CTL-CZ"]
"""What may be trained; the third is not in the paper's Table 1."""


@dataclass
class MLCTLArguments:
    """The method.

    Its defaults are the paper's or its authors' program's, but for --lower_case and the smoothing.
    """

    _argument_group_name = "method"

    mode: str = option(
        "ML-CTL-CZ", "CZ: the loss is CZ-NCE; info: InfoNCE; snt: sentences without words.", MODES
    )
    temperature: float = option(0.07, "Temperature of the contrastive loss.")
    mlm_weight: float = option(
        0.1, "Factor on masked words of the same sentences, which is added; 0 leaves it out."
    )
    lower_case: bool = option(False, "Train on texts in lower case, as the authors' program does.")
    language_mixing: float = option(
        1.0, "1 mixes all language pairs in a batch (program); 0 takes one (paper)."
    )
    language_smoothing: float = option(
        0.7, "Pairs are sampled by size to this power; the paper: all alike (0)."
    )
    loss_options: str = loss_options_field("pairs", '{"pairs": {"gather_across_devices": false}}')


@dataclass
class TrainingArguments(ScriptArguments):
    """The host's training arguments, with the paper's batch size, learning rate and optimizer."""

    per_device_train_batch_size: int = option(64, "Pairs in a batch, per device.")
    learning_rate: float = option(
        2e-6, "Peak learning rate. 2e-6 suits mBERT, 1e-3 --from_scratch mini, 1e-2 static."
    )
    weight_decay: float = option(
        0.0, "Weight decay. Without it, the host's AdamW is Adam, the paper's optimizer."
    )
    warmup_steps: float = option(
        0.0, "Steps of linear warm-up, below 1 a share of all; the authors' program has none."
    )
    lr_scheduler_type: str = option(  # type: ignore[assignment]
        "constant_with_warmup", "Schedule of the rate, beside --lr_drops."
    )
    lr_drops: list[float] = option(
        [2 / 6, 4 / 6, 5 / 6], "Shares of steps after which the rate is a tenth (program)."
    )


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns the content of results.json."""
    groups = [EncoderArguments, WordOptions, MLCTLArguments, TrainingArguments]
    encoder, data, method, args = parse(groups, arguments, description=__doc__)
    run = Run(args, encoder, data, method)
    with_words = method.mode.startswith("ML-CTL")

    # 1. Data: parallel sentences, some of which are held out.
    pairs, evaluator = data.pairs_and_evaluator(args.seed)
    if pairs is None:
        raise ValueError("there is nothing to train on: give parallel sentences with --pairs")
    if method.lower_case:
        pairs = pairs.map(in_lower_case)

    # 2. The encoder, with the paper's sentence vector unless another one is asked for.
    texts = text_and_language_columns(pairs=pairs)
    model = encoder.load_encoder(texts, args)
    is_transformer = isinstance(model[0], Transformer)
    if with_words and not is_transformer:
        raise ValueError(
            f"--mode {method.mode} needs the tokens of a Transformer: --mode CZ-snt does not"
        )
    if is_transformer and encoder.pooling is None:
        model = first_last_encoder(model)

    # 3. Samples: pairs, or pairs with the token positions of a word and of its translation.
    samples = pairs
    counts = None
    if with_words:
        samples, counts = data.word_samples(pairs, model, args)

    # 4. The loss, with masked words of the same sentences.
    layers = ContextualEncoder(int(model.get_embedding_dimension() or 0)) if with_words else None
    masked_words = encoder.masked_words_loss(model, texts, args) if method.mlm_weight else None
    loss = pairs_loss(model, layers, masked_words, run, method)

    # 5. Train, measure and save.
    args.keep_best_checkpoint(PAIRS_SCORE if evaluator else None)
    trainer = CrossLingualTrainer(model, args, samples, loss=loss, evaluator=evaluator)
    entries = {"mode": method.mode, **data_entries(pairs=pairs), "word_samples": counts}
    return run.train_and_save(trainer, entries, evaluators=[evaluator], tag="ml-ctl")


def in_lower_case(pair: dict[str, str]) -> dict[str, str]:
    """The sentences of a pair in lower case."""
    return {"source": pair["source"].lower(), "target": pair["target"].lower()}


def pairs_loss(
    model: SentenceTransformer,
    layers: ContextualEncoder | None,
    masked_words: MaskedLMLoss | None,
    run: Run,
    method: MLCTLArguments,
) -> CZNCELoss:
    """Translations attract each other; with `layers` over a sentence and its word."""
    batches = {
        "language_smoothing": method.language_smoothing,
        "language_mixing": method.language_mixing,
    }
    options = run.loss_arguments(
        "pairs",
        objective="info_nce" if "info" in method.mode else "cz_nce",
        temperature=method.temperature,
        mlm_weight=method.mlm_weight,
        batches=batches,
    )
    return CZNCELoss(model, layers, mlm=masked_words, **options)


if __name__ == "__main__":
    run_script(main)
