"""The small world in which the examples of the documentation run, under the names they use."""

import json
import random
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import BertConfig, BertForMaskedLM, XLMRobertaConfig, XLMRobertaForMaskedLM

from st_xlret import VectorCalibration, export
from st_xlret.modules import train_tokenizer
from tests.data.files import multilingual_pool, write_jsonl, write_text

_LISTS = {
    "en": "dog cat house tree river stone bread water night winter "
    "sleeps eats sees finds old small",
    "fr": "chien chat maison arbre fleuve pierre pain eau nuit hiver "
    "dort mange voit trouve vieux petit",
    "de": "hund katze haus baum fluss stein brot wasser nacht winter "
    "schläft isst sieht findet alt klein",
    "sw": "mbwa paka nyumba mti mto jiwe mkate maji usiku baridi "
    "analala anakula anaona anapata mzee ndogo",
    "ru": "собака кошка дом дерево река камень хлеб вода ночь зима "
    "спит ест видит находит старый малый",
}
WORDS = {code: words.split() for code, words in _LISTS.items()}
CHECKPOINTS = {
    "xlm-roberta-base": (XLMRobertaConfig, XLMRobertaForMaskedLM, 768),
    "bert-base-multilingual-cased": (BertConfig, BertForMaskedLM, 768),
    "tiny": (XLMRobertaConfig, XLMRobertaForMaskedLM, 32),
}
"""Configuration, model and vector size; sizes in the documentation are the published ones."""
SENTENCES = 70  # of each language: a calibration wants at least 20


def sentences_of(language: str, count: int, seed: int) -> list[str]:
    """Sentences; those with the same seed are translations of each other, word by word."""
    generator = random.Random(seed)
    words = WORDS[language]
    sentences = []
    for number in range(count):
        length = 5 + number % 3
        chosen = [words[generator.randrange(len(words))] for _ in range(length)]
        sentences.append(" ".join(chosen))
    return sentences


def write_data(folder: Path) -> None:
    """Documents, parallel sentences, questions, dictionaries and test sets."""
    for name in ("documents.jsonl", "documents/documents.jsonl.gz"):
        write_jsonl(folder / name, documents())
    for name in ("pairs.jsonl", "pairs/pairs.jsonl.gz"):
        write_jsonl(folder / name, pairs())
    write_questions(folder)
    write_published_formats(folder)
    write_dictionaries(folder)
    write_tatoeba(folder / "LASER" / "data" / "tatoeba" / "v1")
    for name in ("xquad-r", "benchmarks/lareqa", "my-beir-folder", "my-collection"):
        texts = {code: sentences_of(code, 6, 13) for code in ("en", "fr", "de", "sw")}
        multilingual_pool(folder / name, texts)
    judgements = folder / "my-collection" / "qrels"
    (judgements / "test.tsv").rename(judgements / "train.tsv")


