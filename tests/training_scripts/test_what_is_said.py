"""What a script says before it trains: what is held out, and a rate that would do harm."""

import logging
from pathlib import Path

import pytest
import torch
from transformers import XLMRobertaConfig, XLMRobertaModel

from st_xlret.modules import train_tokenizer
from tests.data.files import pair, write_jsonl
from tests.training_scripts.scripts import Runner

WARNING = "is trained already"


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def test_what_is_held_out_is_said_and_at_most_a_tenth_is_left_out(
    train: Runner, tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    rows = []
    for number in range(48):
        for code in ("de", "el", "es", "fr", "hi", "ru", "sw", "th", "tr", "zh"):
            rows.append(pair(f"sun {number}", f"{code} {number}", "en", code))
    pairs = write_jsonl(tmp_path / "translations.jsonl", rows)

    train.built("search", "--retrieval --evaluation_pairs 20 --pairs", pairs)

    assert "pairs to train on: 440 of 480; held out to measure the run by: 40" in said.text


@pytest.mark.parametrize(
    ("name", "options", "is_said"),
    [
        ("ccp", "--learning_rate 3e-5 --max_steps 10000", True),
        ("ccp", "--learning_rate 3e-6", False),
        # As recipes/documents.yaml has it.
        ("ccp", "--learning_rate 3e-5 --keep_trained 0.3", False),
        ("msm", "--learning_rate 4e-5", True),
        ("msm", "--learning_rate 1e-5", False),
        # Its default is for encoders that are trained already.
        ("search", "--learning_rate 1e-4", False),
    ],
)
def test_a_rate_that_harms_a_trained_encoder_is_named(
    name: str, options: str, is_said: bool, train: Runner, said: pytest.LogCaptureFixture
) -> None:
    train.built(name, f"--model {train.data}/encoder", options)
    assert (WARNING in said.text) == is_said


def test_the_same_rate_is_right_for_a_checkpoint_that_is_none(
    train: Runner, tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    tokenizer = train_tokenizer(["sun moon star rain wind snow"] * 4, vocabulary=100)
    XLMRobertaModel(XLMRobertaConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(
        tmp_path / "xlmr"
    )
    tokenizer.save_pretrained(tmp_path / "xlmr")

    train.built("ccp", f"--learning_rate 3e-5 --mlm_ratio 0 --model {tmp_path}/xlmr")

    assert WARNING not in said.text
