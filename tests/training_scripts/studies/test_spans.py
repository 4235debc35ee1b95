"""SpanDataCollator: CROP and ICT of the documents of a batch."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest

from st_xlret.data.packing import token_offsets
from st_xlret.losses import SemanticContrastiveLoss
from tests import tiny
from tests.tiny import word_tokenizer
from training_scripts.studies.spans import SpanDataCollator

Row = dict[str, Any]


MODEL = cache(tiny.transformer)
WORD_TOKENIZER = cache(word_tokenizer)


def collator(kind: str, **options: Any) -> SpanDataCollator:
    return SpanDataCollator(MODEL().preprocess, kind=kind, tokenizer=WORD_TOKENIZER(), **options)  # type: ignore[arg-type]


def tokens_of(text: str) -> int:
    return len(token_offsets(WORD_TOKENIZER(), [text])[0])


def rows(lengths: tuple[int, ...] = (5, 3), seed: int = 0, language: str = "en") -> list[Row]:
    """Documents of sentences that are told apart, shuffled."""
    dice = random.Random(seed)
    words = tiny.WORDS
    texts = [
        {"sentence": f"{words[d]} {words[p]} {words[-1 - p]}", "language": language, "document": d, "position": p}
        for d, length in enumerate(lengths)
        for p in range(length)
    ]
    dice.shuffle(texts)
    return texts


def whole_texts(given: list[Row]) -> dict[int, str]:
    ordered = sorted(given, key=lambda row: (row["document"], row["position"]))
    return {
        d: " ".join(row["sentence"] for row in ordered if row["document"] == d) for d in {r["document"] for r in given}
    }


def test_crops_are_two_spans_of_tokens_of_one_document() -> None:
    lengths = set()
    for seed in range(150):
        given = rows(seed=seed)
        for pair in collator("crop", shortest=0.2, longest=0.6).make_pairs(given):
            text = whole_texts(given)[pair["document"]]
            tokens = tokens_of(text)
            for side in ("anchor", "positive"):
                assert pair[side] in text
                length = tokens_of(pair[side])
                assert round(0.2 * tokens) <= length <= round(0.6 * tokens)
                lengths.add((pair["document"], length))
    # Every length between the bounds comes: 3 to 9 of 15 tokens, 2 to 5 of 9.
    assert lengths == {(0, n) for n in range(3, 10)} | {(1, n) for n in range(2, 6)}


def test_crops_of_a_long_document_lie_in_a_stretch_of_it() -> None:
    places = set()
    for seed in range(100):
        given = rows((12,), seed)
        pair = collator("crop", max_tokens=9, shortest=1.0, longest=1.0).make_pairs(given)[0]
        assert pair["anchor"] == pair["positive"] and tokens_of(pair["anchor"]) == 9
        places.add(whole_texts(given)[0].index(pair["anchor"]))
    assert len(places) > 15


def test_ict_has_a_sentence_and_the_others_of_its_block() -> None:
    kept = 0
    chosen = set()
    for seed in range(300):
        given = rows(seed=seed)
        for pair in collator("ict").make_pairs(given):
            own = sorted((r for r in given if r["document"] == pair["document"]), key=lambda r: r["position"])
            sentences = [row["sentence"] for row in own]
            place = sentences.index(pair["anchor"])
            chosen.add((pair["document"], place))
            without = " ".join(sentences[:place] + sentences[place + 1 :])
            assert pair["positive"] in (without, " ".join(sentences))
            kept += pair["positive"] != without
    assert chosen == {(0, p) for p in range(5)} | {(1, p) for p in range(3)}
    # One in ten of 600: 99.99 % lie within four deviations.
    assert 30 < kept < 90


def test_sentences_of_chinese_are_joined_without_spaces() -> None:
    pair = collator("ict", keep_sentence=1.0).make_pairs(rows((2,), language="zh"))[0]
    assert pair["positive"] == "sun sun bearsun moon wolf"


@pytest.mark.parametrize("kind", ["crop", "ict"])
def test_the_order_of_the_rows_decides(kind: str) -> None:
    make = collator(kind)
    assert make.make_pairs(rows(seed=1)) == make.make_pairs(rows(seed=1))
    drawn = {str([(pair["anchor"], pair["positive"]) for pair in make.make_pairs(rows(seed=s))]) for s in range(20)}
    assert len(drawn) > 12


def test_batches_have_two_columns_for_a_loss_and_their_tags() -> None:
    for kind in ("crop", "ict"):
        batch = collator(kind)([{**row, "dataset_name": kind} for row in rows((4, 1, 3))])
        assert batch["dataset_name"] == kind
        columns = [
            {k.removeprefix(f"{c}_"): v for k, v in batch.items() if k.startswith(f"{c}_")}
            for c in ("anchor", "positive")
        ]
        # The document of one sentence gives no pair.
        assert all(column["document_id"].tolist() == [0, 2] for column in columns)
        assert all({"language_id", "text_id", "input_ids"} <= column.keys() for column in columns)
        assert SemanticContrastiveLoss(MODEL())(columns).ndim == 0


@pytest.mark.parametrize(
    "kind, options, message",
    [
        ("mask", {}, "kind must be 'crop' or 'ict', got 'mask'"),
        ("crop", {"tokenizer": None}, "give the encoder's tokenizer"),
    ],
)
def test_options_that_will_not_do(kind: str, options: dict[str, Any], message: str) -> None:
    given = {"tokenizer": tiny.tokenizer(), **options}
    with pytest.raises(ValueError, match=message):
        SpanDataCollator(tiny.static().preprocess, kind=kind, **given)  # type: ignore[arg-type]


def test_rows_that_will_not_do() -> None:
    with pytest.raises(ValueError, match="no document of the batch has two sentences"):
        collator("ict").make_pairs(rows((1, 1)))
    with pytest.raises(ValueError, match=r"one text column, got \['sentence', 'other'\]"):
        collator("ict").make_pairs([{**row, "other": "?"} for row in rows()])
