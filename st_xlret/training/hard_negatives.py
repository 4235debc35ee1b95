"""Hard negatives by the host's `mine_hard_negatives`, found once and kept for resumed runs and all ranks."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from accelerate import PartialState
from datasets import Dataset, load_from_disk
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import mine_hard_negatives

from st_xlret.data import DataError
from st_xlret.files import atomic_directory

logger = logging.getLogger(__name__)


def mine_negatives_once(
    questions: Dataset, model: str, count: int, folder: str | Path, *, keep: bool = True, **options: Any
) -> Dataset:
    """Give every question hard negatives among the passages of all questions.

    The search is the host's `mine_hard_negatives`. The result is kept in a folder: a resumed run, and all ranks of a
    distributed one, have the same negatives.

    Args:
        questions: Rows with `query`, `positive` and `language`.
        model: Hub name or folder of the model that finds the negatives.
        count: Hard negatives per question.
        folder: Folder of the result. If it exists, the result is read from it.
        keep: If false, an existing result is replaced.
        **options: Options of `mine_hard_negatives`. By default a negative is at least 5 % less similar to the question
            than the passage that answers it, and among the 100 most similar passages.

    Returns:
        Rows with `query`, `positive`, `negative_1` ... and `language`. Questions with fewer negatives are left out,
        which the host reports.

    Raises:
        DataError: If no question has as many negatives.
    """
    folder = Path(folder)
    # Rank 0 mines while the others wait.
    with PartialState().main_process_first():
        if not keep and PartialState().is_main_process:
            shutil.rmtree(folder, ignore_errors=True)
        if folder.is_dir():
            logger.info("using the hard negatives in %s", folder)
        else:
            options = {"range_max": 100, "relative_margin": 0.05, "use_faiss": True, **options}
            mined = mine_hard_negatives(
                questions.select_columns(["query", "positive"]),
                SentenceTransformer(model),
                anchor_column_name="query",
                positive_column_name="positive",
                num_negatives=count,
                output_format="n-tuple",
                **options,
            )
            if not len(mined):
                raise DataError(
                    f"{model} finds {count} hard negatives for no question: they must be among its "
                    f"{options['range_max']} most similar passages and at least {options['relative_margin']:.0%} less "
                    "similar than the right one; ask for fewer, or take another model"
                )
            languages = dict(zip(questions["query"], questions["language"], strict=True))
            mined = mined.add_column("language", [languages[query] for query in mined["query"]])
            with atomic_directory(folder) as temporary:
                mined.save_to_disk(temporary)
    return load_from_disk(str(folder))
