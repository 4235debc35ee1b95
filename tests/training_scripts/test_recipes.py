"""The files of options train what they say: the papers' settings, held against tables taken from the papers."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.training_scripts.scripts import Runner, script

# DPR's program (Karpukhin et al., EMNLP 2020, section 5, and its option file for Natural Questions): the papers follow
# it in what they do not state.
DPR = {
    **{"similarity": "dot", "temperature": 1.0, "hard_negatives": 1, "max_seq_length": 256, "warmup_steps": 1237},
    **{"lr_scheduler_type": "linear", "weight_decay": 0, "max_grad_norm": 2.0, "optim": "adamw_torch", "max_steps": -1},
}
TWO = {"two_encoders": True, "pooling": "cls"}
# A second stage has the encoders of the first.
SECOND = {"two_encoders": False, "pooling": None, "language_smoothing": 1, "language_mixing": 1}


def tuned(epochs: int, batch: int, rate: float) -> dict[str, Any]:
    return {"num_train_epochs": epochs, "per_device_train_batch_size": batch, "learning_rate": rate}


RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    # Wu et al., IJCAI 2022.
    "ccp": (
        "ccp",
        {
            "pooling": "cls",  # section 3.1: "a manually-inserted token [CLS]"
            "window_size": 4,  # Table 6: 5 sentences, where 2 "means predicting the next sentence"
            "temperature": 0.1,  # Table 5
            "bank_size": 32768,  # section 4.1
            "per_device_train_batch_size": 32,  # section 4.1: "small batches whose size is 32"
            "gradient_accumulation_steps": 64,  # 2 048 in all
            "learning_rate": 3e-5,  # section 4.1
            "ccp_ratio": 1,  # section 4.1: "we select two pre-training tasks randomly"
            "mlm_ratio": 1,
            "pairs_ratio": 0,  # no parallel sentences
            "weight_decay": 0,  # section 4.1: "Adam"
        },
    ),
    # Zhang et al., ICLR 2023. The last three are not in the paper: the authors' program, XLM-R, and as many sentences
    # as there are negatives.
    "msm": (
        "msm",
        {
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
            **{"warmup_steps": 10_000, "language_smoothing": 0.3, "per_device_train_batch_size": 16},
        },
    ),
    # Chen et al., ICASSP 2022, and their program.
    "ml-ctl": (
        "ml-ctl",
        {
            "model": "bert-base-multilingual-cased",  # section 4.1: mBERT
            "mode": "ML-CTL-CZ",  # section 4.2
            "temperature": 0.07,  # section 2.3
            "mlm_weight": 0.1,  # section 4.1: "set alpha as 0.1"
            "stop_words": ["default"],  # section 2.1: a dictionary without stop words
            "languages": ["ar", "en", "es", "fr", "ru", "zh"],  # section 4.1: the six official languages of the UN
            "samples_per_pair": None,  # section 2.3: one pair of sentences with several words
            **{"max_seq_length": 128, "lower_case": True, "warmup_steps": 0, "max_grad_norm": 0},  # the program
            "lr_drops": [2 / 6, 4 / 6, 5 / 6],  # the program
            "language_mixing": 1,  # the program shuffles all pairs
            "language_smoothing": 0,  # section 4.1: "evenly distributed over six languages"
            "per_device_train_batch_size": 64,  # section 4.1
            "gradient_accumulation_steps": 1,
            "max_steps": 250_000_000 / 64,  # section 4.1: 250 million samples
            "learning_rate": 2e-6,  # section 4.1
            "weight_decay": 0,  # section 4.1: Adam
            "optim": "adamw_torch",
        },
    ),
    # Hu et al., Findings of ACL 2023.
    "language-agnostic-ir": (
        "language-agnostic-ir",
        {
            "pooling": "cls",  # not stated: DPR, which section 2 builds on
            "two_encoders": True,  # section 2: "a dual-encoder structure"
            "hard_negatives": 0,  # Eq. 1: "all other passages in the batch"
            "temperature": 1.0,  # Eq. 1 divides by none
            "semantic_weight": 0.01,  # section 4
            "language_weight": 0.001,  # section 4
            "pairs_per_language": 50_000,  # section 5.1.2
            "languages": ["ar", "bn", "en", "fi", "id", "ja", "ko", "ru", "sw", "te", "th"],  # section 5.1.1
            "documents": [],  # section 5.3: parallel sentences alone
            "per_device_train_batch_size": 48,  # section 4, Table 1
            "max_steps": 24_540,  # Table 1
            "learning_rate": 1e-5,  # section 4
            "adam_beta1": 0.9,  # section 4
            "adam_beta2": 0.999,
            "max_seq_length": 256,  # DPR's, on which section 2 builds
        },
    ),
    # Epochs, batch and learning rate: MSM, appendix A.1; CCP, section 4.3.
    "retriever-nq": ("retriever", DPR | TWO | tuned(40, 128, 2e-5)),
    "retriever-nq-ccp": ("retriever", DPR | TWO | tuned(20, 48, 1e-5)),
    "retriever-ms-marco": ("retriever", DPR | TWO | tuned(3, 64, 2e-5)),
    "retriever-mr-tydi": ("retriever", DPR | SECOND | tuned(40, 128, 1e-5)),
    "retriever-xor": ("retriever", DPR | SECOND | tuned(40, 128, 2e-5)),
    "retriever-mewsli-x": ("retriever", {"pooling": "cls"} | tuned(2, 16, 2e-5)),
    "retriever-squad": (
        "retriever",
        # XTREME-R, scripts/train_lareqa.sh: answers of 256 tokens with their paragraphs.
        {"pooling": "cls", "positives": "sentence", "context": True, "max_seq_length": 256}
        | {"warmup_steps": 0, "weight_decay": 0}
        | tuned(3, 4, 2e-5),
    ),
    # Those that docs/studies.md has measured.
    "search": (
        "search",
        {"freeze_embeddings": True, "train_seq_length": 160, "max_seq_length": None, "pairs_per_language": 4500}
        | {"questions_ratio": 0.3, "contrastive_ratio": 0.3333, "temperature": 0.02, "keep_trained": 0.7}
        | {"max_steps": 300, "per_device_train_batch_size": 128, "learning_rate": 1e-4, "adam_beta2": 0.98}
        | {"dropout": 0},
    ),
    "search-gpu": (
        "search",
        {"freeze_embeddings": False, "train_seq_length": 160, "pairs_per_language": 8000}
        | {"questions_ratio": 0.3, "contrastive_ratio": 0.3333, "temperature": 0.02, "keep_trained": 0.7}
        | {"max_steps": 2000, "per_device_train_batch_size": 256, "learning_rate": 1e-4, "adam_beta2": 0.98},
    ),
    "documents": (
        "ccp",
        {"freeze_embeddings": True, "train_seq_length": 64, "max_seq_length": None, "keep_trained": 0.3}
        | {"ccp_ratio": 1, "mlm_ratio": 0, "pairs_ratio": 0, "temperature": 0.1, "adam_beta2": 0.98}
        | {"max_steps": 100, "per_device_train_batch_size": 32, "learning_rate": 3e-5},
    ),
    "two-cores": ("ccp", {"from_scratch": "static", "max_grad_norm": 0, "precision": "fp32"}),
}


def parsed(name: str, *arguments: str) -> dict[str, Any]:
    """All options of a script, as it reads them."""
    with patch.object(script(name), "Run", side_effect=InterruptedError) as run, pytest.raises(InterruptedError):
        script(name).main([*arguments, "--output_dir", "runs/x", "--use_cpu"])
    return {option: value for group in run.call_args.args for option, value in vars(group).items()}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_what_it_says(recipe: str, repository: Path) -> None:
    name, expected = RECIPES[recipe]
    file = str(repository / "training_scripts" / "recipes" / f"{recipe}.yaml")
    given = ["--retrieval", "questions"] if name in ("retriever", "language-agnostic-ir") else []
    given += ["--model", "m"] if "model:" not in Path(file).read_text() and recipe != "two-cores" else []
    found = parsed(name, file, *given)
    assert {option: found[option] for option in expected} == expected
    assert not (repository / "runs" / "x").exists()


def test_every_recipe_is_in_the_table(repository: Path) -> None:
    assert {file.stem for file in (repository / "training_scripts" / "recipes").glob("*.yaml")} == set(RECIPES)


def test_what_is_given_overrides_a_recipe(repository: Path) -> None:
    file = str(repository / "training_scripts" / "recipes" / "two-cores.yaml")
    found = parsed("ccp", file, "--features", "64", "--max_steps", "7")
    assert (found["features"], found["max_steps"], found["bank_size"]) == (64, 7, 4096)


@pytest.mark.parametrize(
    ("recipe", "loss", "expected"),
    [
        ("ccp", "ccp", {"normalization": "asymmetric", "bank_size": 32768, "temperature": 0.1}),
        (
            "msm",
            "msm",
            # Tables 4 to 8; the temperature is not in Eq. 1, but in the authors' program.
            {"mu": 0.5, "intra_document_negatives": True, "num_negatives": 512, "heads": "separate"}
            | {"document_encoder_layers": 2, "temperature": 0.1, "block_size": 32},
        ),
        ("ml-ctl", None, {"objective": "cz_nce", "words": True, "temperature": 0.07, "language_mixing": 1}),
        # Eq. 3 has a scale of its own; batches mix the language pairs (section 3.1).
        ("language-agnostic-ir", "language", {"reduction": "paper", "weight": 0.001}),
        ("language-agnostic-ir", "semantic", {"weight": 0.01, "temperature": 0.07, "language_mixing": 1.0}),
        (
            "retriever-nq",
            None,
            {"temperature": 1.0, "similarity": "dot", "gather_across_devices": True, "language_mixing": 1},
        ),
    ],
)
def test_the_losses_of_a_recipe_are_the_papers(
    recipe: str, loss: str | None, expected: dict[str, Any], train: Runner, repository: Path
) -> None:
    file = repository / "training_scripts" / "recipes" / f"{recipe}.yaml"
    name = RECIPES[recipe][0]
    sources = {"retriever": "--retrieval {0}/questions.jsonl", "ml-ctl": "--dictionaries {0}/words.en-fr.tsv"}
    sources |= {"language-agnostic-ir": "--retrieval {0}/answers.jsonl", "ccp": "--documents {0}/documents.jsonl"}
    sources |= {"msm": sources["ccp"]}
    texts = "" if name == "retriever" else "--pairs {0}/pairs.jsonl --languages en fr"
    given = f"{sources[name]} {texts} --model {{0}}/encoder --use_cpu".format(train.data)
    made = train.built(name, file, given, tiny=False).loss
    made = made[loss] if loss else made
    settings = made.get_config_dict() | (vars(made.batches) if hasattr(made, "batches") else {})
    assert {key: settings[key] for key in expected} == expected
