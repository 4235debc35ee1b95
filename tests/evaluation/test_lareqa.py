from __future__ import annotations

import json

import pytest

from st_xlret.evaluation.lareqa import LAReQAEvaluator, read_lareqa
from st_xlret.evaluation.retrieval import full_texts
from tests.evaluation.samples import PARAGRAPH, write_beir, write_lareqa

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


def test_documents_may_name_what_they_are_translations_of(static_model, tmp_path) -> None:
    whole, named = write_beir(tmp_path / "whole"), write_beir(tmp_path / "named")
    records = [json.loads(line) for line in (named / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    for record in records:
        record["translation_of"] = f"en{record['_id'][2:]}"
    (named / "corpus.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    head, *lines = (named / "qrels" / "test.tsv").read_text().splitlines(keepends=True)
    (named / "qrels" / "test.tsv").write_text("".join([head, *(line for line in lines if "\ten-" in line)]))
    for split in SPLITS:
        of_both = (LAReQAEvaluator.from_directory(folder, split=split) for folder in (whole, named))
        expected, found = (evaluator.evaluate(static_model) for evaluator in of_both)
        assert found.scores == expected.scores


def test_languages_choose_questions_and_leave_the_pool(static_model, tmp_path) -> None:
    folder = write_lareqa(tmp_path)
    whole = LAReQAEvaluator.from_directory(folder).evaluate(static_model)
    part = LAReQAEvaluator.from_directory(folder, ["fr"]).evaluate(static_model)
    assert part.scores == {"fr": whole.scores["fr"]}
    assert part.protocol["corpus_size"] == "6"
    with pytest.raises(ValueError, match="sw"):
        LAReQAEvaluator.from_directory(folder, ["sw"])


def test_titles_are_not_read_and_context_is_by_option(tmp_path) -> None:
    release, beir = write_lareqa(tmp_path / "release"), write_beir(tmp_path / "beir")
    for folder in (release, beir):
        plain = read_lareqa(folder).corpus
        assert sorted(full_texts(plain)) == sorted(text for texts in PARAGRAPH.values() for text in texts)
        read = dict(zip(plain["id"], read_lareqa(folder, context=True).corpus["text"], strict=True))
        assert read["en-00-0-1"] == f"{PARAGRAPH['en'][1]} {PARAGRAPH['en'][0]} {PARAGRAPH['en'][1]}"
    notes = LAReQAEvaluator.from_directory(release, context=True).notes
    assert notes["candidate"] == "sentence followed by its paragraph"


def test_a_paragraph_is_joined_as_its_language_is_written(tmp_path) -> None:
    folder = write_beir(tmp_path)
    texts = {"a": "今天下雨。", "b": "我们回家。"}
    records = [
        {"_id": name, "text": text, "metadata": {"language": "zh", "context": "p"}} for name, text in texts.items()
    ]
    with open(folder / "corpus.jsonl", "a", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
    corpus = read_lareqa(folder, context=True).corpus
    assert dict(zip(corpus["id"], corpus["text"], strict=True))["b"] == "我们回家。 今天下雨。我们回家。"


def test_an_answer_between_sentences_has_no_candidate(tmp_path) -> None:
    write_lareqa(tmp_path)
    file = tmp_path / "xquad-r" / "en.json"
    content = json.loads(file.read_text())
    paragraph = content["data"][0]["paragraphs"][0]
    paragraph["qas"][0]["answers"][0]["answer_start"] = paragraph["sentence_breaks"][0][1]
    file.write_text(json.dumps(content))
    data = read_lareqa(tmp_path)
    assert "en-q1" not in data.queries["id"][:]
    assert sorted(data.qrels["fr-q1"]) == ["de-00-0-0", "fr-00-0-0"]


def test_wrong_layouts_say_what_was_expected(tmp_path) -> None:
    (tmp_path / "en.json").write_text(json.dumps({"data": [{"paragraphs": [{"context": "A."}]}]}))
    with pytest.raises(ValueError, match="en.json.*sentence_breaks"):
        read_lareqa(tmp_path)
    with pytest.raises(ValueError, match="dev"):
        LAReQAEvaluator.from_directory(tmp_path, split="dev")


@pytest.mark.real_data
def test_the_real_files_have_the_published_counts(real_data) -> None:
    folder = real_data / "xquad_r"
    if not folder.is_dir():
        pytest.skip(f"needs XQuAD-R: {folder} does not exist")
    data = read_lareqa(folder)
    assert (len(data.corpus), len(data.judged)) == (13_014, 13_090)
    assert {len(rows) for rows in data.relevant} == {11}
    assert len(data.corpus.unique("language")) == 11
