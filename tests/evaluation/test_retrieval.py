"""The evaluator of pools: prompts, maps, kept vectors, and what it returns."""

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import BoW

from st_xlret.columns import Role
from st_xlret.evaluation import RetrievalData, RetrievalEvaluator, texts_table
from st_xlret.modules.calibration_layer import CalibrationLayer

WORDS = ["query", "passage", "taxi", "hotel", "bread", "water"]


@pytest.fixture
def model() -> SentenceTransformer:
    return SentenceTransformer(modules=[BoW(vocab=WORDS)], device="cpu")


def table(prefix: str, rows: list[tuple[str, str]]) -> Dataset:
    """Rows of a text and its language."""
    return texts_table(
        [(f"{prefix}{row}", "", text, code) for row, (text, code) in enumerate(rows)]
    )


def small_pool() -> RetrievalData:
    documents = [("taxi", "en"), ("hotel bread", "fr"), ("water", "en"), ("bread", "fr")]
    questions = [("bread", "en"), ("hotel", "fr"), ("unjudged", "en"), ("taxi water", "en")]
    qrels = {"q0": {"d3": 1, "d1": 2}, "q1": {"d1": 1}, "q3": {"d1": 1, "d0": 0}}
    return RetrievalData(table("d", documents), table("q", questions), qrels)


def german_pool() -> RetrievalData:
    return RetrievalData(
        table("d", [("taxi", "de")]), table("q", [("taxi", "de")]), {"q0": {"d0": 1}}
    )


@pytest.mark.parametrize(
    ("role", "of_model", "of_evaluator"),
    [
        ("query", "query taxi", "taxi"),
        ("document", "passage taxi", "taxi water"),
        (None, "taxi", "taxi"),
    ],
)
def test_prompts_are_those_of_the_model_or_of_the_evaluator(
    model: SentenceTransformer, role: Role | None, of_model: str, of_evaluator: str
) -> None:
    model.prompts = {"query": "query ", "passage": "passage "}
    plain = RetrievalEvaluator({})
    changed = RetrievalEvaluator({}, query_prompt="", document_prompt="water ")
    for evaluator, text in ((plain, of_model), (changed, of_evaluator)):
        [vector] = evaluator.embed_texts(model, ["taxi"], ["en"], role).tolist()
        assert vector == [float(word in text.split()) for word in WORDS]


def test_each_text_takes_the_map_of_its_language(model: SentenceTransformer) -> None:
    calibration = CalibrationLayer(6, ["en", "fr"])
    calibration.offset[1] += 100
    evaluator = RetrievalEvaluator({}, calibration=calibration, document_prompt="")
    english, french, again = evaluator.embed_texts(
        model, ["taxi"] * 3, ["en", "fr", "en"], "document"
    )
    assert (french - english).tolist() == [100.0] * 6
    assert again.equal(english)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"similarity": "cosine"},
    {"calibration": CalibrationLayer(6, ["en", "fr"])},
    {"document_prompt": "taxi "},
]


def test_vectors_of_the_corpus_may_be_kept_on_disk(
    model: SentenceTransformer, tmp_path: Path
) -> None:
    model.prompts = {"query": "", "document": ""}
    model.similarity_fn_name = "dot"
    for number, options in enumerate(OPTIONS, start=1):
        expected = RetrievalEvaluator({"all": small_pool()}, **options).evaluate(model).scores
        for _ in range(2):
            kept = RetrievalEvaluator({"all": small_pool()}, keep_vectors=tmp_path, **options)
            assert kept.evaluate(model).scores == expected
        # One folder for each way to embed.
        assert len(list(tmp_path.rglob("*.npy"))) == number


def test_other_words_in_the_protocol_leave_kept_vectors_as_they_are(
    model: SentenceTransformer, tmp_path: Path
) -> None:
    model.similarity_fn_name = "dot"
    for notes in ({}, {"task": "the same in other words"}):
        pool = {"all": small_pool()}
        RetrievalEvaluator(pool, keep_vectors=tmp_path, notes=notes).evaluate(model)
    assert len(list(tmp_path.rglob("*.npy"))) == 1


