from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
import pytrec_eval
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import BoW

from st_xlret.evaluation.lareqa import mean_average_precision
from st_xlret.evaluation.retrieval import (
    RetrievalData,
    RetrievalEvaluator,
    full_texts,
    language_metrics,
    mrr_at_k,
    ndcg_at_k,
    read_beir,
    recall_at_k,
    score_ranking,
    success_at_k,
    texts_table,
)
from st_xlret.modules.calibration_layer import CalibrationLayer
from st_xlret.search import top_k
from tests.evaluation.samples import write_beir

WORDS = ["query", "passage", "taxi", "hotel", "bread", "water"]


@pytest.fixture
def model() -> SentenceTransformer:
    return SentenceTransformer(modules=[BoW(vocab=WORDS)], device="cpu")


def collection(texts: list[str], languages="en", prefix: str = "d") -> Dataset:
    codes = [languages] * len(texts) if isinstance(languages, str) else languages
    return texts_table(
        (f"{prefix}{row}", "", text, code) for row, (text, code) in enumerate(zip(texts, codes, strict=True))
    )


def small() -> RetrievalData:
    corpus = collection(["taxi", "hotel bread", "water", "bread"], ["en", "fr", "en", "fr"])
    queries = collection(["bread", "hotel", "unjudged", "taxi water"], ["en", "fr", "en", "en"], prefix="q")
    return RetrievalData(corpus, queries, {"q0": {"d3": 1, "d1": 2}, "q1": {"d1": 1}, "q3": {"d1": 1, "d0": 0}})


def evaluate(model, data: RetrievalData, metrics: list[str], **options) -> dict[str, dict[str, float]]:
    evaluator = RetrievalEvaluator({"all": data}, **options)
    evaluator.metrics = tuple(metrics)
    return evaluator.evaluate(model).scores


def test_scores_are_means_per_query_language(model) -> None:
    scores = evaluate(model, small(), ["mrr_at_100", "recall_at_1", "map_at_20"])
    assert {name: scores["fr"][name] for name in ("mrr_at_100", "recall_at_1", "map_at_20")} == {
        "mrr_at_100": 1.0,
        "recall_at_1": 1.0,
        "map_at_20": 1.0,
    }
    # q0 finds both; q3's only relevant document shares no word with it and stands third.
    assert scores["en"]["recall_at_1"] == pytest.approx((0.5 + 0) / 2)
    assert scores["en"]["mrr_at_100"] == pytest.approx((1 + 1 / 3) / 2)


def test_prompts_and_roles(model) -> None:
    model.prompts = {"query": "query ", "passage": "passage "}
    plain, own = RetrievalEvaluator({}), RetrievalEvaluator({}, query_prompt="", document_prompt="water ")
    for evaluator, role, expected in (
        (plain, "query", [1, 0, 1, 0, 0, 0]),
        (plain, "document", [0, 1, 1, 0, 0, 0]),
        (plain, None, [0, 0, 1, 0, 0, 0]),
        (own, "query", [0, 0, 1, 0, 0, 0]),
        (own, "document", [0, 0, 1, 0, 0, 1]),
    ):
        assert evaluator.embed(model, ["taxi"], ["en"], role).tolist() == [expected]


def test_calibration_follows_each_rows_language(model) -> None:
    calibration = CalibrationLayer(6, ["en", "fr"])
    list(calibration.buffers())[1][1] += 100
    rows = RetrievalEvaluator({}, calibration=calibration).embed(model, ["taxi"] * 3, ["en", "fr", "en"], "document")
    assert (rows[1] - rows[0]).tolist() == [100.0] * 6 and rows[2].equal(rows[0])


