"""LAReQA and Mewsli-X, Mr.TyDi, XOR-Retrieve: their official layouts, and scores by hand."""

import warnings
from collections.abc import Sequence

import huggingface_hub
import nltk
import pytest

from st_xlret.evaluation import (
    LAReQAEvaluator,
    MewsliXEvaluator,
    MrTyDiEvaluator,
    XORRetrieveEvaluator,
    read_lareqa,
)
from st_xlret.evaluation.pools import full_texts, texts_table
from st_xlret.evaluation.xor_retrieve import AnsweredQuestions, word_tokenizer
from tests import tiny
from tests.evaluation import samples
from tests.evaluation.samples import (
    PARAGRAPH,
    write_beir,
    write_lareqa,
    write_mewsli_x,
    write_mr_tydi,
    write_xor,
)

pytestmark = pytest.mark.filterwarnings("ignore:tokens are counted")


def test_both_layouts_have_one_pool_or_one_for_each_language(static_model, tmp_path) -> None:
    folders, results = [write_lareqa(tmp_path / "release"), write_beir(tmp_path / "beir")], []
    for split in ("test", "test-same-language"):
        release, beir = (
            LAReQAEvaluator.from_directory(each, split=split).evaluate(static_model)
            for each in folders
        )
        for metric in (
            "map_at_20",
            "map",
            "mrr_at_100",
            "recall_at_100",
        ):  # equal scores are ordered by row
            assert beir.average[metric] == pytest.approx(release.average[metric])
        results.append(release)
    mixed, same = results
    assert (
        "one pool in all languages" in mixed.protocol["task"]
        and mixed.protocol["corpus_size"] == "6"
    )
    assert "language_preference" in mixed.average and "language_preference" not in same.average
    assert same.protocol["corpus_size"] == ", ".join(f"{language} 2" for language in same.scores)
    for language, scores in same.scores.items():
        alone = LAReQAEvaluator.from_directory(
            write_lareqa(tmp_path / language, (language,))
        ).evaluate(static_model)
        assert scores["map_at_20"] == pytest.approx(alone.average["map_at_20"])
    part = LAReQAEvaluator.from_directory(folders[0], ["fr"])  # the languages of the questions
    assert part.evaluate(static_model).scores == {"fr": mixed.scores["fr"]} and part.sizes == {
        "all": 6
    }


def test_titles_are_not_read_and_context_is_by_option(tmp_path) -> None:
    for folder in (write_lareqa(tmp_path / "release"), write_beir(tmp_path / "beir")):
        assert sorted(full_texts(read_lareqa(folder).corpus)) == sorted(sum(PARAGRAPH.values(), []))
        corpus = read_lareqa(folder, context=True).corpus
        texts = dict(zip(corpus["id"], corpus["text"], strict=True))
        assert (
            texts["en-00-0-1"] == f"{PARAGRAPH['en'][1]} {PARAGRAPH['en'][0]} {PARAGRAPH['en'][1]}"
        )


def test_an_answer_between_sentences_has_no_candidate(tmp_path) -> None:
    file = write_lareqa(tmp_path) / "xquad-r" / "en.json"
    file.write_text(
        file.read_text().replace(
            '"answer_start": 2,', f'"answer_start": {len(PARAGRAPH["en"][0])},'
        )
    )
    data = read_lareqa(tmp_path)
    assert "en-q1" not in data.queries["id"][:]
    assert sorted(data.qrels["fr-q1"]) == ["de-00-0-0", "fr-00-0-0"]


@pytest.mark.real_data("xquad_r")
def test_the_real_files_have_the_published_counts(real_data) -> None:
    data = read_lareqa(real_data)
    assert (len(data.corpus), len(data.judged)) == (13_014, 13_090)
    assert {len(rows) for rows in data.relevant} == {11} == {len(data.corpus.unique("language"))}


