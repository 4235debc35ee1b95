"""What the batches of train_search.py learn from translations, and other goals in their place.

    python -m training_scripts.studies.train_search_ablation --objective vectors --model M --pairs pairs/ \\
        --output_dir runs/vectors

- similarities: the neighbours of the English vector, and its place, as in train_search.py;
- vectors: its place alone, which is the host's way, `MSELoss` on the teacher's vectors (Reimers and Gurevych, 2020),
  on vectors of unit length;
- pairs: no teacher: translations are drawn together by InfoNCE (`SemanticContrastiveLoss`), and both sides are encoded;
- both: batches of similarities, and as many of InfoNCE.

Takes the options of train_search.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from datasets import DatasetDict, concatenate_datasets
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_xlret import SemanticContrastiveLoss
from st_xlret.options import option
from st_xlret.training.script import run_script
from st_xlret.training.teacher import ROLES
from training_scripts import train_search as recipe

OBJECTIVES = ("similarities", "vectors", "pairs", "both")


@dataclass
class AblationArguments(recipe.SearchArguments):
    """The method."""

    objective: str = option("similarities", "What translations learn.", choices=list(OBJECTIVES))


def build_losses(
    model: SentenceTransformer, datasets: DatasetDict, vectors: Tensor, options: AblationArguments
) -> dict[str, nn.Module]:
    """The losses of train_search.py, with another one on translations."""
    losses = recipe.build_losses(model, datasets, vectors, options)
    if options.objective == "vectors":
        # Over a bank of one vector there is one distribution only: the distance to the vector is left.
        losses |= {role: PlaceLoss(model, vectors, cosine_weight=options.cosine_weight) for role in ROLES}
    if "pairs" in datasets:
        losses["pairs"] = SemanticContrastiveLoss(model, temperature=options.temperature)
    return {name: loss for name, loss in losses.items() if name in datasets}


class PlaceLoss(recipe.SimilarityDistillationLoss):
    """The distance to the teacher's vector alone: half the squared distance of unit vectors, times a factor."""

    def compute_loss_from_embeddings(self, vectors: Tensor, labels: Tensor) -> Tensor:
        """Compute the loss of vectors (N, d) that are to reach the rows `labels` (N,) of the teacher's vectors."""
        goal = self.teacher[labels].to(vectors)
        return self.cosine_weight * (1 - nn.functional.cosine_similarity(vectors.float(), goal.float())).mean()


def build_datasets(lesson: Any, questions: Any, options: AblationArguments) -> DatasetDict:
    """The data sets of train_search.py; InfoNCE takes both texts of a pair instead of a text and its goal."""
    datasets = recipe.build_datasets(lesson, questions, options)
    if options.objective not in ("pairs", "both"):
        return datasets
    texts = [text for role in ROLES for text in lesson.texts[role]]
    parts = []
    for role in ROLES:
        if role in lesson.datasets:
            rows = lesson.datasets[role]
            translation = [texts[label] for label in rows["label"]]
            rows = rows.remove_columns("label").add_column("translation", translation)
            parts.append(rows.filter(lambda row: row["sentence"] != row["translation"]))
        if options.objective == "pairs":
            datasets.pop(role, None)
    return DatasetDict({"pairs": concatenate_datasets(parts), **datasets})


main = partial(
    recipe.main,
    options_class=AblationArguments,
    build_losses=build_losses,
    build_datasets=build_datasets,
    program="-m training_scripts.studies.train_search_ablation",
    description=__doc__,
)

if __name__ == "__main__":
    run_script(main)
