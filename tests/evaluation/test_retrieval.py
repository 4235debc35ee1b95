from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytrec_eval
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import BoW

from st_xlret.evaluation import (
    RetrievalData,
    RetrievalEvaluator,
    language_metrics,
    read_beir,
    score_ranking,
)
from st_xlret.evaluation.lareqa import average_precisions
from st_xlret.evaluation.pools import full_texts, texts_table
from st_xlret.modules.calibration_layer import CalibrationLayer
from tests.data.files import write_jsonl, write_text
from tests.evaluation.samples import write_beir

WORDS = ["query", "passage", "taxi", "hotel", "bread", "water"]


@pytest.fixture
def model() -> SentenceTransformer:
    return SentenceTransformer(modules=[BoW(vocab=WORDS)], device="cpu")


def collection(texts: list[str], languages: list[str], prefix: str = "d") -> Dataset:
    rows = enumerate(zip(texts, languages, strict=True))
    return texts_table((f"{prefix}{row}", "", text, code) for row, (text, code) in rows)


def small() -> RetrievalData:
    corpus = collection(["taxi", "hotel bread", "water", "bread"], ["en", "fr", "en", "fr"])
    queries = collection(
        ["bread", "hotel", "unjudged", "taxi water"], ["en", "fr", "en", "en"], prefix="q"
    )
    return RetrievalData(
        corpus, queries, {"q0": {"d3": 1, "d1": 2}, "q1": {"d1": 1}, "q3": {"d1": 1, "d0": 0}}
    )


def test_prompts_roles_and_the_calibration_of_each_rows_language(model) -> None:
    model.prompts = {"query": "query ", "passage": "passage "}
    plain, changed = (
        RetrievalEvaluator({}),
        RetrievalEvaluator({}, query_prompt="", document_prompt="water "),
    )
    roles: list[Any] = ["query", "document", None]
    of_roles = {
        plain: ["query taxi", "passage taxi", "taxi"],
        changed: ["taxi", "taxi water", "taxi"],
    }
    for evaluator, texts in of_roles.items():
        rows = [evaluator.embed_texts(model, ["taxi"], ["en"], role)[0].tolist() for role in roles]
        assert rows == [[float(word in text.split()) for word in WORDS] for text in texts]
    calibration = CalibrationLayer(6, ["en", "fr"])
    list(calibration.buffers())[1][1] += 100
    calibrated = RetrievalEvaluator({}, calibration=calibration, document_prompt="")
    rows = calibrated.embed_texts(model, ["taxi"] * 3, ["en", "fr", "en"], "document")
    assert (rows[1] - rows[0]).tolist() == [100.0] * 6 and rows[2].equal(rows[0])


def test_vectors_of_the_corpus_may_be_kept_on_disk(model, tmp_path) -> None:
    model.prompts, model.similarity_fn_name = {"query": "", "document": ""}, "dot"
    assert RetrievalEvaluator({}).protocol(model)["similarity"] == "dot"
    calibration = CalibrationLayer(6, ["en", "fr"])
    options = [
        {},
        {"similarity": "cosine"},
        {"calibration": calibration},
        {"document_prompt": "taxi "},
    ]
    for number, more in enumerate(options, start=1):
        expected = RetrievalEvaluator({"all": small()}, **more).evaluate(model).scores
        for _ in range(2):
            kept = RetrievalEvaluator({"all": small()}, keep_vectors=tmp_path, **more)
            assert kept.evaluate(model).scores == expected
        assert len(list(tmp_path.rglob("*.npy"))) == number


def test_average_precision_over_the_whole_ranking() -> None:
    generator, expected = np.random.default_rng(0), []
    scores = generator.integers(0, 9, size=(300, 40)).astype(np.float32)
    relevant = [
        np.sort(generator.choice(40, size=1 + query % 7, replace=False)) for query in range(300)
    ]
    for row, gold in zip(scores, relevant, strict=True):
        ranks = np.flatnonzero(np.isin(np.argsort(-row, kind="stable"), gold)) + 1
        expected.append(np.mean(np.arange(1, len(ranks) + 1) / ranks))
    precisions = average_precisions(torch.from_numpy(scores), torch.eye(40), relevant)
    np.testing.assert_allclose(precisions, expected)


def test_beir_layout(tmp_path) -> None:
    data = read_beir(write_beir(tmp_path, end=".gz")).select_languages(["fr"])
    assert len(data.corpus) == 6 and data.judged["id"][:] == ["fr-q1", "fr-q2"]
    assert full_texts(data.corpus)[0] == "Travel A taxi at night."
    assert data.qrels["fr-q2"] == {"en-00-0-1": 1, "fr-00-0-1": 1, "de-00-0-1": 1}


