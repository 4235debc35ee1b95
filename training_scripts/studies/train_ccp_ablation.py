"""train_ccp.py with the options of its ablations: the head, the bank and the negatives.

    python -m training_scripts.studies.train_ccp_ablation --normalization batch --from_scratch static \
        --documents docs/ --output_dir runs/vanilla-bn
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from datasets import DatasetDict
from sentence_transformers import SentenceTransformer
from torch import nn

from st_xlret import (
    AsymmetricBNHead,
    CCPLoss,
    CrossLingualBatches,
    InterleavedBatches,
    LanguageMemoryBank,
    MaskedLMLoss,
)
from st_xlret.options import option
from st_xlret.training.script import run_script
from training_scripts import train_ccp


@dataclass
class AblationArguments(train_ccp.CCPArguments):
    """The method, and what its ablations change."""

    normalization: str = option(
        "asymmetric",
        "Batch normalisation in the projection head: asymmetric (the paper's), batch (the usual one), or none.",
        choices=["asymmetric", "batch", "none"],
    )
    l2_normalization: bool = option(
        True, "Compare projections by their cosines. --no_l2_normalization takes inner products (Table 5)."
    )
    activation: str = option("relu", "Activation in the head.", choices=["relu", "gelu", "tanh", "none"])
    head_features: int | None = option(
        None, "Output size of the head. By default that of the encoder.", minimum=1, maximum=65_536
    )
    bank_scope: str = option(
        "total", "One queue for all languages, or one for each.", choices=["total", "per_language"]
    )
    cross_language_negatives: bool = option(
        False, "Also use rows of other languages as negatives. Telling languages apart then becomes a shortcut."
    )
    same_document_negatives: bool = option(False, "Also use other sentences of the same document as negatives.")
    language_mixing: float = option(
        0.0, "0: the windows of a batch are of one language. 1: they are fully mixed.", minimum=0, maximum=1
    )
    pairs_language_mixing: float = option(
        1.0, "1: a batch of pairs mixes all language pairs. 0: it is of one.", minimum=0, maximum=1
    )
    exact_ratios: bool = option(
        False,
        "Draw the kinds of batches in rounds of as many batches as the ratios say, which are whole numbers. By default "
        "each is drawn by itself, and the ratios hold on average.",
    )
    mask_probability: float = option(0.15, "Share of tokens that MLM predicts.", above=0, maximum=1)


def build_losses(model: SentenceTransformer, datasets: DatasetDict, options: AblationArguments) -> dict[str, nn.Module]:
    """The losses of train_ccp.py, with another head, bank or choice of negatives."""
    losses = train_ccp.build_losses(model, datasets, options)
    if "ccp" in losses:
        head = AsymmetricBNHead(
            model.get_embedding_dimension(),
            out_features=options.head_features,
            activation=options.activation,
            normalization=options.normalization,  # type: ignore[arg-type]
        )
        bank = None
        if options.bank_size:
            bank = LanguageMemoryBank(head.out_features, options.bank_size, scope=options.bank_scope)  # type: ignore[arg-type]
        losses["ccp"] = CCPLoss(
            model,
            head,
            bank,
            bank_size=0,
            temperature=options.temperature,
            cross_language_negatives=options.cross_language_negatives,
            mask_same_document=not options.same_document_negatives,
            normalize=options.l2_normalization,
        )
    if "mlm" in losses:
        losses["mlm"] = MaskedLMLoss(model, mask_probability=options.mask_probability)
    return losses


def build_batches(options: AblationArguments) -> CrossLingualBatches:
    """The batches of train_ccp.py, with other mixtures of languages."""
    return CrossLingualBatches(
        window_size=options.window_size,
        language_smoothing=options.language_smoothing,
        language_mixing=options.language_mixing,
        pairs_language_mixing=options.pairs_language_mixing,
    )


def build_mixture(options: AblationArguments, kinds: list[str]) -> InterleavedBatches:
    """The mixture of train_ccp.py, in rounds where the numbers of batches must be exact."""
    return replace(train_ccp.build_mixture(options, kinds), in_rounds=options.exact_ratios)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says."""
    return train_ccp.main(arguments, AblationArguments, build_losses, build_batches, build_mixture)


if __name__ == "__main__":
    run_script(main)
