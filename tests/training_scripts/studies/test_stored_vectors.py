"""Stored vectors: the figures of the benchmark's evaluator, from vectors that are embedded once; indexes of them."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from st_xlret.evaluation import LAReQAEvaluator, TatoebaEvaluator
from tests import tiny
from tests.data.files import write_text
from training_scripts.studies import approximate_indexes
from training_scripts.studies.measure_search import FURTHER, TATOEBA
from training_scripts.studies.stored_vectors import COLUMNS, OF_TATOEBA, main, read


def write_tatoeba(folder: Path) -> Path:
    """Sentences of six words in each language, of which one, two or three are the translation's."""
    texts = tiny.texts(12)["sentence"][:]
    for place, code in enumerate([*TATOEBA, *FURTHER]):
        own = [" ".join([*text.split()[: 1 + place % 3], *tiny.WORDS[:3]]) for text in texts]
        write_text(folder / f"tatoeba.{code}-eng.{code}", "\n".join(own) + "\n")
        write_text(folder / f"tatoeba.{code}-eng.eng", "\n".join(texts) + "\n")
    return folder


def test_the_figures_are_those_of_the_evaluator(pool: Path, tmp_path: Path) -> None:
    model = tiny.transformer()
    model.save(str(tmp_path / "model"))
    tatoeba = write_tatoeba(tmp_path / "tatoeba")
    words = ["--encoder", str(tmp_path / "model"), "--data", str(pool), "--output", str(tmp_path / "stored")]
    figures = main([*words, "--tatoeba", str(tatoeba)])
    shutil.rmtree(tmp_path / "model")
    assert str(main([*words, "--tatoeba", str(tatoeba)])) == str(figures)
    raw = dict(zip((*COLUMNS, *OF_TATOEBA), figures["as it is"], strict=True))
    average = LAReQAEvaluator.from_directory(pool).evaluate(model).average
    own = LAReQAEvaluator.from_directory(pool, split="test-same-language").evaluate(model).average
    scores = TatoebaEvaluator.from_directory(tatoeba).evaluate(model)
    expected = [average["map_at_20"], own["map_at_20"], average["recall_at_10"]]
    expected += [scores.scores["fr"]["accuracy"], scores.average["accuracy"]]
    found = [raw[name] for name in ("pool", "own", "recall@10", *OF_TATOEBA)]
    assert found == pytest.approx([100 * value for value in expected], abs=0.051)
    assert all(value >= 0 for value in figures["lsar, both sides"][-2:])
    assert math.isnan(figures["shift, both sides"][-1]), "shift has no map for the other languages"
    assert len([row for row in figures if row.startswith("st-xlret calibrate, ")]) == 2
    assert figures["lsar, queries alone"] != figures["as it is"] != figures["lsar, both sides"]

    indexes = approximate_indexes.main(words)
    assert [share for share, _ in indexes["exact search"]] == [1, 1]
    expected = [figures[name][3] for name in ("as it is", "lsar, half of the mean, queries alone")]
    assert [100 * recall for _, recall in indexes["exact search"]] == pytest.approx(expected, abs=0.051)
    assert all(0 < share <= 1 and 0 < recall <= 1 for sides in indexes.values() for share, recall in sides)
    assert min(share for share, _ in indexes["PQ, 4 bytes"]) < 1


def test_a_paragraph_is_all_sentences_whose_names_share_its_own(pool: Path) -> None:
    sentences, paragraphs = read(str(pool), "sentences", ["fr"]), read(str(pool), "paragraphs", ["fr"])
    assert sentences.corpus.unique("language") == paragraphs.queries.unique("language") == ["fr"]
    assert paragraphs.corpus["id"][:] == ["fr"]  # the pool's names are LANGUAGE-NUMBER
    assert paragraphs.corpus["text"][0].split() == " ".join(sentences.corpus["text"]).split()


def test_the_share_of_the_exact_results() -> None:
    assert approximate_indexes.shared(np.array([[3, 1], [5, -1]]), np.array([[1, 2], [5, 6]])) == 0.5
