"""Tatoeba: its files, the Hub's rows, the export, and accuracies against scikit-learn."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from mteb.tasks.bitext_mining import TatoebaBitextMining
from sentence_transformers import SentenceTransformer
from sklearn.metrics import f1_score
from sklearn.metrics.pairwise import cosine_similarity

from st_xlret.evaluation import (
    BilingualRetrievalEvaluator,
    BUCCEvaluator,
    TatoebaEvaluator,
    TatoebaPairsEvaluator,
    retrieval_accuracy,
    weighted_f1,
)
from st_xlret.evaluation.tatoeba_files import load_tatoeba, tatoeba_language
from st_xlret.modules.calibration_layer import CalibrationLayer
from tests.data.files import write_text
from tests.evaluation.samples import WORDS

ALL_CODES = sorted(pair.removesuffix("-eng") for pair in TatoebaBitextMining.metadata.eval_langs)


def test_the_first_sentences_alone(static_model: SentenceTransformer, tatoeba_folder: Path) -> None:
    evaluator = TatoebaEvaluator.from_directory(tatoeba_folder, max_sentences=3)
    result = evaluator.evaluate(static_model)
    assert result.average["accuracy"] == 1.0  # German is aligned in its first three words
    assert result.protocol["sentences_per_language"] == "de 3, fr 3"


def test_languages_are_named_by_either_code(tatoeba_folder: Path) -> None:
    assert list(load_tatoeba(tatoeba_folder)) == ["de", "fr"]
    assert list(load_tatoeba(tatoeba_folder, ["fra", "de", "fr"])) == ["fr", "de"]


def test_lines_end_at_line_feeds_alone_and_blank_ones_count(tatoeba_folder: Path) -> None:
    for side in ("fra", "eng"):
        write_text(tatoeba_folder / f"tatoeba.fra-eng.{side}", "a\u2028b\r\n\n c\n")
    lines = ["a\u2028b", "", " c"]
    assert load_tatoeba(tatoeba_folder, ["fr"]) == {"fr": (lines, lines)}


def test_a_side_that_is_shorter_is_named(tatoeba_folder: Path) -> None:
    write_text(tatoeba_folder / "tatoeba.fra-eng.eng", "one\ntwo\n")
    with pytest.raises(ValueError, match=r"'fr': \(6, 2\)"):
        TatoebaEvaluator.from_directory(tatoeba_folder)


def test_a_folder_without_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=str(tmp_path)):
        TatoebaEvaluator.from_directory(tmp_path)


def test_codes_of_all_languages_are_distinct() -> None:
    assert len(ALL_CODES) == 112
    assert len({tatoeba_language(code) for code in ALL_CODES}) == 112


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("fra", "fr"),
        ("ell", "el"),
        ("zsm", "ms"),
        ("lvs", "lv"),
        ("nob", "nb"),
        ("nno", "nn"),
        ("tgl", "tl"),
        ("cmn", "zh"),
    ],
)
def test_a_code_of_three_letters_is_one_of_two(code: str, language: str) -> None:
    assert tatoeba_language(code) == language


@pytest.mark.parametrize("code", ["arq", "arz", "yue", "wuu", "ceb", "dtp", "kzj", "mhr", "cbk"])
def test_a_language_without_a_code_of_two_letters_keeps_its_code(code: str) -> None:
    assert tatoeba_language(code) == code


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Hub has German and Chinese, with the words of French."""
    rows = {
        "lang": ["deu-eng"] * 6 + ["cmn-eng"] * 6,
        "sentence1": [f"{word}\n" for word in WORDS["de"] + WORDS["fr"]],
        "sentence2": [f"{word}\n" for word in WORDS["en"] * 2],
    }

    def load_dataset(name: str, *, split: str) -> datasets.Dataset:
        assert (name, split) == ("mteb/tatoeba-bitext-mining", "test")
        return datasets.Dataset.from_dict(rows)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)


@pytest.mark.usefixtures("hub")
def test_hub_rows_are_grouped_by_language() -> None:
    pairs = load_tatoeba(None)
    assert pairs == {"zh": (WORDS["fr"], WORDS["en"]), "de": (WORDS["de"], WORDS["en"])}
    assert list(TatoebaEvaluator.from_directory(None, ["zh"]).sentences) == ["zh"]
    with pytest.raises(ValueError, match="'fr'"):
        load_tatoeba(None, ["fr"])


@pytest.mark.real_data("tatoeba", "v1")
def test_the_real_test_set_has_112_languages(real_data: Path) -> None:
    pairs = load_tatoeba(real_data)
    assert sorted(pairs) == sorted(tatoeba_language(code) for code in ALL_CODES)
    assert sum(len(texts) for texts, _ in pairs.values()) == 88_877
    assert len(pairs["fr"][0]) == 1_000


