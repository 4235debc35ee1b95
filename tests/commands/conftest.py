"""What the tests of commands share: documents, and an encoder that knows translations."""

from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from st_xlret import VectorCalibration, export
from st_xlret.modules import static_encoder
from tests.data.files import write_jsonl
from tests.tiny import word_tokenizer
from tests.training_scripts.scripts import WORDS


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Translations have the same vector, plus one of their language."""
    encoder, meanings = (
        static_encoder(word_tokenizer([*WORDS["en"], *WORDS["fr"]]), features=16),
        torch.eye(16),
    )
    of_languages = [meanings[:12] + 0.8 * meanings[12 + side] for side in range(2)]
    encoder[0].embedding.weight.data = torch.cat(
        [torch.zeros(4, 16), *of_languages]
    )  # of the special tokens: 0
    folder = tmp_path_factory.mktemp("model")
    encoder.save(str(folder))
    return folder


@pytest.fixture(scope="session")
def per_language(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """The model with a map per language, which takes the vector of the language off."""
    encoder = SentenceTransformer(str(model), device="cpu")
    vectors = {code: encoder.encode(words * 5) for code, words in WORDS.items()}
    folder = tmp_path_factory.mktemp("per-language")
    layer = VectorCalibration.fit(vectors, steps=["shift"], normalize=False).layer()
    export(encoder, layer).save_pretrained(str(folder))
    return folder


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """24 texts in each of two languages."""
    pairs = [
        (code, a, b)
        for code, words in WORDS.items()
        for a, b in zip(words, words[1:] + words[:1], strict=True)
    ]
    records = [
        {"language": code, "sentences": [f"{a} {b}", f"{b} {a} {a}"]} for code, a, b in pairs
    ]
    return write_jsonl(tmp_path / "documents.jsonl", records)
