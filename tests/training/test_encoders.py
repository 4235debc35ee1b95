"""Encoders from a checkpoint or from scratch, and the texts that a tokenizer is trained on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from st_xlret.training import LOSS_STATE_FILE
from st_xlret.training.encoders import EncoderArguments, balanced_texts
from st_xlret.training.script import TrainingArguments
from tests import tiny

Texts = list[tuple[Dataset, str, str]]


def texts() -> Texts:
    return [(tiny.documents(), "sentence", "language")]


def load(folder: Path, texts: Texts, *, resume: bool = False, **options: object) -> SentenceTransformer:
    args = TrainingArguments(output_dir=str(folder), use_cpu=True, resume=resume)
    return EncoderArguments(**options).load(texts, args)


def add_checkpoint(folder: Path) -> None:
    (folder / "checkpoint-1").mkdir(parents=True)
    (folder / "checkpoint-1" / LOSS_STATE_FILE).touch()


def source(**rows: tuple[int, int]) -> tuple[Dataset, str, str]:
    """Rows of a length for each language, each of them different."""
    languages = [code for code, (count, _) in rows.items() for _ in range(count)]
    texts = [f"{code}{i:05}".ljust(length, "x") for code, (count, length) in rows.items() for i in range(count)]
    return Dataset.from_dict({"sentence": texts, "language": languages}), "sentence", "language"


def characters(sources: Texts, budget: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in balanced_texts(sources, budget):
        counts[text[:2]] += len(text)
    return counts


def test_masked_words_of_a_checkpoint_without_a_head(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tiny.transformer().save(str(tmp_path / "encoder"))
    arguments = EncoderArguments(model=str(tmp_path / "encoder"))
    args = TrainingArguments(output_dir=str(tmp_path / "run"), use_cpu=True)
    model = arguments.load([], args)
    assert arguments.masked_words(model, texts(), args) is None and "--train_head" in caplog.text
    arguments.train_head = True
    loss = arguments.masked_words(model, texts(), args, weight=0.5)
    assert loss is not None and loss.weight == 0.5 and loss.lm_head.bias.any(), "the head has learnt"
    args.resume = True
    add_checkpoint(tmp_path / "run")
    resumed = arguments.masked_words(model, texts(), args)
    assert resumed is not None and not resumed.lm_head.bias.any(), "the head is that of the checkpoint"


def test_encoders_from_scratch(tmp_path: Path) -> None:
    static = load(tmp_path, texts(), from_scratch="static", vocabulary=100, features=12)
    assert static.get_embedding_dimension() == 12
    transformer = load(tmp_path, texts(), from_scratch="tiny", vocabulary=100, max_seq_length=9)
    assert transformer.max_seq_length == 9 and transformer.tokenizer.mask_token == "<mask>"
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer"]


def test_the_tokenizer_of_a_checkpoint_is_taken_by_a_resumed_run_alone(tmp_path: Path) -> None:
    options = {"from_scratch": "static", "vocabulary": 100, "features": 4}
    first = load(tmp_path, texts(), **options).tokenizer.get_vocab()
    # Killed before its first checkpoint: nothing of it is left in the next run.
    assert load(tmp_path, [source(en=(5, 9))], resume=True, **options).tokenizer.get_vocab() != first
    first = load(tmp_path, texts(), **options).tokenizer.get_vocab()
    add_checkpoint(tmp_path)
    assert load(tmp_path, [], resume=True, **options).tokenizer.get_vocab() == first


def test_a_checkpoint_of_either_kind(tmp_path: Path) -> None:
    for saved in (tiny.static(), tiny.transformer()):
        saved.save(str(tmp_path / "model"))
        model = load(tmp_path, [], model=str(tmp_path / "model"), max_seq_length=5).to("cpu")
        state = saved.state_dict()
        assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert model.max_seq_length == 5
    for pooling, expected in ((None, "mean"), ("checkpoint", "mean"), ("cls", "cls")):
        assert load(tmp_path, [], model=str(tmp_path / "model"), pooling=pooling)[1].pooling_mode == expected


def test_without_texts_there_is_no_tokenizer_and_without_an_encoder_no_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="texts"):
        load(tmp_path, [], from_scratch="static")
    assert not list(tmp_path.iterdir())
    for options in ({}, {"model": "m", "from_scratch": "static"}):
        with pytest.raises(ValueError, match="--model .*--from_scratch"):
            EncoderArguments(**options)


def test_languages_get_equal_shares_as_far_as_they_go() -> None:
    counts = characters([source(en=(3000, 40), fr=(900, 25), de=(700, 60), sw=(10, 20))], 32_000)
    assert all(8_000 <= counts[language] < 8_000 + 60 for language in ("en", "fr", "de")) and counts["sw"] == 200
    # What a small source lacks comes from a larger one.
    assert 9_000 <= characters([source(en=(2000, 30)), source(en=(10, 30))], 9_000)["en"] < 9_030


def test_texts_come_in_a_seeded_order_and_once() -> None:
    sources = [source(en=(2500, 10), fr=(2500, 10))]
    first, again, other = (list(balanced_texts(sources, 30_000, seed=seed)) for seed in (3, 3, 4))
    assert first == again != other and len(set(first)) == len(first) == 3000
    # Not the first ones of the file: rows of all of it.
    english = [text for text in first if text.startswith("en")]
    assert english != sorted(english) and min(english) < "en00050" and max(english) > "en02450"
