"""Texts to calibrate on or to measure, from damaged folders in BEIR's layout."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path

import datasets
import pytest

from st_xlret.calibration import sample_questions, sample_texts
from st_xlret.data import DataError

GOOD = [
    {"_id": "a", "text": "sun", "metadata": {"language": "en"}},
    {"_id": "b", "text": "soleil", "metadata": {"language": "fr"}},
]
BAD = {
    "no JSON": b"{",
    "no object": b"[1]",
    "no text": b'{"_id": "c", "metadata": {"language": "en"}}',
    "a number as text": b'{"_id": "c", "text": 5, "metadata": {"language": "en"}}',
    "an unknown language": b'{"_id": "c", "text": "x", "metadata": {"language": "xx1"}}',
    "not UTF-8": b'{"_id": "c", "text": "\xff", "metadata": {"language": "en"}}',
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", BAD)
def test_bad_lines_of_a_corpus_are_named_or_skipped(
    tmp_path: Path, name: str, packed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [json.dumps(record).encode() for record in GOOD]
    content = b"\n".join([lines[0], BAD[name], lines[1], b""])
    file = tmp_path / ("corpus.jsonl" + ".gz" * packed)
    file.write_bytes(gzip.compress(content) if packed else content)
    (tmp_path / "queries.jsonl").write_text("")
    with pytest.raises(DataError, match=rf"{file}, line 2: "):
        sample_texts([str(tmp_path)])
    with caplog.at_level(logging.WARNING):
        found = sample_texts([str(tmp_path)], skip_bad_lines=True)
    assert {language: sample.texts for language, sample in found.items()} == {"en": ["sun"], "fr": ["soleil"]}
    assert "bad lines skipped: 1" in caplog.text


def test_texts_come_in_several_forms_and_are_drawn_once_by_seed() -> None:
    texts = {"en": [f"sun {i}" for i in range(30)], "fr": [f"soleil {i}" for i in range(40)] * 2}
    rows = [{"text": text, "language": code} for code, found in texts.items() for text in found]
    drawn = sample_texts(texts, texts_per_language=20, seed=3)
    assert [len(set(sample.texts)) for sample in drawn.values()] == [20, 20]
    from_rows = sample_texts(datasets.Dataset.from_list(rows), texts_per_language=20, seed=3)
    sentences = datasets.Dataset.from_list([{"sentence": row["text"], "language": row["language"]} for row in rows])
    for other in (from_rows, sample_texts(sentences, texts_per_language=20, seed=3), sample_texts(drawn)):
        assert {code: sample.texts for code, sample in other.items()} == {
            code: sample.texts for code, sample in drawn.items()
        }
    assert sample_texts(texts, texts_per_language=20, seed=4)["fr"].texts != drawn["fr"].texts
    smaller = sample_texts(texts, texts_per_language=5, seed=3)
    assert smaller["fr"].texts == drawn["fr"].texts[:5]


def test_every_document_gives_a_text_before_one_gives_two() -> None:
    rows = [
        {"text": f"{code} {i}", "language": code, "document": min(i, 4)} for code in ("en", "fr") for i in range(40)
    ]
    drawn = sample_texts(datasets.Dataset.from_list(rows), texts_per_language=5)
    assert all(len(set(sample.documents.tolist())) == 5 for sample in drawn.values())


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ({"en": ["a", "b"]}, {}, r"one language \(en\)"),
        ({"en": ["a", "b"], "fr": ["c"]}, {"min_texts": 2}, "2 distinct texts.*'fr' has 1"),
        ({"en": ["a"], "fr": ["c"]}, {"languages": ["en", "de"]}, "no text is in de"),
        ({"english": ["a"], "fr": ["c"]}, {}, "'english'"),
        (datasets.Dataset.from_list([{"words": "a"}]), {}, "needs a column 'text' or 'sentence'.*words"),
        ("nowhere", {}, "nowhere"),
    ],
)
def test_texts_that_cannot_be_used_are_named(texts, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        sample_texts(texts, **options)


def test_questions_in_languages_without_documents_or_too_few_are_left_out() -> None:
    questions = {"en": ["a?", "b?", "b?"], "fr": ["c?", "d?"], "de": ["e?"], "ja": ["f?", "g?"]}
    found = sample_questions(questions, ["en", "fr", "de"], min_texts=2)
    assert {code: sorted(texts) for code, texts in found.items()} == {"en": ["a?", "b?"], "fr": ["c?", "d?"]}
    with pytest.raises(DataError, match="3 distinct questions.*de 1, en 2, fr 2"):
        sample_questions(questions, ["en", "fr", "de"], min_texts=3)
    with pytest.raises(DataError, match="no question is in sw"):
        sample_questions(questions, ["sw"])
