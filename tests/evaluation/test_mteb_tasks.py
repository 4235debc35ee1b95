from __future__ import annotations

import json
from pathlib import Path

import mteb
import pytest
from datasets import Dataset
from mteb.abstasks import AbsTaskBitextMining, AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

from st_xlret.evaluation.bucc import BUCCEvaluator
from st_xlret.evaluation.lareqa import read_lareqa
from st_xlret.evaluation.mteb_tasks import mteb_task
from st_xlret.evaluation.retrieval import RetrievalEvaluator
from st_xlret.evaluation.tatoeba import TatoebaEvaluator
from st_xlret.hub.export import export
from st_xlret.modules import CalibrationLayer
from tests.evaluation.samples import write_beir, write_bucc, write_lareqa


def evaluate(model, task) -> dict[str, dict[str, float]]:
    """Subset to scores, by mteb's own front door."""
    result = mteb.evaluate(model, task, cache=None, co2_tracker=False, show_progress_bar=False, public_only=None)
    assert not result.exceptions
    [task_result] = result.task_results
    [rows] = task_result.scores.values()
    return {row["hf_subset"]: row for row in rows}


def metadata_of(name: str, kind: str, languages: dict[str, list[str]], main_score: str) -> TaskMetadata:
    """Of a task of mteb's own."""
    return TaskMetadata(
        name=name,
        description="For comparison.",
        dataset={"path": "local", "revision": "local"},
        type=kind,
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=languages,
        main_score=main_score,
        is_public=True,
    )


class PlainRetrieval(AbsTaskRetrieval):
    """mteb's own retrieval task, untouched, over the same data."""

    languages = {"en": ["eng-Latn"], "fr": ["fra-Latn"], "de": ["deu-Latn"]}
    metadata = metadata_of("PlainRetrieval", "Retrieval", languages, "ndcg_at_10")

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def load_data(self, *arguments, **options) -> None:
        data = read_lareqa(self.folder)
        self.dataset = {}
        for language in ("en", "fr", "de"):
            part = data.of_languages([language])
            self.dataset[language] = {
                "test": {
                    "corpus": Dataset.from_dict(
                        {"id": part.corpus["id"][:], "text": part.corpus["text"][:], "title": [""] * len(part.corpus)}
                    ),
                    "queries": part.queries.select_columns(["id", "text"]),
                    "relevant_docs": {query: dict(found) for query, found in part.qrels.items()},
                    "top_ranked": None,
                }
            }
        self.data_loaded = True


@pytest.mark.parametrize("write", [write_lareqa, write_beir])
def test_lareqa_has_mtebs_numbers_and_ours(write, static_model, tmp_path) -> None:
    folder = write(tmp_path)
    ours = evaluate(static_model, mteb_task("lareqa", folder))
    mtebs = evaluate(static_model, PlainRetrieval(folder))
    assert set(ours) == {"en", "de"}  # the benchmark has no French questions
    evaluator = RetrievalEvaluator({"all": read_lareqa(folder)})
    evaluator.metrics = ("map_at_20", "mrr_at_100", "recall_at_100")
    result = evaluator.evaluate(static_model)
    for language, scores in ours.items():
        for metric in ("map_at_20", "mrr_at_100", "recall_at_100", "recall_at_10"):
            assert scores[metric] == pytest.approx(mtebs[language][metric], abs=1e-5)
        assert scores["main_score"] == scores["map_at_20"] == pytest.approx(result.scores[language]["map_at_20"])


@pytest.mark.filterwarnings("ignore:tokens are counted")
def test_xor_retrieve_scores_answers(static_model, tmp_path) -> None:
    questions = [
        {"id": "a", "question": "taxi", "lang": "fi", "answers": ["Helsinki"], "split": "dev"},
        {"id": "b", "question": "hotel", "lang": "fi", "answers": ["Oslo"], "split": "dev"},
        {"id": "c", "question": "bread", "lang": "ko", "answers": ["1905"], "split": "dev"},
    ]
    (tmp_path / "xor_dev_retrieve_eng_span_v1_1.jsonl").write_text(
        "".join(f"{json.dumps(question)}\n" for question in questions)
    )
    (tmp_path / "psgs_w100.tsv").write_text("id\ttext\ttitle\n1\ttaxi in Helsinki\tA\n2\tbread since 1905\tB\n")
    task = mteb_task("xor-retrieve", tmp_path, cache_dir=tmp_path / "cache")
    scores = evaluate(static_model, task)
    assert {language: row["recall_at_5kt"] for language, row in scores.items()} == {"fi": 0.5, "ko": 1.0}
    assert scores["fi"]["main_score"] == 0.5


