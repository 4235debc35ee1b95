"""From documents to a model by masked sentences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from st_xlret.losses import MaskedLMLoss
from tests.data.files import write_jsonl
from tests.training_scripts.scripts import Runner, script


def test_what_is_given_decides_what_is_trained(train: Runner) -> None:
    def kinds(options: str) -> list[str]:
        return list(train.built("msm", options).loss)

    assert kinds("") == ["msm", "mlm", "pairs"]
    assert kinds("--pairs --sum_mlm") == kinds("--pairs --mlm_ratio 0") == ["msm"]
    assert kinds("--pairs --from_scratch static") == kinds("--pairs_ratio 0 --from_scratch static") == ["msm"]
    assert kinds("--documents") == ["pairs"]


def test_options_reach_the_losses_and_their_batches(train: Runner) -> None:
    losses = train.built(
        "msm", '--block_sentences 5 --negatives 0 --sum_mlm --loss_options {"msm":{"mini_batch_size":7}}'
    ).loss
    loss, pairs = losses["msm"], losses["pairs"]
    assert (loss.num_negatives, loss.mini_batch_size, loss.batches.block_size) == (None, 7, 5)
    assert loss.document_encoder.max_sentences == 5 and isinstance(loss.mlm, MaskedLMLoss)
    # Batches of the other losses have as much text.
    assert pairs.batches.batch_scale == 2.5
    losses = train.built("msm", "").loss
    # The encoder reads a batch of 512 sentences in parts, so that it fits small memory.
    assert losses["msm"].mini_batch_size == 128 and losses["mlm"].batches.batch_scale == 4


def test_consecutive_sentences_are_packed_into_units(train: Runner) -> None:
    packed = train.built("msm", "--pairs --pack_tokens 60").datasets["msm"]
    # Some of these sentences share a unit.
    assert 0 < len(packed) < 96


@pytest.mark.parametrize("encoder", ["tiny", "static"])
def test_sentences_that_are_all_alike_train_without_a_nan(encoder: str, train: Runner, tmp_path: Path) -> None:
    alike = write_jsonl(tmp_path / "alike.jsonl", [{"language": "en", "sentences": ["the sun shone"] * 4}] * 8)
    results = train("msm", f"--from_scratch {encoder} --pairs --max_steps 3 --vocabulary 60 --documents", alike)
    assert results["steps"] == 3 and "held_out" not in results
    assert json.loads((tmp_path / "run" / "results.json").read_text())["sentences"] == 32


def test_the_defaults_are_the_papers(tmp_path: Path) -> None:
    def arguments(**options: float) -> object:
        return script("msm").TrainingArguments(output_dir=str(tmp_path), use_cpu=True, **options)

    args = arguments()
    assert (args.max_steps, args.per_device_train_batch_size, args.learning_rate) == (200_000, 16, 4e-5)
    assert args.get_warmup_steps(args.max_steps) == 10_000
    assert arguments(num_train_epochs=1).max_steps == -1