def test_mewsli_x_by_language_and_split(static_model, tmp_path) -> None:
    data = MewsliXEvaluator.from_directory(write_mewsli_x(tmp_path)).pools["all"]
    assert data.corpus["id"][:] == [f"Q{row}" for row in range(6)]
    assert data.corpus["text"][0] == "A taxi. It is a taxi."
    assert data.corpus["language"][:] == ["en", "fr", "de", "en", "fr", "de"]
    mentions = [
        "taxi: { taxi } and night met.",
        "hotel: Then { hotel } .",
        "night: taxi and { night } met.",
    ]
    assert data.queries["text"][:3] == mentions
    assert data.qrels["de-4"] == {"Q4": 1}
    result = MewsliXEvaluator.from_directory(tmp_path, ["de"]).evaluate(static_model)
    assert list(result.scores) == ["de"] and 0 < result.average["map_at_20"] < 1
    assert result.average["map_at_20"] == pytest.approx(
        result.average["mrr_at_100"]
    )  # of one relevant entity
    assert list(
        MewsliXEvaluator.from_directory(tmp_path, split="dev").evaluate(static_model).scores
    ) == ["en"]


@pytest.mark.parametrize("layout", samples.MR_TYDI_FILES)
def test_every_layout_gives_the_scores_by_hand(tmp_path, layout) -> None:
    evaluator = MrTyDiEvaluator.from_directory(
        write_mr_tydi(tmp_path, layout), cache_dir=tmp_path / "cache"
    )
    result = evaluator.evaluate(tiny.static(features=64))
    # Of a question in Telugu, the passage that is right has one word, and another two.
    expected = {
        "sw": {"mrr_at_100": 1, "recall_at_100": 1},
        "te": {"mrr_at_100": 0.75, "recall_at_100": 1},
    }
    assert result.scores == expected and result.average == {"mrr_at_100": 0.875, "recall_at_100": 1}
    assert result.protocol["split"] == "test" and result.protocol["corpus_size"] == "sw 3, te 3"


def test_from_the_hub(tmp_path, monkeypatch) -> None:
    write_mr_tydi(tmp_path, "hub")

    def download(repository: str, *, repo_type: str, allow_patterns: list[str]) -> str:
        assert repo_type == "dataset" and allow_patterns == ["mrtydi-v1.1-telugu/*"]
        return str(tmp_path / repository.rpartition("/")[2])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert list(MrTyDiEvaluator.from_directory(None, ["te"]).pools) == ["te"]
    folder = write_mr_tydi(tmp_path) / "mrtydi-v1.1-telugu"  # of one language
    assert list(MrTyDiEvaluator.from_directory(folder).pools) == ["te"]
    with pytest.raises(ValueError, match="'fr'"):
        MrTyDiEvaluator.from_directory(None, ["fr"])


def test_scores_are_means_by_language_of_questions_with_an_answer(static_model, tmp_path) -> None:
    result = XORRetrieveEvaluator.from_directory(write_xor(tmp_path), cache_dir=tmp_path).evaluate(
        static_model
    )
    expected = {"fi": 0.5, "ko": 1.0}
    assert result.scores == {
        code: dict.fromkeys(result.average, value) for code, value in expected.items()
    }
    assert result.average == {"recall_at_2kt": 0.75, "recall_at_5kt": 0.75}
    assert (
        result.protocol["corpus_size"] == "3" and result.protocol["tokens"] == word_tokenizer()[1]
    )


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
    tokens = [
        "Dr.",
        "Smith",
        "paid",
        "$",
        "3.88",
        "for",
        "it",
        ".",
        "``",
        "No",
        ",",
        "''",
        "he",
        "said",
        ".",
    ]
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
    evaluator = XORRetrieveEvaluator.from_directory(
        tmp_path, ["fi"], passages=file, cache_dir=tmp_path
    )
    row = evaluator.pools["english"]().corpus[2]
    assert (row["title"], row["text"]) == ('"Heroes"', 'He said "no" twice')