def test_a_prompt_of_queries_is_put_before_all_sentences(
    static_model: SentenceTransformer,
) -> None:
    evaluator = BilingualRetrievalEvaluator.of_parallel(WORDS, query_prompt="star ")
    (vector,) = evaluator.embed_texts(static_model, ["sun"], ["en"])
    np.testing.assert_allclose(vector, static_model.encode("star sun"), atol=1e-6)
    assert evaluator.protocol(static_model)["query_prompt"] == "star "


@pytest.mark.parametrize("kind", [BilingualRetrievalEvaluator, BUCCEvaluator])
def test_a_prompt_that_is_put_before_no_sentence_is_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match="document_prompt before none"):
        kind({}, document_prompt="star ")


def test_every_pair_both_ways_and_their_mean(static_model: SentenceTransformer) -> None:
    evaluator = BilingualRetrievalEvaluator.of_parallel(WORDS, calibration=CalibrationLayer(16))
    metrics = evaluator(static_model)
    assert metrics["bilingual_en-fr_accuracy"] == 1.0
    assert metrics["bilingual_en-fr_accuracy_backward"] == 1.0
    assert metrics["bilingual_en-de_accuracy"] == 0.5
    assert metrics["bilingual_fr-de_accuracy_forward"] == 0.5
    assert evaluator.primary_metric == "bilingual_average_accuracy"
    assert metrics["bilingual_average_accuracy"] == pytest.approx(4 / 6)


def test_each_side_takes_the_map_of_its_language_whatever_hyphens_it_has(
    static_model: SentenceTransformer,
) -> None:
    calibration = CalibrationLayer(16, ["en", "pt-br", "de"], pivot="en")
    calibration.matrix[1].fill_diagonal_(-2)  # x - 2 x: Portuguese is turned upside down
    sentences = {"pt-br": WORDS["fr"], "en": WORDS["en"], "de": WORDS["de"]}
    evaluator = BilingualRetrievalEvaluator.of_parallel(sentences, calibration=calibration)
    scores = evaluator.evaluate(static_model).scores
    assert list(scores) == ["pt-br-en", "pt-br-de", "en-de"]
    assert scores["pt-br-en"]["accuracy"] < 0.5
    assert scores["en-de"]["accuracy"] == 0.5


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ({"en": ["a"]}, "none"),
        ({"en": [], "fr": []}, "'en-fr'"),
        ({"en": ["a", "b"], "fr": ["a"]}, r"'en-fr': \(2, 1\)"),
        ({"en": ["a", "b"], "fr": ["a", None]}, "en-fr: .*found None"),
        ({"en": "ab", "fr": "cd"}, "en-fr: .*found a string"),
    ],
)
def test_sides_without_translations_are_refused(sentences: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        BilingualRetrievalEvaluator.of_parallel(sentences)


@pytest.mark.parametrize("name", ["fr", "fr-", "-fr", "", "fr-fr"])
def test_what_is_no_pair_of_languages_is_named(name: str, tatoeba_folder: Path) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is no pair"):
        TatoebaPairsEvaluator.from_directory(tatoeba_folder, [name])


@pytest.mark.parametrize("rows", [1, 2, 300])
def test_accuracy_and_weighted_f1_are_those_of_scikit_learn(rows: int) -> None:
    generator = np.random.default_rng(3)
    source, noise = generator.normal(size=(2, rows, 6))
    target = source + 0.8 * noise
    cosines = cosine_similarity(source, target)
    nearest = cosines.argmax(axis=1)
    nearest_back = cosines.argmax(axis=0)
    own = np.arange(rows)
    expected = f1_score(own, nearest, average="weighted", zero_division=0)
    accuracies = (float((nearest == own).mean()), float((nearest_back == own).mean()))
    assert retrieval_accuracy(source, target) == accuracies
    f1 = weighted_f1(torch.from_numpy(source), torch.from_numpy(target))
    assert f1 == pytest.approx(expected, abs=1e-6)
    if rows == 300:
        assert 0.1 < expected < 0.98


def test_of_equal_rows_the_lower_wins_whatever_the_rounding() -> None:
    # 97 copies of one random row: a matrix product may round them differently, in any order.
    copies = torch.randn(1, 333, generator=torch.Generator().manual_seed(0)).repeat(97, 1)
    assert retrieval_accuracy(copies, copies) == (1 / 97, 1 / 97)


def test_a_row_that_is_not_finite_is_named() -> None:
    rows = torch.ones(2, 3)
    rows[1, 1] = torch.nan
    with pytest.raises(ValueError, match="row 1 "):
        retrieval_accuracy(torch.ones(2, 3), rows)


Pairs = dict[str, tuple[list[str], list[str]]]


def drawn(folder: Path, *pairs: str) -> Pairs:
    return TatoebaPairsEvaluator.from_directory(folder, pairs).sentences


SENTENCES = [
    ("fra", "voiture"),
    ("deu", "wagen"),
    ("deu", "gasthof"),
    ("fra", "auberge"),
    ("eng", "hotel"),
    ("nob", "bil"),
    ("dan", "vogn"),
    ("fra", "pain"),
    ("\\N", "?"),
]
LINKS = [(1, 2), (1, 3), (3, 4), (4, 5), (6, 7)]
"""Linked both ways: the first sentence has two in German."""
LINKS_ONE_WAY = [(8, 5), (4, 999)]
"""To English alone, and to what is not there."""


def write_export(folder: Path, end: str = "") -> Path:
    lines = []
    for number, (code, word) in enumerate(SENTENCES, start=1):
        lines.append(f"{number}\t{code}\t{word}\n")
    write_text(folder / f"sentences.csv{end}", "".join(lines))
    links = []
    for one, other in LINKS:
        links += [f"{one}\t{other}\n", f"{other}\t{one}\n"]
    for one, other in LINKS_ONE_WAY:
        links.append(f"{one}\t{other}\n")
    write_text(folder / f"links.csv{end}", "".join(links))
    return folder


def test_links_of_the_export(tmp_path: Path) -> None:
    sentences = drawn(write_export(tmp_path, end=".gz"), "fr-de", "da-no")
    assert sentences["da-no"] == (["vogn"], ["bil"])
    first, second = sentences["fr-de"]
    assert len(set(first)) == len(first)
    assert len(set(second)) == len(second)
    linked = {("voiture", "wagen"), ("voiture", "gasthof"), ("auberge", "gasthof")}
    assert {*zip(first, second, strict=True)} <= linked


def test_the_draw_is_the_same_each_time(tmp_path: Path) -> None:
    write_export(tmp_path)
    first = drawn(tmp_path, "fr-de")
    assert drawn(tmp_path, "da-no", "fr-de")["fr-de"] == first["fr-de"]
    german, french = drawn(tmp_path, "de-fr")["de-fr"]
    assert set(german) <= {"wagen", "gasthof"}
    assert set(french) <= {"voiture", "auberge"}


def test_a_pair_of_the_export_without_links_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="de-zh"):
        drawn(write_export(tmp_path), "de-zh")


