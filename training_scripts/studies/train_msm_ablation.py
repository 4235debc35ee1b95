"""The ablations of MSM (Zhang et al., ICLR 2023, Tables 4, 5, 7 and 8): train_msm.py with another loss.

    python -m training_scripts.studies.train_msm_ablation --mu 0 --from_scratch mini --documents docs/ \\
        --output_dir runs/no-bias

Takes the options of train_msm.py, whose defaults are the paper's best rows, and those of the ablations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from datasets import DatasetDict
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from torch import nn

from st_xlret import DocumentEncoder, MaskedLMLoss, MSMLoss
from st_xlret.options import option
from st_xlret.training.script import run_script
from training_scripts import train_msm


@dataclass
class AblationArguments(train_msm.MSMArguments):
    """The method and its ablations."""

    mu: float = option(
        0.5,
        "Share of the bias that is subtracted from the logits of intra-document negatives. 0: no bias (Table 5).",
        minimum=0,
    )
    cross_document_only: bool = option(False, "Take no sentence of the same document as a negative (Table 5).")
    projection: str = option(
        "separate",
        "Projection heads of predictions and sentences: two, one for both, or none (Table 7).",
        choices=["separate", "shared", "none"],
    )
    document_layers: int = option(2, "Layers of the document encoder (Table 8).", minimum=1)
    document_encoder: str = option(
        "shared",
        "One document encoder for all languages, or a second one for --separate_languages (Sep Doc), which may have "
        "projection heads of its own (Sep Doc + Head, Table 4).",
        choices=["shared", "separate", "separate-with-heads"],
    )
    separate_languages: list[str] = option(["en"], "Languages of the second document encoder.")

    def __post_init__(self) -> None:
        if self.document_encoder != "shared" and not self.separate_languages:
            raise ValueError(f"--document_encoder {self.document_encoder} needs --separate_languages, got none")


def build_losses(model: SentenceTransformer, datasets: DatasetDict, options: AblationArguments) -> dict[str, nn.Module]:
    """The losses of train_msm.py, with the options of the ablations."""
    losses: dict[str, nn.Module] = {}
    if "msm" in datasets:
        losses["msm"] = MSMLoss(
            model,
            DocumentEncoder(
                int(model.get_embedding_dimension() or 0),
                layers=options.document_layers,
                max_sentences=options.block_sentences,
            ),
            heads=options.projection,  # type: ignore[arg-type]
            mu=options.mu,
            temperature=0.1,
            num_negatives=options.negatives or None,
            intra_document_negatives=not options.cross_document_only,
            language_groups=[options.separate_languages] if options.document_encoder != "shared" else None,
            separate_heads=options.document_encoder == "separate-with-heads",
            mini_batch_size=options.mini_batch_size or None,
            mlm=MaskedLMLoss(model) if options.sum_mlm and isinstance(model[0], Transformer) else None,
        )
    others = DatasetDict({name: dataset for name, dataset in datasets.items() if name != "msm"})
    return losses | train_msm.build_losses(model, others, options)


main = partial(
    train_msm.main,
    options_class=AblationArguments,
    build_losses=build_losses,
    program="-m training_scripts.studies.train_msm_ablation",
    description=__doc__,
)

if __name__ == "__main__":
    run_script(main)
