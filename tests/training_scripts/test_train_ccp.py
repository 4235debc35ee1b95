"""From documents and pairs to a model by contrastive context prediction."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from tests import tiny
from tests.data.files import write_jsonl, write_text
from tests.training_scripts.scripts import WORDS, Runner, weights


def test_translations_come_together(train: Runner) -> None:
    results = train("ccp", "--max_steps 60 --save_steps 20 --max_grad_norm 0 --learning_rate 5e-2")
    score = "pairs_average_accuracy"
    assert results["held_out"][score] > 0.5 and results["held_out"][score] > results["held_out_before"][score]
    # A tenth of the pairs is put aside; pairs that share a sentence with it are left out.
    assert results["sentences"] == 96 and 100 <= results["pairs"] <= 108


def test_what_is_given_decides_what_is_trained(train: Runner) -> None:
    def kinds(options: str) -> dict[str, float]:
        return {name: loss.ratio for name, loss in train.built("ccp", options).loss.items()}

    assert kinds("--from_scratch tiny --mlm_ratio 2") == {"ccp": 1, "mlm": 2, "pairs": 1}
    assert kinds("--from_scratch tiny --mlm_ratio 0 --pairs_ratio 0.5") == {"ccp": 1, "pairs": 0.5}
    assert kinds("--pairs") == kinds("--pairs_ratio 0") == {"ccp": 1}
    assert kinds("--documents") == kinds("--ccp_ratio 0") == {"pairs": 1}


@pytest.mark.parametrize("options", ["--lora_rank 4", "--freeze_embeddings", "--keep_trained 0.5"])
def test_a_checkpoint_is_trained_on(
    options: str, train: Runner, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if "lora" in options:
        pytest.importorskip("peft")
    first = tmp_path / "first"
    tiny.transformer().save(str(first))
    train("ccp", "--model", first, options, "--max_seq_length 12 --train_seq_length 6 --max_steps 4 --save_steps 2")
    model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    before, after = weights(first), model.state_dict()
    assert before.keys() == after.keys() and model.max_seq_length == 12
    trained = {name for name in before if not torch.equal(before[name], after[name])}
    assert trained and ("keep" in options or not any("word_embeddings" in name for name in trained))
    assert not list((tmp_path / "run" / "model").rglob("adapter_*"))
    # It has no head for masked words, and a new one would disturb it.
    lines = [record.getMessage() for record in caplog.records if "masked language" in record.getMessage()]
    assert len(lines) == 1 and "left out" in lines[0]


def test_words_and_verses_are_pairs_and_test_sentences_are_left_out(train: Runner, tmp_path: Path) -> None:
    words = write_text(
        tmp_path / "words.en-fr.tsv", "".join(f"{a}\t{b}\n" for a, b in zip(*WORDS.values(), strict=True))
    )
    verses = [f"GEN 1:{i}" for i in range(12)]
    books = [{"language": code, "sentences": [f"{w} {w}" for w in WORDS[code]], "verses": verses} for code in WORDS]
    bible = write_jsonl(tmp_path / "bible.jsonl", books)
    test = write_text(tmp_path / "test.txt", "Sun!\nmoon, moon\n")
    options = "--documents --evaluation_pairs 0 --pairs"
    made = train.built("ccp", f"{options} {words} {bible} --exclude {test}")
    assert list(made.datasets) == ["pairs"] and len(made.datasets["pairs"]) == 22
