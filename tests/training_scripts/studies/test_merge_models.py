"""What runs learned from one checkpoint, added up."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from tests import tiny
from training_scripts.studies.merge_models import main


@pytest.mark.parametrize(("added", "shares"), [(("a:0.5", "b:0.25"), (0.5, 0.25)), (("a", "b"), (0.5, 0.5))])
def test_changes_of_weights_are_added_with_their_shares(
    added: tuple[str, str], shares: tuple[float, float], tmp_path: Path
) -> None:
    models = {name: tiny.transformer(seed=seed) for seed, name in enumerate(("original", "a", "b"))}
    for name, model in models.items():
        model.save(str(tmp_path / name))
    folders = [str(tmp_path / name) for name in added]
    main(["--model", str(tmp_path / "original"), "--add", *folders, "--output", str(tmp_path / "merged")])
    original, a, b = (model.state_dict() for model in models.values())
    for name, weight in SentenceTransformer(str(tmp_path / "merged"), device="cpu").state_dict().items():
        if weight.is_floating_point():
            expected = original[name] + shares[0] * (a[name] - original[name]) + shares[1] * (b[name] - original[name])
            torch.testing.assert_close(weight, expected)