class PlainTatoeba(AbsTaskBitextMining):
    """mteb's own bitext task, untouched, over the same pairs."""

    languages = {"fra-eng": ["fra-Latn", "eng-Latn"], "deu-eng": ["deu-Latn", "eng-Latn"]}
    metadata = metadata_of("PlainTatoeba", "BitextMining", languages, "f1")

    def __init__(self, sentences) -> None:
        super().__init__()
        self.sentences = sentences

    def load_data(self, *arguments, **options) -> None:
        names = {"fr": "fra-eng", "de": "deu-eng"}
        self.dataset = {
            names[language]: {"test": Dataset.from_dict({"sentence1": texts, "sentence2": english})}
            for language, (texts, english) in self.sentences.items()
        }
        self.data_loaded = True


def test_tatoeba_has_mtebs_numbers_and_ours(static_model, tatoeba_folder) -> None:
    evaluator = TatoebaEvaluator.from_directory(tatoeba_folder)
    scores = evaluate(static_model, mteb_task("tatoeba", tatoeba_folder))
    mtebs = evaluate(static_model, PlainTatoeba(evaluator.sentences))
    assert set(scores) == {"fra-eng", "deu-eng"}
    expected = TatoebaEvaluator.from_directory(tatoeba_folder, mteb_f1=True).evaluate(static_model).scores
    for subset, language in (("fra-eng", "fr"), ("deu-eng", "de")):
        assert scores[subset]["f1_to_en"] == pytest.approx(mtebs[subset]["f1"], abs=1e-6)
        assert scores[subset]["accuracy_to_en"] == pytest.approx(mtebs[subset]["accuracy"])
        assert {name: scores[subset][name] for name in expected[language]} == pytest.approx(expected[language])
        assert scores[subset]["main_score"] == expected[language]["accuracy"]
    assert list(evaluate(static_model, mteb_task("tatoeba", tatoeba_folder, ["de"]))) == ["deu-eng"]


def test_bucc_has_our_evaluators_numbers(static_model, tmp_path) -> None:
    scores = evaluate(static_model, mteb_task("bucc", write_bucc(tmp_path), ["de"]))
    expected = BUCCEvaluator.from_directory(tmp_path, ["de"]).evaluate(static_model).scores["de"]
    assert {metric: scores["de-en"][metric] for metric in expected} == pytest.approx(expected)
    assert scores["de-en"]["main_score"] == pytest.approx(expected["f1"])
    (tmp_path / "de-en.test.gold").unlink()
    with pytest.raises(KeyError, match="de"):
        evaluate(static_model, mteb_task("bucc", tmp_path, ["de"]))
    training = evaluate(static_model, mteb_task("bucc", tmp_path, ["de"], split="training"))
    assert training["de-en"]["f1"] == pytest.approx(expected["f1"])


def test_unknown_languages_are_named(tmp_path) -> None:
    with pytest.raises(ValueError, match="XLRetLAReQA .*'sw'"):
        mteb_task("lareqa", tmp_path, ["sw"])


def test_models_with_a_map_per_language_are_told_the_languages(static_model, tatoeba_folder, tmp_path) -> None:
    """German is turned upside down before its map turns it back, so that scores are low where the map is not used."""
    calibration = CalibrationLayer(16, ["en", "fr", "de"], pivot="en")
    calibration.matrix[2].fill_diagonal_(-2)  # x - 2 x
    model = export(static_model, calibration)
    tatoeba = evaluate(model, mteb_task("tatoeba", tatoeba_folder))
    expected = TatoebaEvaluator.from_directory(tatoeba_folder, calibration=calibration).evaluate(static_model).scores
    for subset, language in (("fra-eng", "fr"), ("deu-eng", "de")):
        assert tatoeba[subset]["main_score"] == expected[language]["accuracy"]
    folder = write_lareqa(tmp_path)
    lareqa = evaluate(model, mteb_task("lareqa", folder))
    evaluator = RetrievalEvaluator({"all": read_lareqa(folder)}, calibration=calibration)
    evaluator.metrics = ("map_at_20", "mrr_at_100")
    of_lareqa = evaluator.evaluate(static_model).scores
    plain = evaluate(static_model, mteb_task("lareqa", folder))
    for language, scores in lareqa.items():
        assert scores["map_at_20"] == pytest.approx(of_lareqa[language]["map_at_20"], abs=1e-5)
    assert any(lareqa[code]["map_at_20"] != plain[code]["map_at_20"] for code in lareqa)
    bucc = evaluate(model, mteb_task("bucc", write_bucc(tmp_path), ["de"]))["de-en"]
    of_bucc = BUCCEvaluator.from_directory(tmp_path, ["de"], calibration=calibration).evaluate(static_model).scores
    assert {metric: bucc[metric] for metric in of_bucc["de"]} == pytest.approx(of_bucc["de"])
