"""Encoders from a checkpoint or from scratch, and the texts that a tokenizer is trained on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from st_xlret.training.encoders import EncoderArguments, PretrainingEncoderArguments, balanced_texts
from st_xlret.training.script import TrainingArguments
from tests import tiny
from tests.training.test_checkpoints import checkpoint

Texts = list[tuple[Dataset, str, str]]


def texts() -> Texts:
    return [(tiny.documents(), "sentence", "language")]


def load(arguments: EncoderArguments, texts: Texts, folder: Path, **options: Any) -> SentenceTransformer:
    return arguments.load(texts, TrainingArguments(output_dir=str(folder), use_cpu=True, **options))


def source(**rows: tuple[int, int]) -> tuple[Dataset, str, str]:
    """Rows of a length for each language, each of them different."""
    entries = [
        {"sentence": f"{language}{i:05}".ljust(length, "x"), "language": language}
        for language, (count, length) in rows.items()
        for i in range(count)
    ]
    return Dataset.from_list(entries), "sentence", "language"


def characters(sources: Texts, budget: int, seed: int = 0) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in balanced_texts(sources, budget, seed=seed):
        counts[text[:2]] += len(text)
    return counts


def test_masked_words_of_a_checkpoint_without_a_head(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tiny.transformer().save(str(tmp_path / "encoder"))
    arguments = PretrainingEncoderArguments(model=str(tmp_path / "encoder"))
    model, args = load(arguments, [], tmp_path), TrainingArguments(output_dir=str(tmp_path / "run"), use_cpu=True)
    assert arguments.masked_words(model, texts(), args) is None and "--train_head" in caplog.text
    arguments.train_head = True
    loss = arguments.masked_words(model, texts(), args, weight=0.5)
    assert loss is not None and loss.weight == 0.5 and loss.lm_head.bias.any(), "the head has learnt"
    args.resume = True
    checkpoint(tmp_path / "run", 2)
    resumed = arguments.masked_words(model, texts(), args)
    assert resumed is not None and not resumed.lm_head.bias.any(), "the head is that of the checkpoint"


def test_a_static_encoder_from_scratch(tmp_path: Path) -> None:
    arguments = PretrainingEncoderArguments(from_scratch="static", vocabulary=100, features=12)
    model = load(arguments, texts(), tmp_path / "a")
    assert model.get_embedding_dimension() == 12
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["tokenizer"]


def test_a_transformer_from_scratch(tmp_path: Path) -> None:
    arguments = PretrainingEncoderArguments(from_scratch="tiny", vocabulary=100, max_seq_length=9)
    model = load(arguments, texts(), tmp_path)
    assert model.max_seq_length == 9 and model.get_embedding_dimension() == 32
    assert model.tokenizer.mask_token == "<mask>"


def test_the_tokenizer_of_a_checkpoint_is_taken_by_a_resumed_run_alone(tmp_path: Path) -> None:
    arguments = PretrainingEncoderArguments(from_scratch="static", vocabulary=100, features=4)
    first = load(arguments, texts(), tmp_path).tokenizer.get_vocab()
    other: Texts = [source(en=(5, 9))]
    # Killed before its first checkpoint: nothing of it is left in the next run.
    assert load(arguments, other, tmp_path, resume=True).tokenizer.get_vocab() != first
    first = load(arguments, texts(), tmp_path).tokenizer.get_vocab()
    checkpoint(tmp_path, 1)
    assert load(arguments, [], tmp_path, resume=True).tokenizer.get_vocab() == first


@pytest.mark.parametrize("make", [tiny.static, tiny.transformer])
def test_a_checkpoint_of_either_kind(tmp_path: Path, make: Any) -> None:
    saved: SentenceTransformer = make()
    saved.save(str(tmp_path / "model"))
    arguments = EncoderArguments(model=str(tmp_path / "model"), max_seq_length=5)
    model = load(arguments, [], tmp_path).to("cpu")
    state = saved.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert make is tiny.static or model.max_seq_length == 5
    assert not (tmp_path / "tokenizer").exists()


def test_a_checkpoint_keeps_a_shorter_limit_of_its_own(tmp_path: Path) -> None:
    tiny.transformer().save(str(tmp_path / "model"))
    arguments = EncoderArguments(model=str(tmp_path / "model"), max_seq_length=500)
    assert load(arguments, [], tmp_path).max_seq_length == 16


@pytest.mark.parametrize("given", [{}, {"model": "m", "from_scratch": "static"}])
def test_exactly_one_encoder_is_asked_for(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="--model .*--from_scratch"):
        EncoderArguments(**given)


def test_without_texts_there_is_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no texts to train a tokenizer on"):
        load(EncoderArguments(from_scratch="static"), [], tmp_path)
    assert not list(tmp_path.iterdir())


def test_languages_get_equal_shares() -> None:
    counts = characters([source(en=(3000, 40), fr=(900, 25), de=(700, 60))], 24_000)
    assert counts.keys() == {"en", "fr", "de"}
    for language, count in counts.items():
        assert 8_000 <= count < 8_000 + 60, language


def test_a_small_language_gives_all_it_has() -> None:
    counts = characters([source(en=(3000, 40), sw=(10, 20))], 20_000)
    assert counts["sw"] == 200 and 10_000 <= counts["en"] < 10_040


def test_what_a_small_source_lacks_comes_from_a_larger_one() -> None:
    large, small = source(en=(2000, 30)), source(en=(10, 30))
    both = [(large[0], "sentence", "language"), (small[0], "sentence", "language")]
    assert 9_000 <= characters(both, 9_000)["en"] < 9_030
    assert list(balanced_texts(both, 9_000))[:10] != list(balanced_texts(both, 9_000, seed=1))[:10]


def test_texts_come_in_a_seeded_order_and_once() -> None:
    sources = [source(en=(2500, 10), fr=(2500, 10))]
    first = list(balanced_texts(sources, 30_000, seed=3))
    assert first == list(balanced_texts(sources, 30_000, seed=3)) and len(set(first)) == len(first) == 3000
    english = [text for text in first if text.startswith("en")]
    assert english != sorted(english)
    # Not the first ones of the file: rows of all of it.
    assert min(english) < "en00050" and max(english) > "en02450"


def test_pooling_checkpoint_is_the_checkpoints_own(tmp_path: Path) -> None:
    tiny.transformer().save(str(tmp_path / "model"))
    for pooling, expected in ((None, "mean"), ("checkpoint", "mean"), ("cls", "cls")):
        model = load(EncoderArguments(model=str(tmp_path / "model"), pooling=pooling), [], tmp_path)
        assert model[1].pooling_mode == expected
    with pytest.raises(ValueError, match="--pooling checkpoint.*--model"):
        EncoderArguments(from_scratch="tiny", pooling="checkpoint")


@pytest.mark.parametrize("given", [{"freeze_embeddings": True}, {"lora_rank": 4}, {"keep_trained": 0.5}])
def test_from_scratch_all_weights_are_trained(given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"--{next(iter(given))} .*--model|checkpoint"):
        load(PretrainingEncoderArguments(from_scratch="tiny"), texts(), tmp_path, **given)
