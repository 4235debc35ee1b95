"""Every benchmark of the one list is public, described, tried, and runs from the command line."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

import st_xlret
from st_xlret.commands.evaluate import Arguments, main
from st_xlret.evaluation import BENCHMARKS
from tests.evaluation.samples import SAMPLES

pytestmark = pytest.mark.filterwarnings("ignore:tokens are counted")


def letters(text: str) -> str:
    return re.sub("[^a-z]", "", text.lower())


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_a_benchmark_is_public_described_and_tried(benchmark: str, repository: Path) -> None:
    kind = BENCHMARKS[benchmark]
    assert kind.benchmark == benchmark
    assert getattr(st_xlret, kind.__name__) is kind
    assert kind.__name__ in st_xlret.__all__
    guide = (repository / "docs" / "guides" / "evaluation.md").read_text(encoding="utf-8")
    assert letters(benchmark) in letters(guide)
    assert benchmark in SAMPLES


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_its_options_are_those_of_the_command(benchmark: str) -> None:
    of_command = {each.name for each in dataclasses.fields(Arguments)}
    assert set(BENCHMARKS[benchmark].options) <= of_command


@pytest.mark.parametrize("benchmark", SAMPLES)
def test_the_command_measures_it(
    benchmark: str,
    static_model: SentenceTransformer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    static_model.save_pretrained(str(tmp_path / "model"))
    sample = SAMPLES[benchmark]
    sample.write(tmp_path / "data")
    output = tmp_path / "scores.json"
    words = ["--model", str(tmp_path / "model"), "--benchmark", benchmark]
    words += ["--data", str(tmp_path / "data"), "--output", str(output)]
    if sample.languages is not None:
        words += ["--languages", *sample.languages]

    main(words)

    kind = BENCHMARKS[benchmark]
    result = json.loads(output.read_text())
    assert result["benchmark"] == benchmark
    assert kind.primary in result["average"]
    assert set(kind.published_metrics) <= set(result["average"])
    assert output.with_suffix(".md").read_text().strip() in capsys.readouterr().out
