"""XOR-Retrieve by its official files, against a naive reference of R@2kt and R@5kt."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import nltk
import numpy as np
import pytest
from nltk.tokenize.punkt import PunktTrainer, save_punkt_params
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation.answers import AnsweredQuestions, XORRetrieveEvaluator, word_tokenizer
from st_xlret.evaluation.retrieval import texts_table
from tests import tiny
from tests.evaluation.samples import write_xor, xor_sample

pytestmark = pytest.mark.filterwarnings("ignore:tokens are counted")


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
    return {code: {metric: float(np.mean(each)) for metric, each in of_code.items()} for code, of_code in hits.items()}


@pytest.mark.parametrize(("passages", "words"), [(90, 100), (700, 12), (5, 20)])
def test_scores_are_those_of_the_definition(tmp_path, passages, words) -> None:
    """Of long passages; of ones so short that the first 128 do not fill the budget; of too few to fill it."""
    (rows, records), model = xor_sample(passages, words), tiny.static()
    evaluator = XORRetrieveEvaluator.from_directory(write_xor(tmp_path, rows, records), cache_dir=tmp_path)
    result = evaluator.evaluate(model)
    expected = naive_scores(model, rows, records)
    assert result.scores == expected and set(expected) == {"ja", "fi", "te"}
    assert passages == 5 or 0 < result.average["recall_at_2kt"] < result.average["recall_at_5kt"] < 1
    assert result.protocol["corpus_size"] == str(passages) and result.protocol["tokens"] == word_tokenizer()[1]


def answered(texts: Sequence[str], answers: Sequence[str]) -> float:
    corpus = texts_table((str(row), "Secret", text, "en") for row, text in enumerate(texts))
    data = AnsweredQuestions(corpus, texts_table([("q", "", "sun?", "ja")]), [list(answers)])
    return XORRetrieveEvaluator({"english": data}).evaluate(tiny.static()).average["recall_at_2kt"]


@pytest.mark.parametrize(
    ("texts", "answers", "expected"),
    [
        (["born in 1905 there"], ["90"], 1),  # a substring, of whatever
        (["Tokyo"], ["tokyo"], 0),  # by case
        (["it is (in) Tokyo"], ["(in)"], 0),  # of tokens: "( in )"
        (["born in", "1905"], ["in 1905", "1905 born"], 1),  # across passages
        (["born there"], ["Secret"], 0),  # not of titles
        (["word " * 1999 + "1905"], ["1905"], 1),  # the budget is cut to the token
        (["word " * 1999 + "1905 Tokyo"], ["1905 Tokyo"], 0),
    ],
)
def test_what_counts_as_a_hit(texts, answers, expected) -> None:
    assert answered(texts, answers) == expected


def test_without_punkt_the_result_and_a_warning_say_so(monkeypatch) -> None:
    monkeypatch.setattr(nltk.data, "path", [])
    nltk.tokenize._get_punkt_tokenizer.cache_clear()
    tokenize, name = word_tokenizer()
    assert "punkt_tab is not installed" in name
    text = 'Dr. Smith paid $3.88 for it. "No," he said. It\'s (quite) late...'
    tokens = ["Dr.", "Smith", "paid", "$", "3.88", "for", "it", ".", "``", "No", ",", "''", "he", "said", "."]
    assert tokenize(text) == [*tokens, "It", "'s", "(", "quite", ")", "late", "..."]
    with pytest.warns(UserWarning, match="nltk's word rules"):
        answered(["a"], ["b"])


def test_with_punkt_it_is_nltks_own(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "tokenizers" / "punkt_tab" / "english"
    folder.mkdir(parents=True)
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    trainer = PunktTrainer("It is there. It is here. He went. She came. They left. It is over. It is late.")
    save_punkt_params(trainer.get_params(), dir=str(folder))
    nltk.tokenize._get_punkt_tokenizer.cache_clear()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tokenize, name = word_tokenizer()
        assert name == "nltk.word_tokenize"
        assert tokenize("It is there. It is here.") == nltk.word_tokenize("It is there. It is here.")
    finally:
        nltk.tokenize._get_punkt_tokenizer.cache_clear()


def test_the_file_of_passages_may_be_named_and_is_unquoted_as_dpr_quotes_it(tmp_path) -> None:
    _, records = xor_sample(5, 10, 6)
    write_xor(tmp_path, [["1", 'He said "no" twice', '"Heroes"'], ["2", "plain", "Aaron"]], records)
    file = (tmp_path / "psgs_w100.tsv").rename(tmp_path / "elsewhere.tsv")
    assert '"He said ""no"" twice"' in file.read_text()
    evaluator = XORRetrieveEvaluator.from_directory(tmp_path, ["fi"], passages=file, cache_dir=tmp_path)
    corpus = evaluator.pools["english"]().corpus
    assert corpus["title"][:] == ['"Heroes"', "Aaron"] and corpus["text"][:] == ['He said "no" twice', "plain"]
