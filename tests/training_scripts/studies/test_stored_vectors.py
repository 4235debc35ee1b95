"""Stored vectors: the figures of the benchmark's evaluator, from vectors that are embedded once; indexes of them."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from st_xlret.evaluation import LAReQAEvaluator
from tests import tiny
from tests.training_scripts.studies.conftest import write_tatoeba
from training_scripts.studies import approximate_indexes
from training_scripts.studies.stored_vectors import COLUMNS, OF_TATOEBA, main, read


def test_the_figures_are_those_of_the_evaluator(pool: Path, tmp_path: Path) -> None:
    model = tiny.transformer()
    model.save(str(tmp_path / "model"))
    words = ["--encoder", str(tmp_path / "model"), "--data", str(pool), "--output", str(tmp_path / "stored")]
    tatoeba = ["--tatoeba", str(write_tatoeba(tmp_path / "tatoeba"))]
    figures = main([*words, *tatoeba])
    shutil.rmtree(tmp_path / "model")
    assert str(main([*words, *tatoeba])) == str(figures)  # from the vectors that are stored
    raw = dict(zip((*COLUMNS, *OF_TATOEBA), figures["as it is"], strict=True))
    average = LAReQAEvaluator.from_directory(pool).evaluate(model).average
    assert (raw["pool"], raw["recall@10"]) == pytest.approx(
        (100 * average["map_at_20"], 100 * average["recall_at_10"]), abs=0.051
    )
    assert all(value >= 0 for value in figures["lsar, both sides"][-2:])
    assert math.isnan(figures["shift, both sides"][-1]), "shift has no map for the other languages"
    assert figures["lsar, queries alone"] != figures["as it is"] != figures["lsar, both sides"]

    indexes = approximate_indexes.main(words)
    assert [share for share, _ in indexes["exact search"]] == [1, 1]
    recall = [figures[name][3] for name in ("as it is", "lsar, 0.4 of the mean, queries alone")]
    assert [100 * each for _, each in indexes["exact search"]] == pytest.approx(recall, abs=0.051)
    assert all(0 < share <= 1 and 0 < each <= 1 for sides in indexes.values() for share, each in sides)
    assert min(share for share, _ in indexes["PQ, 4 bytes"]) < 1


def test_a_paragraph_is_all_sentences_whose_names_share_its_own(pool: Path) -> None:
    sentences, paragraphs = read(str(pool), "sentences", ["fr"]), read(str(pool), "paragraphs", ["fr"])
    assert sentences.corpus.unique("language") == paragraphs.queries.unique("language") == ["fr"]
    assert paragraphs.corpus["id"][:] == ["fr"]  # the pool's names are LANGUAGE-NUMBER
    assert paragraphs.corpus["text"][0].split() == " ".join(sentences.corpus["text"]).split()
