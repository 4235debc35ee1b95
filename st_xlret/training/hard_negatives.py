"""Hard negatives for questions that have none, by the host's ``mine_hard_negatives``."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from accelerate import PartialState
from datasets import Dataset, load_from_disk
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import mine_hard_negatives

from st_xlret.data.reading.jsonl import DataError
from st_xlret.training.encoders import save_folder_atomically

logger = logging.getLogger(__name__)


@dataclass
class NegativeArguments:
    """Hard negatives that a model finds."""

    mine_negatives: int = field(
        default=0,
        metadata={"help": "Hard negatives to mine per question, among the passages of all questions; 0 for none."},
    )
    mine_with: str | None = field(
        default=None, metadata={"help": "Model that finds them, Hub name or folder; by default --model."}
    )
    mine_margin: float = field(
        default=0.05,
        metadata={"help": "A negative is less similar than the gold passage by this share at least."},
    )
    mine_skip: int = field(default=0, metadata={"help": "Best-ranked passages to pass over: they may be answers."})
    mine_depth: int = field(default=100, metadata={"help": "Rank down to which to look."})

    def __post_init__(self) -> None:
        if self.mine_negatives < 0:
            raise ValueError(f"--mine-negatives must not be negative, got {self.mine_negatives}")

    def mine(self, retrieval: Dataset, model: str | None, folder: str | Path, *, keep: bool = True) -> Dataset:
        """Replace the negatives of all questions by mined ones.

        Args:
            retrieval: Rows with ``query``, ``positive`` and ``language``.
            model: The model where ``mine_with`` names none.
            folder: Where the result is kept. One that is there is taken: a resumed run and all ranks of a
                distributed one have the same.
            keep: Off, one that is there is replaced.

        Returns:
            Rows with ``query``, ``positive``, ``negative_1`` ... and ``language``; questions with too few
            negatives are left out, which the host reports.

        Raises:
            ValueError: If there is no model to mine with.
            DataError: If no question has negatives.
        """
        if not self.mine_negatives:
            return retrieval
        name, folder = self.mine_with or model, Path(folder)
        if name is None:
            raise ValueError("an encoder from scratch finds no hard negatives: name a trained one with --mine-with")
        # Rank 0 mines while the others wait.
        with PartialState().main_process_first():
            if not keep and PartialState().is_main_process:
                shutil.rmtree(folder, ignore_errors=True)
            if folder.is_dir():
                logger.info("taking the hard negatives in %s", folder)
            else:
                mined = mine_hard_negatives(
                    retrieval.select_columns(["query", "positive"]),
                    SentenceTransformer(name),
                    anchor_column_name="query",
                    positive_column_name="positive",
                    num_negatives=self.mine_negatives,
                    range_min=self.mine_skip,
                    range_max=self.mine_depth,
                    relative_margin=self.mine_margin,
                    output_format="n-tuple",
                    use_faiss=True,
                )
                if not len(mined):
                    raise DataError(
                        f"no question has {self.mine_negatives} hard negatives: raise --mine-depth or lower "
                        "--mine-margin"
                    )
                mined = mined.add_column("language", [retrieval[0]["language"]] * len(mined))
                save_folder_atomically(mined.save_to_disk, folder)
        return load_from_disk(str(folder))
