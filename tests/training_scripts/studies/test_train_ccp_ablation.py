"""The ablations of CCP are reachable by options, and are the recipe without them."""

from __future__ import annotations

from typing import Any

import pytest
from datasets import DatasetDict

from st_xlret.options import parse
from tests import tiny
from training_scripts import train_ccp
from training_scripts.studies import train_ccp_ablation as program

DATASETS = DatasetDict({"ccp": tiny.documents(), "mlm": tiny.texts()})


def losses(options: str) -> dict[str, Any]:
    (parsed,) = parse([program.AblationArguments], options.split())
    return program.build_losses(tiny.transformer(), DATASETS, parsed)


def test_without_its_options_it_is_the_recipe() -> None:
    expected: dict[str, Any] = train_ccp.build_losses(tiny.transformer(), DATASETS, train_ccp.CCPArguments())
    found = losses("")
    assert list(found) == list(expected) == ["ccp", "mlm"]
    for name, loss in found.items():
        assert loss.get_config_dict() == expected[name].get_config_dict()


# The rows of the paper's Table 5, as (memory bank, L2 normalisation, batch normalisation), and their temperatures.
@pytest.mark.parametrize(
    ("options", "bank_size", "normalize", "normalization"),
    [
        ("--no_l2_normalization --normalization none", 32768, False, "none"),
        ("--normalization none", 32768, True, "none"),
        ("--no_l2_normalization", 32768, False, "asymmetric"),
        ("", 32768, True, "asymmetric"),
        ("--bank_size 0", 0, True, "asymmetric"),
        ("--normalization batch", 32768, True, "batch"),
    ],
)
@pytest.mark.parametrize("temperature", [0.001, 0.01, 0.1, 1.0])
def test_table_5(options: str, bank_size: int, normalize: bool, normalization: str, temperature: float) -> None:
    config = losses(f"{options} --temperature {temperature}")["ccp"].get_config_dict()
    expected = {"bank_size": bank_size, "normalize": normalize, "normalization": normalization}
    assert config == config | expected | {"temperature": temperature}


def test_the_other_options() -> None:
    options = "--head_features 5 --activation none --bank_size 7 --bank_scope per_language --mask_probability 0.3"
    found = losses(f"{options} --cross_language_negatives --same_document_negatives")
    ccp = found["ccp"].get_config_dict()
    assert (ccp["bank_size"], ccp["bank_scope"]) == (7, "per_language")
    assert ccp["cross_language_negatives"] and not ccp["mask_same_document"]
    assert found["ccp"].head.out_features == 5 and found["mlm"].get_config_dict()["mask_probability"] == 0.3
