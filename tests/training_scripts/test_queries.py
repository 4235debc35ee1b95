"""What `train queries` learns from, and what it leaves as it is."""

import random
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from tests.data.files import write_jsonl
from tests.training_scripts.scripts import WORDS, Runner, translations

SCORE = "pairs_average_accuracy"


@pytest.mark.slow
def test_queries_learn_and_documents_stay(train: Runner, tmp_path: Path) -> None:
    raw = SentenceTransformer(str(train.data / "encoder"), device="cpu")
    results = train(
        "queries",
        "--no_freeze_embeddings --learning_rate 5e-3 --max_steps 120 --keep_trained 1",
        "--save_strategy no --evaluation_pairs 12 --documents --pairs",
        train.data / "pairs.jsonl",
    )

    assert results["held_out_before"][SCORE] < 0.3
    assert results["held_out"][SCORE] > 0.5
    first = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    assert (raw.encode_document(["sun"]) == first.encode_document(["sun"])).all()

    # Then from questions without labels, which go on from there.
    log = log_of_words(tmp_path)
    start = tmp_path / "run" / "model"
    results = train("queries", "--model", start, "--max_steps 4 --queries", log, output="second")

    assert results["queries"] == 12
    second = SentenceTransformer(str(tmp_path / "second" / "model"), device="cpu")
    assert (first.encode_query(["soleil"]) != second.encode_query(["soleil"])).any()
    assert (raw.encode_document(["sun"]) == second.encode_document(["sun"])).all()


def log_of_words(folder: Path) -> Path:
    """A log of questions of a French word each."""
    questions = [{"language": "fr", "text": word} for word in WORDS["fr"]]
    return write_jsonl(folder / "log.jsonl", questions)


def english_texts(file: Path) -> Path:
    """Four texts of each English word."""
    texts = []
    for word in WORDS["en"]:
        for other in ("sun", "moon", "star", "rain"):
            texts.append({"language": "en", "text": f"{word} {other}"})
    return write_jsonl(file, texts)


@pytest.mark.slow
def test_documents_in_one_language_need_no_further_option(train: Runner, tmp_path: Path) -> None:
    log = log_of_words(tmp_path)
    english = english_texts(tmp_path / "english.jsonl")
    options = ("--documents", english, "--queries", log)

    results = train("queries", "--max_steps 2 --save_strategy no", *options)

    assert results["queries"] == 12
    model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    raw = SentenceTransformer(str(train.data / "encoder"), device="cpu")
    assert (raw.encode_document(["sun"]) == model.encode_document(["sun"])).all()
    # The teacher is a map, which paragraphs in other languages determine.
    teacher = train.built("queries", *options).loss.teacher
    unmapped = torch.tensor(raw.encode_query(WORDS["fr"]))
    assert raw.similarity_pairwise(teacher, unmapped).max() < 0.99


@pytest.mark.parametrize("unit", ["", "--unit sentence"])
def test_the_same_texts_are_ranked_in_each_form_of_a_collection(
    unit: str, train: Runner, tmp_path: Path
) -> None:
    dice = random.Random(3)
    corpus = []
    lines = []
    lists = []
    for number in range(20):
        both = [translations(dice), translations(dice)]
        for code in WORDS:
            sentences = [f"{each[code].capitalize()}." for each in both]
            text = " ".join(sentences)
            name = f"{code}{number}"
            corpus.append({"_id": name, "text": text, "metadata": {"language": code}})
            lines.append({"language": code, "text": text})
            lists.append({"language": code, "sentences": sentences})
    write_jsonl(tmp_path / "beir" / "corpus.jsonl", corpus)
    write_jsonl(tmp_path / "lines.jsonl", lines)
    write_jsonl(tmp_path / "lists.jsonl", lists)
    log = log_of_words(tmp_path)

    ranked = []
    for name in ("beir", "lines.jsonl", "lists.jsonl"):
        options = (unit, "--queries", log, "--documents", tmp_path / name)
        ranked.append(train.built("queries", *options).loss.documents)

    assert len(ranked[0]) == (40 if not unit else 80)
    assert torch.equal(ranked[0], ranked[1])
    assert torch.equal(ranked[0], ranked[2])


def test_questions_of_users_and_of_others_are_half_of_a_batch_each(
    train: Runner, tmp_path: Path
) -> None:
    log = log_of_words(tmp_path)
    further = english_texts(tmp_path / "further.jsonl")

    built = train.built("queries", "--queries", log, "--further_queries", further)

    languages = built.datasets["language"][:]
    assert languages.count("en") == 48
    assert languages.count("fr") == 48
    # A question has one goal, however often it stands.
    assert len(set(built.datasets["query"])) == 60
    assert sorted(set(built.datasets["label"])) == list(range(60))
    assert len(built.loss.teacher) == 60
    alone = train.built("queries", "--further_queries", further)
    assert len(alone.datasets) == 48
