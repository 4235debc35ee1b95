from __future__ import annotations

from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from mteb.tasks.bitext_mining.multilingual.tatoeba_bitext_mining import TatoebaBitextMining
from sklearn.metrics import f1_score
from sklearn.metrics.pairwise import cosine_similarity

from st_xlret.evaluation import BilingualRetrievalEvaluator, TatoebaEvaluator, retrieval_accuracy, weighted_f1
from st_xlret.evaluation.tatoeba import TatoebaPairsEvaluator, load_tatoeba, tatoeba_language
from st_xlret.hub.export import export
from st_xlret.modules.calibration_layer import CalibrationLayer
from tests.evaluation.samples import WORDS, write

ALL_CODES = sorted(pair.removesuffix("-eng") for pair in TatoebaBitextMining.metadata.eval_langs)


def test_metrics_by_hand(static_model, tatoeba_folder) -> None:
    evaluator = TatoebaEvaluator.from_directory(tatoeba_folder)
    expected = {"average": 0.75, "fr": 1.0, "de": 0.5}
    kinds = ("accuracy", "accuracy_to_en", "accuracy_from_en")
    metrics = {f"tatoeba_{code}_{kind}": value for code, value in expected.items() for kind in kinds}
    assert evaluator(static_model) == metrics and evaluator.primary_metric == "tatoeba_average_accuracy"
    cut = TatoebaEvaluator.from_directory(tatoeba_folder, max_sentences=3).evaluate(static_model)
    assert cut.average["accuracy"] == 1.0 and cut.protocol["sentences_per_language"] == "de 3, fr 3"


def test_an_exported_model_by_task_equals_its_calibration(static_model, tatoeba_folder) -> None:
    calibration = CalibrationLayer(16, ["en", "fr", "de"], pivot="en")
    calibration.matrix[1:] = torch.randn(2, 16, 16)
    calibrated = TatoebaEvaluator.from_directory(tatoeba_folder, calibration=calibration)(static_model)
    by_task = TatoebaEvaluator.from_directory(tatoeba_folder)(export(static_model, calibration))
    assert by_task == calibrated != TatoebaEvaluator.from_directory(tatoeba_folder)(static_model)


def test_the_files_are_read_line_by_line_and_by_either_code(tatoeba_folder) -> None:
    assert list(load_tatoeba(tatoeba_folder)) == ["de", "fr"]
    assert list(load_tatoeba(tatoeba_folder, ["fra", "de", "fr"])) == ["fr", "de"]
    for side in ("fra", "eng"):  # lines end at line feeds alone, and blank ones count
        write(tatoeba_folder / f"tatoeba.fra-eng.{side}", "a\u2028b\r\n\n c\n")
    assert load_tatoeba(tatoeba_folder, ["fr"]) == {"fr": (["a\u2028b", "", " c"],) * 2}
    write(tatoeba_folder / "tatoeba.fra-eng.eng", "one\ntwo\n")
    with pytest.raises(ValueError, match=r"'fr': \(3, 2\)"):
        TatoebaEvaluator.from_directory(tatoeba_folder)
    (tatoeba_folder / "tatoeba.deu-eng.deu").unlink()
    with pytest.raises(FileNotFoundError, match=r"tatoeba\.deu-eng\.deu"):
        TatoebaEvaluator.from_directory(tatoeba_folder)
    for folder, error in ((tatoeba_folder.parent, ValueError), (tatoeba_folder / "nowhere", FileNotFoundError)):
        with pytest.raises(error, match=str(folder)):
            TatoebaEvaluator.from_directory(folder)


def test_codes_of_all_languages_are_distinct() -> None:
    codes = [tatoeba_language(code) for code in ALL_CODES]
    assert len(ALL_CODES) == len(set(codes)) == 112
    short = {"fra": "fr", "ell": "el", "zsm": "ms", "lvs": "lv", "nob": "nb", "nno": "nn", "tgl": "tl", "cmn": "zh"}
    unchanged = {code: code for code in ("arq", "arz", "yue", "wuu", "ceb", "dtp", "kzj", "mhr", "cbk")}
    assert all(tatoeba_language(code) == expected for code, expected in {**short, **unchanged}.items())


