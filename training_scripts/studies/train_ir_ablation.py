"""The ablations of lang-contrastive (Hu et al., Findings of ACL 2023, Tables 4 and 5, Figure 4) on other data.

    python -m training_scripts.studies.train_ir_ablation --connections bridge --bridge ko --languages en fi ja ko \\
        --from_scratch static --retrieval squad/train --pairs pairs/ --output_dir runs/setting-2

Takes the options of train_language_agnostic_ir.py, and those of the ablations.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

import numpy as np
from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer
from torch import nn

from st_xlret import JointBatches, LangContrastiveLoss, SemanticContrastiveLoss
from st_xlret.data import DataError, connect_languages, keep_connections
from st_xlret.data.batches.sampling import column_codes, rows_by_code
from st_xlret.data.pairs.connections import SETTINGS, without_parallel
from st_xlret.options import option
from st_xlret.training.questions import RetrievalDataArguments
from st_xlret.training.script import run_script
from training_scripts import train_language_agnostic_ir as recipe

logger = logging.getLogger("train_ir_ablation")


@dataclass
class AblationArguments(recipe.IRArguments):
    """The method and its ablations."""

    connections: str = option(
        "all",
        "Language pairs to keep: all, pairs such as 'en-ko ja-fi', or a setting of Table 4: "
        + "; ".join(f"{name}, {about}" for name, about in SETTINGS.items())
        + ". Missing pairs are joined through their English sentences.",
    )
    bridge: str | None = option(None, "The bridge of those settings, ko in the paper. By default the last language.")
    no_parallel: list[str] = option([], "Languages to leave without parallel sentences (Table 5: ru sw te th).")
    others_languages: list[str] = option(
        [], "Languages of the sentences without translations. By default all of --documents."
    )
    others_without_parallel: bool = option(
        False,
        "Take the sentences without translations only from languages that have no parallel sentences, as in section "
        "5.4 (Table 5). By default a language may have both.",
    )
    others_per_language: int | None = option(
        None, "Maximum sentences without translations per language (Figure 4). By default all of them.", minimum=1
    )
    others_batch_size: int | None = option(
        None,
        "Sentences without translations in a batch, per device. By default as many as parallel sentences.",
        minimum=1,
        per_device=True,
    )
    semantic_temperature: float = option(
        0.07, "Temperature of the semantic loss. The paper does not give its own.", above=0
    )
    language_reduction: str = option(
        "paper",
        "What the language loss is of its terms: their sum divided by R (R - 2) for R sentences (paper, Eq. 3), their "
        "mean, or their sum, which grows with the square of the batch.",
        choices=["paper", "mean", "sum"],
    )
    pairs_language_mixing: float = option(
        1.0,
        "1: a batch of parallel sentences mixes all language pairs (the paper's). 0: it is of one.",
        minimum=0,
        maximum=1,
    )

    def __post_init__(self) -> None:
        if self.connections == "none":
            self.semantic_weight = self.language_weight = 0.0


def load_texts(
    data: RetrievalDataArguments, options: AblationArguments, seed: int
) -> tuple[Dataset | None, Dataset | None]:
    """Parallel sentences of the languages to connect, and a sample of the other sentences."""
    pairs, others = recipe.load_texts(data, options, seed)
    if pairs is not None and options.connections != "all":
        found = {code for side in ("source_language", "target_language") for code in pairs.unique(side)}
        codes = data.languages or sorted({"en", *found})
        pairs, report = keep_connections(pairs, connect_languages(codes, options.connections, bridge=options.bridge))
        logger.info("%s", report)
    if pairs is not None and options.no_parallel:
        pairs, count = without_parallel(pairs, options.no_parallel)
        logger.info("left out, of %s: %d pairs", ", ".join(options.no_parallel), count)
    if others is not None:
        languages = options.others_languages
        if options.others_without_parallel and pairs is not None:
            languages = without_translations(others, pairs, languages)
        others = sample_others(others, languages, options.others_per_language, seed)
    return pairs, others


def without_translations(documents: Dataset, pairs: Dataset, languages: list[str]) -> list[str]:
    """List the languages of the documents, or those of them that are asked for, that no pair has.

    Raises:
        DataError: If there is none.
    """
    parallel = {code for side in ("source_language", "target_language") for code in pairs.unique(side)}
    asked = languages or documents.unique("language")
    found = sorted(set(asked) - parallel)
    if not found:
        raise DataError(
            f"--others_without_parallel leaves no language: all of {', '.join(sorted(asked))} have parallel sentences; "
            "give --documents of other languages, or leave some without pairs by --no_parallel"
        )
    return found


def sample_others(documents: Dataset, languages: list[str], per_language: int | None, seed: int) -> Dataset:
    """Sample sentences of some languages, at most `per_language` of each.

    Raises:
        DataError: If there are no sentences of a language.
    """
    code, names = column_codes(documents, ["language"])
    found = [name for (name,) in names]
    if missing := sorted(set(languages) - set(found)):
        raise DataError(f"--documents holds no sentences in {', '.join(missing)}, which --others_languages names")
    if not languages and per_language is None:
        return documents
    generator, chosen = np.random.default_rng([seed, 17]), []
    for name, rows in zip(found, rows_by_code(code, len(names)), strict=True):
        if name in (languages or found):
            chosen.append(generator.permutation(rows)[:per_language])
    return documents.select(np.sort(np.concatenate(chosen)))


def build_losses(model: SentenceTransformer, datasets: DatasetDict, options: AblationArguments) -> dict[str, nn.Module]:
    """The losses of train_language_agnostic_ir.py, with another temperature and reduction."""
    losses = recipe.build_losses(model, datasets, options)
    if "semantic" in losses:
        losses["semantic"] = SemanticContrastiveLoss(
            model, temperature=options.semantic_temperature, weight=options.semantic_weight
        )
    if "language" in losses:
        losses["language"] = LangContrastiveLoss(
            model,
            reduction=options.language_reduction,  # type: ignore[arg-type]
            weight=options.language_weight,
        )
    return losses


def build_batches(options: AblationArguments) -> JointBatches:
    """The batches of train_language_agnostic_ir.py, with another share of the other sentences."""
    return JointBatches(
        pairs_batch_size=options.pairs_batch_size,
        others_batch_size=options.others_batch_size,
        language_smoothing=options.language_smoothing,
        pairs_language_mixing=options.pairs_language_mixing,
    )


main = partial(
    recipe.main,
    options_class=AblationArguments,
    load_texts=load_texts,
    build_losses=build_losses,
    build_batches=build_batches,
    program="-m training_scripts.studies.train_ir_ablation",
    description=__doc__,
)

if __name__ == "__main__":
    run_script(main)
