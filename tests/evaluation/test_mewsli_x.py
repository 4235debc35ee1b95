from __future__ import annotations

import json
from pathlib import Path

import pytest

from st_xlret.evaluation.mewsli_x import MewsliXEvaluator
from st_xlret.evaluation.retrieval import RetrievalData
from tests.evaluation.samples import write_mewsli_x


def read_mewsli_x(folder: Path) -> RetrievalData:
    return MewsliXEvaluator.read(folder, None).pools["all"]


def test_reads_the_release(tmp_path) -> None:
    data = read_mewsli_x(write_mewsli_x(tmp_path))
    assert data.corpus["id"][:] == [f"Q{row}" for row in range(6)]
    assert data.corpus["text"][0] == "A taxi. It is a taxi."
    assert data.corpus["language"][:] == ["en", "fr", "de", "en", "fr", "de"]
    assert data.queries["text"][:3] == [
        "taxi: { taxi } and night met.",
        "hotel: Then { hotel } .",
        "night: taxi and { night } met.",
    ]
    assert data.qrels["de-4"] == {"Q4": 1}


def test_languages_and_split(static_model, tmp_path) -> None:
    write_mewsli_x(tmp_path)
    result = MewsliXEvaluator.from_directory(tmp_path, ["de"]).evaluate(static_model)
    assert list(result.scores) == ["de"] and 0 < result.average["map_at_20"] < 1
    assert result.average["map_at_20"] == pytest.approx(result.average["mrr_at_100"])  # of one relevant entity
    assert result.protocol["corpus_size"] == "6" and "braces" in result.protocol["query"]
    assert list(MewsliXEvaluator.from_directory(tmp_path, split="dev").evaluate(static_model).scores) == ["en"]
    with pytest.raises(ValueError, match="'train'"):
        MewsliXEvaluator.from_directory(tmp_path, split="train")


MENTIONS, ENTITIES = "wikinews_mentions-test", "candidate_set_entities"


def rewrite(file, change) -> None:
    records = [json.loads(line) for line in file.read_text().splitlines()]
    change(records)
    file.write_text("".join(f"{json.dumps(record)}\n" for record in records))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (MENTIONS, lambda r: r[1]["context"].update(text=""), "line 2: .*get-mewsli-x"),
        (MENTIONS, lambda r: r[0]["mentions"][0]["mention_span"].update(text="bus"), "line 1: .*'bus'"),
        (MENTIONS, lambda r: r[1].pop("mentions"), "line 2: .*'mention'"),
        (MENTIONS, lambda r: r[1]["mentions"][0].update(example_id="en-0"), "'en-0'"),
        (ENTITIES, lambda r: r[0].update(entity_id="Q1"), "'Q[01]'"),
        (ENTITIES, lambda r: r[3].pop("description_language"), "line 4: .*'description_language'"),
    ],
)
def test_broken_lines_are_named(name, change, message, tmp_path) -> None:
    rewrite(write_mewsli_x(tmp_path) / f"{name}.jsonl", change)
    with pytest.raises(ValueError, match=message):
        read_mewsli_x(tmp_path)
