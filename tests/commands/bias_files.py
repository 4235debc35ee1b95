"""Documents and encoders that the tests of `report` and `calibrate` share."""

from pathlib import Path

from sentence_transformers import SentenceTransformer

from st_xlret import VectorCalibration
from st_xlret.calibration.panels import panel_paragraphs, weak_language_phrases
from st_xlret.modules import static_encoder, train_tokenizer
from tests.data.files import write_jsonl

WORDS = {
    "en": ["cat", "dog", "sun", "rain", "book", "house"],
    "fr": ["chat", "chien", "soleil", "pluie", "livre", "maison"],
    "de": ["katze", "hund", "sonne", "regen", "buch", "haus"],
}
SENTENCES_OF_A_DOCUMENT = 6


def sentences(language: str) -> list[str]:
    """All sentences of three words, of which the last one is one of two: 72."""
    words = WORDS[language]
    texts = []
    for first in words:
        for second in words:
            for third in words[:2]:
                texts.append(f"{first} {second} {third}")
    return texts


def write_documents(file: Path) -> Path:
    """Documents of six sentences."""
    records = []
    for code in WORDS:
        texts = sentences(code)
        for start in range(0, len(texts), SENTENCES_OF_A_DOCUMENT):
            part = texts[start : start + SENTENCES_OF_A_DOCUMENT]
            records.append({"language": code, "sentences": part})
    return write_jsonl(file, records)


def encoder(prompts: bool = True) -> SentenceTransformer:
    """An encoder whose prompts change what it embeds, as they do with E5."""
    texts = ["ask tell"]
    for code in WORDS:
        texts += sentences(code)
    model = static_encoder(train_tokenizer(texts * 2, vocabulary=80), features=8).to("cpu")
    model.prompts = {}
    if prompts:
        model.prompts = {"query": "ask ", "document": "tell "}
    return model


def map_of_english(model: SentenceTransformer, *, normalize: bool) -> VectorCalibration:
    """What queries of the English documents get, step by step."""
    documents = {}
    for code, paragraphs in panel_paragraphs().items():
        documents[code] = model.encode_document(paragraphs)
    documents["en"] = model.encode_document(sentences("en"))
    phrases = []
    for part in weak_language_phrases().values():
        phrases += part
    return VectorCalibration.fit(
        documents,
        phrases={"mul": model.encode_query(phrases)},
        queries_only=True,
        min_texts=10,
        normalize=normalize,
    )
