"""XOR-Retrieve by its official files, against a naive reference of R@2kt and R@5kt."""

from __future__ import annotations

import csv
import json
import random
import warnings
from collections.abc import Sequence
from pathlib import Path

import nltk
import numpy as np
import pytest
from nltk.tokenize.punkt import PunktTrainer, save_punkt_params
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation.answers import AnsweredQuestions, XORRetrieveEvaluator, word_tokenizer
from st_xlret.evaluation.retrieval import texts_table
from tests import tiny

pytestmark = pytest.mark.filterwarnings("ignore:tokens are counted")
LANGUAGES = ("ja", "fi", "te")


def sample(passages: int, words: int, questions: int = 30, seed: int = 0) -> tuple[list[list[str]], list[dict]]:
    """Passages (id, text, title), and questions whose answers stand somewhere among them, or nowhere."""
    generator = random.Random(seed)
    rows = []
    for number in range(passages):
        text = tiny.sentence(generator, words).split()
        text[generator.randrange(words)] = f"Year {1000 + number}."
        text[generator.randrange(words)] = 'called "No."'
        rows.append([str(number + 1), " ".join(text) + ".", tiny.sentence(generator, 2)])
    records = []
    for number in range(questions):
        answers = [f"Year {1000 + generator.randrange(passages)}", "year 1001", "nowhere"][: 1 + number % 3]
        record = {"id": f"q{number}", "question": tiny.sentence(generator, 3), "lang": LANGUAGES[number % 3]}
        records.append({**record, "answers": answers, "split": "dev", "source": "TyDi"})
    records[3]["answers"] = ["yes"]
    records[4]["answers"] = ["no", "Year 1000"]
    return rows, records


def write_official(folder: Path, rows: Sequence[Sequence[str]], records: Sequence[dict]) -> Path:
    with open(folder / "psgs_w100.tsv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t").writerows([["id", "text", "title"], *rows])
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    (folder / "xor_dev_retrieve_eng_span_v1_1.jsonl").write_text(lines, encoding="utf-8")
    return folder


def naive_scores(model: SentenceTransformer, rows, records) -> dict[str, dict[str, float]]:
    """The definition, with loops: the whole ranking, tokenised and concatenated, then cut."""
    passages = model.encode_document([f"{title} {text}" for _, text, title in rows], normalize_embeddings=True)
    tokenize, _ = word_tokenizer()
    tokens = [tokenize(text) for _, text, _ in rows]
    hits: dict[str, dict[str, list[bool]]] = {}
    for record in records:
        answers = [answer for answer in record["answers"] if answer not in ("yes", "no")]
        if not answers:
            continue
        scores = passages @ model.encode_query(record["question"], normalize_embeddings=True)
        concatenated: list[str] = []
        for row in np.argsort(-scores, kind="stable"):
            concatenated += tokens[row]
        for metric, budget in (("recall_at_2kt", 2000), ("recall_at_5kt", 5000)):
            text = " ".join(concatenated[:budget])
            of_language = hits.setdefault(record["lang"], {}).setdefault(metric, [])
            of_language.append(any(answer in text for answer in answers))
    return {
        language: {metric: float(np.mean(found)) for metric, found in of_language.items()}
        for language, of_language in hits.items()
    }


@pytest.fixture
def model() -> SentenceTransformer:
    return tiny.static()


@pytest.mark.parametrize(("passages", "words"), [(90, 100), (700, 12), (5, 20)])
def test_scores_are_those_of_the_definition(model, tmp_path, passages, words) -> None:
    """Of long passages; of ones so short that the first 128 do not fill the budget; of too few to fill it."""
    rows, records = sample(passages, words)
    evaluator = XORRetrieveEvaluator.from_directory(write_official(tmp_path, rows, records), cache_dir=tmp_path)
    result = evaluator.evaluate(model)
    expected = naive_scores(model, rows, records)
    assert result.scores == expected and set(expected) == set(LANGUAGES)
    for metric in ("recall_at_2kt", "recall_at_5kt"):
        assert result.average[metric] == pytest.approx(np.mean([scores[metric] for scores in expected.values()]))
    if passages > 5:
        assert 0 < result.average["recall_at_2kt"] < result.average["recall_at_5kt"] < 1
    assert result.protocol["corpus_size"] == str(passages) and result.protocol["tokens"] == word_tokenizer()[1]


def answered(texts: Sequence[str], answers: Sequence[str], model: SentenceTransformer) -> float:
    corpus = texts_table((str(row), "Secret", text, "en") for row, text in enumerate(texts))
    data = AnsweredQuestions(corpus, texts_table([("q", "", "sun?", "ja")]), [list(answers)])
    return XORRetrieveEvaluator({"english": data}).evaluate(model).average["recall_at_2kt"]


