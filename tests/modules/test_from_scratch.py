"""Tokenizers and encoders without a checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret.modules import static_encoder, train_tokenizer, transformer_encoder

TEXTS = ["The cat sleeps.", "Der Hund schläft, 25 Stunden!", "кошка спит", "猫在睡觉", "القط نائم"] * 3


def test_a_tokenizer_for_several_scripts() -> None:
    tokenizer = train_tokenizer(TEXTS, vocabulary=150)
    assert len(tokenizer) <= 150
    for text in TEXTS[:5]:
        ids = tokenizer(text)["input_ids"]
        assert ids[0] == tokenizer.bos_token_id and ids[-1] == tokenizer.eos_token_id
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids, skip_special_tokens=True).split() == text.lower().split()
    assert (tokenizer.bos_token_id, tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert tokenizer.mask_token == "<mask>"
    pair = tokenizer("cat", "cat")["input_ids"]
    assert pair.count(tokenizer.eos_token_id) == 3


def test_training_a_tokenizer_is_deterministic() -> None:
    first, second = train_tokenizer(TEXTS, 100), train_tokenizer(iter(TEXTS), 100)
    assert first.backend_tokenizer.to_str() == second.backend_tokenizer.to_str()


def test_no_texts() -> None:
    for texts in ([], ["", "  "]):
        with pytest.raises(ValueError, match="no texts to train a tokenizer on"):
            train_tokenizer(texts)


def test_a_static_encoder_is_saved_and_loaded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = static_encoder(train_tokenizer(TEXTS, 100), features=64)
    assert model.get_embedding_dimension() == 64
    assert model[0].embedding.weight.norm(dim=1).mean().item() == pytest.approx(1.0, abs=0.05)
    model.save(str(tmp_path))
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    np.testing.assert_array_equal(loaded.encode(TEXTS[:5]), model.encode(TEXTS[:5]))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_transformer_is_saved_and_loaded(tmp_path: Path, pooling: str, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = train_tokenizer(TEXTS, 100)
    model = transformer_encoder(tokenizer, "tiny", max_seq_length=12, pooling=pooling)  # type: ignore[arg-type]
    model.save(str(tmp_path))
    loaded = SentenceTransformer(str(tmp_path), device=str(model.device))
    long = " ".join(TEXTS * 4)
    np.testing.assert_allclose(loaded.encode([long]), model.encode([long]), atol=1e-6)
    assert model.preprocess([long])["input_ids"].shape == (1, 12)
    assert loaded.max_seq_length == 12 and loaded[1].get_config_dict()["pooling_mode"] == pooling
    assert "MISSING" not in caplog.text


def test_sizes() -> None:
    with pytest.raises(ValueError, match="size must be one of .*'base', 'mini', 'small', 'tiny'.*got 'large'"):
        transformer_encoder(train_tokenizer(TEXTS, 100), "large")  # type: ignore[arg-type]


def test_a_vocabulary_without_room_for_the_characters_says_how_much_it_needs() -> None:
    texts = ["".join(chr(0x4E00 + i) for i in range(500)), "ABC abc"]
    with pytest.raises(ValueError, match=r"--vocabulary.*needs \d+") as caught:
        train_tokenizer(texts, vocabulary=100)
    needed = int(str(caught.value).split("needs ")[1].split()[0])
    assert needed < 530 and len(train_tokenizer(texts, vocabulary=needed)) <= needed
