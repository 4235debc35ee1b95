"""first_last_encoder: the average over tokens of the first and the last layer, in built-in modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from torch import Tensor

from st_xlret.losses import MaskedLMLoss
from st_xlret.modules import ContextualEncoder, first_last_encoder, transformer_encoder
from st_xlret.modules.ml_ctl import mean_of_spans
from tests import tiny

TEXTS = ["sun moon star rain", "wind", "snow tree leaf root fish bird", ""]


def three_layers() -> SentenceTransformer:
    torch.manual_seed(0)
    return transformer_encoder(tiny.tokenizer(), "small", max_seq_length=16).to("cpu").eval()


@pytest.fixture(scope="module")
def model() -> SentenceTransformer:
    return first_last_encoder(three_layers()).eval()


def by_hand(transformer: Transformer, texts: list[str], length: int = 16) -> Tensor:
    tokens = transformer.tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors="pt")
    layers = transformer.auto_model(**tokens, output_hidden_states=True).hidden_states
    mask = tokens["attention_mask"][:, :, None]
    return ((layers[1] + layers[-1]) / 2 * mask).sum(1) / mask.sum(1)


def test_it_is_the_papers_average(model: SentenceTransformer) -> None:
    vectors = model(model.preprocess(TEXTS))["sentence_embedding"]
    torch.testing.assert_close(vectors, by_hand(model[0], TEXTS))
    plain = three_layers()
    assert not torch.allclose(vectors, plain(plain.preprocess(TEXTS))["sentence_embedding"])


def test_tokens_are_averaged_alike(model: SentenceTransformer) -> None:
    features = model(model.preprocess(TEXTS))
    lengths = features["attention_mask"].sum(1)
    whole = mean_of_spans(features["token_embeddings"], features["attention_mask"], torch.zeros_like(lengths), lengths)
    torch.testing.assert_close(whole, features["sentence_embedding"])


def test_one_layer_is_first_and_last() -> None:
    plain = tiny.transformer().eval()
    expected = plain(plain.preprocess(TEXTS))["sentence_embedding"]
    model = first_last_encoder(plain).eval()
    torch.testing.assert_close(model(model.preprocess(TEXTS))["sentence_embedding"], expected)


def test_the_saved_model_is_equal_and_needs_sentence_transformers_alone(
    model: SentenceTransformer, tmp_path: Path
) -> None:
    trained = model(model.preprocess(TEXTS))["sentence_embedding"].detach()
    model.save(str(tmp_path / "model"))
    torch.save(trained, tmp_path / "trained.pt")
    program = (
        "import sys\n"
        "sys.modules['st_xlret'] = None\n"
        "import torch\n"
        "from sentence_transformers import SentenceTransformer\n"
        f"model = SentenceTransformer({str(tmp_path / 'model')!r}, device='cpu')\n"
        f"loaded = model.encode({TEXTS!r}, convert_to_tensor=True)\n"
        f"torch.testing.assert_close(loaded, torch.load({str(tmp_path / 'trained.pt')!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_layer_weights_are_fixed(model: SentenceTransformer) -> None:
    model(model.preprocess(TEXTS))["sentence_embedding"].sum().backward()
    trainable = {name for name, p in model.named_parameters() if p.requires_grad}
    assert not any("layer_weights" in name for name in trainable)
    first, *_, last = (layer.attention.self.query.weight.grad for layer in model[0].auto_model.encoder.layer)
    assert first.abs().sum() > 0 and last.abs().sum() > 0


def test_the_language_model_reads_the_last_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    def every_other(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return ids, mask.bool() & (torch.arange(ids.shape[1]) % 2 == 1)

    plain = three_layers()
    expected = MaskedLMLoss(plain)
    ours = MaskedLMLoss(first_last_encoder(three_layers()).eval())
    ours.load_owned_state(expected.owned_state())
    for loss in (expected, ours):
        monkeypatch.setattr(loss, "mask_tokens", every_other)
    features: Any = plain.preprocess(TEXTS)
    torch.testing.assert_close(ours([dict(features)]), expected([dict(features)]))


def test_a_static_encoder_has_no_layers() -> None:
    with pytest.raises(ValueError, match="needs the layers of a Transformer, got StaticEmbedding"):
        first_last_encoder(tiny.static())


def test_the_prompts_stay() -> None:
    plain = tiny.transformer()
    plain.prompts, plain.default_prompt_name = {"query": "wind ", "document": "snow "}, "query"
    model = first_last_encoder(plain)
    assert model.prompts == plain.prompts and model.default_prompt_name == "query"


def test_the_device_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tiny.transformer()
    monkeypatch.setattr("sentence_transformers.base.model.get_device_name", lambda: "meta")
    assert first_last_encoder(plain).device == plain.device == torch.device("cpu")


@pytest.mark.parametrize("included", [True, False])
def test_prompts_are_pooled_as_before(included: bool) -> None:
    plain = tiny.transformer()
    plain.set_pooling_include_prompt(included)
    assert first_last_encoder(plain)[-1].include_prompt is included


START, END = torch.tensor([1, 0, 2]), torch.tensor([3, 1, 5])
MASK = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]])


@pytest.fixture
def tokens() -> Tensor:
    return torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)


def test_the_mean_of_a_span(tokens: Tensor) -> None:
    expected = torch.stack([tokens[row, START[row] : END[row]].mean(0) for row in range(3)])
    torch.testing.assert_close(mean_of_spans(tokens, MASK, START, END), expected)


def test_padding_on_the_left_shifts_nothing(tokens: Tensor) -> None:
    lengths = MASK.sum(1).tolist()
    moved = torch.stack([row.roll(5 - length, 0) for row, length in zip(tokens, lengths, strict=True)])
    torch.testing.assert_close(mean_of_spans(moved, MASK.flip(1), START, END), mean_of_spans(tokens, MASK, START, END))


def test_it_is_a_linear_layer_over_both(tokens: Tensor) -> None:
    encoder = ContextualEncoder(6, 4, 3).double()
    sentence = torch.randn(3, 6, dtype=torch.float64)
    words = mean_of_spans(tokens, MASK, START, END)
    expected = torch.nn.functional.linear(torch.cat([sentence, words], 1), encoder.linear.weight, encoder.linear.bias)
    torch.testing.assert_close(encoder(sentence, tokens, MASK, START, END), expected)
    assert torch.autograd.gradcheck(lambda s, t: encoder(s, t, MASK, START, END), (sentence.requires_grad_(), tokens))


def test_sizes() -> None:
    encoder = ContextualEncoder(6)
    assert (encoder.sentence_features, encoder.token_features, encoder.out_features) == (6, 6, 6)
    with pytest.raises(ValueError, match=r"sizes must be at least 1, got.*\(-1, -1, -1\)"):
        ContextualEncoder(-1)


@pytest.mark.parametrize("start, end", [(2, 2), (3, 2), (-1, 1), (1, 6)])
def test_a_span_that_is_none_is_named(tokens: Tensor, start: int, end: int) -> None:
    starts, ends = START.clone(), END.clone()
    starts[2], ends[2] = start, end
    with pytest.raises(ValueError, match=rf"word of row 2 stands at tokens \[{start}, {end}\) of 5.*max_seq_length"):
        mean_of_spans(tokens, MASK, starts, ends)
    with pytest.raises(ValueError, match=r"row 1 stands at tokens \[0, 3\) of 2"):
        mean_of_spans(tokens, MASK, START, torch.tensor([3, 3, 5]))
