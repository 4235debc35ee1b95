"""The demo: its sample of sentences, its encoder, and the whole of it with a tiny encoder."""

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
from training_scripts.demo.packaged_encoder import model_of


def test_the_sample_is_500_sentences_in_11_languages_with_its_notice() -> None:
    rows = demo.read_sentences()
    assert len(rows) == 500
    for row in rows:
        assert len(row) == 11
        for text in row.values():
            assert text
            assert text == " ".join(text.split())
    for language in rows[0]:
        texts = {row[language] for row in rows}
        assert len(texts) == 500, "what is searched is never trained on"
    assert "CC0" in demo.SENTENCES.with_name("NOTICE.txt").read_text()


def test_the_first_half_of_a_sentence_in_words_or_in_characters() -> None:
    assert demo.first_half("one two three four five") == "one two"
    assert demo.first_half("我们不打算") == "我们"


def test_halves_of_sentences_ask_and_the_sentence_answers_in_all_languages() -> None:
    data = demo.pool_of([{"en": "a b c d", "fr": "e f g h"}, {"en": "i", "fr": "jk"}])
    assert data.judged["text"][:] == ["a b", "e f", "", "j"]
    assert data.corpus["text"][2] == "i"
    relevant = [rows.tolist() for rows in data.relevant]
    assert relevant == [[0, 1], [0, 1], [2, 3], [2, 3]]


@pytest.fixture
def tiny_encoder(tmp_path: Path) -> Path:
    texts = []
    for row in demo.read_sentences():
        texts += row.values()
    torch.manual_seed(0)
    model = transformer_encoder(train_tokenizer(texts, vocabulary=2000), "tiny", max_seq_length=32)
    model.save_pretrained(str(tmp_path / "tiny"))
    return tmp_path / "tiny"


def test_the_whole_demo_with_a_tiny_encoder(tiny_encoder: Path, tmp_path: Path) -> None:
    output = tmp_path / "demo"
    command = f"--model {tiny_encoder} --output {output} --sentences 60 --steps 2"

    results = demo.main(command.split())

    assert json.loads((output / "results.json").read_text()) == results
    assert list(results["stages"]) == ["raw", "calibrated", "trained", "trained_calibrated"]
    assert {file.name for file in output.glob("*.png")} >= {"stages.png", "languages_raw.png"}
    # The best model is chosen by them: the scores are on its card, and not in the metadata.
    card = ModelCard.load(output / "model" / "README.md")
    assert demo.table_of(results["stages"]) in card.text
    assert card.data.eval_results is None
    best = max(results["stages"].values(), key=lambda scores: scores["map_at_20"])
    model = SentenceTransformer(str(output / "model"), device="cpu")
    pool = demo.pool_of(demo.read_sentences()[:60])
    scores = LAReQAEvaluator({"all": pool}).evaluate(model).average
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


SIZES = (32, 1, 2, 64, 5, 8, 2)
"""Features, layers, heads, inner size, pieces, positions and types of a packed model."""

SHAPES = {
    "emb.word": (5, 32),
    "emb.pos": (8, 32),
    "emb.type": (1, 32),
    "l0.q.w": (32, 32),
    "l0.k.w": (32, 32),
    "l0.v.w": (32, 32),
    "l0.ao.w": (32, 32),
    "l0.fi.w": (64, 32),
    "l0.fo.w": (32, 64),
    "l0.q.b": (32,),
    "l0.k.b": (32,),
    "l0.v.b": (32,),
    "l0.ao.b": (32,),
    "l0.fi.b": (64,),
    "l0.fo.b": (32,),
    "emb.ln.w": (32,),
    "emb.ln.b": (32,),
    "l0.aln.w": (32,),
    "l0.aln.b": (32,),
    "l0.oln.w": (32,),
    "l0.oln.b": (32,),
}


def packed(shape: tuple[int, int], dice: np.random.Generator) -> tuple[bytes, np.ndarray]:
    """Blocks of 32 numbers of four bits, low halves first, times the scale of their block."""
    numbers = dice.integers(0, 16, (shape[0] * shape[1] // 32, 32))
    halves = (numbers[:, :16] | numbers[:, 16:] << 4).astype("u1")
    scales = np.full((len(numbers), 1), 0.5, "<f2")
    blocks = np.concatenate([scales.view("u1"), halves], axis=1)
    return blocks.tobytes(), ((numbers - 8) * 0.5).reshape(shape)


def test_packed_weights_are_expanded() -> None:
    head = struct.pack("<4sI7ifi5iQ4xiIi", b"E5S1", 1, *SIZES, 1e-12, *[0] * 9, len(SHAPES))
    start = len(head) + sum(2 + len(name) + 21 for name in SHAPES)
    dice = np.random.default_rng(0)
    expected = {}
    body = b""
    directory = b""
    for name, shape in SHAPES.items():
        if len(shape) == 2 and name not in ("emb.pos", "emb.type"):
            data, expected[name] = packed(shape, dice)
        else:
            expected[name] = dice.normal(size=shape).astype("<f4")
            data = expected[name].tobytes()
        place = (0, expected[name].size, start + len(body), len(data))
        directory += struct.pack(f"<H{len(name)}sBIQQ", len(name), name.encode(), *place)
        body += data

    weights = model_of(head + directory + body).state_dict()

    assert np.array_equal(weights["embeddings.word_embeddings.weight"], expected["emb.word"])
    assert np.array_equal(weights["encoder.layer.0.output.dense.weight"], expected["l0.fo.w"])
    bias = weights["encoder.layer.0.output.LayerNorm.bias"]
    assert np.array_equal(bias, expected["l0.oln.b"])
