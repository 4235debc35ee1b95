"""Documents and encoders that the tests of `report` and `calibrate` share."""

from pathlib import Path

from sentence_transformers import SentenceTransformer

from st_xlret.modules import static_encoder, train_tokenizer
from tests.data.files import write_jsonl

WORDS = {
    "en": ["cat", "dog", "sun", "rain", "book", "house"],
    "fr": ["chat", "chien", "soleil", "pluie", "livre", "maison"],
    "de": ["katze", "hund", "sonne", "regen", "buch", "haus"],
}


def sentences(language: str) -> list[str]:
    words = WORDS[language]
    return [
        f"{first} {second} {third}" for first in words for second in words for third in words[:2]
    ]


def write_documents(file: Path) -> Path:
    """Documents of six sentences."""
    firsts = [(code, first) for code in WORDS for first in range(0, 72, 6)]
    return write_jsonl(
        file, [{"language": code, "sentences": sentences(code)[i : i + 6]} for code, i in firsts]
    )


def encoder(prompts: bool = True) -> SentenceTransformer:
    """An encoder whose prompts change what it embeds, as they do with E5."""
    texts = [text for code in WORDS for text in sentences(code)]
    model = static_encoder(train_tokenizer([*texts, "ask tell"] * 2, vocabulary=80), features=8).to(
        "cpu"
    )
    model.prompts = {"query": "ask ", "document": "tell "} if prompts else {}
    return model
