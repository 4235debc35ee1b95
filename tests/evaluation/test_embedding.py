from __future__ import annotations

import pytest
import torch

from st_xlret.evaluation import TextEmbedder
from st_xlret.hub.export import export
from st_xlret.modules.calibration_layer import CalibrationLayer

TEXTS = ["taxi", "hotel bread water night house", "pain eau", "haus", "nuit maison brot"]


def encode_layer(model, texts: list[str], **options) -> torch.Tensor:
    return TextEmbedder(**options).embed(model, texts, "en")


def hidden_states(model, text: str) -> tuple[torch.Tensor, ...]:
    """One text at a time, without padding: straight from the transformers model."""
    features = model.preprocess([text])
    inputs = {key: features[key] for key in ("input_ids", "attention_mask")}
    model.eval()
    with torch.no_grad():
        return model[0].model(**inputs, output_hidden_states=True).hidden_states


def test_default_is_the_models_own_output(transformer_model) -> None:
    expected = transformer_model.encode(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(encode_layer(transformer_model, TEXTS), expected)


@pytest.mark.parametrize("layer", [0, 1, 2, 3])
@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_layer_is_averaged_under_the_attention_mask(transformer_model, layer: int, batch_size: int) -> None:
    ours = encode_layer(transformer_model, TEXTS, layer=layer, batch_size=batch_size)
    expected = torch.stack([hidden_states(transformer_model, text)[layer][0].mean(dim=0) for text in TEXTS])
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)


def test_model_pooling_over_a_layer(transformer_model) -> None:
    ours = encode_layer(transformer_model, TEXTS, layer=2, pooling="model")
    first_tokens = torch.stack([hidden_states(transformer_model, text)[2][0, 0] for text in TEXTS])
    torch.testing.assert_close(ours, first_tokens, atol=1e-5, rtol=1e-5)
    last = encode_layer(transformer_model, TEXTS, layer=3, pooling="model")
    torch.testing.assert_close(last, transformer_model.encode(TEXTS, convert_to_tensor=True))


@pytest.mark.parametrize("layer", [1, 99])
def test_the_model_is_left_as_it_was(transformer_model, layer: int) -> None:
    transformer_model.train()
    transformer = transformer_model[0]
    before = {key: value.clone() for key, value in transformer_model.state_dict().items()}
    config = transformer.model.config.to_dict()
    unpad = transformer.unpad_inputs
    try:
        encode_layer(transformer_model, TEXTS, layer=layer)
    except ValueError:
        assert layer == 99
    assert transformer.model.config.to_dict() == config
    assert transformer.unpad_inputs == unpad
    assert transformer_model.training
    assert all(torch.equal(value, before[key]) for key, value in transformer_model.state_dict().items())


@pytest.mark.parametrize("layer", [-1, 4])
def test_layer_out_of_range_names_the_range(transformer_model, layer: int) -> None:
    with pytest.raises(ValueError, match=rf"layer={layer} .* 0\.\.3"):
        encode_layer(transformer_model, TEXTS, layer=layer)


@pytest.mark.parametrize("options", [{"layer": 1}, {"pooling": "mean"}])
def test_static_models_have_no_hidden_states(static_model, options) -> None:
    with pytest.raises(ValueError, match="starts with StaticEmbedding"):
        encode_layer(static_model, TEXTS, **options)


def test_equal_texts_get_equal_embeddings(transformer_model) -> None:
    texts = ["taxi", "hotel bread", "taxi", "eau", "taxi"]
    embeddings = TextEmbedder(batch_size=2).embed(transformer_model, texts, "en")
    assert torch.equal(embeddings[0], embeddings[2]) and torch.equal(embeddings[0], embeddings[4])
    expected = transformer_model.encode(texts, convert_to_tensor=True)
    torch.testing.assert_close(embeddings, expected, atol=1e-5, rtol=1e-5)


def test_a_layer_bypasses_language_routes_and_says_so(transformer_model) -> None:
    model = export(transformer_model, CalibrationLayer(16, ["en", "fr"]))
    embedder = TextEmbedder(layer=2)
    assert embedder.embed(model, ["taxi"], "fr").equal(embedder.embed(transformer_model, ["taxi"], "fr"))
    assert "not used" in embedder.describe(model)["calibration"]


def test_precision_is_that_of_the_model_and_vectors_are_float32(transformer_model) -> None:
    exact = TextEmbedder().embed(transformer_model, TEXTS, "en")
    rounded = TextEmbedder(precision="bf16").embed(transformer_model, TEXTS, "en")
    assert rounded.dtype == torch.float32 and not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, atol=0.1, rtol=0.1)
    assert not torch.is_autocast_enabled("cpu")
    assert TextEmbedder(precision="bf16").describe(transformer_model)["precision"] == "bf16"
    with pytest.raises(ValueError, match="int8"):
        TextEmbedder(precision="int8")
