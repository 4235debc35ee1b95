"""Where the three kinds of data come from, by options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from st_xlret.data import DataError
from st_xlret.training.ir_data import IRDataArguments, describe_languages
from tests import tiny
from tests.data.retrieval_files import squad, write_lines


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    source = squad(tmp_path / "squad.json")
    return lambda **options: IRDataArguments(retrieval=[str(source)], **options)


def pair(source: str, target: str, text: str) -> dict[str, str]:
    sides = {"source": text if source == "en" else f"{text} {source}", "target": f"{text} {target}"}
    return {"source_language": source, "target_language": target, **sides}


def languages(pairs: Any) -> list[str]:
    return sorted(f"{row['source_language']}-{row['target_language']}" for row in pairs)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, list[str]]:
    """A file of each kind of parallel sentences."""
    write_lines(tmp_path / "pairs.jsonl", [pair("en", "ko", "one"), pair("en", "fi", "one"), pair("en", "ja", "one")])
    (tmp_path / "WikiMatrix.en-ru.tsv").write_text("1.2\tHello.\tПривет.\n1.0\tCat.\tПёс.\n", encoding="utf-8")
    for code, text in (("en", "Yes.\n"), ("sw", "Ndiyo.\n")):
        (tmp_path / f"X.en-sw.{code}").write_text(text)
    sides = "".join(f'<tuv xml:lang="{c}"><seg>{t}</seg></tuv>' for c, t in (("en", "No."), ("th", "ไม่")))
    (tmp_path / "a.tmx").write_text(f"<tmx><body><tu>{sides}</tu></body></tmx>", encoding="utf-8")
    (tmp_path / "list.en-te.tsv").write_text("sun\tసూర్యుడు\n", encoding="utf-8")
    names = {"pairs": "pairs.jsonl", "wikimatrix": "WikiMatrix.en-ru.tsv", "moses": "X.en-sw.en", "tmx": "a.tmx"}
    return {kind: [str(tmp_path / name)] for kind, name in {**names, "tsv": "list.en-te.tsv"}.items()}


def test_all_kinds_of_parallel_files_are_put_together(arguments: Any, files: dict[str, list[str]]) -> None:
    pairs = arguments(**files).load_pairs()
    assert languages(pairs) == ["en-fi", "en-ja", "en-ko", "en-ru", "en-sw", "en-te", "en-th"]
    assert languages(arguments(**files, languages=["en", "ko", "ru", "te", "th"]).load_pairs()) == [
        "en-ko",
        "en-ru",
        "en-te",
        "en-th",
    ]
    assert len(arguments(wikimatrix=files["wikimatrix"], wikimatrix_threshold=0.9).load_pairs()) == 2
    assert arguments().load_pairs() is None
    assert arguments(**files, connections="none").load_pairs() is None


def test_table_4_by_options(arguments: Any, files: dict[str, list[str]]) -> None:
    def connected(setting: str) -> list[str]:
        given = arguments(pairs=files["pairs"], connections=setting, languages=["en", "fi", "ja", "ko"], bridge="ko")
        return languages(given.load_pairs())

    assert connected("pivot") == ["en-fi", "en-ja", "en-ko"]
    # Sentences that no file has are joined by their English side.
    assert connected("bridge") == ["en-ko", "ko-fi", "ko-ja"]
    assert connected("islands") == ["en-ko", "fi-ja"]
    assert connected("single") == ["en-ko"]
    assert connected("rest") == ["fi-ja"]


def test_table_5_by_options(arguments: Any, files: dict[str, list[str]], tmp_path: Path) -> None:
    records = [{"language": code, "sentences": [f"{code} {i}" for i in range(9)]} for code in ("ru", "sw", "fi")]
    documents = [str(write_lines(tmp_path / "documents.jsonl", records))]
    given = arguments(**files, documents=documents, no_parallel=["ru", "sw", "te", "th"])
    pairs, others = given.load_pairs(), given.load_others()
    assert languages(pairs) == ["en-fi", "en-ja", "en-ko"]
    assert describe_languages(pairs, others) == {
        "with_parallel": ["en", "fi", "ja", "ko"],
        "without_parallel": ["ru", "sw"],
        "parallel_only": ["en", "ja", "ko"],
    }
    chosen = arguments(documents=documents, others_languages=["ru"], others_per_language=4).load_others()
    assert len(chosen) == 4 and set(chosen["language"]) == {"ru"}
    assert (
        chosen.to_list()
        == arguments(documents=documents, others_languages=["ru"], others_per_language=4).load_others().to_list()
    )
    assert len(arguments(documents=documents, others_per_language=4).load_others()) == 12
    with pytest.raises(DataError, match="no sentences in ko, which --others-languages names"):
        arguments(documents=documents, others_languages=["ko", "ru"]).load_others()
    assert arguments().load_others() is None


def test_no_data_of_a_kind() -> None:
    nothing: dict[str, list[str]] = {"with_parallel": [], "without_parallel": [], "parallel_only": []}
    assert describe_languages(None, None) == nothing
    assert describe_languages(tiny.pairs(), None)["parallel_only"] == ["en", "fr"]


def test_test_questions_are_not_trained_on(arguments: Any, tmp_path: Path) -> None:
    others = [f"question {i}" for i in range(40)]
    assert len(arguments().load_retrieval([*others, "who lives THERE"])) == 2
    with pytest.raises(DataError, match="1 of the 1 questions of the test set are among those to train on"):
        arguments().load_retrieval(["who lives there"])


def test_retrieval_options(arguments: Any) -> None:
    assert arguments(positives="sentence", titles=False).load_retrieval()[1]["positive"] == "A wolf lives there."
    with pytest.raises(ValueError, match="nothing to train on: give --retrieval"):
        IRDataArguments()
    assert json.loads(json.dumps(arguments(pivot="de").load_retrieval()[0]))["language"] == "de"
