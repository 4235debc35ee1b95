"""XOR-Retrieve: R@2kt and R@5kt by hand, the tokens, and the official files."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import nltk
import pytest

from st_xlret.evaluation.answers import AnsweredQuestions, XORRetrieveEvaluator, word_tokenizer
from st_xlret.evaluation.retrieval import texts_table
from tests import tiny
from tests.evaluation.samples import write_xor

pytestmark = pytest.mark.filterwarnings("ignore:tokens are counted")


def test_scores_are_means_by_language_of_questions_with_an_answer(static_model, tmp_path) -> None:
    result = XORRetrieveEvaluator.from_directory(write_xor(tmp_path), cache_dir=tmp_path).evaluate(static_model)
    expected = {"fi": 0.5, "ko": 1.0}
    assert result.scores == {code: dict.fromkeys(result.average, value) for code, value in expected.items()}
    assert result.average == {"recall_at_2kt": 0.75, "recall_at_5kt": 0.75}
    assert result.protocol["corpus_size"] == "3" and result.protocol["tokens"] == word_tokenizer()[1]


def answered(texts: Sequence[str], answers: Sequence[str]) -> list[float]:
    corpus = texts_table((str(row), "Secret", text, "en") for row, text in enumerate(texts))
    data = AnsweredQuestions(corpus, texts_table([("q", "", "sun?", "ja")]), [list(answers)])
    return list(XORRetrieveEvaluator({"english": data}).evaluate(tiny.static()).average.values())


@pytest.mark.parametrize(
    ("texts", "answers", "expected"),
    [
        (["born in 1905 there"], ["90"], [1, 1]),  # a substring, of whatever
        (["Tokyo"], ["tokyo"], [0, 0]),  # by case
        (["it is (in) Tokyo"], ["(in)"], [0, 0]),  # of tokens: "( in )"
        (["born in", "1905"], ["in 1905", "1905 born"], [1, 1]),  # across passages
        (["born there"], ["Secret"], [0, 0]),  # not of titles
        (["word " * 1999 + "1905"], ["1905"], [1, 1]),  # the budget is cut to the token
        (["word " * 1999 + "1905 Tokyo"], ["1905 Tokyo"], [0, 1]),
        (["word " * 4999 + "1905 Tokyo"], ["1905 Tokyo"], [0, 0]),
        # More passages than are looked at first, as they are short; their vectors are equal.
        ([f"{number} word" for number in range(1000, 3000)], ["1999"], [1, 1]),
        ([f"{number} word" for number in range(1000, 3000)], ["2000"], [0, 1]),
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


def test_with_punkt_it_is_nltks_own(monkeypatch) -> None:
    monkeypatch.setattr(nltk, "word_tokenize", str.split)  # as it is where its download is there
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert word_tokenizer() == (str.split, "nltk.word_tokenize")


def test_the_file_of_passages_may_be_named_and_is_unquoted_as_dpr_quotes_it(tmp_path) -> None:
    file = (write_xor(tmp_path) / "psgs_w100.tsv").rename(tmp_path / "elsewhere.tsv")
    assert '"He said ""no"" twice"' in file.read_text()
    evaluator = XORRetrieveEvaluator.from_directory(tmp_path, ["fi"], passages=file, cache_dir=tmp_path)
    row = evaluator.pools["english"]().corpus[2]
    assert (row["title"], row["text"]) == ('"Heroes"', 'He said "no" twice')