def documents() -> list[dict[str, Any]]:
    """Seven documents of each language."""
    rows = []
    for language in WORDS:
        for number in range(7):
            sentences = sentences_of(language, SENTENCES // 7, 1000 + number)
            rows.append(
                {"id": f"{language}-{number}", "language": language, "sentences": sentences}
            )
    return rows


def pairs() -> list[dict[str, Any]]:
    """English sentences with their translations."""
    rows = []
    english = sentences_of("en", 60, 5)
    for language in ("fr", "de"):
        for source, target in zip(english, sentences_of(language, 60, 5), strict=True):
            languages = {"source_language": "en", "target_language": language}
            rows.append({**languages, "source": source, "target": target})
    return rows


def write_questions(folder: Path) -> None:
    """Questions with passages, as triples, as JSON lines, and as SQuAD has them."""
    questions = sentences_of("en", 40, 7)
    passages = sentences_of("en", 40, 8)
    triples = ""
    paragraphs = []
    for question, passage, other in zip(questions, passages, passages[::-1], strict=True):
        triples += f"{question}?\t{passage}\t{other}\n"
        answers = [{"text": passage[:3], "answer_start": 0}]
        asked = {"id": passage, "question": f"{question}?", "answers": answers}
        paragraphs.append({"context": f"{passage}.", "qas": [asked]})
    write_text(folder / "triples.tsv", triples)
    squad = {"version": "1.1", "data": [{"title": "Title", "paragraphs": paragraphs}]}
    write_text(folder / "squad.json", json.dumps(squad))
    rows = []
    for language in ("en", "fr"):
        columns = [sentences_of(language, 40, seed) for seed in (7, 8, 9)]
        for question, passage, other in zip(*columns, strict=True):
            texts = {"query": f"{question}?", "positive": passage, "negatives": [other]}
            rows.append({**texts, "language": language})
    write_jsonl(folder / "questions.jsonl", rows)


def write_dictionaries(folder: Path) -> None:
    for language in ("fr", "de"):
        both = zip(WORDS["en"], WORDS[language], strict=True)
        lines = [f"{word}\t{translation}\n" for word, translation in both]
        write_text(folder / f"words.en-{language}.tsv", "".join(lines))


def write_tatoeba(folder: Path) -> None:
    for code, language in (("fra", "fr"), ("deu", "de")):
        for side, of_side in ((code, language), ("eng", "en")):
            text = "\n".join(sentences_of(of_side, 20, 11)) + "\n"
            write_text(folder / f"tatoeba.{code}-eng.{side}", text)


def write_published_formats(folder: Path) -> None:
    """One record of each format for which the guide of data has a recipe."""
    passages = {name: [{"title": name.upper(), "text": f"{name} text"}] for name in "abc"}
    dpr = {
        "question": "nani?",
        "answers": ["a"],
        "positive_ctxs": passages["a"],
        "negative_ctxs": passages["b"],
    }
    write_text(folder / "dpr_train_data.json", json.dumps([{**dpr, "hard_negative_ctxs": []}]))
    write_jsonl(
        folder / "xor_train_retrieve_eng_span.jsonl",
        [{"question": "nani?", "lang": "sw", "answers": ["a"]}],
    )
    tydi = {"positive_passages": passages["a"] + passages["b"], "negative_passages": passages["c"]}
    write_jsonl(
        folder / "mrtydi-v1.1-swahili" / "train.jsonl.gz",
        [{"query_id": "1", "query": "wapi?", **tydi}],
    )
    context = {
        "text": "It rains. Ann won.",
        "language": "en",
        "sentence_spans": [{"start": 10, "end": 18}],
    }
    mention = {"context": context, "mention": {"mention_span": {"start": 10, "end": 13}}}
    entity = {"description": "A runner. Of note.", "sentence_spans": [{"start": 0, "end": 9}]}
    write_jsonl(
        folder / "wikipedia_pairs-train.jsonl", [{"contextual_mention": mention, "entity": entity}]
    )
    chapters = {"en": ["one", "two"], "de": ["eins", "zwei"], "fr": ["un"]}
    verses = {code: ["1", "2"][: len(texts)] for code, texts in chapters.items()}
    bible = [
        {"language": code, "sentences": texts, "verses": verses[code]}
        for code, texts in chapters.items()
    ]
    write_jsonl(folder / "bible.jsonl", bible)
    sides = "".join(
        f'<tuv xml:lang="{code}"><seg>{text[0]} <hi>x</hi></seg></tuv>'
        for code, text in chapters.items()
    )
    write_text(folder / "memory.tmx", f"<tmx><body><tu>{sides}</tu></body></tmx>")


def write_models(folder: Path) -> None:
    """Checkpoints with the names of published ones, and models as runs leave them."""
    torch.manual_seed(0)
    texts = [" ".join(words) for words in WORDS.values()]
    tokenizer = train_tokenizer(texts * 3, vocabulary=300)
    for name, (config_class, model_class, size) in CHECKPOINTS.items():
        config = config_class(
            max_position_embeddings=80,
            hidden_size=size,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            vocab_size=len(tokenizer),
            pad_token_id=tokenizer.pad_token_id,
        )
        model_class(config).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    transformer = Transformer(str(folder / "tiny"), max_seq_length=32)
    model = SentenceTransformer(modules=[transformer, Pooling(32, "mean")], device="cpu")
    model.prompts = {"query": "query: ", "document": "passage: "}
    for name in ("intfloat/multilingual-e5-small", "e5", "runs/ccp/model"):
        model.save(str(folder / name))
    clouds = {}
    for language in WORDS:
        vectors = model.encode(sentences_of(language, SENTENCES, 3))
        clouds[language] = torch.from_numpy(vectors)
    stored = {language: vectors.numpy() for language, vectors in clouds.items()}
    VectorCalibration.fit(stored, queries_only=True).save(folder / "map")
    layer = VectorCalibration.fit(clouds, steps=["lsar"], normalize=False).layer()
    calibrated = export(model, layer)
    calibrated.save(str(folder / "runs" / "calibrated"))