def pool_in(
    folder: Path, documents: list[Any], queries: list[Any], judged: str = "q0 d0 1"
) -> Path:
    """A pool of records with these languages, or with these fields, and judgements."""
    for name, prefix, records in (("corpus", "d", documents), ("queries", "q", queries)):
        fields = (
            record if isinstance(record, dict) else {"language": record} for record in records
        )
        rows = (
            {"_id": f"{prefix}{row}", "text": WORDS[row], **record}
            for row, record in enumerate(fields)
        )
        write_jsonl(folder / f"{name}.jsonl", rows)
    write_text(folder / "qrels" / "test.tsv", judged.replace(" ", "\t").replace(",\t", "\n") + "\n")
    return folder


@pytest.mark.parametrize(
    ("judged", "changed", "expected"),
    [
        ("q en0 1", {}, {"en0": 1, "fr0": 1, "de0": 1}),
        # A judgement of its own counts.
        (
            "q en0 1, q fr0 0, q de1 2, q en1 1",
            {},
            {"en0": 1, "fr0": 0, "de0": 1, "en1": 1, "de1": 2, "fr1": 2},
        ),
        (
            "q en0 1",
            {"fr0": "de0"},
            {"en0": 1, "fr0": 1, "de0": 1},
        ),  # a translation of a translation
        ("q de0 1", {"fr0": "gone"}, {"de0": 1, "en0": 1}),  # of what is not there
    ],
)
def test_judgements_hold_for_translations(tmp_path, judged, changed, expected) -> None:
    documents, originals = (
        [],
        {"en0": None, "en1": None, "fr0": "en0", "fr1": "en1", "de0": "en0", "de1": "en1"},
    )
    for name, original in {**originals, **changed}.items():
        about = {"translation_of": original}
        documents.append(
            {"_id": name, "language": "en", **({"metadata": about} if name == "de0" else about)}
        )
    folder = pool_in(tmp_path, documents, [{"_id": "q", "language": "en"}], judged)
    assert read_beir(folder).qrels["q"] == expected


def test_evaluator_over_pools(model, tmp_path) -> None:
    german = RetrievalData(
        collection(["taxi"], ["de"]), collection(["taxi"], ["de"], prefix="q"), {"q0": {"d0": 1}}
    )
    evaluator = RetrievalEvaluator(
        {"mixed": small(), "german": lambda: german}, name="mine", language_metrics=False
    )
    metrics = evaluator(model, output_path=str(tmp_path))
    names = ("mrr_at_100", "recall_at_100", "mrr_at_10", "success_at_10")
    assert set(metrics) == {f"mine_average_{name}" for name in names}
    assert evaluator.primary_metric == "mine_average_mrr_at_100"
    header, row = (tmp_path / "mine_evaluation_results.csv").read_text().splitlines()
    assert "de_mrr_at_100" in header.split(",") and len(row.split(",")) == len(header.split(","))
    stored = model.model_card_data.eval_results_dict[evaluator]
    assert stored["mine_de_mrr_at_100"] == 1.0 and "mine_de_recall_at_100" not in stored
    assert evaluator.evaluate(model).protocol["corpus_size"] == "mixed 4, german 1"


