"""LAReQA and Mewsli-X: one pool in all languages."""

from __future__ import annotations

import json

import pytest

from st_xlret.evaluation.lareqa import LAReQAEvaluator, read_lareqa
from st_xlret.evaluation.mewsli_x import MewsliXEvaluator
from st_xlret.evaluation.retrieval import full_texts
from tests.evaluation.samples import PARAGRAPH, write_beir, write_lareqa, write_mewsli_x

SPLITS = "test", "test-same-language"


def test_both_layouts_have_one_pool_or_one_for_each_language(static_model, tmp_path) -> None:
    release, beir = write_lareqa(tmp_path / "release"), write_beir(tmp_path / "beir")
    mixed, same = (LAReQAEvaluator.from_directory(beir, split=split).evaluate(static_model) for split in SPLITS)
    for split, result in zip(SPLITS, (mixed, same), strict=True):
        other = LAReQAEvaluator.from_directory(release, split=split).evaluate(static_model)
        for metric in ("map_at_20", "map", "mrr_at_100", "recall_at_100"):  # equal scores are ordered by row
            assert result.average[metric] == pytest.approx(other.average[metric])
        assert result.protocol["split"] == split
    assert "one pool in all languages" in mixed.protocol["task"] and mixed.protocol["corpus_size"] == "6"
    assert "language_preference" in mixed.average and "language_preference" not in same.average
    assert same.protocol["corpus_size"] == ", ".join(f"{language} 2" for language in same.scores)
    for language, scores in same.scores.items():
        alone = LAReQAEvaluator.from_directory(write_lareqa(tmp_path / language, (language,))).evaluate(static_model)
        assert scores["map_at_20"] == pytest.approx(alone.average["map_at_20"])
    part = LAReQAEvaluator.from_directory(release, ["fr"])  # the languages of the questions
    whole = LAReQAEvaluator.from_directory(release).evaluate(static_model)
    assert part.evaluate(static_model).scores == {"fr": whole.scores["fr"]} and part.sizes == {"all": 6}


def test_titles_are_not_read_and_context_is_by_option(tmp_path) -> None:
    release, beir = write_lareqa(tmp_path / "release"), write_beir(tmp_path / "beir")
    for folder in (release, beir):
        assert sorted(full_texts(read_lareqa(folder).corpus)) == sorted(sum(PARAGRAPH.values(), []))
        corpus = read_lareqa(folder, context=True).corpus
        texts = dict(zip(corpus["id"], corpus["text"], strict=True))
        assert texts["en-00-0-1"] == f"{PARAGRAPH['en'][1]} {PARAGRAPH['en'][0]} {PARAGRAPH['en'][1]}"


def test_an_answer_between_sentences_has_no_candidate(tmp_path) -> None:
    file = write_lareqa(tmp_path) / "xquad-r" / "en.json"
    content = json.loads(file.read_text())
    paragraph = content["data"][0]["paragraphs"][0]
    paragraph["qas"][0]["answers"][0]["answer_start"] = paragraph["sentence_breaks"][0][1]
    file.write_text(json.dumps(content))
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
    mentions = ["taxi: { taxi } and night met.", "hotel: Then { hotel } .", "night: taxi and { night } met."]
    assert data.queries["text"][:3] == mentions
    assert data.qrels["de-4"] == {"Q4": 1}
    result = MewsliXEvaluator.from_directory(tmp_path, ["de"]).evaluate(static_model)
    assert list(result.scores) == ["de"] and 0 < result.average["map_at_20"] < 1
    assert result.average["map_at_20"] == pytest.approx(result.average["mrr_at_100"])  # of one relevant entity
    assert result.protocol["corpus_size"] == "6" and "braces" in result.protocol["query"]
    assert list(MewsliXEvaluator.from_directory(tmp_path, split="dev").evaluate(static_model).scores) == ["en"]
