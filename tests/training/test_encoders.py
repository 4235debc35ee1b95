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
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.texts import TextColumn, balanced_texts
from tests import tiny

TEXTS = [TextColumn(tiny.documents(), "sentence", "language")]


def arguments(folder: Path, **options: Any) -> ScriptArguments:
    return ScriptArguments(output_dir=str(folder), use_cpu=True, **options)


def load(folder: Path, texts: Any, *, resume: bool = False, **options: Any) -> SentenceTransformer:
    args = arguments(folder, resume=resume)
    return EncoderArguments(**options).load_encoder(texts, args)


def add_checkpoint(folder: Path) -> None:
    checkpoint = folder / "checkpoint-1"
    checkpoint.mkdir(parents=True)
    (checkpoint / LOSS_STATE_FILE).touch()


def test_masked_words_of_a_checkpoint_without_a_head_are_left_out(
    encoder: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = EncoderArguments(model=str(encoder))
    args = arguments(tmp_path / "run")
    model = options.load_encoder([], args)
    assert options.masked_words_loss(model, TEXTS, args) is None
    assert "--train_head" in caplog.text


def test_a_new_head_is_trained_but_for_a_resumed_run(
    encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = partialmethod(MaskedLMLoss.train_head, max_steps=3)
    monkeypatch.setattr(MaskedLMLoss, "train_head", short)
    options = EncoderArguments(model=str(encoder), train_head=True)
    args = arguments(tmp_path / "run")
    model = options.load_encoder([], args)
    loss = options.masked_words_loss(model, TEXTS, args, weight=0.5)
    assert loss is not None
    assert loss.weight == 0.5
    assert loss.lm_head.bias.any(), "the head has learnt"
    args.resume = True
    add_checkpoint(tmp_path / "run")
    resumed = options.masked_words_loss(model, TEXTS, args)
    assert resumed is not None
    assert not resumed.lm_head.bias.any(), "the head is that of the checkpoint"


def test_a_transformer_from_scratch(tmp_path: Path) -> None:
    model = load(tmp_path, TEXTS, from_scratch="tiny", vocabulary=100, max_seq_length=9)
    assert model.max_seq_length == 9
    assert model.tokenizer.mask_token == "<mask>"


STATIC: dict[str, Any] = {"from_scratch": "static", "vocabulary": 100, "features": 12}


def test_a_static_encoder_from_scratch_needs_texts(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="texts"):
        load(tmp_path, [], **STATIC)
    model = load(tmp_path, TEXTS, **STATIC)
    assert model.get_embedding_dimension() == 12


def test_the_tokenizer_is_that_of_the_run_that_is_resumed(tmp_path: Path) -> None:
    first = load(tmp_path, TEXTS, **STATIC).tokenizer.get_vocab()
    # Killed before its first checkpoint: nothing of it is left in the next run.
    next_run = load(tmp_path, [source(en=(5, 9))], resume=True, **STATIC)
    second = next_run.tokenizer.get_vocab()
    assert second != first
    add_checkpoint(tmp_path)
    resumed = load(tmp_path, [], resume=True, **STATIC)
    assert resumed.tokenizer.get_vocab() == second
    assert {path.name for path in tmp_path.iterdir()} == {"tokenizer", "checkpoint-1"}


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_a_checkpoint_keeps_its_weights(make: Any, tmp_path: Path) -> None:
    saved = make()
    saved.save(str(tmp_path / "model"))
    model = load(tmp_path, [], model=str(tmp_path / "model")).to("cpu")
    state = model.state_dict()
    assert list(state) == list(saved.state_dict())
    for name, tensor in saved.state_dict().items():
        assert torch.equal(state[name], tensor)


def test_a_length_is_that_of_a_transformer_and_has_no_effect_on_a_static_encoder(
    encoder: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert load(tmp_path, [], model=str(encoder), max_seq_length=5).max_seq_length == 5
    assert caplog.text == ""
    tiny.static().save(str(tmp_path / "static"))
    load(tmp_path, [], model=str(tmp_path / "static"), max_seq_length=5)
    assert "--max_seq_length 5 has no effect" in caplog.text


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [(None, "mean"), ("checkpoint", "mean"), ("cls", "cls")],
)
def test_the_pooling_of_a_checkpoint(pooling: str | None, expected: str, tmp_path: Path) -> None:
    saved = tiny.transformer()
    saved.set_pooling_include_prompt(False)
    saved.save(str(tmp_path / "model"))
    module = load(tmp_path, [], model=str(tmp_path / "model"), pooling=pooling)[1]
    assert module.pooling_mode == expected
    assert not module.include_prompt


def test_a_checkpoint_or_one_from_scratch() -> None:
    with pytest.raises(ValueError, match="--model .*--from_scratch"):
        EncoderArguments(model="m", from_scratch="static")


# Texts of all languages


def source(**rows: tuple[int, int]) -> TextColumn:
    """For each language, a number of different rows of a length."""
    texts = []
    languages = []
    for language, (count, length) in rows.items():
        for number in range(count):
            texts.append(f"{language}{number:05}".ljust(length, "x"))
            languages.append(language)
    rows_of_all = Dataset.from_dict({"sentence": texts, "language": languages})
    return TextColumn(rows_of_all, "sentence", "language")


def characters_of(sources: Any, budget: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in balanced_texts(sources, budget):
        counts[text[:2]] += len(text)
    return counts


def test_languages_get_equal_shares_as_far_as_they_go() -> None:
    counts = characters_of([source(en=(3000, 40), fr=(900, 25), de=(700, 60), sw=(10, 20))], 32_000)
    for language in ("en", "fr", "de"):
        assert 8_000 <= counts[language] < 8_000 + 60
    assert counts["sw"] == 200


def test_what_a_small_source_lacks_comes_from_a_larger_one() -> None:
    counts = characters_of([source(en=(2000, 30)), source(en=(10, 30))], 9_000)
    assert 9_000 <= counts["en"] < 9_030


def test_texts_are_drawn_from_all_of_a_file() -> None:
    texts = source(en=(2500, 10))
    first = list(balanced_texts([texts], 15_000, seed=3))
    assert list(balanced_texts([texts], 15_000, seed=3)) == first
    assert list(balanced_texts([texts], 15_000, seed=4)) != first
    assert len(set(first)) == len(first) == 1500
    assert first != sorted(first)
    assert min(first) < "en00050"
    assert max(first) > "en02450"
