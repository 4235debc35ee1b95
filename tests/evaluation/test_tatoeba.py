from __future__ import annotations

import datasets
import pytest
import torch
from mteb.tasks.bitext_mining.multilingual.tatoeba_bitext_mining import TatoebaBitextMining

from st_xlret.evaluation import TatoebaEvaluator
from st_xlret.evaluation.tatoeba import load_tatoeba_directory, load_tatoeba_hub, tatoeba_language
from st_xlret.hub.export import export
from st_xlret.modules.calibration_layer import CalibrationLayer

from .conftest import WORDS

ALL_CODES = sorted(pair.removesuffix("-eng") for pair in TatoebaBitextMining.metadata.eval_langs)


def test_metrics_by_hand(static_model, tatoeba_folder) -> None:
    evaluator = TatoebaEvaluator.from_directory(tatoeba_folder)
    metrics = evaluator(static_model)
    assert metrics == {
        "tatoeba_average_accuracy": 0.75,
        "tatoeba_average_accuracy_to_en": 0.75,
        "tatoeba_average_accuracy_from_en": 0.75,
        **{f"tatoeba_fr_{metric}": 1.0 for metric in ("accuracy", "accuracy_to_en", "accuracy_from_en")},
        **{f"tatoeba_de_{metric}": 0.5 for metric in ("accuracy", "accuracy_to_en", "accuracy_from_en")},
    }
    assert evaluator.primary_metric == "tatoeba_average_accuracy"


def test_directions_by_hand(static_model) -> None:
    # "maison" is nearest to "house"; nothing but row 0 is near to it, whereas both English rows hold "house".
    pairs = {"fr": (["maison", "eau pain"], ["house", "house house night"])}
    scores = TatoebaEvaluator(pairs).evaluate(static_model).scores["fr"]
    assert scores["accuracy_from_en"] == 0.5


def test_an_exported_model_by_task_equals_its_calibration(static_model, tatoeba_folder) -> None:
    calibration = CalibrationLayer(16, ["en", "fr", "de"], pivot="en")
    calibration.weight[1:] = torch.randn(2, 16, 16)
    calibrated = TatoebaEvaluator.from_directory(tatoeba_folder, calibration=calibration)(static_model)
    exported = export(static_model, calibration)
    by_task = TatoebaEvaluator.from_directory(tatoeba_folder)(exported)
    assert by_task == calibrated != TatoebaEvaluator.from_directory(tatoeba_folder)(static_model)


def test_max_sentences(static_model, tatoeba_folder) -> None:
    result = TatoebaEvaluator.from_directory(tatoeba_folder, max_sentences=3).evaluate(static_model)
    assert result.average["accuracy"] == 1.0
    assert result.protocol["sentences_per_language"] == "3"


def test_languages_by_either_code_in_the_order_asked_for(tatoeba_folder) -> None:
    assert list(load_tatoeba_directory(tatoeba_folder)) == ["de", "fr"]
    assert list(load_tatoeba_directory(tatoeba_folder, ["fra", "de"])) == ["fr", "de"]
    assert list(load_tatoeba_directory(tatoeba_folder, ["fr", "fra"])) == ["fr"]


def test_different_numbers_of_lines_name_files_and_counts(tatoeba_folder) -> None:
    (tatoeba_folder / "tatoeba.fra-eng.eng").write_text("one\ntwo\n")
    with pytest.raises(ValueError, match=r"fra-eng\.fra has 6 lines and .*fra-eng\.eng has 2"):
        load_tatoeba_directory(tatoeba_folder)


@pytest.mark.parametrize("side", ["eng", "deu"])
def test_missing_side_is_named(tatoeba_folder, side) -> None:
    path = tatoeba_folder / f"tatoeba.deu-eng.{side}"
    path.unlink()
    with pytest.raises(FileNotFoundError) as error:
        load_tatoeba_directory(tatoeba_folder)
    assert str(path) in str(error.value)


def test_wrong_directory_points_to_the_right_one(tatoeba_folder, tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match=f"There are some in .*{tatoeba_folder.name}"):
        load_tatoeba_directory(tmp_path)
    with pytest.raises(FileNotFoundError, match="no directory"):
        TatoebaEvaluator.from_directory(tmp_path / "nowhere")


def test_codes_of_all_languages_are_distinct() -> None:
    codes = [tatoeba_language(code) for code in ALL_CODES]
    assert len(ALL_CODES) == len(set(codes)) == 112
    short = {"fra": "fr", "ell": "el", "zsm": "ms", "lvs": "lv", "nob": "nb", "nno": "nn", "hrv": "hr", "ron": "ro"}
    unchanged = {code: code for code in ("arq", "arz", "yue", "wuu", "ceb", "dtp", "kzj", "mhr", "cbk")}
    for code, expected in {**short, **unchanged}.items():
        assert tatoeba_language(code) == expected
    assert {"fr", "es", "de", "el", "bg", "ru", "tr", "ar", "vi", "th", "zh", "hi", "sw", "ur"} <= set(codes)


def test_hub_rows_are_grouped_by_language(monkeypatch, static_model) -> None:
    rows = [
        {"lang": f"{code}-eng", "sentence1": word + "\n", "sentence2": english + "\n"}
        for code, language in (("deu", "de"), ("cmn", "fr"))
        for word, english in zip(WORDS[language], WORDS["en"], strict=True)
    ]
    asked: list[tuple] = []

    def load_dataset(*args, **options):
        asked.append((args, options))
        return datasets.Dataset.from_list(rows)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert load_tatoeba_hub() == {"zh": (WORDS["fr"], WORDS["en"]), "de": (WORDS["de"], WORDS["en"])}
    assert asked == [(("mteb/tatoeba-bitext-mining",), {"split": "test"})]
    metrics = TatoebaEvaluator.from_hub(["zh"])(static_model)
    assert metrics["tatoeba_average_accuracy"] == 1.0
    with pytest.raises(ValueError, match=r"no \['fr'\]; it has \['de', 'zh'\]"):
        load_tatoeba_hub(["fr"])


@pytest.mark.real_data
def test_the_real_test_set_has_112_languages(real_data) -> None:
    folder = real_data / "tatoeba" / "v1"
    if not folder.is_dir():
        pytest.skip(f"needs the Tatoeba test set in {folder}")
    pairs = load_tatoeba_directory(folder)
    assert sorted(pairs) == sorted(tatoeba_language(code) for code in ALL_CODES)
    assert sum(len(texts) for texts, _ in pairs.values()) == 88_877
    assert len(pairs["fr"][0]) == 1_000