def test_hub_rows_are_grouped_by_language(monkeypatch) -> None:
    rows = [
        {"lang": f"{code}-eng", "sentence1": word + "\n", "sentence2": english + "\n"}
        for code, language in (("deu", "de"), ("cmn", "fr"))
        for word, english in zip(WORDS[language], WORDS["en"], strict=True)
    ]

    def load_dataset(name: str, *, split: str) -> datasets.Dataset:
        assert (name, split) == ("mteb/tatoeba-bitext-mining", "test")
        return datasets.Dataset.from_list(rows)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert load_tatoeba(None) == {"zh": (WORDS["fr"], WORDS["en"]), "de": (WORDS["de"], WORDS["en"])}
    assert list(TatoebaEvaluator.from_directory(None, ["zh"]).sentences) == ["zh"]
    with pytest.raises(ValueError, match="'fr'"):
        load_tatoeba(None, ["fr"])


@pytest.mark.real_data
def test_the_real_test_set_has_112_languages(real_data) -> None:
    folder = real_data / "tatoeba" / "v1"
    if not folder.is_dir():
        pytest.skip(f"needs the Tatoeba test set in {folder}")
    pairs = load_tatoeba(folder)
    assert sorted(pairs) == sorted(tatoeba_language(code) for code in ALL_CODES)
    assert sum(len(texts) for texts, _ in pairs.values()) == 88_877 and len(pairs["fr"][0]) == 1_000


def test_every_pair_both_ways_and_their_mean(static_model) -> None:
    evaluator = BilingualRetrievalEvaluator.of_parallel(WORDS, name="toy", calibration=CalibrationLayer(16))
    metrics = evaluator(static_model)
    assert metrics["toy_en-fr_accuracy"] == metrics["toy_en-fr_accuracy_backward"] == 1.0
    assert metrics["toy_en-de_accuracy"] == metrics["toy_fr-de_accuracy_forward"] == 0.5
    assert metrics["toy_average_accuracy"] == pytest.approx(4 / 6)
    for sentences, message in (({"en": ["a"]}, "none"), ({"en": [], "fr": []}, "'en-fr'")):
        with pytest.raises(ValueError, match=message):
            BilingualRetrievalEvaluator.of_parallel(sentences)


@pytest.mark.parametrize("rows", [1, 2, 300])
def test_accuracy_and_weighted_f1_are_those_of_scikit_learn(rows: int) -> None:
    generator = np.random.default_rng(3)
    source, noise = generator.normal(size=(2, rows, 6))
    target = source + 0.8 * noise
    cosines = cosine_similarity(source, target)
    forward, backward = (float((side.argmax(axis=1) == np.arange(rows)).mean()) for side in (cosines, cosines.T))
    expected = f1_score(range(rows), cosines.argmax(axis=1), average="weighted", zero_division=0)
    assert retrieval_accuracy(source, target) == (forward, backward)
    assert weighted_f1(torch.from_numpy(source), torch.from_numpy(target)) == pytest.approx(expected, abs=1e-6)
    assert rows < 300 or 0.1 < expected < 0.98


def test_of_equal_rows_the_lower_wins_whatever_the_rounding() -> None:
    # 97 copies of one random row: a matrix product may round the copies differently, in any order.
    copies = torch.randn(1, 333, generator=torch.Generator().manual_seed(0)).repeat(97, 1)
    assert retrieval_accuracy(copies, copies) == (1 / 97, 1 / 97)
    with pytest.raises(ValueError, match="row 1 "):
        retrieval_accuracy(torch.ones(2, 3), torch.tensor([[1.0] * 3, [float("nan")] * 3]))