def test_metrics_by_language() -> None:
    def of(ranking: list[list[int]], *asked: str) -> dict[str, Any]:
        relevant = [np.array([0, 1, 2]), np.array([3, 4, 5]), np.array([6, 7, 8])]
        return language_metrics(
            np.array(ranking), relevant, asked, ["en", "fra_Latn", "de"] * 4
        )  # in any spelling

    ranking = [[0, 1, 9], [9, 10, 5], [0, 1, 8]]
    metrics = of(ranking, "en", "fr", "en")
    assert metrics["recall_at_10_same_language"].tolist() == [1, 0, 0]
    assert metrics["recall_at_10_other_languages"].tolist() == [0.5, 0.5, 0.5]
    assert metrics["language_preference_rate"].tolist() == [1, 0, 0]
    assert metrics["same_language_at_10"].tolist() == pytest.approx([2 / 3, 1 / 3, 1 / 3])
    ideal = 2 + 1 / np.log2(3) + 0.5
    np.testing.assert_allclose(
        metrics["language_ndcg_at_10"], np.array([2 + 1 / np.log2(3), 0.5, 0.5]) / ideal
    )
    first = [
        metrics[f"{what}_{which}_language"]
        for what in ("right", "wrong")
        for which in ("same", "other")
    ]
    assert np.array(first).T.tolist() == [[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    perfect, other = (
        [[2, 1, 0, 3], [5, 4, 3, 0], [6, 8, 7, 0]],
        [[0, 3, 6, 9], [0, 2, 3, 5], [0, 1, 4, 9]],
    )
    for rows, preference in ((perfect, [0, 0, 0]), (other, [2 / 3, -1 / 3, 0])):
        assert of(rows, "en", "fr", "en")["language_preference"].tolist() == pytest.approx(
            preference
        )
    alone = of(ranking, "sw", "fr", "en")
    assert np.isnan(
        [alone["recall_at_10_same_language"][0], alone["language_preference_rate"][0]]
    ).all()


def test_languages_of_a_pool_have_one_spelling(model, tmp_path) -> None:
    folder = pool_in(tmp_path, ["fra_Latn", "en", "EN "], ["fr"])
    scores = RetrievalEvaluator.from_directory(folder, ["FRA"]).evaluate(model).scores
    assert scores["fr"]["right_same_language"] == 1 and read_beir(folder).corpus.unique(
        "language"
    ) == ["fr", "en"]
    with pytest.raises(ValueError, match=r"corpus\.jsonl, line 2: .*'tico19-8'"):
        read_beir(pool_in(tmp_path, ["en", "tico19-8"], ["en"]))
    pool_in(tmp_path, [None, " "], [None])
    with pytest.raises(ValueError, match="--language"):
        read_beir(folder)
    assert set(
        RetrievalEvaluator.from_directory(folder, language="eng").evaluate(model).scores
    ) == {"en"}


def test_judged_documents_that_are_missing_are_said_and_not_found(model, tmp_path, caplog) -> None:
    folder = pool_in(tmp_path, ["en", "fr"], ["en", "en"], "q0 d0 1, q0 d8 1, q1 d9 1")
    scores = RetrievalEvaluator.from_directory(folder).evaluate(model).scores["en"]
    assert (
        scores["recall_at_100"] == 0.25
        and scores["mrr_at_100"] == 0.5
        and scores["right_same_language"] == 1
    )
    assert "2 judged documents are not in the corpus" in caplog.text
    for judged in ("q0 d8 1", "q0 d0 0"):
        with pytest.raises(ValueError, match="relevant"):
            read_beir(pool_in(tmp_path, ["en"], ["en"], judged))


@pytest.mark.parametrize(("most", "grades"), [(20, 1), (130, 3)])
def test_scores_equal_pytrec_eval(most: int, grades: int) -> None:
    """They divide map_cut by all relevant documents, and so do we where there are at most k; our nDCG has no grades."""
    generator = np.random.default_rng(5)
    ranking, qrels, run = generator.permuted(np.tile(np.arange(300), (30, 1)), axis=1), {}, {}
    for query, rows in enumerate(ranking):
        others = [1, 3, most - 1][query % 3]
        relevant = [rows[6], *generator.choice(rows[: 20 * others], others, replace=False)]
        grade_of = {f"d{row}": int(generator.integers(1, grades + 1)) for row in relevant}
        qrels[f"q{query}"] = {**grade_of, f"d{rows[0]}": 0}
        run[f"q{query}"] = {f"d{row}": -float(rank) for rank, row in enumerate(rows[:100])}
    names = {"mrr_at_100": "recip_rank", "recall_at_100": "recall_100", "success_at_5": "success_5"}
    names |= {"map_at_20": "map_cut_20", "ndcg_at_10": "ndcg_cut_10"} if most <= 20 else {}
    measured = pytrec_eval.RelevanceEvaluator(qrels, set(names.values())).evaluate(run)
    asked = collection(["text"] * 30, ["fr", "de"] * 15, prefix="q")
    data = RetrievalData(
        collection(["text"] * 300, ["en"] * 300), asked, dict(reversed(qrels.items()))
    )
    scores = score_ranking(ranking[:, :100], data, list(names))
    for code, first in (("fr", 0), ("de", 1)):
        means = {
            n: np.mean([measured[f"q{q}"][theirs] for q in range(first, 30, 2)])
            for n, theirs in names.items()
        }
        assert (
            scores[code] == pytest.approx(means, abs=1e-6)
            and 0.01 < scores[code]["success_at_5"] < 0.9
        )