def test_a_language_without_a_test_set_is_named(tatoeba_folder: Path) -> None:
    with pytest.raises(ValueError, match="'zh'"):
        drawn(tatoeba_folder, "fr-zh")


def test_the_join_takes_each_sentence_once(tmp_path: Path) -> None:
    write_text(tmp_path / "tatoeba.fra-eng.fra", "un\nune\ndeux\ntrois\nquatre")
    write_text(tmp_path / "tatoeba.fra-eng.eng", "one\none\ntwo\nthree\nfour")
    write_text(tmp_path / "tatoeba.deu-eng.deu", "eins\nzwei\nzwei\ndrei")
    write_text(tmp_path / "tatoeba.deu-eng.eng", "one\ntwo\nthree\nthree")
    pairs = drawn(tmp_path, "fr-de", "de-fr")
    french = ["un", "deux"]
    german = ["eins", "zwei"]  # "zwei" is taken by "two"
    assert pairs == {"fr-de": (french, german), "de-fr": (german, french)}


def test_accuracies_of_joined_pairs(
    static_model: SentenceTransformer, tatoeba_folder: Path
) -> None:
    result = TatoebaPairsEvaluator.from_directory(tatoeba_folder, ["fr-de"]).evaluate(static_model)
    # German is aligned in its first three words of six.
    names = ("accuracy", "accuracy_forward", "accuracy_backward")
    assert result.scores == {"fr-de": dict.fromkeys(names, 0.5)}
    assert result.protocol["sentences_per_language"] == "fr-de 6"
    assert "English" in result.protocol["sentences"]


@pytest.mark.parametrize("name", ["FR-DE", "fra-deu"])
def test_a_pair_is_named_by_any_spelling_of_its_languages(name: str, tatoeba_folder: Path) -> None:
    expected = drawn(tatoeba_folder, "fr-de")["fr-de"]
    assert drawn(tatoeba_folder, name) == {name: expected}
