"""What is wrong in the files of a benchmark is named with its file and line before a score is of something else."""

import gzip
import re
from pathlib import Path

import pytest

from st_xlret.evaluation import BENCHMARKS
from tests import tiny
from tests.data.files import write_text
from tests.evaluation import samples

WRITERS = {
    "bucc": samples.write_bucc,
    "lareqa": samples.write_lareqa,
    "mewsli-x": samples.write_mewsli_x,
    "mrtydi": samples.write_mr_tydi,
    "retrieval": samples.write_beir,
    "xor-retrieve": samples.write_xor,
}
NEEDED = (
    "de-en.training.de",
    "qrels.test.txt",
    "candidate_set_entities.jsonl",
    "queries.jsonl",
    "psgs_w100.tsv",
)


@pytest.mark.parametrize(
    ("benchmark", "file", "old", "new", "message"),
    [
        ("bucc", "de-en.training.de", "de-1\t", "de-1 ", "training.de, line 2"),
        ("bucc", "de-en.test.en", "en-2\t", "en-1\t", "test.en, line 3"),
        ("bucc", "de-en.training.gold", "de-3\t", "de-9\t", "training.gold, line 2: .*'de-9'"),
        ("lareqa", "xquad-r/en.json", "sentence_breaks", "breaks", "en.json.*sentence_breaks"),
        (
            "mewsli-x",
            "wikinews_mentions-test.jsonl",
            '"text": "First.*?"',
            '"text": ""',
            "line 1: .*get-mewsli-x",
        ),
        (
            "mewsli-x",
            "wikinews_mentions-test.jsonl",
            '"text": "wagen"',
            '"text": "bus"',
            "line 2: .*'bus'",
        ),
        (
            "mewsli-x",
            "candidate_set_entities.jsonl",
            "description_language",
            "language",
            "line 1: .*'description_lang",
        ),
        (
            "mrtydi",
            "mrtydi-v1.1-swahili/topic.test.tsv",
            "3\tsnow",
            "3 snow",
            "topic.test.tsv, line 3",
        ),
        (
            "mrtydi",
            "mrtydi-v1.1-swahili/collection/docs.jsonl.gz",
            "contents",
            "content",
            "docs.jsonl.gz, line 1",
        ),
        ("retrieval", "corpus.jsonl", "en-00-0-1", "en-00-0-0", "'en-00-0-0'"),
        (
            "retrieval",
            "corpus.jsonl",
            '"text": "A taxi',
            '"text": 3, "x": "A taxi',
            "corpus.jsonl, line 1",
        ),
        ("retrieval", "queries.jsonl", '"language": "fr"', '"x": 1', "queries.jsonl, line 3"),
        ("retrieval", "qrels/test.tsv", "en-q2\ten", "xx-q2\ten", "test.tsv: .*'xx-q2'"),
        ("xor-retrieve", "psgs_w100.tsv", "\n2\t", "\n2 ", "psgs_w100.tsv, line 3"),
        (
            "xor-retrieve",
            "xor_dev_retrieve_eng_span_v1_1.jsonl",
            '"lang"',
            '"language"',
            "xor_dev.*, line 1: .*'lang'",
        ),
        (
            "xor-retrieve",
            "xor_dev_retrieve_eng_span_v1_1.jsonl",
            r'"answers": \[.*\]',
            '"answers": ["yes"]',
            "has no",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:tokens are counted")
def test_file_and_line_are_named(
    benchmark: str, file: str, old: str, new: str, message: str, tmp_path: Path
) -> None:
    path = WRITERS[benchmark](tmp_path / "data") / file
    text = (
        gzip.decompress(path.read_bytes()).decode()
        if path.suffix == ".gz"
        else path.read_text(encoding="utf-8")
    )
    assert re.search(old, text)
    write_text(path, re.sub(old, new, text))
    options = {"cache_dir": tmp_path / "cache"} if benchmark in ("mrtydi", "xor-retrieve") else {}
    with pytest.raises(ValueError, match=message):
        BENCHMARKS[benchmark].from_directory(tmp_path / "data", **options).evaluate(tiny.static())


@pytest.mark.parametrize("benchmark", WRITERS)
def test_what_is_not_there_is_named_before_any_file_is_read(benchmark: str, tmp_path: Path) -> None:
    kind, folder = BENCHMARKS[benchmark], WRITERS[benchmark](tmp_path)
    with pytest.raises(ValueError, match="'th'"):
        kind.from_directory(folder, ["th"])
    with pytest.raises(ValueError, match="'nowhere'.*" + kind.splits[0]):
        kind.from_directory(folder, split="nowhere")
    for name in NEEDED:
        for file in folder.rglob(name):
            file.unlink()
            with pytest.raises(FileNotFoundError, match=re.escape(name)):
                kind.from_directory(folder)
