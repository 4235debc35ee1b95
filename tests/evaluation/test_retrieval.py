from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
import pytrec_eval
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import BoW

from st_xlret.evaluation import EmbeddingCache
from st_xlret.evaluation.embedding import TextEmbedder
from st_xlret.evaluation.retrieval import (
    RetrievalEvaluator,
    hits_of_ranking,
    language_metrics,
    language_preference,
    map_at_k,
    mean_average_precision,
    mrr_at_k,
    ndcg_at_k,
    parse_metric,
    recall_at_k,
    score_ranking,
    similarity_of,
)
from st_xlret.evaluation.retrieval_data import RetrievalData, TextCollection, read_beir
from st_xlret.modules.calibration_layer import CalibrationLayer
from st_xlret.search import top_k
from tests.evaluation.samples import write_beir

WORDS = ["query", "passage", "taxi", "hotel", "bread", "water"]


@pytest.fixture
def model() -> SentenceTransformer:
    return SentenceTransformer(modules=[BoW(vocab=WORDS)], device="cpu")


def collection(texts: list[str], languages="en", prefix: str = "d", **more) -> TextCollection:
    return TextCollection([f"{prefix}{row}" for row in range(len(texts))], texts, languages, **more)


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
    embedder, own = TextEmbedder(), TextEmbedder(query_prompt="", document_prompt="water ")
    assert embedder.embed(model, ["taxi"], "en", role="query").tolist() == [[1, 0, 1, 0, 0, 0]]
    assert embedder.embed(model, ["taxi"], "en", role="document").tolist() == [[0, 1, 1, 0, 0, 0]]
    assert own.embed(model, ["taxi"], "en", role="query").tolist() == [[0, 0, 1, 0, 0, 0]]
    assert own.embed(model, ["taxi"], "en", role="document").tolist() == [[0, 0, 1, 0, 0, 1]]
    assert embedder.embed(model, ["taxi"], "en").tolist() == [[0, 0, 1, 0, 0, 0]]


class Shift:
    languages = ("en", "fr")

    def transform(self, embeddings, language):
        return embeddings + (100.0 if language == "fr" else 0.0)


def test_calibration_follows_each_rows_language(model) -> None:
    calibrated = TextEmbedder(calibration=Shift())
    rows = calibrated.embed(model, ["taxi", "taxi"], ["en", "fr"], role="document")
    assert (rows[1] - rows[0]).tolist() == [100.0] * 6
    queries_apart = TextEmbedder(calibration=Shift(), query_calibration=CalibrationLayer(6, ["en", "fr"]))
    assert queries_apart.embed(model, ["taxi"], "fr", role="query").tolist() == [[0, 0, 1, 0, 0, 0]]
    assert queries_apart.embed(model, ["taxi"], "fr", role="document").equal(rows[1:])
    with pytest.raises(ValueError, match=r"no map for \['de'\]"):
        RetrievalEvaluator(
            {"all": RetrievalData(collection(["a"], "de"), collection(["b"], prefix="q"), {"q0": {"d0": 1}})},
            calibration=Shift(),
        )


def test_embeddings_of_the_corpus_may_be_kept_on_disk(model, tmp_path, monkeypatch) -> None:
    cache = EmbeddingCache(tmp_path, shard_size=3, show_progress_bar=False)
    for options in ({}, {"similarity": "dot"}, {"calibration": CalibrationLayer(6, ["en", "fr"])}):
        there = evaluate(model, small(), ["mrr_at_100", "map_at_20"], embed_corpus=cache, **options)
        assert there == evaluate(model, small(), ["mrr_at_100", "map_at_20"], **options)
    assert len(list(tmp_path.glob("*.npy"))) == 6
    evaluate(model, small(), ["mrr_at_100"], embed_corpus=cache)
    assert len(list(tmp_path.glob("*.npy"))) == 6


