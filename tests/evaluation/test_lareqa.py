from __future__ import annotations

import json

import numpy as np
import pytest

from st_xlret.evaluation.lareqa import LAReQAEvaluator, read_lareqa
from tests.evaluation.samples import PARAGRAPH, QUESTIONS, write_beir, write_lareqa


def naive_scores(model, languages, pool_of) -> dict[str, dict[str, float]]:
    """From the definition, with one cosine at a time."""

    def vector(text):
        embedding = model.encode(text)
        return embedding / max(np.linalg.norm(embedding), 1e-12)

    scores = {}
    for language in languages:
        precisions, reciprocals = [], []
        for number, question in enumerate(QUESTIONS[language]):
            query = vector(question)
            candidates = [(other, row) for other in pool_of(language) for row in (0, 1)]
            cosines = [float(query @ vector(PARAGRAPH[other][row])) for other, row in candidates]
            ranked = [candidates[place] for place in sorted(range(len(candidates)), key=lambda i: (-cosines[i], i))]
            relevant = len(pool_of(language))
            found, precision, reciprocal = 0, 0.0, 0.0
            for rank, (_, row) in enumerate(ranked[:20], start=1):
                if row == number:
                    found += 1
                    precision += found / rank
                    reciprocal = reciprocal or 1 / rank
            precisions.append(precision / min(relevant, 20))
            reciprocals.append(reciprocal)
        scores[language] = {"map_at_20": float(np.mean(precisions)), "mrr_at_100": float(np.mean(reciprocals))}
    return scores


@pytest.mark.parametrize("write", [write_lareqa, write_beir])
def test_equals_the_definition_in_both_layouts(write, static_model, tmp_path) -> None:
    evaluator = LAReQAEvaluator.from_directory(write(tmp_path))
    result = evaluator.evaluate(static_model)
    expected = naive_scores(static_model, ["de", "en", "fr"], lambda _: sorted(PARAGRAPH))
    assert sorted(result.scores) == ["de", "en", "fr"]
    for language, values in expected.items():
        for metric, value in values.items():
            assert result.scores[language][metric] == pytest.approx(value, abs=1e-6)
        assert result.scores[language]["recall_at_100"] == 1.0
    for metric in ("map_at_20", "mrr_at_100", "language_preference"):
        mean = np.mean([values[metric] for values in result.scores.values()])
        assert result.average[metric] == pytest.approx(mean)
    assert result.protocol["corpus_size"] == "6" and result.protocol["queries"] == "6"
    assert "one pool in all languages" in result.protocol["task"]


@pytest.mark.parametrize("write", [write_lareqa, write_beir])
def test_same_language_split_searches_each_language_alone(write, static_model, tmp_path) -> None:
    evaluator = LAReQAEvaluator.from_directory(write(tmp_path), split="test-same-language")
    result = evaluator.evaluate(static_model)
    expected = naive_scores(static_model, ["de", "en", "fr"], lambda language: [language])
    for language, values in expected.items():
        assert result.scores[language]["map_at_20"] == pytest.approx(values["map_at_20"], abs=1e-6)
        assert "language_preference" not in result.scores[language]
    assert result.protocol["corpus_size"] == ", ".join(f"{language} 2" for language in result.scores)
    assert result.protocol["split"] == "test-same-language"


def test_languages_choose_questions_and_leave_the_pool(static_model, tmp_path) -> None:
    folder = write_lareqa(tmp_path)
    whole = LAReQAEvaluator.from_directory(folder).evaluate(static_model)
    part = LAReQAEvaluator.from_directory(folder, ["fr"]).evaluate(static_model)
    assert part.scores == {"fr": whole.scores["fr"]}
    assert part.protocol["corpus_size"] == "6"
    with pytest.raises(ValueError, match=r"no \['sw'\]; it has \['de', 'en', 'fr'\]"):
        LAReQAEvaluator.from_directory(folder, ["sw"])


def test_titles_are_not_read_and_context_is_by_option(tmp_path) -> None:
    release, beir = write_lareqa(tmp_path / "release"), write_beir(tmp_path / "beir")
    for folder in (release, beir):
        plain = read_lareqa(folder).corpus
        assert sorted(plain.full_texts(slice(None))) == sorted(text for texts in PARAGRAPH.values() for text in texts)
        read = dict(zip(plain.ids, read_lareqa(folder, context=True).corpus.texts, strict=True))
        assert read["en-00-0-1"] == f"{PARAGRAPH['en'][1]} {PARAGRAPH['en'][0]} {PARAGRAPH['en'][1]}"
    assert LAReQAEvaluator.from_directory(release, context=True).candidate == "sentence followed by its paragraph"


def rewrite(folder, changed) -> None:
    """Change the second record of a corpus."""
    records = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    changed(records[1])
    (folder / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.mark.parametrize(
    "changed",
    [
        lambda record: record.update(metadata="x", language="en"),
        lambda record: record.update(metadata=["context"], language="en"),
        lambda record: record["metadata"].pop("context"),
        lambda record: record["metadata"].update(context=["a"]),
        lambda record: record["metadata"].update(context=None),
    ],
)
def test_metadata_without_a_paragraph_is_named_by_file_and_line(tmp_path, changed) -> None:
    folder = write_beir(tmp_path / "beir")
    rewrite(folder, changed)
    assert len(read_lareqa(folder).corpus)
    with pytest.raises(ValueError, match=r"corpus\.jsonl, line 2: .*metadata\.context"):
        read_lareqa(folder, context=True)


def test_an_answer_between_sentences_has_no_candidate(tmp_path) -> None:
    write_lareqa(tmp_path)
    file = tmp_path / "xquad-r" / "en.json"
    content = json.loads(file.read_text())
    paragraph = content["data"][0]["paragraphs"][0]
    paragraph["qas"][0]["answers"][0]["answer_start"] = paragraph["sentence_breaks"][0][1]
    file.write_text(json.dumps(content))
    data = read_lareqa(tmp_path)
    assert "en-q1" not in data.queries.ids
    assert sorted(data.qrels["fr-q1"]) == ["de-00-0-0", "fr-00-0-0"]


def test_wrong_layouts_say_what_was_expected(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere is no directory.*xquad-r/en.json"):
        read_lareqa(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(FileNotFoundError, match=r"holds neither layout of XQuAD-R, but \['notes.txt'\]"):
        read_lareqa(tmp_path)
    (tmp_path / "en.json").write_text(json.dumps({"data": [{"paragraphs": [{"context": "A."}]}]}))
    with pytest.raises(ValueError, match="en.json is no SQuAD-like file with sentence_breaks.*sentence_breaks"):
        read_lareqa(tmp_path)
    with pytest.raises(ValueError, match="split must be one of"):
        LAReQAEvaluator.from_directory(tmp_path, split="dev")
    beir = write_beir(tmp_path / "beir")
    (beir / "qrels" / "test.tsv").unlink()
    with pytest.raises(FileNotFoundError, match=r"qrels/test.tsv .*test-same-language"):
        read_lareqa(beir)


@pytest.mark.real_data
def test_the_real_files_have_the_published_counts(real_data) -> None:
    folder = real_data / "xquad_r"
    if not folder.is_dir():
        pytest.skip(f"needs XQuAD-R: {folder} does not exist")
    data = read_lareqa(folder)
    assert (len(data.corpus), len(data.judged)) == (13_014, 13_090)
    assert {len(rows) for rows in data.relevant} == {11}
    assert len(set(data.corpus.languages)) == 11
