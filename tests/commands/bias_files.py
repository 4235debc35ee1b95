"""Documents, questions and encoders that the tests of `report` and `calibrate` share."""

from __future__ import annotations

import json
from pathlib import Path

from sentence_transformers import SentenceTransformer

from st_xlret.modules import static_encoder, train_tokenizer

WORDS = {
    "en": ["cat", "dog", "sun", "rain", "book", "house"],
    "fr": ["chat", "chien", "soleil", "pluie", "livre", "maison"],
    "de": ["katze", "hund", "sonne", "regen", "buch", "haus"],
}


def sentences(language: str) -> list[str]:
    words = WORDS[language]
    return [f"{first} {second} {third}" for first in words for second in words for third in words[:2]]


def write_documents(file: Path, languages: dict[str, str] | None = None) -> Path:
    """Documents of six sentences; `languages` has the label of each language of the texts."""
    labels = languages or {code: code for code in WORDS}
    with file.open("w") as lines:
        for code, label in labels.items():
            texts = sentences(code)
            for first in range(0, len(texts), 6):
                record = {"id": f"{code}{first}", "language": label, "sentences": texts[first : first + 6]}
                lines.write(json.dumps(record) + "\n")
    return file


def write_questions(file: Path, *, with_language: bool = True) -> Path:
    records = [{"text": f"{text}?", "language": code} for code in WORDS for text in sentences(code)]
    if not with_language:
        records = [{"text": record["text"]} for record in records]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def encoder(prompts: bool = True) -> SentenceTransformer:
    """An encoder whose prompts change what it embeds, as they do with E5."""
    texts = [text for code in WORDS for text in sentences(code)]
    model = static_encoder(train_tokenizer([*texts, "ask tell"] * 2, vocabulary=80), features=8).to("cpu")
    if prompts:
        model.prompts = {"query": "ask ", "document": "tell "}
    return model