def test_nan_names_the_text(model) -> None:
    class Broken:
        languages = ()

        def transform(self, embeddings, language):
            return torch.where(embeddings[:, 3:4] > 0, torch.nan, embeddings)

    with pytest.raises(ValueError, match=r"NaN or infinite values for the query 'hotel' \(1 of 3"):
        evaluate(model, small(), ["mrr_at_100"], calibration=Broken())


def test_similarity(model) -> None:
    assert similarity_of(model) == "cosine"
    model.similarity_fn_name = "dot"
    assert similarity_of(model) == "dot" and similarity_of(model, "cosine") == "cosine"
    model.similarity_fn_name = "euclidean"
    with pytest.raises(ValueError, match="'euclidean'"):
        similarity_of(model)


def test_a_ranking_that_is_too_short_for_a_metric_is_refused(model) -> None:
    data = small()
    with pytest.raises(ValueError, match="recall_at_3 needs 3 results a query; the ranking has 2"):
        score_ranking(np.zeros((3, 2), dtype=np.int64), data, ["recall_at_3"])


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


def test_collections_are_checked() -> None:
    with pytest.raises(ValueError, match=r"differ in length: .*'texts': 1"):
        TextCollection(["a", "b"], ["one"], "en")
    with pytest.raises(ValueError, match="there are no texts"):
        TextCollection([], [], "en")
    corpus, queries = collection(["one"]), collection(["two"], prefix="q")
    with pytest.raises(ValueError, match="queries.jsonl: query 'q0' is empty"):
        RetrievalData(corpus, collection([" "], prefix="q", source="queries.jsonl"), {"q0": {"d0": 1}})
    with pytest.raises(ValueError, match="'a' .*1 and 3"):
        RetrievalData(TextCollection(["a", "b", "a"], ["x"] * 3, "en"), queries, {"q0": {"b": 1}})
    with pytest.raises(ValueError, match="no query has a relevant document"):
        RetrievalData(corpus, queries, {"q0": {"d0": 0}})
    for qrels, name in (({"x": {"d0": 1}}, "query 'x'"), ({"q0": {"x": 1}}, "document 'x'")):
        with pytest.raises(ValueError, match=f"{name} is not in"):
            RetrievalData(corpus, queries, qrels)


@pytest.mark.parametrize("compressed", [False, True])
def test_beir_layout(compressed, tmp_path) -> None:
    write_beir(tmp_path)
    if compressed:
        for file in list(tmp_path.rglob("*.*")):
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
    data = read_beir(tmp_path).of_languages("fr")
    assert len(data.corpus) == 6 and data.judged.ids == ["fr-q1", "fr-q2"]
    assert data.corpus.full_texts(slice(1)) == ["Travel A taxi at night."]
    assert data.qrels["fr-q2"] == {"en-00-0-1": 1, "fr-00-0-1": 1, "de-00-0-1": 1}


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("corpus.jsonl", "en-00-0-1", "en-00-0-0", "corpus.jsonl, line 2: .*'en-00-0-0' .*line 1"),
        ("corpus.jsonl", '"text": "A taxi', '"text": 3, "x": "A taxi', "corpus.jsonl, line 1: .*'text'"),
        ("queries.jsonl", '"language": "fr"', '"x": 1', "queries.jsonl, line 3: .*no language"),
        ("queries.jsonl", "Who took the taxi", "", "query 'en-q1' is empty"),
        (
            "qrels/test.tsv",
            "fr-00-0-0\t1\n",
            "fr-9\t1\n",
            r"qrels/test.tsv, line \d+: document 'fr-9' is not in .*corp",
        ),
        ("qrels/test.tsv", "en-q2\ten", "xx-q2\ten", r"test.tsv, line \d+: query 'xx-q2' is not in .*queries.jsonl"),
        ("qrels/test.tsv", "fr-00-0-0\t1", "fr-00-0-0\tyes", "line 3: .*'yes'"),
        ("qrels/test.tsv", "en-q1\tfr-00-0-0\t1", "en-q1", "line 3: .*'en-q1'"),
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
    write_pool_of_translations(tmp_path, "fr0\t1", translation_of="book")
    lines = (tmp_path / "corpus.jsonl").read_text().replace('"translation_of": "en0"', '"translation_of": "book"')
    (tmp_path / "corpus.jsonl").write_text(lines)
    assert read_beir(tmp_path).qrels["en-q"] == {"fr0": 1, "de0": 1}


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("de0", r"corpus.jsonl, line 3: it is a translation of 'de0', which is one of 'en0': name the latter"),
        (["en0"], r"corpus.jsonl, line 3: 'translation_of' must be the id of a document"),
    ],
)
def test_what_a_translation_is_of_must_be_an_original(tmp_path, named, message) -> None:
    write_pool_of_translations(tmp_path, "en0\t1", translation_of=named)
    with pytest.raises(ValueError, match=message):
        read_beir(tmp_path)


