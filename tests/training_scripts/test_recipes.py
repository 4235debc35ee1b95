"""The files of options train what they say: the papers' settings, held against tables taken from the papers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from datasets import DatasetDict

from st_xlret.options import own_options, parse
from st_xlret.training.arguments import DataArguments, LazyAdamArguments, RunArguments, TrainingArguments
from st_xlret.training.encoders import PretrainingEncoderArguments
from tests import tiny
from training_scripts import train_msm, train_search
from training_scripts.train_ccp import CCPArguments

GROUPS = [PretrainingEncoderArguments, DataArguments, CCPArguments, LazyAdamArguments, RunArguments, TrainingArguments]
MSM_GROUPS = [
    *(PretrainingEncoderArguments, DataArguments, train_msm.MSMArguments),
    *(LazyAdamArguments, RunArguments, train_msm.TrainingArguments),
]

CCP = {
    "pooling": "cls",  # section 3.1: "a manually-inserted token [CLS]"
    "window_size": 4,  # Table 6: 5 sentences, where 2 "means predicting the next sentence"
    "temperature": 0.1,  # Table 5
    "bank_size": 32768,  # section 4.1
    "per_device_train_batch_size": 32,  # section 4.1: "small batches whose size is 32"
    "learning_rate": 3e-5,  # section 4.1
    "ccp_ratio": 1,  # section 4.1: "we select two pre-training tasks randomly"
    "mlm_ratio": 1,
    "pairs_ratio": 0,  # no parallel sentences
    "weight_decay": 0,  # section 4.1: "Adam"
}
MSM = {
    "model": "xlm-roberta-base",  # section 4.2
    "pooling": "cls",  # section 3.1
    "max_seq_length": 64,  # section 4.2
    "block_sentences": 32,  # section 4.2
    "negatives": 512,  # Table 6
    "sum_mlm": True,  # Eq. 3
    "pairs_ratio": 0,  # no parallel sentences
    "learning_rate": 4e-5,  # section 4.2
    "max_steps": 200_000,  # section 4.2
    "weight_decay": 0,  # section 4.2: "Adam optimizer"
    "adam_beta2": 0.98,  # section 4.2: "the rest settings mainly follow the original XLMR's in FairSeq"
    "adam_epsilon": 1e-6,
    # Not in the paper: the authors' program, XLM-R, and as many sentences as there are negatives.
    "warmup_steps": 10_000,
    "language_smoothing": 0.3,
    "per_device_train_batch_size": 16,
}
MSM_LOSS = {
    "mu": 0.5,  # Table 5
    "intra_document_negatives": True,
    "num_negatives": 512,  # Table 6
    "heads": "separate",  # Table 7
    "document_encoder_layers": 2,  # Table 8
    "language_groups": [],  # Table 4: one document encoder for all languages
    "temperature": 0.1,  # not in Eq. 1; the authors' program
}


def options_of(repository: Path, name: str, tmp_path: Path, groups: Sequence[type] = GROUPS) -> dict[str, Any]:
    file = repository / "training_scripts" / "recipes" / f"{name}.yaml"
    given = ["--output_dir", str(tmp_path), "--use_cpu"]
    found: dict[str, Any] = {}
    for group in parse(groups, [str(file), *given]):
        found |= vars(group)
    return found


def test_ccp_is_the_papers(repository: Path, tmp_path: Path) -> None:
    options = options_of(repository, "ccp", tmp_path)
    assert {name: options[name] for name in CCP} == CCP
    assert options["per_device_train_batch_size"] * options["gradient_accumulation_steps"] == 2048


def test_msm_is_the_papers(repository: Path, tmp_path: Path) -> None:
    options = options_of(repository, "msm", tmp_path, MSM_GROUPS)
    assert {name: options[name] for name in MSM} == MSM
    method = train_msm.MSMArguments(negatives=options["negatives"], sum_mlm=options["sum_mlm"])
    losses: Any = train_msm.build_losses(tiny.transformer(), DatasetDict({"msm": tiny.documents()}), method)
    assert list(losses) == ["msm"]
    settings = losses["msm"].get_config_dict()
    assert {name: settings[name] for name in MSM_LOSS} == MSM_LOSS
    assert (settings["mlm"]["mask_probability"], settings["mlm"]["weight"]) == (0.15, 1)
    assert losses["msm"].networks.document_encoders[0].max_sentences == 32


def test_two_cores_is_a_static_encoder(repository: Path, tmp_path: Path) -> None:
    options = options_of(repository, "two-cores", tmp_path)
    assert options["from_scratch"] == "static" and options["lazy_adam"] and options["max_grad_norm"] == 0


@pytest.mark.parametrize("groups", [GROUPS, MSM_GROUPS])
def test_a_script_has_few_options_of_its_own(groups: list[type]) -> None:
    assert len(own_options(groups)) <= 30


def parse_search(repository: Path, recipe: str) -> list[Any]:
    given = [str(repository / "training_scripts/recipes" / recipe), "--model", "m", "--pairs", "p"]
    groups = [train_search.CheckpointArguments, train_search.SearchDataArguments, train_search.SearchArguments]
    groups += [RunArguments, train_search.TrainingArguments]
    return parse(groups, [*given, "--output_dir", "o"])


def test_the_recipe_of_search_is_the_measured_one(repository: Path) -> None:
    encoder, data, method, _, args = parse_search(repository, "search.yaml")
    assert (
        encoder.freeze_embeddings
        and encoder.train_seq_length == 160
        and encoder.max_seq_length is None
        and data.pairs_per_language == 4500
    )
    assert (method.questions_ratio, method.contrastive_ratio, method.temperature) == (0.3, 0.3333, 0.02)
    assert args.keep_trained == 0.7
    assert (args.max_steps, args.per_device_train_batch_size, args.learning_rate) == (300, 128, 1e-4)
    assert args.adam_beta2 == 0.98


def test_the_recipe_of_search_on_a_gpu_is_the_measured_one(repository: Path) -> None:
    encoder, data, method, _, args = parse_search(repository, "search-gpu.yaml")
    assert not encoder.freeze_embeddings and encoder.train_seq_length == 160 and data.pairs_per_language == 8000
    assert (method.questions_ratio, method.contrastive_ratio, method.temperature) == (0.3, 0.3333, 0.02)
    assert (args.max_steps, args.per_device_train_batch_size, args.learning_rate) == (2000, 256, 1e-4)
    assert (args.keep_trained, args.adam_beta2) == (0.7, 0.98)


def test_the_recipe_of_documents_is_the_measured_one(repository: Path) -> None:
    given = [str(repository / "training_scripts/recipes/documents.yaml"), "--model", "m", "--documents", "d"]
    encoder, _, method, _, _, args = parse(GROUPS, [*given, "--output_dir", "o"])
    assert encoder.freeze_embeddings and encoder.train_seq_length == 64 and encoder.max_seq_length is None
    assert (method.ccp_ratio, method.mlm_ratio, method.pairs_ratio, method.temperature) == (1, 0, 0, 0.1)
    assert (args.max_steps, args.per_device_train_batch_size, args.learning_rate) == (100, 32, 3e-5)
    assert (args.keep_trained, args.adam_beta2) == (0.3, 0.98)
