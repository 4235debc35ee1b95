"""What is wrong in the files of a benchmark is named with its file and line.

It is named before a score is of something else.
"""

import gzip
import re
from pathlib import Path

import pytest

from st_xlret.evaluation import BENCHMARKS
from tests import tiny
from tests.data.files import write_text
from tests.evaluation.samples import SAMPLES, BadLine

CASES = [(name, line) for name, sample in SAMPLES.items() for line in sample.bad_lines]

pytestmark = pytest.mark.filterwarnings("ignore:tokens are counted")


def read_text(file: Path) -> str:
    content = file.read_bytes()
    if file.suffix == ".gz":
        content = gzip.decompress(content)
    return content.decode()


@pytest.mark.parametrize(("benchmark", "line"), CASES)
def test_file_and_line_are_named(benchmark: str, line: BadLine, tmp_path: Path) -> None:
    sample = SAMPLES[benchmark]
    file = sample.write(tmp_path) / line.file
    text = read_text(file)
    changed = re.sub(line.old, line.new, text)
    assert changed != text
    write_text(file, changed)
    with pytest.raises(ValueError, match=line.message):
        evaluator = BENCHMARKS[benchmark].from_directory(tmp_path, sample.languages)
        evaluator.evaluate(tiny.static())


@pytest.mark.parametrize("benchmark", SAMPLES)
def test_a_language_and_a_split_that_are_not_there_are_named(
    benchmark: str, tmp_path: Path
) -> None:
    kind = BENCHMARKS[benchmark]
    SAMPLES[benchmark].write(tmp_path)
    with pytest.raises(ValueError, match="'th'"):
        kind.from_directory(tmp_path, ["th"])
    with pytest.raises(ValueError, match=f"'nowhere'.*{kind.splits[0]}"):
        kind.from_directory(tmp_path, split="nowhere")


NEEDED = [(name, file) for name, sample in SAMPLES.items() for file in sample.needed]


@pytest.mark.parametrize(("benchmark", "pattern"), NEEDED)
def test_a_file_that_is_not_there_is_named_before_any_is_read(
    benchmark: str, pattern: str, tmp_path: Path
) -> None:
    sample = SAMPLES[benchmark]
    files = list(sample.write(tmp_path).rglob(pattern))
    assert files
    for file in files:
        file.unlink()
    with pytest.raises(FileNotFoundError, match=re.escape(pattern.strip("*"))):
        BENCHMARKS[benchmark].from_directory(tmp_path, sample.languages)