def test_evaluator_over_pools(model, tmp_path) -> None:
    loads = []

    def load():
        loads.append(1)
        return RetrievalData(collection(["taxi"], "de"), collection(["taxi"], "de", prefix="q"), {"q0": {"d0": 1}})

    evaluator = RetrievalEvaluator({"mixed": small(), "german": load}, name="mine", language_metrics=False)
    assert not loads
    metrics = evaluator(model, output_path=str(tmp_path))
    assert set(metrics) == {"mine_average_mrr_at_100", "mine_average_recall_at_100"}
    assert evaluator.primary_metric == "mine_average_mrr_at_100"
    header, row = (tmp_path / "mine_evaluation_results.csv").read_text().splitlines()
    assert "de_mrr_at_100" in header.split(",") and len(row.split(",")) == len(header.split(","))
    stored = model.model_card_data.eval_results_dict[evaluator]
    assert stored["mine_de_mrr_at_100"] == 1.0 and "mine_de_recall_at_100" not in stored
    result = evaluator.evaluate(model)
    assert result.protocol["corpus_size"] == "mixed 4, german 1" and result.protocol["queries"] == "4"
    with pytest.raises(ValueError, match=r"pool 'again' has queries in \['en', 'fr'\], as another"):
        RetrievalEvaluator({"mixed": small(), "again": small()}).evaluate(model)
    with pytest.raises(ValueError, match="no pools"):
        RetrievalEvaluator({})


def test_fewer_results_than_k_and_no_queries() -> None:
    assert mrr_at_k([[False, True]], [1], 100).tolist() == [0.5]
    assert recall_at_k(np.zeros((0, 5), dtype=bool), [], 3).tolist() == []
    assert hits_of_ranking(np.zeros((0, 5)), [], 10).shape == (0, 5)
    for metric in (mrr_at_k, recall_at_k, map_at_k):
        assert metric(np.zeros((2, 0), dtype=bool), [1, 1], 3).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("hits", "counts", "k", "message"),
    [
        ([[True]], [1], 0, "k must be at least 1, got 0"),
        ([[True]], [1, 1], 3, r"got \(1, 1\), \(2,\)"),
        ([True], [1], 3, r"got \(1,\)"),
        ([[False], [False]], [1, 0], 3, "query row 1 has 0 hits and 0 relevant"),
        ([[True, True]], [1], 3, "query row 0 has 2 hits and 1 relevant"),
    ],
)
@pytest.mark.parametrize("metric", [mrr_at_k, recall_at_k, map_at_k])
def test_bad_input_is_named(metric, hits, counts, k, message) -> None:
    with pytest.raises(ValueError, match=message):
        metric(hits, counts, k)


@pytest.mark.parametrize("name", ["mrr", "f1_at_10", "mrr_at_0", "map_at_-1", "recall_at_2kt"])
def test_unknown_metrics(name) -> None:
    with pytest.raises(ValueError, match="unknown metric"):
        parse_metric(name)


LANGUAGES = ["en", "fr", "de"] * 4
RELEVANT = [np.array([0, 1, 2]), np.array([3, 4, 5]), np.array([6, 7, 8])]


def preference(*rows: list[int], k: int = 20) -> list[float]:
    return language_preference(np.array(rows), RELEVANT, ["en", "fr", "en"], LANGUAGES, k=k).tolist()