def test_vectors_of_the_corpus_may_be_kept_on_disk(model, tmp_path) -> None:
    model.prompts = {"query": "", "document": ""}
    options = [
        {},
        {"similarity": "dot"},
        {"calibration": CalibrationLayer(6, ["en", "fr"])},
        {"document_prompt": "taxi "},
    ]
    for number, more in enumerate(options, start=1):
        for _ in range(2):
            there = evaluate(model, small(), ["mrr_at_100", "map_at_20"], keep_vectors=tmp_path, **more)
            assert there == evaluate(model, small(), ["mrr_at_100", "map_at_20"], **more)
        assert len(list(tmp_path.rglob("*.npy"))) == number


@pytest.mark.parametrize("similarity", ["dot", "cosine", "euclidean"])
def test_similarity_is_the_models(model, similarity) -> None:
    model.similarity_fn_name = similarity
    if similarity == "euclidean":
        with pytest.raises(KeyError, match="euclidean"):
            RetrievalEvaluator({}).protocol(model)
    else:
        assert RetrievalEvaluator({}).protocol(model)["similarity"] == similarity
    assert RetrievalEvaluator({}, similarity="cosine").protocol(model)["similarity"] == "cosine"


def test_average_precision_over_the_whole_ranking() -> None:
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 9, size=(300, 40)).astype(np.float32)
    relevant = [np.sort(generator.choice(40, size=1 + query % 7, replace=False)) for query in range(300)]
    expected = []
    for row, gold in zip(scores, relevant, strict=True):
        ranked = [document in gold for document in np.argsort(-row, kind="stable")]
        hits = np.flatnonzero(ranked) + 1
        expected.append(np.mean(np.arange(1, len(hits) + 1) / hits))
    found = mean_average_precision(torch.from_numpy(scores), torch.eye(40), relevant)
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("qrels", "named"),
    [
        ({"q0": {"d0": 0}}, "relevant"),
        ({"x": {"d0": 1}}, "'x'"),
        ({"q0": {"y": 1}}, "relevant"),
        ({"q0": {"d1": 1}}, "'d1'"),
    ],
)
def test_judgements_must_name_what_is_there_once(qrels, named) -> None:
    corpus = texts_table([("d0", "", "one", "en"), ("d1", "", "two", "en"), ("d1", "", "three", "en")])
    with pytest.raises(ValueError, match=named):
        RetrievalData(corpus, collection(["two"], prefix="q"), qrels)


@pytest.mark.parametrize("compressed", [False, True])
def test_beir_layout(compressed, tmp_path) -> None:
    write_beir(tmp_path)
    if compressed:
        for file in list(tmp_path.rglob("*.*")):
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
    data = read_beir(tmp_path).of_languages(["fr"])
    assert len(data.corpus) == 6 and data.judged["id"][:] == ["fr-q1", "fr-q2"]
    assert full_texts(data.corpus)[0] == "Travel A taxi at night."
    assert data.qrels["fr-q2"] == {"en-00-0-1": 1, "fr-00-0-1": 1, "de-00-0-1": 1}


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("corpus.jsonl", "en-00-0-1", "en-00-0-0", "'en-00-0-[01]'"),
        ("corpus.jsonl", '"text": "A taxi', '"text": 3, "x": "A taxi', "corpus.jsonl, line 1"),
        ("queries.jsonl", '"language": "fr"', '"x": 1', "queries.jsonl, line 3"),
        ("qrels/test.tsv", "en-q2\ten", "xx-q2\ten", "'xx-q2'"),
    ],
)
def test_broken_files_are_named(file, old, new, message, tmp_path) -> None:
    path = write_beir(tmp_path) / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        read_beir(tmp_path)


def write_pool_of_translations(folder, judged: str, **changed) -> None:
    """Bread and taxi in English with translations; `judged` names the English documents alone."""
    texts = {"en": ["bread", "taxi"], "fr": ["bread water", "taxi hotel"], "de": ["bread hotel", "taxi passage"]}
    corpus = []
    for code, sentences in texts.items():
        for row, text in enumerate(sentences):
            original = {} if code == "en" else {"translation_of": f"en{row}"}
            corpus.append({"_id": f"{code}{row}", "text": text, "language": code, **original})
    corpus[2] |= changed
    corpus[4] = {**corpus[4], "metadata": {"translation_of": corpus[4].pop("translation_of")}}
    queries = [{"_id": f"{code}-q", "text": "bread", "language": code} for code in ("en", "fr")]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "qrels").mkdir(exist_ok=True)
    lines = [f"{query['_id']}\t{line}\n" for query in queries for line in judged.splitlines()]
    (folder / "qrels" / "test.tsv").write_text("".join(lines))


