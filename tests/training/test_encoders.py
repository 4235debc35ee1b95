"""Encoders from a checkpoint or from scratch, and the texts that a tokenizer is trained on."""

from collections import Counter
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from st_xlret.losses import MaskedLMLoss
from st_xlret.training import LOSS_STATE_FILE
from st_xlret.training.arguments import ScriptArguments
from st_xlret.training.encoders import EncoderArguments, balanced_texts
from tests import tiny

TEXTS = [(tiny.documents(), "sentence", "language")]


def arguments(folder: Path, **options: Any) -> ScriptArguments:
    return ScriptArguments(output_dir=str(folder), use_cpu=True, **options)


def load(folder: Path, texts: Any, *, resume: bool = False, **options: Any) -> SentenceTransformer:
    return EncoderArguments(**options).load_encoder(texts, arguments(folder, resume=resume))


def add_checkpoint(folder: Path) -> None:
    (folder / "checkpoint-1").mkdir(parents=True)
    (folder / "checkpoint-1" / LOSS_STATE_FILE).touch()


def source(**rows: tuple[int, int]) -> tuple[Dataset, str, str]:
    """For each language, a number of different rows of a length."""
    languages = [code for code, (count, _) in rows.items() for _ in range(count)]
    texts = [
        f"{code}{i:05}".ljust(length, "x")
        for code, (count, length) in rows.items()
        for i in range(count)
    ]
    return Dataset.from_dict({"sentence": texts, "language": languages}), "sentence", "language"


def test_masked_words_of_a_checkpoint_without_a_head(
    encoder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        MaskedLMLoss, "train_head", partialmethod(MaskedLMLoss.train_head, max_steps=3)
    )
    options, args = EncoderArguments(model=str(encoder)), arguments(tmp_path / "run")
    model = options.load_encoder([], args)
    assert options.masked_words_loss(model, TEXTS, args) is None and "--train_head" in caplog.text
    options.train_head = True
    loss = options.masked_words_loss(model, TEXTS, args, weight=0.5)
    assert loss is not None and loss.weight == 0.5 and loss.lm_head.bias.any(), (
        "the head has learnt"
    )
    args.resume = True
    add_checkpoint(tmp_path / "run")
    resumed = options.masked_words_loss(model, TEXTS, args)
    assert resumed is not None and not resumed.lm_head.bias.any(), (
        "the head is that of the checkpoint"
    )


def test_encoders_from_scratch_with_the_tokenizer_of_a_resumed_run(tmp_path: Path) -> None:
    transformer = load(
        tmp_path / "other", TEXTS, from_scratch="tiny", vocabulary=100, max_seq_length=9
    )
    assert transformer.max_seq_length == 9 and transformer.tokenizer.mask_token == "<mask>"
    options = {"from_scratch": "static", "vocabulary": 100, "features": 12}
    with pytest.raises(ValueError, match="texts"):
        load(tmp_path / "run", [], **options)
    static = load(tmp_path / "run", TEXTS, **options)
    assert static.get_embedding_dimension() == 12
    # Killed before its first checkpoint: nothing of it is left in the next run.
    other = load(
        tmp_path / "run", [source(en=(5, 9))], resume=True, **options
    ).tokenizer.get_vocab()
    assert other != static.tokenizer.get_vocab()
    add_checkpoint(tmp_path / "run")
    assert load(tmp_path / "run", [], resume=True, **options).tokenizer.get_vocab() == other
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"tokenizer", "checkpoint-1"}


def test_a_checkpoint_of_either_kind(tmp_path: Path) -> None:
    for saved in (tiny.static(), tiny.transformer()):
        saved.set_pooling_include_prompt(False)
        saved.save(str(tmp_path / "model"))
        model = load(tmp_path, [], model=str(tmp_path / "model"), max_seq_length=5).to("cpu")
        state = saved.state_dict()
        assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert model.max_seq_length == 5
    for pooling, expected in ((None, "mean"), ("checkpoint", "mean"), ("cls", "cls")):
        module = load(tmp_path, [], model=str(tmp_path / "model"), pooling=pooling)[1]
        assert (module.pooling_mode, module.include_prompt) == (expected, False)
    with pytest.raises(ValueError, match="--model .*--from_scratch"):
        EncoderArguments(model="m", from_scratch="static")


def test_languages_get_equal_shares_as_far_as_they_go() -> None:
    def characters(sources: Any, budget: int) -> Counter[str]:
        return sum(
            (Counter({text[:2]: len(text)}) for text in balanced_texts(sources, budget)), Counter()
        )

    counts = characters([source(en=(3000, 40), fr=(900, 25), de=(700, 60), sw=(10, 20))], 32_000)
    assert (
        all(8_000 <= counts[language] < 8_000 + 60 for language in ("en", "fr", "de"))
        and counts["sw"] == 200
    )
    # What a small source lacks comes from a larger one.
    assert 9_000 <= characters([source(en=(2000, 30)), source(en=(10, 30))], 9_000)["en"] < 9_030
    first, again, other = (
        list(balanced_texts([source(en=(2500, 10))], 15_000, seed=seed)) for seed in (3, 3, 4)
    )
    assert first == again != other and len(set(first)) == len(first) == 1500
    # Not the first ones of the file: rows of all of it.
    assert first != sorted(first) and min(first) < "en00050" and max(first) > "en02450"