SENTENCES = {
    **{1: ("fra", "voiture"), 2: ("deu", "wagen"), 3: ("deu", "gasthof"), 4: ("fra", "auberge"), 5: ("eng", "hotel")},
    **{6: ("nob", "bil"), 7: ("dan", "vogn"), 8: ("fra", "pain"), 9: ("\\N", "?")},
}
# 1 is linked to two German sentences and each link stands in both directions; 8 is linked to English alone.
LINKS = [(1, 2), (2, 1), (1, 3), (3, 1), (4, 3), (3, 4), (4, 5), (5, 4), (6, 7), (7, 6), (8, 5), (4, 999)]


def write_export(folder: Path, end: str = "") -> Path:
    texts = "".join(f"{number}\t{code}\t{text}\n" for number, (code, text) in SENTENCES.items())
    write(folder / f"sentences.csv{end}", texts)
    write(folder / f"links.csv{end}", "".join(f"{one}\t{other}\n" for one, other in LINKS))
    return folder


@pytest.mark.parametrize("end", ["", ".gz"])
def test_links_of_the_export(tmp_path: Path, end: str) -> None:
    def drawn(*pairs: str) -> dict[str, tuple[list[str], list[str]]]:
        return TatoebaPairsEvaluator.from_directory(write_export(tmp_path, end), pairs).sentences

    sentences = drawn("fr-de", "da-no")
    assert sentences["da-no"] == (["vogn"], ["bil"])
    first, second = sentences["fr-de"]
    assert len(first) == len(set(first)) == len(set(second)) and set(first) <= {"voiture", "auberge"}
    links = {(SENTENCES[a][1], SENTENCES[b][1]) for a, b in LINKS if b in SENTENCES}
    assert set(zip(first, second, strict=True)) <= links
    assert drawn("de-fr")["de-fr"][0] != first  # the other way round
    assert drawn("fr-de") == {"fr-de": sentences["fr-de"]}


def test_pairs_without_sentences_are_named(tmp_path: Path, tatoeba_folder: Path) -> None:
    write_export(tmp_path)
    for folder, pair in ((tmp_path, "de-zh"), (tatoeba_folder, "fr-zh"), (tmp_path, "fr-")):
        with pytest.raises(ValueError, match=pair[-2:]):
            TatoebaPairsEvaluator.from_directory(folder, [pair])
    write(tmp_path / "links.csv", "1\t2\n1\n")
    with pytest.raises(ValueError, match=r"links|columns"):
        TatoebaPairsEvaluator.from_directory(tmp_path, ["fr-de"])
    (tmp_path / "links.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"links\.csv"):
        TatoebaPairsEvaluator.from_directory(tmp_path, ["fr-de"])


def test_the_join_takes_each_sentence_once(tmp_path: Path, static_model, tatoeba_folder: Path) -> None:
    english = {"fra": ["one", "one", "two", "three", "four"], "deu": ["one", "two", "three", "three"]}
    texts = {"fra": ["un", "une", "deux", "trois", "quatre"], "deu": ["eins", "zwei", "zwei", "drei"]}
    for code in texts:
        for side, lines in ((code, texts[code]), ("eng", english[code])):
            write(tmp_path / f"tatoeba.{code}-eng.{side}", "\n".join(lines) + "\n")
    joined = TatoebaPairsEvaluator.from_directory(tmp_path, ["fr-de", "de-fr"]).sentences
    assert joined["fr-de"] == (["un", "deux"], ["eins", "zwei"])  # "zwei" is taken by "two"
    assert joined["de-fr"] == (["eins", "zwei"], ["un", "deux"])
    result = TatoebaPairsEvaluator.from_directory(tatoeba_folder, ["fr-de"]).evaluate(static_model)
    # German is aligned in its first three words of six.
    assert result.scores == {"fr-de": {"accuracy": 0.5, "accuracy_forward": 0.5, "accuracy_backward": 0.5}}
    assert result.protocol["sentences_per_language"] == "fr-de 6" and "English" in result.protocol["sentences"]