def test_the_similarity_is_the_models(model: SentenceTransformer) -> None:
    model.similarity_fn_name = "dot"
    assert RetrievalEvaluator({}).protocol(model)["similarity"] == "dot"
    cosine = RetrievalEvaluator({}, similarity="cosine")
    assert cosine.protocol(model)["similarity"] == "cosine"


def test_a_similarity_that_no_search_has_is_named(model: SentenceTransformer) -> None:
    model.similarity_fn_name = "euclidean"
    with pytest.raises(ValueError, match="'euclidean'.*--similarity"):
        RetrievalEvaluator({"all": small_pool()}).evaluate(model)
    evaluator = RetrievalEvaluator({"all": small_pool()}, similarity="dot")
    assert evaluator.evaluate(model).average["mrr_at_100"] > 0


def test_averages_are_returned_and_all_metrics_are_in_the_file(
    model: SentenceTransformer, tmp_path: Path
) -> None:
    pools = {"mixed": small_pool(), "german": german_pool}
    evaluator = RetrievalEvaluator(pools, name="mine", language_metrics=False)
    metrics = evaluator(model, output_path=str(tmp_path))
    names = ("mrr_at_100", "recall_at_100", "mrr_at_10", "recall_at_10", "success_at_10")
    assert set(metrics) == {f"mine_average_{name}" for name in names}
    assert evaluator.primary_metric == "mine_average_mrr_at_100"
    header, row = (tmp_path / "mine_evaluation_results.csv").read_text().splitlines()
    assert "de_mrr_at_100" in header.split(",")
    assert len(row.split(",")) == len(header.split(","))


def test_the_card_has_the_primary_metric_of_each_language(model: SentenceTransformer) -> None:
    evaluator = RetrievalEvaluator({"german": german_pool}, name="mine")
    evaluator(model)
    stored = model.model_card_data.eval_results_dict[evaluator]
    assert stored["mine_de_mrr_at_100"] == 1.0
    assert "mine_de_recall_at_100" not in stored


def test_the_protocol_has_the_sizes_of_the_pools(model: SentenceTransformer) -> None:
    evaluator = RetrievalEvaluator({"mixed": small_pool(), "german": german_pool})
    assert evaluator.evaluate(model).protocol["corpus_size"] == "mixed 4, german 1"


def test_two_pools_with_queries_in_one_language_are_refused(model: SentenceTransformer) -> None:
    evaluator = RetrievalEvaluator({"one": german_pool, "other": german_pool})
    with pytest.raises(ValueError, match="'other'.* in de"):
        evaluator.evaluate(model)


def test_the_first_metric_of_a_class_is_primary() -> None:
    class Other(RetrievalEvaluator):
        metrics = ("ndcg_at_10", "mrr_at_10")

    class Named(Other):
        metrics = ("success_at_5", "map_at_20")
        primary = "map_at_20"

    assert Other({}).primary == "ndcg_at_10"
    assert Named({}).primary == "map_at_20"
    assert RetrievalEvaluator({}).primary == "mrr_at_100"


class EvaluatorOfTen(RetrievalEvaluator):
    """Its own metrics read ten results, those by language up to twenty."""

    metrics = ("mrr_at_10",)


def test_metrics_by_language_read_as_many_results_as_they_say(model: SentenceTransformer) -> None:
    documents = [("taxi", "en")] * 10 + [("taxi", "fr")] * 6
    qrels = {"q0": {f"d{row}": 1 for row in range(16)}}
    pool = RetrievalData(table("d", documents), table("q", [("taxi", "en")]), qrels)
    scores = EvaluatorOfTen({"all": pool}).evaluate(model).average
    assert scores["language_preference"] == 0
