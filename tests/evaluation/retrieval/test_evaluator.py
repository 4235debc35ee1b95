from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import BoW

from st_xlret.data.retrieval.beir import read_qrels
from st_xlret.evaluation.encoding.embedding import TextEmbedder
from st_xlret.evaluation.retrieval.data import RetrievalData, TextCollection, read_beir
from st_xlret.evaluation.retrieval.evaluator import RetrievalEvaluator
from st_xlret.evaluation.retrieval.ranking import (
    encode_rows,
    evaluate_retrieval,
    retrieve,
    score_ranking,
    similarity_of,
)
from st_xlret.hub.export import export
from st_xlret.modules.calibration_layer import CalibrationLayer
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


def test_scores_are_means_per_query_language(model) -> None:
    scores = evaluate_retrieval(model, small(), metrics=["mrr_at_100", "recall_at_1", "map_at_20"])
    assert scores["fr"] == {"mrr_at_100": 1.0, "recall_at_1": 1.0, "map_at_20": 1.0}
    # q0 finds both; q3's only relevant document shares no word with it and stands third.
    assert scores["en"]["recall_at_1"] == pytest.approx((0.5 + 0) / 2)
    assert scores["en"]["mrr_at_100"] == pytest.approx((1 + 1 / 3) / 2)


def test_queries_without_a_relevant_document_are_left_out() -> None:
    data = small()
    assert data.judged.ids == ["q0", "q1", "q3"]
    assert [rows.tolist() for rows in data.relevant] == [[1, 3], [1], [1]]


def test_ties_go_to_the_lower_row(model) -> None:
    corpus = collection(["taxi", "taxi", "taxi"])
    assert retrieve(model, collection(["taxi"], prefix="q"), corpus, k=9).rows.tolist() == [[0, 1, 2]]


def test_prompts_and_sides(model) -> None:
    model.prompts = {"query": "query ", "passage": "passage "}
    embedder = TextEmbedder()
    query = encode_rows(model, embedder, ["taxi"], "en", side="query", similarity="dot")
    document = encode_rows(model, embedder, ["taxi"], "en", side="document", similarity="dot")
    assert query.tolist() == [[1, 0, 1, 0, 0, 0]] and document.tolist() == [[0, 1, 1, 0, 0, 0]]
    own = TextEmbedder(query_prompt="", document_prompt="water ")
    assert encode_rows(model, own, ["taxi"], "en", side="query", similarity="dot").tolist() == [[0, 0, 1, 0, 0, 0]]
    assert encode_rows(model, own, ["taxi"], "en", side="document", similarity="dot")[0, 5] == 1
    assert torch.equal(embedder.embed(model, ["taxi"], "en"), torch.tensor([[0.0, 0, 1, 0, 0, 0]]))


def test_sides_are_the_hosts_own(model, monkeypatch) -> None:
    model.prompts = {"query": "query ", "document": "passage "}
    embedder = TextEmbedder()
    for side, host in (("query", model.encode_query), ("document", model.encode_document)):
        ours = embedder.embed(model, ["taxi", "hotel"], "en", side=side)
        assert torch.equal(ours, host(["taxi", "hotel"], convert_to_tensor=True).float())


def test_language_is_the_task_of_a_calibrated_model(model, monkeypatch) -> None:
    tasks = []
    model = export(model, CalibrationLayer(len(WORDS), ["en", "fr"]))
    encode = model.encode

    def record(texts, **options):
        tasks.append((options.get("task"), sorted(texts)))
        return encode(texts, **options)

    monkeypatch.setattr(model, "encode", record)
    evaluate_retrieval(model, small(), metrics=["mrr_at_100"])
    assert tasks == [
        ("en", ["bread", "taxi water"]),
        ("fr", ["hotel"]),
        ("en", ["taxi", "water"]),
        ("fr", ["bread", "hotel bread"]),
    ]


class Shift:
    languages = ("en", "fr")

    def transform(self, embeddings, language):
        return embeddings + (100.0 if language == "fr" else 0.0)


