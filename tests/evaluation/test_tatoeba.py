from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from mteb.tasks.bitext_mining import TatoebaBitextMining
from sklearn.metrics import f1_score
from sklearn.metrics.pairwise import cosine_similarity

from st_xlret.evaluation import (
    BilingualRetrievalEvaluator,
    TatoebaEvaluator,
    retrieval_accuracy,
    weighted_f1,
)
from st_xlret.evaluation.tatoeba import TatoebaPairsEvaluator
from st_xlret.evaluation.tatoeba_files import load_tatoeba, tatoeba_language
from st_xlret.modules.calibration_layer import CalibrationLayer
from tests.data.files import write_text
from tests.evaluation.samples import WORDS

ALL_CODES = sorted(pair.removesuffix("-eng") for pair in TatoebaBitextMining.metadata.eval_langs)


def test_the_files_are_read_line_by_line_by_either_code_and_in_part(
    static_model, tatoeba_folder
) -> None:
    cut = TatoebaEvaluator.from_directory(tatoeba_folder, max_sentences=3).evaluate(static_model)
    assert cut.average["accuracy"] == 1.0 and cut.protocol["sentences_per_language"] == "de 3, fr 3"
    assert list(load_tatoeba(tatoeba_folder)) == ["de", "fr"]
    assert list(load_tatoeba(tatoeba_folder, ["fra", "de", "fr"])) == ["fr", "de"]
    for side in ("fra", "eng"):  # lines end at line feeds alone, and blank ones count
        write_text(tatoeba_folder / f"tatoeba.fra-eng.{side}", "a\u2028b\r\n\n c\n")
    assert load_tatoeba(tatoeba_folder, ["fr"]) == {"fr": (["a\u2028b", "", " c"],) * 2}
    write_text(tatoeba_folder / "tatoeba.fra-eng.eng", "one\ntwo\n")
    with pytest.raises(ValueError, match=r"'fr': \(3, 2\)"):
        TatoebaEvaluator.from_directory(tatoeba_folder)
    with pytest.raises(ValueError, match=str(tatoeba_folder.parent)):  # which has no files
        TatoebaEvaluator.from_directory(tatoeba_folder.parent)


def test_codes_of_all_languages_are_distinct() -> None:
    assert len(ALL_CODES) == len({tatoeba_language(code) for code in ALL_CODES}) == 112
    short = {
        "fra": "fr",
        "ell": "el",
        "zsm": "ms",
        "lvs": "lv",
        "nob": "nb",
        "nno": "nn",
        "tgl": "tl",
        "cmn": "zh",
    }
    unchanged = {
        code: code for code in ("arq", "arz", "yue", "wuu", "ceb", "dtp", "kzj", "mhr", "cbk")
    }
    assert all(
        tatoeba_language(code) == expected for code, expected in {**short, **unchanged}.items()
    )


def test_hub_rows_are_grouped_by_language(monkeypatch) -> None:
    sides = [
        [f"{word}\n" for word in words] for words in (WORDS["de"] + WORDS["fr"], WORDS["en"] * 2)
    ]
    rows = {"lang": ["deu-eng"] * 6 + ["cmn-eng"] * 6, "sentence1": sides[0], "sentence2": sides[1]}
    of_hub = {("mteb/tatoeba-bitext-mining", "test"): datasets.Dataset.from_dict(rows)}
    monkeypatch.setattr(datasets, "load_dataset", lambda name, *, split: of_hub[name, split])
    assert load_tatoeba(None) == {
        "zh": (WORDS["fr"], WORDS["en"]),
        "de": (WORDS["de"], WORDS["en"]),
    }
    assert list(TatoebaEvaluator.from_directory(None, ["zh"]).sentences) == ["zh"]
    with pytest.raises(ValueError, match="'fr'"):
        load_tatoeba(None, ["fr"])


@pytest.mark.real_data("tatoeba", "v1")
def test_the_real_test_set_has_112_languages(real_data) -> None:
    pairs = load_tatoeba(real_data)
    assert sorted(pairs) == sorted(tatoeba_language(code) for code in ALL_CODES)
    assert sum(len(texts) for texts, _ in pairs.values()) == 88_877 and len(pairs["fr"][0]) == 1_000


def test_every_pair_both_ways_and_their_mean(static_model) -> None:
    evaluator = BilingualRetrievalEvaluator.of_parallel(WORDS, calibration=CalibrationLayer(16))
    metrics = evaluator(static_model)
    assert (
        metrics["bilingual_en-fr_accuracy"] == metrics["bilingual_en-fr_accuracy_backward"] == 1.0
    )
    assert metrics["bilingual_en-de_accuracy"] == metrics["bilingual_fr-de_accuracy_forward"] == 0.5
    assert evaluator.primary_metric == "bilingual_average_accuracy"
    assert metrics["bilingual_average_accuracy"] == pytest.approx(4 / 6)
    for sentences, message in (({"en": ["a"]}, "none"), ({"en": [], "fr": []}, "'en-fr'")):
        with pytest.raises(ValueError, match=message):
            BilingualRetrievalEvaluator.of_parallel(sentences)


