"""CrossLingualDataCollator: tags beside the tokens, positions of words, and token dropout."""

from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

from st_xlret.batches import CrossLingualDataCollator
from st_xlret.batches.collator import text_to_id
from st_xlret.languages import language_to_id
from tests import tiny

EN, FR, SW = (language_to_id(code) for code in ("en", "fr", "sw"))


@pytest.fixture
def collator() -> CrossLingualDataCollator:
    return CrossLingualDataCollator(tiny.static().preprocess)


def test_one_column_with_language_document_and_position(collator: CrossLingualDataCollator) -> None:
    texts, columns = (
        ["sun moon", "rain", "sun moon", "rain"],
        ("sentence", "language", "document", "position"),
    )
    values = zip(texts, ["en", "fr", "sw", "sw"], [4.0, "a", 2**40, 4.5], [0, 3, 1, 2], strict=True)
    batch = collator([dict(zip(columns, row, strict=True)) for row in values])
    expected = {
        "text_id": [text_to_id(text) for text in texts],
        "language_id": [EN, FR, SW, SW],
        "document_id": [4, text_to_id("a"), 2**40, text_to_id("4.5")],
        "block_id": [4, text_to_id("a"), 2**40, text_to_id("4.5")],
        "sentence_position": [0, 3, 1, 2],
    }
    assert batch.pop("sentence_column_names") == ["sentence"]
    tags = {name.removeprefix("sentence_"): value for name, value in batch.items()}
    assert set(tags) == {"input_ids", "offsets", *expected}
    assert {name: tags[name].tolist() for name in expected} == expected and len(
        set(expected["text_id"])
    ) == 2
    assert all(tags[name].dtype == torch.int64 for name in expected)


def test_each_column_may_have_its_own_language(collator: CrossLingualDataCollator) -> None:
    rows = [
        {"a": "sun", "b": "moon", "c": "sun", "a_language": "fr", "b_language": code}
        for code in ("sw", "en")
    ]
    batch = collator(rows)
    assert batch["a_language_id"].tolist() == [FR, FR] and batch["b_language_id"].tolist() == [
        SW,
        EN,
    ]
    assert "c_language_id" not in batch and "a_document_id" not in batch
    assert batch["a_text_id"].tolist() == batch["c_text_id"].tolist()
    # It goes before that of the row.
    batch = collator([{"a": "sun", "b": "moon", "language": "en", "b_language": "fr"}])
    assert batch["a_language_id"].tolist() == [EN] and batch["b_language_id"].tolist() == [FR]


@pytest.mark.parametrize("language", ["english", None, 0, ""])
def test_what_is_no_language_is_named(collator: CrossLingualDataCollator, language: Any) -> None:
    rows = [{"a": "sun", "a_language": "eng_Latn"}, {"a": "moon", "a_language": "und"}]
    assert collator(rows)["a_language_id"].tolist() == [EN, language_to_id("und")]
    with pytest.raises(ValueError, match=f"'a_language', row 1: .*{language!r}"):
        collator([rows[0], {**rows[1], "a_language": language}])


def test_tokens_and_labels_are_the_hosts() -> None:
    model = tiny.transformer()
    rows = [
        {"a": "sun moon", "b": "rain", "label": 0.5},
        {"a": "wind", "b": "snow tree", "label": 1.0},
    ]
    expected = SentenceTransformerDataCollator(model.preprocess)(rows)
    batch = CrossLingualDataCollator(model.preprocess)(
        [{**row, "language": "en", "position": 1} for row in rows]
    )
    for name, value in expected.items():
        assert (
            torch.equal(batch[name], value)
            if isinstance(value, torch.Tensor)
            else batch[name] == value
        )
    assert set(batch) - set(expected) == {
        f"{column}_{tag}" for column in "ab" for tag in ("text_id", "language_id", "column_names")
    }


def tokens_of(batch: dict[str, Any]) -> list[list[int]]:
    borders = batch["sentence_offsets"].tolist()[1:]
    return [part.tolist() for part in torch.tensor_split(batch["sentence_input_ids"], borders)]


@pytest.mark.parametrize("dropout", [0.3, 0.99])
def test_token_dropout(dropout: float) -> None:
    model = tiny.static()
    rows = [
        {"sentence": text}
        for text in ["sun moon star rain", "", "wind", "snow tree leaf root fish bird", ""]
    ]
    whole = tokens_of(CrossLingualDataCollator(model.preprocess)(rows))
    dropping = CrossLingualDataCollator(model.preprocess, token_dropout=dropout)
    batch = dropping(rows)
    dropped = tokens_of(batch)
    assert sum(map(len, dropped)) < sum(map(len, whole))
    for before, after in zip(whole, dropped, strict=True):
        remaining = iter(before)
        assert all(token in remaining for token in after), "order and tokens stay"
        assert bool(before) == bool(after), "a text keeps at least one token"
    vectors = model({name: batch[f"sentence_{name}"] for name in ("input_ids", "offsets")})[
        "sentence_embedding"
    ]
    torch.testing.assert_close(vectors[3], model[0].embedding.weight[dropped[3]].mean(0))
    # The same batch loses the same tokens, in a resumed run too; another batch loses others.
    assert tokens_of(dropping(rows)) == dropped
    if dropout == 0.3:
        assert tokens_of(dropping(rows[:1] + rows[3:4] * 8))[1] != dropped[3]
    with pytest.raises(
        ValueError, match="token_dropout works on the flattened inputs of a StaticEmbedding"
    ):
        CrossLingualDataCollator(tiny.transformer().preprocess, token_dropout=dropout)(rows)


def test_spans_go_to_their_columns_and_texts_with_words_get_no_prompt() -> None:
    preprocess = tiny.transformer().preprocess
    plain, prompted = (
        CrossLingualDataCollator(preprocess, prompts=prompts) for prompts in (None, "wind ")
    )
    rows = tiny.word_rows(2)
    batch = plain(rows)
    for name in ("source_start", "source_end", "target_start", "target_end"):
        tag = batch[name.replace("_", "_word_")]
        assert tag.tolist() == [row[name] for row in rows] and tag.dtype == torch.int64
    assert {"source_text_id", "source_language_id", "source_input_ids"} <= set(batch)
    assert not [
        name
        for name in batch
        if name.startswith(("source_start_", "source_end_", "source_word_input"))
    ]
    assert str(prompted(rows)) == str(batch) and prompted.prompts == "wind "
    shapes = [one([{"source": "sun"}])["source_input_ids"].shape for one in (plain, prompted)]
    assert shapes[0] != shapes[1]
