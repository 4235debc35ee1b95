"""XOR-Retrieve: what counts as a hit, by which tokens, and the readers of its files."""

import warnings
from pathlib import Path

import nltk
import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation import AnsweredQuestions, XORRetrieveEvaluator, texts_table
from st_xlret.evaluation.xor_retrieve import word_tokenizer
from tests import tiny
from tests.data.files import write_text
from tests.evaluation.samples import write_xor

pytestmark = pytest.mark.filterwarnings("ignore:tokens are counted")


def test_scores_are_means_by_language_of_questions_with_an_answer(
    static_model: SentenceTransformer, tmp_path: Path
) -> None:
    result = XORRetrieveEvaluator.from_directory(write_xor(tmp_path)).evaluate(static_model)
    assert result.scores["fi"] == {"recall_at_2kt": 0.5, "recall_at_5kt": 0.5}
    assert result.scores["ko"] == {"recall_at_2kt": 1.0, "recall_at_5kt": 1.0}
    assert result.average == {"recall_at_2kt": 0.75, "recall_at_5kt": 0.75}
    assert result.protocol["corpus_size"] == "3"
    assert result.protocol["tokens"] == word_tokenizer()[1]


def hits(texts: list[str], answers: list[str]) -> list[float]:
    """Whether an answer is among the first 2 000 and 5 000 tokens of passages with one title."""
    corpus = texts_table((str(row), "Secret", text, "en") for row, text in enumerate(texts))
    questions = texts_table([("q", "", "sun?", "ja")])
    data = AnsweredQuestions(corpus, questions, [answers])
    result = XORRetrieveEvaluator({"english": data}).evaluate(tiny.static())
    return list(result.average.values())


NUMBERS = [f"{number} word" for number in range(1000, 3000)]
"""More passages than are looked at first, as they are short; their vectors are equal."""


@pytest.mark.parametrize(
    ("texts", "answer", "expected"),
    [
        pytest.param(["born in 1905 there"], "90", [1, 1], id="a substring, of whatever"),
        pytest.param(["Tokyo"], "tokyo", [0, 0], id="by case"),
        pytest.param(["it is (in) Tokyo"], "(in)", [0, 0], id='of tokens: "( in )"'),
        pytest.param(["a.c"], "a c", [0, 0], id="no pattern"),
        pytest.param(["it costs $ 5 + 3"], "$ 5 + 3", [1, 1], id="signs as they stand"),
        pytest.param(["born there"], "Secret", [0, 0], id="not of titles"),
        pytest.param(["word " * 1999 + "1905"], "1905", [1, 1], id="the last of 2 000"),
        pytest.param(["word " * 1999 + "1905 Tokyo"], "1905 Tokyo", [0, 1], id="cut at 2 000"),
        pytest.param(["word " * 4999 + "1905 Tokyo"], "1905 Tokyo", [0, 0], id="cut at 5 000"),
        pytest.param(NUMBERS, "1999", [1, 1], id="the last of 1 000 passages"),
        pytest.param(NUMBERS, "2000", [0, 1], id="one of the next"),
    ],
)
def test_what_counts_as_a_hit(texts: list[str], answer: str, expected: list[float]) -> None:
    assert hits(texts, [answer]) == expected


@pytest.mark.parametrize("answers", [["in 1905", "1905 born"], ["nothing", "1905"]])
def test_one_of_several_answers_is_enough_and_may_stand_across_passages(
    answers: list[str],
) -> None:
    assert hits(["born in", "1905"], answers) == [1, 1]


def test_without_punkt_the_result_and_a_warning_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nltk.data, "path", [])
    nltk.tokenize._get_punkt_tokenizer.cache_clear()
    tokenize, name = word_tokenizer()
    assert "punkt_tab is not installed" in name
    text = 'Dr. Smith paid $3.88 for it. "No," he said. It\'s (quite) late...'
    expected = "Dr. Smith paid $ 3.88 for it . `` No , '' he said . It 's ( quite ) late ..."
    assert tokenize(text) == expected.split()
    with pytest.warns(UserWarning, match="nltk's word rules"):
        hits(["a"], ["b"])


def test_with_punkt_it_is_nltks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nltk, "word_tokenize", str.split)  # as it is where its download is there
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert word_tokenizer() == (str.split, "nltk.word_tokenize")


def test_two_editions_in_one_folder_are_refused(tmp_path: Path) -> None:
    file = write_xor(tmp_path) / "xor_dev_retrieve_eng_span_v1_1.jsonl"
    write_text(tmp_path / f"{file.name}.gz", file.read_text())
    XORRetrieveEvaluator.from_directory(tmp_path)
    write_text(tmp_path / "xor_dev_retrieve_eng_span.jsonl", file.read_text())
    with pytest.raises(ValueError, match="span.jsonl.*span_v1_1.jsonl"):
        XORRetrieveEvaluator.from_directory(tmp_path)


def test_the_file_of_passages_may_be_named_and_is_unquoted_as_dpr_quotes_it(
    tmp_path: Path,
) -> None:
    file = write_xor(tmp_path) / "psgs_w100.tsv"
    file = file.rename(tmp_path / "elsewhere.tsv")
    evaluator = XORRetrieveEvaluator.from_directory(tmp_path, ["fi"], passages=file)
    row = evaluator.pools["english"]().corpus[2]
    assert row["title"] == '"Heroes"'
    assert row["text"] == 'He said "no" twice'
