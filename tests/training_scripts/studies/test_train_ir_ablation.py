"""Which languages have parallel sentences and others, and what the ablations change in losses and batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from st_xlret import JointBatches
from st_xlret.data import DataError
from st_xlret.options import parse
from st_xlret.training.questions import RetrievalDataArguments
from tests import tiny
from tests.data.files import write_jsonl
from tests.data.retrieval.layouts import squad
from training_scripts.studies import train_ir_ablation as ablation
from training_scripts.train_language_agnostic_ir import IRArguments, describe_languages
from training_scripts.train_language_agnostic_ir import build_losses as recipe_losses


def pair(source: str, target: str, text: str) -> dict[str, str]:
    sides = {"source": text if source == "en" else f"{text} {source}", "target": f"{text} {target}"}
    return {"source_language": source, "target_language": target, **sides}


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The texts that options of the ablations leave, of pairs with English and documents of three languages."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    pairs = write_jsonl(tmp_path / "pairs.jsonl", [pair("en", code, "one") for code in ("fi", "ja", "ko", "ru")])
    records = [{"language": code, "sentences": [f"{code} {i}" for i in range(9)]} for code in ("fi", "ru", "sw")]
    documents = write_jsonl(tmp_path / "documents.jsonl", records)

    def run(languages: tuple[str, ...] = (), **options: Any) -> tuple[Any, Any]:
        data = RetrievalDataArguments(
            retrieval=[str(tmp_path / "squad.json")],
            pairs=[str(pairs)],
            documents=[str(documents)],
            languages=list(languages),
        )
        return ablation.load_texts(data, ablation.AblationArguments(**options), 0)

    return run


def connected(pairs: Any) -> list[str]:
    return sorted(f"{row['source_language']}-{row['target_language']}" for row in pairs)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("pivot", ["en-fi", "en-ja", "en-ko"]),
        # Sentences that no file has are joined by their English side.
        ("bridge", ["en-ko", "ko-fi", "ko-ja"]),
        ("islands", ["en-ko", "fi-ja"]),
        ("single", ["en-ko"]),
        ("rest", ["fi-ja"]),
        ("en-ja fi-ko", ["en-ja", "fi-ko"]),
    ],
)
def test_table_4(setting: str, expected: list[str], load: Any) -> None:
    pairs, _ = load(("en", "fi", "ja", "ko"), connections=setting, bridge="ko", language_weight=0.0)
    assert connected(pairs) == expected


def test_without_connections_english_alone_is_trained(load: Any) -> None:
    assert load(connections="none") == (None, None)
    options = ablation.AblationArguments(connections="none", semantic_weight=1.0)
    assert options.semantic_weight == options.language_weight == 0.0


def test_languages_that_are_not_there_are_named(load: Any) -> None:
    with pytest.raises(ValueError, match="en-sw"):
        load(("en", "sw", "fi"), connections="en-sw")
    with pytest.raises(DataError, match="ko.*--others_languages"):
        load(others_languages=["ko", "ru"])


def test_table_5(load: Any) -> None:
    pairs, others = load(no_parallel=["ru", "sw", "te", "th"])
    assert connected(pairs) == ["en-fi", "en-ja", "en-ko"]
    assert describe_languages(pairs, others) == {
        "with_parallel": ["en", "fi", "ja", "ko"],
        "without_parallel": ["ru", "sw"],
        "parallel_only": ["en", "ja", "ko"],
    }


def test_others_of_languages_without_parallel_sentences_alone(load: Any) -> None:
    # fi has pairs and documents, ru and sw only documents: ru because its pairs are left out.
    pairs, others = load(no_parallel=["ru"], others_without_parallel=True)
    parallel = {code for side in ("source_language", "target_language") for code in pairs[side]}
    assert set(others["language"]) == {"ru", "sw"} and parallel.isdisjoint(others["language"])
    assert set(load(others_without_parallel=True)[1]["language"]) == {"sw"}
    _, some = load(others_without_parallel=True, no_parallel=["ru"], others_languages=["fi", "ru"])
    assert set(some["language"]) == {"ru"}
    with pytest.raises(DataError, match="fi.*--no_parallel"):
        load(others_without_parallel=True, others_languages=["fi"])


def test_figure_4(load: Any) -> None:
    _, others = load(others_languages=["ru"], others_per_language=4)
    assert len(others) == 4 and set(others["language"]) == {"ru"}
    assert others.to_list() == load(others_languages=["ru"], others_per_language=4)[1].to_list()
    assert len(load(others_per_language=4)[1]) == 12 and len(load()[1]) == 27


def test_losses_and_batches(tmp_path: Path) -> None:
    given = "--semantic_temperature 0.2 --language_reduction sum --others_batch_size 3 --pairs_language_mixing 0"
    (options,) = parse([ablation.AblationArguments], given.split())
    names: Any = ["semantic", "language", "retrieval"]
    losses: Any = ablation.build_losses(tiny.static(), names, options)
    assert losses["semantic"].temperature == 0.2 and losses["language"].reduction == "sum"
    assert ablation.build_batches(options) == JointBatches(others_batch_size=3, pairs_language_mixing=0.0)
    assert list(ablation.build_losses(tiny.static(), ["retrieval"], options)) == ["retrieval"]


def test_without_its_options_it_is_the_recipe() -> None:
    options, names = ablation.AblationArguments(), ["semantic", "language", "retrieval"]
    losses: Any = ablation.build_losses(tiny.static(), names, options)
    expected: Any = recipe_losses(tiny.static(), names, IRArguments())
    for name in names:
        assert losses[name].get_config_dict() == expected[name].get_config_dict()


def test_a_run(tmp_path: Path, load: Any) -> None:
    pairs = write_jsonl(
        tmp_path / "many.jsonl", [pair("en", code, f"text {i}") for code in ("fi", "ru") for i in range(12)]
    )
    squad(tmp_path / "squad.json")
    given = "--from_scratch static --max_steps 2 --evaluation_pairs 0 --no_parallel ru --others_languages ru --use_cpu"
    given += " --per_device_train_batch_size 2 --save_strategy no"
    files = ["--retrieval", tmp_path / "squad.json", "--pairs", pairs, "--documents", tmp_path / "documents.jsonl"]
    output = tmp_path / "run"
    results = ablation.main([*given.split(), *map(str, files), "--output_dir", str(output)])
    assert json.loads((output / "results.json").read_text()) == results
    assert results["languages"]["without_parallel"] == ["ru"] and results["others"] == 9
    assert "training_scripts.studies.train_ir_ablation" in results["command"]
