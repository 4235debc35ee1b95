"""The small world in which the examples of the documentation run: files and checkpoints under the names they use."""

import json
import random
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import BertConfig, BertForMaskedLM, XLMRobertaConfig, XLMRobertaForMaskedLM

from st_xlret import export, fit_calibration
from st_xlret.modules import train_tokenizer
from tests.data.files import multilingual_pool, write_jsonl, write_text

WORDS = {
    "en": "dog cat house tree river stone bread water night winter sleeps eats sees finds old small",
    "fr": "chien chat maison arbre fleuve pierre pain eau nuit hiver dort mange voit trouve vieux petit",
    "de": "hund katze haus baum fluss stein brot wasser nacht winter schläft isst sieht findet alt klein",
    "sw": "mbwa paka nyumba mti mto jiwe mkate maji usiku baridi analala anakula anaona anapata mzee ndogo",
    "ru": "собака кошка дом дерево река камень хлеб вода ночь зима спит ест видит находит старый малый",
}
CHECKPOINTS = {  # configuration, model and vector size; explicit sizes in the documentation are the published ones
    "xlm-roberta-base": (XLMRobertaConfig, XLMRobertaForMaskedLM, 768),
    "bert-base-multilingual-cased": (BertConfig, BertForMaskedLM, 768),
    "tiny": (XLMRobertaConfig, XLMRobertaForMaskedLM, 32),
}
SENTENCES = 70  # of each language: a calibration wants at least 50


def sentences_of(language: str, count: int, seed: int) -> list[str]:
    """Sentences; those with the same seed are translations of each other, word by word."""
    generator = random.Random(seed)
    words = WORDS[language].split()
    return [
        " ".join(words[generator.randrange(len(words))] for _ in range(5 + i % 3))
        for i in range(count)
    ]


def write_data(folder: Path) -> None:
    """Documents, parallel sentences, questions, dictionaries and test sets."""
    documents = [
        {
            "id": f"{language}-{i}",
            "language": language,
            "sentences": sentences_of(language, SENTENCES // 7, 1000 + i),
        }
        for language in WORDS
        for i in range(7)
    ]
    pairs = [
        {"source_language": "en", "target_language": language, "source": source, "target": target}
        for language in ("fr", "de")
        for source, target in zip(
            sentences_of("en", 60, 5), sentences_of(language, 60, 5), strict=True
        )
    ]
    for name in ("documents.jsonl", "documents/documents.jsonl.gz"):
        write_jsonl(folder / name, documents)
    for name in ("pairs.jsonl", "pairs/pairs.jsonl.gz"):
        write_jsonl(folder / name, pairs)
    questions, passages = sentences_of("en", 40, 7), sentences_of("en", 40, 8)
    triples = "".join(
        f"{q}?\t{p}\t{n}\n" for q, p, n in zip(questions, passages, passages[::-1], strict=True)
    )
    write_text(folder / "triples.tsv", triples)
    rows = [
        {"query": f"{q}?", "positive": p, "negatives": [n], "language": language}
        for language in ("en", "fr")
        for q, p, n in zip(*(sentences_of(language, 40, seed) for seed in (7, 8, 9)), strict=True)
    ]
    write_jsonl(folder / "questions.jsonl", rows)
    paragraphs = [
        {
            "context": f"{p}.",
            "qas": [
                {"id": p, "question": f"{q}?", "answers": [{"text": p[:3], "answer_start": 0}]}
            ],
        }
        for q, p in zip(questions, passages, strict=True)
    ]
    squad = {"version": "1.1", "data": [{"title": "Title", "paragraphs": paragraphs}]}
    write_text(folder / "squad.json", json.dumps(squad))
    write_published_formats(folder)
    for language in ("fr", "de"):
        words = "".join(
            f"{a}\t{b}\n"
            for a, b in zip(*(WORDS[code].split() for code in ("en", language)), strict=True)
        )
        write_text(folder / f"words.en-{language}.tsv", words)
    for code, language in (("fra", "fr"), ("deu", "de")):
        for side, of in ((code, language), ("eng", "en")):
            file = folder / "LASER" / "data" / "tatoeba" / "v1" / f"tatoeba.{code}-eng.{side}"
            write_text(file, "\n".join(sentences_of(of, 20, 11)) + "\n")
    for name in ("xquad-r", "benchmarks/lareqa"):
        multilingual_pool(
            folder / name, {code: sentences_of(code, 6, 13) for code in ("en", "fr", "de", "sw")}
        )


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
    """Checkpoints with the names of published ones, and models as runs of this package leave them."""
    torch.manual_seed(0)
    tokenizer = train_tokenizer([*WORDS.values()] * 3, vocabulary=300)
    for name, (config_class, model_class, size) in CHECKPOINTS.items():
        sizes = {
            "hidden_size": size,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 32,
        }
        of_tokens = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
        config = config_class(max_position_embeddings=80, **sizes, **of_tokens)
        model_class(config).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    transformer = Transformer(str(folder / "tiny"), max_seq_length=32)
    model = SentenceTransformer(modules=[transformer, Pooling(32, "mean")], device="cpu")
    model.prompts = {"query": "query: ", "document": "passage: "}
    for name in ("intfloat/multilingual-e5-small", "e5", "runs/ccp/model"):
        model.save(str(folder / name))
    clouds = {
        language: torch.from_numpy(model.encode(sentences_of(language, SENTENCES, 3)))
        for language in WORDS
    }
    export(model, fit_calibration(clouds, steps=["lsar"])).save(str(folder / "runs" / "calibrated"))