def test_translations_of_a_right_answer_are_right(model, tmp_path) -> None:
    write_pool_of_translations(tmp_path, "en0\t1")
    assert read_beir(tmp_path).qrels["fr-q"] == {"en0": 1, "fr0": 1, "de0": 1}
    evaluator = RetrievalEvaluator.from_directory(tmp_path)
    evaluator.metrics = ("map_at_20",)
    scores = evaluator.evaluate(model).scores
    assert set(RetrievalEvaluator.from_directory(tmp_path, ["fr"]).evaluate(model).scores) == {"fr"}
    # The English text stands first, and its French translation second.
    assert [scores[code]["language_preference_rate"] for code in ("en", "fr")] == [1, 0]
    assert [scores[code]["map_at_20"] for code in ("en", "fr")] == [1, 1]
    assert scores["en"]["right_same_language"] == scores["fr"]["right_other_language"] == 1
    assert scores["en"]["language_ndcg_at_10"] == 1 > scores["fr"]["language_ndcg_at_10"]


def test_a_judgement_of_its_own_counts_and_the_original_need_not_be_there(tmp_path) -> None:
    write_pool_of_translations(tmp_path, "en0\t1\nfr0\t0\nde1\t2\nen1\t1")
    assert read_beir(tmp_path).qrels["en-q"] == {"en0": 1, "fr0": 0, "de0": 1, "en1": 1, "de1": 2, "fr1": 2}
    write_pool_of_translations(tmp_path, "en0\t1", translation_of="de0")  # a translation of a translation
    assert read_beir(tmp_path).qrels["en-q"] == {"en0": 1, "fr0": 1, "de0": 1}
    write_pool_of_translations(tmp_path, "fr0\t1", translation_of="book")
    lines = (tmp_path / "corpus.jsonl").read_text().replace('"translation_of": "en0"', '"translation_of": "book"')
    (tmp_path / "corpus.jsonl").write_text(lines)
    assert read_beir(tmp_path).qrels["en-q"] == {"fr0": 1, "de0": 1}


def test_evaluator_over_pools(model, tmp_path) -> None:
    loads = []

    def load():
        loads.append(1)
        return RetrievalData(collection(["taxi"], "de"), collection(["taxi"], "de", prefix="q"), {"q0": {"d0": 1}})

    evaluator = RetrievalEvaluator({"mixed": small(), "german": load}, name="mine", language_metrics=False)
    assert not loads
    metrics = evaluator(model, output_path=str(tmp_path))
    names = ("mrr_at_100", "recall_at_100", "mrr_at_10", "success_at_10")
    assert set(metrics) == {f"mine_average_{name}" for name in names}
    assert evaluator.primary_metric == "mine_average_mrr_at_100"
    header, row = (tmp_path / "mine_evaluation_results.csv").read_text().splitlines()
    assert "de_mrr_at_100" in header.split(",") and len(row.split(",")) == len(header.split(","))
    stored = model.model_card_data.eval_results_dict[evaluator]
    assert stored["mine_de_mrr_at_100"] == 1.0 and "mine_de_recall_at_100" not in stored
    result = evaluator.evaluate(model)
    assert result.protocol["corpus_size"] == "mixed 4, german 1"


def test_fewer_results_than_k_and_no_queries() -> None:
    assert mrr_at_k([[False, True]], [1], 100).tolist() == [0.5]
    assert recall_at_k(np.zeros((0, 5), dtype=bool), [], 3).tolist() == []
    assert success_at_k([[False, True], [False, False]], [3, 1], 2).tolist() == [1, 0]