def test_calibration_follows_each_rows_language(model) -> None:
    rows = encode_rows(
        model, TextEmbedder(calibration=Shift()), ["taxi", "taxi"], ["en", "fr"], side="document", similarity="dot"
    )
    assert (rows[1] - rows[0]).tolist() == [100.0] * 6
    with pytest.raises(ValueError, match=r"no map for \['de'\]"):
        RetrievalEvaluator(
            {"all": RetrievalData(collection(["a"], "de"), collection(["b"], prefix="q"), {"q0": {"d0": 1}})},
            calibration=Shift(),
        )


def test_corpus_embeddings_may_come_from_elsewhere(model, tmp_path) -> None:
    file = tmp_path / "corpus.npy"

    def memory_mapped(corpus, encode):
        np.save(file, encode(corpus.full_texts(slice(0, 4)), corpus.languages_of(slice(0, 4))).numpy())
        return np.load(file, mmap_mode="r")

    metrics = ["mrr_at_100", "map_at_20"]
    there = evaluate_retrieval(model, small(), metrics=metrics, embed_corpus=memory_mapped)
    assert there == evaluate_retrieval(model, small(), metrics=metrics)
    with pytest.raises(ValueError, match="4 documents, but 2 embeddings"):
        evaluate_retrieval(model, small(), embed_corpus=lambda corpus, encode: np.zeros((2, 6), dtype=np.float32))


def test_nan_names_the_text(model) -> None:
    class Broken:
        languages = ()

        def transform(self, embeddings, language):
            return torch.where(embeddings[:, 3:4] > 0, torch.nan, embeddings)

    with pytest.raises(ValueError, match=r"NaN or infinite values for the fr document 'hotel bread' \(1 of 4"):
        retrieve(
            model, collection(["taxi"], prefix="q"), small().corpus, k=1, embedder=TextEmbedder(calibration=Broken())
        )


def test_similarity(model) -> None:
    assert similarity_of(model) == "cosine"
    model.similarity_fn_name = "dot"
    assert similarity_of(model) == "dot" and similarity_of(model, "cosine") == "cosine"
    model.similarity_fn_name = "euclidean"
    with pytest.raises(ValueError, match="'euclidean'"):
        similarity_of(model)


def test_a_ranking_that_is_too_short_for_a_metric_is_refused(model) -> None:
    data = small()
    ranking = retrieve(model, data.judged, data.corpus, k=2)
    with pytest.raises(ValueError, match="recall_at_3 needs 3 results a query; the ranking has 2"):
        score_ranking(ranking, data, ["recall_at_3"])


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
    data = read_beir(tmp_path, languages=["fr"])
    assert len(data.corpus) == 6 and data.judged.ids == ["fr-q1", "fr-q2"]
    assert data.corpus.full_texts([0]) == ["Travel A taxi at night."]
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


def test_qrels_of_trec_and_contradictions(tmp_path) -> None:
    file = tmp_path / "qrels.txt"
    file.write_text("q1 0 d1 1\nq1\t0\td2\t0\n")
    assert read_qrels(file) == {"q1": {"d1": 1, "d2": 0}}
    file.write_text("q1 0 d1 1\nq1 0 d1 0\n")
    with pytest.raises(ValueError, match="line 2: query 'q1' and document 'd1' are judged 0, and 1 above"):
        read_qrels(file)


def test_a_language_for_all(tmp_path) -> None:
    (tmp_path / "qrels").mkdir()
    for name in ("corpus", "queries"):
        (tmp_path / f"{name}.jsonl").write_text('{"_id": 7, "text": "one"}\n')
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n7\t7\t1\n")
    data = read_beir(tmp_path, language="sw")
    assert (data.queries.ids, data.queries.language_of(0), data.corpus.language_of(0)) == (["7"], "sw", "sw")


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
    result = evaluator.evaluate(model)
    assert result.protocol["corpus_size"] == "mixed 4, german 1" and result.protocol["queries"] == "4"
    with pytest.raises(ValueError, match=r"pool 'again' has queries in \['en', 'fr'\], as another"):
        RetrievalEvaluator({"mixed": small(), "again": small()}).evaluate(model)
    with pytest.raises(ValueError, match="no pools"):
        RetrievalEvaluator({})