@pytest.mark.parametrize("rows", [1, 2, 300])
def test_accuracy_and_weighted_f1_are_those_of_scikit_learn(rows: int) -> None:
    generator = np.random.default_rng(3)
    source, noise = generator.normal(size=(2, rows, 6))
    target = source + 0.8 * noise
    cosines = cosine_similarity(source, target)
    forward, backward = (
        float((side.argmax(axis=1) == np.arange(rows)).mean()) for side in (cosines, cosines.T)
    )
    expected = f1_score(range(rows), cosines.argmax(axis=1), average="weighted", zero_division=0)
    assert retrieval_accuracy(source, target) == (forward, backward)
    assert weighted_f1(torch.from_numpy(source), torch.from_numpy(target)) == pytest.approx(
        expected, abs=1e-6
    )
    assert rows < 300 or 0.1 < expected < 0.98


def test_of_equal_rows_the_lower_wins_whatever_the_rounding() -> None:
    # 97 copies of one random row: a matrix product may round the copies differently, in any order.
    copies = torch.randn(1, 333, generator=torch.Generator().manual_seed(0)).repeat(97, 1)
    assert retrieval_accuracy(copies, copies) == (1 / 97, 1 / 97)
    with pytest.raises(ValueError, match="row 1 "):
        retrieval_accuracy(torch.ones(2, 3), torch.tensor([[1.0] * 3, [float("nan")] * 3]))


def drawn(folder: Path, *pairs: str) -> dict[str, tuple[list[str], list[str]]]:
    return TatoebaPairsEvaluator.from_directory(folder, pairs).sentences


def write_export(folder: Path, end: str = "") -> Path:
    """1 is linked to two German sentences and each link stands in both directions; 8 is linked to English alone."""
    codes = ["fra", "deu", "deu", "fra", "eng", "nob", "dan", "fra", "\\N"]
    words = ["voiture", "wagen", "gasthof", "auberge", "hotel", "bil", "vogn", "pain", "?"]
    links = [
        (1, 2),
        (2, 1),
        (1, 3),
        (3, 1),
        (4, 3),
        (3, 4),
        (4, 5),
        (5, 4),
        (6, 7),
        (7, 6),
        (8, 5),
        (4, 999),
    ]
    rows = enumerate(zip(codes, words, strict=True), start=1)
    write_text(
        folder / f"sentences.csv{end}",
        "".join(f"{row}\t{code}\t{word}\n" for row, (code, word) in rows),
    )
    write_text(folder / f"links.csv{end}", "".join(f"{one}\t{other}\n" for one, other in links))
    return folder


def test_links_of_the_export(tmp_path: Path) -> None:
    sentences = drawn(write_export(tmp_path, end=".gz"), "fr-de", "da-no")
    assert sentences["da-no"] == (["vogn"], ["bil"])
    first, second = sentences["fr-de"]
    assert len(set(first)) == len(set(second)) == len(first)
    linked = {("voiture", "wagen"), ("voiture", "gasthof"), ("auberge", "gasthof")}
    assert {*zip(first, second, strict=True)} <= linked
    assert drawn(tmp_path, "de-fr")["de-fr"][0] != first  # the other way round
    assert drawn(tmp_path, "fr-de") == {"fr-de": sentences["fr-de"]}


def test_pairs_without_sentences_are_named(tmp_path: Path, tatoeba_folder: Path) -> None:
    for folder, pair in (
        (write_export(tmp_path), "de-zh"),
        (tatoeba_folder, "fr-zh"),
        (tmp_path, "fr-"),
    ):
        with pytest.raises(ValueError, match=pair[-2:]):
            drawn(folder, pair)


def test_the_join_takes_each_sentence_once(
    tmp_path: Path, static_model, tatoeba_folder: Path
) -> None:
    write_text(tmp_path / "tatoeba.fra-eng.fra", "un\nune\ndeux\ntrois\nquatre")
    write_text(tmp_path / "tatoeba.fra-eng.eng", "one\none\ntwo\nthree\nfour")
    write_text(tmp_path / "tatoeba.deu-eng.deu", "eins\nzwei\nzwei\ndrei")
    write_text(tmp_path / "tatoeba.deu-eng.eng", "one\ntwo\nthree\nthree")
    french, german = ["un", "deux"], ["eins", "zwei"]  # "zwei" is taken by "two"
    assert drawn(tmp_path, "fr-de", "de-fr") == {
        "fr-de": (french, german),
        "de-fr": (german, french),
    }
    result = TatoebaPairsEvaluator.from_directory(tatoeba_folder, ["fr-de"]).evaluate(static_model)
    # German is aligned in its first three words of six.
    assert result.scores == {
        "fr-de": {"accuracy": 0.5, "accuracy_forward": 0.5, "accuracy_backward": 0.5}
    }
    assert (
        result.protocol["sentences_per_language"] == "fr-de 6"
        and "English" in result.protocol["sentences"]
    )
