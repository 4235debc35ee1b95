"""What the batches of train_search.py learn from translations, and the host's goal in its place.

    python -m training_scripts.studies.train_search_ablation --objective vectors --model M --pairs pairs/ \\
        --output_dir runs/vectors

- similarities: the neighbours of the English vector, and its place, as in train_search.py;
- vectors: its place alone, which is the host's way, `MSELoss` on the teacher's vectors (Reimers and Gurevych, 2020),
  on vectors of unit length.

Takes the options of train_search.py; InfoNCE alone is --contrastive_ratio 1 there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from datasets import DatasetDict
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from st_xlret.options import option
from st_xlret.training.script import run_script
from st_xlret.training.teacher import ROLES
from training_scripts import train_search as recipe

OBJECTIVES = ("similarities", "vectors")


@dataclass
class AblationArguments(recipe.SearchArguments):
    """The method."""

    objective: str = option("similarities", "What translations learn.", choices=list(OBJECTIVES))


def build_losses(
    model: SentenceTransformer, datasets: DatasetDict, vectors: Tensor | None, options: AblationArguments
) -> dict[str, nn.Module]:
    """The losses of train_search.py, with another one on translations.

    Raises:
        ValueError: If no batch has the other loss.
    """
    losses = recipe.build_losses(model, datasets, vectors, options)
    if options.objective == "vectors":
        if vectors is None:
            raise ValueError("--objective vectors and --contrastive_ratio 1: there are no English vectors to reach")
        for role in set(ROLES) & set(losses):
            losses[role] = PlaceLoss(model, vectors, cosine_weight=options.cosine_weight)
    return losses


class PlaceLoss(recipe.SimilarityDistillationLoss):
    """The distance to the teacher's vector alone: half the squared distance of unit vectors, times a factor."""

    def compute_loss_from_embeddings(self, vectors: Tensor, labels: Tensor) -> Tensor:
        """Compute the loss of vectors (N, d) that are to reach the rows `labels` (N,) of the teacher's vectors."""
        goal = self.teacher[labels].to(vectors)
        return self.cosine_weight * (1 - nn.functional.cosine_similarity(vectors.float(), goal.float())).mean()


main = partial(
    recipe.main,
    options_class=AblationArguments,
    build_losses=build_losses,
    program="-m training_scripts.studies.train_search_ablation",
    description=__doc__,
)

if __name__ == "__main__":
    run_script(main)