def test_preference_for_the_language_of_the_query() -> None:
    assert preference([2, 1, 0, 3], [5, 4, 3, 0], [6, 8, 7, 0]) == pytest.approx([0, 0, 0])  # a perfect ranking
    assert preference([0, 3, 6, 9], [0, 2, 3, 5], [0, 1, 4, 9]) == pytest.approx([2 / 3, -1 / 3, 0])
    assert preference([0, 1, 2], [1, 0, 2], [1, 0, 2], k=1) == pytest.approx([2 / 3, 2 / 3, -1 / 3])
    assert language_preference(np.array([[0]]), [np.array([0])], ["sw"], ["en"]).tolist() == [0]


def test_metrics_by_language() -> None:
    ranking = np.array([[0, 1, 9], [9, 10, 5], [0, 1, 8]])
    found = language_metrics(ranking, RELEVANT, ["en", "fr", "en"], LANGUAGES)
    assert found["recall_at_10_same_language"].tolist() == [1, 0, 0]
    assert found["recall_at_10_other_languages"].tolist() == [0.5, 0.5, 0.5]
    assert found["language_preference_rate"].tolist() == [1, 0, 0]
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
        TextCollection([f"d{row}" for row in range(CORPUS)], ["text"] * CORPUS, "en"),
        TextCollection([f"q{row}" for row in range(QUERIES)], ["text"] * QUERIES, ["fr", "de", "fr"] * (QUERIES // 3)),
        qrels,
    )
    scores, rows = top_k(torch.from_numpy(queries), torch.from_numpy(corpus), 100)
    return data, rows.numpy(), scores.numpy()


def as_run(data: RetrievalData, ranking: np.ndarray, similarities: np.ndarray) -> dict[str, dict[str, float]]:
    return {
        query: {data.corpus.ids[row]: float(score) for row, score in zip(rows, scores, strict=True)}
        for query, rows, scores in zip(data.judged.ids, ranking, similarities, strict=True)
    }


def per_language(data: RetrievalData, values: dict[str, float]) -> dict[str, float]:
    languages = dict(zip(data.judged.ids, data.judged.languages, strict=True))
    return {
        language: float(np.mean([value for query, value in values.items() if languages[query] == language]))
        for language in set(languages.values())
    }


def test_mrr_and_recall_equal_pytrec_eval(found) -> None:
    data, ranking, similarities = found
    scores = score_ranking(ranking, data, ["mrr_at_100", "recall_at_100", "recall_at_20"])
    measures = {"recip_rank", "recall.20,100"}
    theirs = pytrec_eval.RelevanceEvaluator(data.qrels, measures).evaluate(as_run(data, ranking, similarities))
    assert len(theirs) == QUERIES
    for ours, name in (("mrr_at_100", "recip_rank"), ("recall_at_100", "recall_100"), ("recall_at_20", "recall_20")):
        expected = per_language(data, {query: values[name] for query, values in theirs.items()})
        for language, value in expected.items():
            assert scores[language][ours] == pytest.approx(value, abs=1e-6)


def test_map_equals_pytrec_eval_where_no_query_has_more_than_k_relevant(found) -> None:
    data, ranking, similarities = found
    few = {query: judged for query, judged in data.qrels.items() if sum(map(bool, judged.values())) <= 20}
    part = RetrievalData(data.corpus, data.queries, few)
    rows = [data.judged.ids.index(query) for query in part.judged.ids]
    chosen = ranking[rows]
    theirs = pytrec_eval.RelevanceEvaluator(few, {"map_cut.20"}).evaluate(as_run(part, chosen, similarities[rows]))
    expected = per_language(part, {query: values["map_cut_20"] for query, values in theirs.items()})
    ours = score_ranking(chosen, part, ["map_at_20"])
    assert 0 < len(part.judged) < QUERIES
    for language, value in expected.items():
        assert ours[language]["map_at_20"] == pytest.approx(value, abs=1e-6)