LANGUAGES = ["en", "fr", "de"] * 4
RELEVANT = [np.array([0, 1, 2]), np.array([3, 4, 5]), np.array([6, 7, 8])]


def preference(*rows: list[int]) -> list[float]:
    return language_metrics(np.array(rows), RELEVANT, ["en", "fr", "en"], LANGUAGES)["language_preference"].tolist()


def test_preference_for_the_language_of_the_query() -> None:
    assert preference([2, 1, 0, 3], [5, 4, 3, 0], [6, 8, 7, 0]) == pytest.approx([0, 0, 0])  # a perfect ranking
    assert preference([0, 3, 6, 9], [0, 2, 3, 5], [0, 1, 4, 9]) == pytest.approx([2 / 3, -1 / 3, 0])
    alone = language_metrics(np.array([[0]]), [np.array([0])], ["sw"], ["en"])
    assert alone["language_preference"].tolist() == [0]


def test_metrics_by_language() -> None:
    ranking = np.array([[0, 1, 9], [9, 10, 5], [0, 1, 8]])
    found = language_metrics(ranking, RELEVANT, ["en", "fr", "en"], LANGUAGES)
    assert found["recall_at_10_same_language"].tolist() == [1, 0, 0]
    assert found["recall_at_10_other_languages"].tolist() == [0.5, 0.5, 0.5]
    assert found["language_preference_rate"].tolist() == [1, 0, 0]
    assert found["same_language_at_10"].tolist() == pytest.approx([2 / 3, 1 / 3, 1 / 3])
    ideal = 2 + 1 / np.log2(3) + 0.5
    np.testing.assert_allclose(found["language_ndcg_at_10"], np.array([2 + 1 / np.log2(3), 0.5, 0.5]) / ideal)
    split = [found[f"{what}_{which}_language"] for what in ("right", "wrong") for which in ("same", "other")]
    assert np.array(split).T.tolist() == [[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    alone = language_metrics(ranking, RELEVANT, ["sw", "fr", "en"], LANGUAGES)
    assert np.isnan([alone["recall_at_10_same_language"][0], alone["language_preference_rate"][0]]).all()


def test_ndcg_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import ndcg_score

    hits = np.random.default_rng(0).random((50, 12)) < 0.3
    hits[:, 0] |= ~hits.any(axis=1)
    ranks = np.tile(-np.arange(12.0), (50, 1))
    expected = [ndcg_score(row[None].astype(float), rank[None], k=7) for row, rank in zip(hits, ranks, strict=True)]
    np.testing.assert_allclose(ndcg_at_k(hits, hits.sum(axis=1), 7), expected)


CORPUS, QUERIES, DIMENSION = 700, 90, 24


@pytest.fixture(scope="module")
def found() -> tuple[RetrievalData, np.ndarray, np.ndarray]:
    """Graded judgements, one language without a hit at the top, queries with up to 130 relevant documents."""
    generator = np.random.default_rng(5)
    corpus = generator.normal(size=(CORPUS, DIMENSION)).astype(np.float32)
    queries = generator.normal(size=(QUERIES, DIMENSION)).astype(np.float32)
    qrels = {}
    for query in range(QUERIES):
        count = [1, 3, 25, 130][query % 4]
        near = np.argsort(-queries[query] @ corpus.T)[:60]
        drawn = generator.permutation(np.r_[near[: count // 3], generator.permutation(CORPUS)])
        grades = {f"d{row}": int(generator.integers(1, 4)) for row in dict.fromkeys(drawn.tolist())}
        qrels[f"q{query}"] = dict(list(grades.items())[:count]) | {f"d{near[0]}": 0}
        qrels[f"q{query}"].setdefault(f"d{near[30]}", 1)
    data = RetrievalData(
        collection(["text"] * CORPUS),
        collection(["text"] * QUERIES, ["fr", "de", "fr"] * (QUERIES // 3), prefix="q"),
        qrels,
    )
    scores, rows = top_k(torch.from_numpy(queries), torch.from_numpy(corpus), 100)
    return data, rows.numpy(), scores.numpy()


def pool_in(folder, corpus: list[str | None], queries: list[str | None], qrels: str = "q0\td0\t1\n"):
    """A pool whose texts have these labels."""
    for name, prefix, codes in (("corpus", "d", corpus), ("queries", "q", queries)):
        rows = [{"_id": f"{prefix}{row}", "text": WORDS[row], "language": code} for row, code in enumerate(codes)]
        lines = "".join(f"{json.dumps({k: v for k, v in row.items() if v is not None})}\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines)
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "qrels" / "test.tsv").write_text(qrels)
    return folder


def test_languages_of_a_pool_have_one_spelling(model, tmp_path) -> None:
    folder = pool_in(tmp_path, ["fra_Latn", "en", "EN "], ["fr"])
    scores = RetrievalEvaluator.from_directory(folder, ["FRA"]).evaluate(model).scores
    assert scores["fr"]["right_same_language"] == 1 and read_beir(folder).corpus.unique("language") == ["fr", "en"]
    with pytest.raises(ValueError, match=r"corpus\.jsonl, line 2: .*'tico19-8'"):
        read_beir(pool_in(tmp_path, ["en", "tico19-8"], ["en"]))


def test_a_pool_that_names_no_language_gets_one(model, tmp_path) -> None:
    folder = pool_in(tmp_path, [None, " "], [None])
    with pytest.raises(ValueError, match="--language"):
        read_beir(folder)
    assert set(RetrievalEvaluator.from_directory(folder, language="eng").evaluate(model).scores) == {"en"}


def test_judged_documents_that_are_missing_are_said_and_not_found(model, tmp_path, caplog) -> None:
    folder = pool_in(tmp_path, ["en", "fr"], ["en", "en"], "q0\td0\t1\nq0\td8\t1\nq1\td9\t1\n")
    scores = RetrievalEvaluator.from_directory(folder).evaluate(model).scores["en"]
    assert scores["recall_at_100"] == 0.25 and scores["mrr_at_100"] == 0.5 and scores["right_same_language"] == 1
    assert "2 judged documents are not in the corpus" in caplog.text


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("mrr_at_100", "recip_rank"),
        ("recall_at_100", "recall_100"),
        ("recall_at_20", "recall_20"),
        ("map_at_20", "map_cut_20"),
    ],
)
def test_scores_equal_pytrec_eval(found, ours: str, theirs: str) -> None:
    data, ranking, similarities = found
    if ours == "map_at_20":  # they divide by all relevant documents, and so do we where there are at most k
        few = {query: judged for query, judged in data.qrels.items() if sum(map(bool, judged.values())) <= 20}
        part = RetrievalData(data.corpus, data.queries, few)
        rows = [data.judged["id"][:].index(query) for query in part.judged["id"][:]]
        data, ranking, similarities = part, ranking[rows], similarities[rows]
    ids, asked = data.corpus["id"][:], zip(data.judged["id"][:], data.judged["language"][:], strict=True)
    run = {
        query: {ids[row]: float(score) for row, score in zip(rows, scores, strict=True)}
        for query, rows, scores in zip(data.judged["id"][:], ranking, similarities, strict=True)
    }
    measures = {"recip_rank", "recall.20,100", "map_cut.20"}
    expected = pytrec_eval.RelevanceEvaluator(data.qrels, measures).evaluate(run)
    by_language: dict[str, list[float]] = {}
    for query, language in asked:
        by_language.setdefault(language, []).append(expected[query][theirs])
    scores = score_ranking(ranking, data, [ours])
    assert len(expected) == len(data.judged) > 20
    assert {code: values[ours] for code, values in scores.items()} == pytest.approx(
        {code: float(np.mean(values)) for code, values in by_language.items()}, abs=1e-6
    )
