"""What runs learned from one checkpoint, added up."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from tests import tiny
from training_scripts.studies.merge_models import main


def test_changes_of_weights_are_added_with_their_shares(tmp_path: Path) -> None:
    models = {name: tiny.transformer(seed=seed) for seed, name in enumerate(("original", "a", "b"))}
    for name, model in models.items():
        model.save(str(tmp_path / name))
    added = ["--add", f"{tmp_path / 'a'}:0.5", f"{tmp_path / 'b'}:0.25"]
    main(["--model", str(tmp_path / "original"), *added, "--output", str(tmp_path / "merged")])
    merged = SentenceTransformer(str(tmp_path / "merged"), device="cpu").state_dict()
    original, a, b = (model.state_dict() for model in models.values())
    for name, weight in merged.items():
        if weight.is_floating_point():
            expected = original[name] + 0.5 * (a[name] - original[name]) + 0.25 * (b[name] - original[name])
            torch.testing.assert_close(weight, expected)


def test_without_shares_the_models_are_averaged(tmp_path: Path) -> None:
    models = [tiny.transformer(seed=seed) for seed in range(4)]
    for seed, model in enumerate(models):
        model.save(str(tmp_path / str(seed)))
    added = [str(tmp_path / str(seed)) for seed in (1, 2, 3)]
    main(["--model", str(tmp_path / "0"), "--add", *added, "--output", str(tmp_path / "mean")])
    trained = [model.state_dict() for model in models[1:]]
    for name, weight in SentenceTransformer(str(tmp_path / "mean"), device="cpu").state_dict().items():
        if weight.is_floating_point():
            torch.testing.assert_close(weight, torch.stack([each[name] for each in trained]).mean(0))


def test_shares_are_given_to_all_or_to_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give a share to each folder, or to none"):
        main(["--model", "m", "--add", "a:0.7", "b", "--output", str(tmp_path / "merged")])


@pytest.mark.parametrize("added", ["model", "model:", "model:much", ":0.5"])
def test_a_share_that_is_no_number_is_named(added: str, tmp_path: Path) -> None:
    tiny.transformer().save(str(tmp_path / "original"))
    with pytest.raises((ValueError, OSError), match=added if added != ":0.5" else None):
        main(["--model", str(tmp_path / "original"), "--add", added, "--output", str(tmp_path / "merged")])
    assert not (tmp_path / "merged").exists()


def test_another_architecture_is_named(tmp_path: Path) -> None:
    for name, features in (("original", 8), ("other", 4)):
        tiny.static(features=features).save(str(tmp_path / name))
    given = ["--model", str(tmp_path / "original"), "--add", f"{tmp_path / 'other'}:0.5"]
    with pytest.raises(ValueError, match="other:0.5"):
        main([*given, "--output", str(tmp_path / "merged")])
