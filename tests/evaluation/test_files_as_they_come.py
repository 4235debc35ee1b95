"""Files are read as they come: packed, from Windows, in any order of languages."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from st_xlret.evaluation import BENCHMARKS, RetrievalEvaluator, TatoebaEvaluator
from st_xlret.evaluation.base import Scores
from tests.data.files import write_jsonl, write_text
from tests.evaluation.samples import SAMPLES, write_beir, write_tatoeba, write_xor

pytestmark = pytest.mark.filterwarnings("ignore:tokens are counted")


def pack(file: Path) -> None:
    file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()


def mark_byte_order(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())


def end_lines_as_windows(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))


def scores_of(benchmark: str, folder: Path, model: SentenceTransformer) -> Scores:
    evaluator = BENCHMARKS[benchmark].from_directory(folder, SAMPLES[benchmark].languages)
    return evaluator.evaluate(model).scores


@pytest.mark.parametrize("benchmark", SAMPLES)
@pytest.mark.parametrize("change", [pack, mark_byte_order, end_lines_as_windows])
def test_the_scores_are_those_of_the_plain_files(
    benchmark: str,
    change: Callable[[Path], None],
    static_model: SentenceTransformer,
    tmp_path: Path,
) -> None:
    plain = SAMPLES[benchmark].write(tmp_path / "plain")
    changed = SAMPLES[benchmark].write(tmp_path / "changed")
    files = [file for file in changed.rglob("*") if file.is_file() and file.suffix != ".gz"]
    assert files
    for file in files:
        change(file)
    expected = scores_of(benchmark, plain, static_model)
    assert expected
    assert scores_of(benchmark, changed, static_model) == expected


@pytest.mark.parametrize("benchmark", SAMPLES)
def test_languages_come_in_the_order_that_is_asked_for(
    benchmark: str, static_model: SentenceTransformer, tmp_path: Path
) -> None:
    folder = SAMPLES[benchmark].write(tmp_path)
    languages = list(scores_of(benchmark, folder, static_model))
    for asked in (languages, languages[::-1]):
        evaluator = BENCHMARKS[benchmark].from_directory(folder, asked)
        assert list(evaluator.evaluate(static_model).scores) == asked


def test_a_language_without_a_judged_query_is_named(tmp_path: Path) -> None:
    qrels = write_beir(tmp_path) / "qrels" / "test.tsv"
    lines = [line for line in qrels.read_text().splitlines() if not line.startswith("de-")]
    write_text(qrels, "\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=r"judged. has no \['de'\]"):
        RetrievalEvaluator.from_directory(tmp_path, ["fr", "de"])


def test_a_folder_of_one_language_is_none_of_another(tmp_path: Path) -> None:
    folder = SAMPLES["mrtydi"].write(tmp_path) / "mrtydi-v1.1-telugu"
    with pytest.raises(ValueError, match=r"\['sw'\].*'te'"):
        BENCHMARKS["mrtydi"].from_directory(folder, ["sw"])


@pytest.mark.parametrize("answers", ["Helsinki", None, {"text": "Helsinki"}])
def test_answers_are_a_list(answers: object, tmp_path: Path) -> None:
    file = write_xor(tmp_path) / "xor_dev_retrieve_eng_span_v1_1.jsonl"
    write_jsonl(file, [{"id": "1", "question": "taxi", "lang": "fi", "answers": answers}])
    with pytest.raises(ValueError, match="line 1: .*a list"):
        BENCHMARKS["xor-retrieve"].from_directory(tmp_path)


def test_no_sentences_are_no_benchmark(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_sentences 0"):
        TatoebaEvaluator.from_directory(write_tatoeba(tmp_path), max_sentences=0)