def test_what_counts_as_a_hit(model) -> None:
    assert answered(["born in 1905 there"], ["1905"], model) == 1
    assert answered(["born in 1905 there"], ["90"], model) == 1  # a substring, of whatever
    assert answered(["Tokyo"], ["tokyo"], model) == 0  # by case
    assert answered(["it is (in) Tokyo"], ["(in)"], model) == 0  # of tokens: "( in )"
    assert answered(["born in", "1905"], ["in 1905", "1905 born"], model) == 1  # across passages
    assert answered(["born there"], ["Secret"], model) == 0  # not of titles


def test_the_budget_is_cut_to_the_token(model) -> None:
    assert answered(["word " * 1999 + "1905"], ["1905"], model) == 1
    assert answered(["word " * 2000 + "1905"], ["1905"], model) == 0
    assert answered(["word " * 1999 + "1905 Tokyo"], ["1905 Tokyo"], model) == 0


def test_without_punkt_the_result_and_a_warning_say_so(model, monkeypatch) -> None:
    monkeypatch.setattr(nltk.data, "path", [])
    nltk.tokenize._get_punkt_tokenizer.cache_clear()
    tokenize, name = word_tokenizer()
    assert "punkt_tab is not installed" in name
    text = 'Dr. Smith paid $3.88 for it. "No," he said. It\'s (quite) late...'
    tokens = ["Dr.", "Smith", "paid", "$", "3.88", "for", "it", ".", "``", "No", ",", "''", "he", "said", "."]
    assert tokenize(text) == [*tokens, "It", "'s", "(", "quite", ")", "late", "..."]
    with pytest.warns(UserWarning, match="nltk's word rules"):
        answered(["a"], ["b"], model)


def test_with_punkt_it_is_nltks_own(model, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "tokenizers" / "punkt_tab" / "english"
    folder.mkdir(parents=True)
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    trainer = PunktTrainer("It is there. It is here. He went. She came. They left. It is over. It is late.")
    save_punkt_params(trainer.get_params(), dir=str(folder))
    nltk.tokenize._get_punkt_tokenizer.cache_clear()
    try:
        tokenize, name = word_tokenizer()
        assert name == "nltk.word_tokenize"
        assert tokenize("It is there. It is here.") == nltk.word_tokenize("It is there. It is here.")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert answered(["it is there"], ["there"], model) == 1
    finally:
        nltk.tokenize._get_punkt_tokenizer.cache_clear()


def test_passages_are_unquoted_as_dpr_quotes_them(tmp_path) -> None:
    write_official(tmp_path, *sample(5, 10, 6))
    file = tmp_path / "psgs_w100.tsv"
    file.write_text('id\ttext\ttitle\n1\t"He said ""no"" twice"\t"""Heroes"""\n2\tplain\tAaron\n', encoding="utf-8")
    corpus = XORRetrieveEvaluator.from_directory(tmp_path, cache_dir=tmp_path).pools["english"]().corpus
    assert list(zip(corpus["id"], corpus["title"], corpus["text"], strict=True)) == [
        ("1", '"Heroes"', 'He said "no" twice'),
        ("2", "Aaron", "plain"),
    ]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("psgs_w100.tsv", "\n3\t", "\n3 ", "psgs_w100.tsv, line 4"),
        ("xor_dev", '"lang"', '"language"', "xor_dev.*, line 1: .*'lang'"),
    ],
)
def test_bad_input_names_file_and_line(model, tmp_path, file, old, new, message) -> None:
    write_official(tmp_path, *sample(5, 10, 6))
    path = next(tmp_path.glob(f"{file}*"))
    text = path.read_bytes().decode().replace("\r\n", "\n")
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        XORRetrieveEvaluator.from_directory(tmp_path, cache_dir=tmp_path).evaluate(model)


def test_the_file_of_passages_may_be_named(tmp_path) -> None:
    rows, records = sample(5, 10, 6)
    write_official(tmp_path, rows, [{**record, "answers": ["no", "yes", " "]} for record in records])
    with pytest.raises(ValueError, match="xor_dev_retrieve"):
        XORRetrieveEvaluator.from_directory(tmp_path, cache_dir=tmp_path)
    write_official(tmp_path, rows, records)
    with pytest.raises(ValueError, match="'fr'"):
        XORRetrieveEvaluator.from_directory(tmp_path, ["fr"], cache_dir=tmp_path)
    (tmp_path / "psgs_w100.tsv").rename(tmp_path / "elsewhere.tsv")
    XORRetrieveEvaluator.from_directory(tmp_path, passages=tmp_path / "elsewhere.tsv")
