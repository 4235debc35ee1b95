"""CrossLingualDataCollator: tags beside the tokens, positions of words, and token dropout."""

from __future__ import annotations

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
    rows = [
        {"sentence": "sun moon", "language": "en", "document": 4, "position": 0},
        {"sentence": "rain", "language": "fr", "document": 9, "position": 3},
        {"sentence": "sun moon", "language": "sw", "document": 2**40, "position": 1},
    ]
    batch = collator(rows)
    assert set(batch) == {
        *("sentence_input_ids", "sentence_offsets"),
        *("sentence_language_id", "sentence_document_id", "sentence_text_id"),
        *("sentence_block_id", "sentence_sentence_position"),
    }
    assert batch["sentence_language_id"].tolist() == [EN, FR, SW]
    assert batch["sentence_document_id"].tolist() == [4, 9, 2**40]
    first, second, third = batch["sentence_text_id"].tolist()
    assert first == third != second and first == text_to_id("sun moon")
    assert all(batch[f"sentence_{tag}"].dtype == torch.int64 for tag in ("language_id", "document_id", "text_id"))


def test_each_column_may_have_its_own_language(collator: CrossLingualDataCollator) -> None:
    rows = [
        {"source": "sun", "target": "moon", "source_language": "fr", "target_language": "en"},
        {"source": "rain", "target": "sun", "source_language": "sw", "target_language": "en"},
    ]
    batch = collator(rows)
    assert batch["source_language_id"].tolist() == [FR, SW]
    assert batch["target_language_id"].tolist() == [EN, EN]
    assert batch["source_text_id"][0] == batch["target_text_id"][1]
    assert "source_document_id" not in batch


@pytest.mark.parametrize("language", ["english", None, 0, ""])
def test_what_is_no_language_is_named(collator: CrossLingualDataCollator, language: Any) -> None:
    rows = [{"a": "sun", "a_language": "eng_Latn"}, {"a": "moon", "a_language": "und"}]
    assert collator(rows)["a_language_id"].tolist() == [EN, language_to_id("und")]
    with pytest.raises(ValueError, match=f"'a_language', row 1: .*{language!r}"):
        collator([rows[0], {**rows[1], "a_language": language}])


def test_a_columns_own_language_goes_before_the_rows(collator: CrossLingualDataCollator) -> None:
    batch = collator([{"a": "sun", "b": "moon", "language": "en", "b_language": "fr"}])
    assert batch["a_language_id"].tolist() == [EN] and batch["b_language_id"].tolist() == [FR]


def test_tokens_and_labels_are_the_hosts() -> None:
    model = tiny.transformer()
    rows = [{"a": "sun moon", "b": "rain", "label": 0.5}, {"a": "wind", "b": "snow tree", "label": 1.0}]
    expected = SentenceTransformerDataCollator(model.preprocess)(rows)
    batch = CrossLingualDataCollator(model.preprocess)([{**row, "language": "en", "position": 1} for row in rows])
    for name, value in expected.items():
        assert torch.equal(batch[name], value) if isinstance(value, torch.Tensor) else batch[name] == value
    assert set(batch) - set(expected) == {"a_text_id", "b_text_id", "a_language_id", "b_language_id"}


def rows_of(batch: dict, column: str = "sentence") -> list[list[int]]:
    borders = batch[f"{column}_offsets"].tolist()[1:]
    return [part.tolist() for part in torch.tensor_split(batch[f"{column}_input_ids"], borders)]


@pytest.mark.parametrize("dropout", [0.3, 0.99])
def test_token_dropout(dropout: float) -> None:
    preprocess = tiny.static().preprocess
    rows = [{"sentence": text} for text in ["sun moon star rain", "", "wind", "snow tree leaf root fish bird", ""]]
    whole = rows_of(CrossLingualDataCollator(preprocess)(rows))
    dropping = CrossLingualDataCollator(preprocess, token_dropout=dropout)
    dropped = rows_of(dropping(rows))
    assert sum(map(len, dropped)) < sum(map(len, whole))
    for before, after in zip(whole, dropped, strict=True):
        remaining = iter(before)
        assert all(token in remaining for token in after), "order and tokens stay"
        assert bool(before) == bool(after), "a text keeps at least one token"
    # The same batch loses the same tokens, in a resumed run too; another batch loses others.
    assert rows_of(dropping(rows)) == dropped
    if dropout == 0.3:
        assert rows_of(dropping(rows[:1] + rows[3:4] * 8))[1] != dropped[3]


def test_the_model_reads_what_token_dropout_leaves() -> None:
    model = tiny.static()
    rows = [{"sentence": "sun moon star rain"}, {"sentence": "wind snow tree leaf"}]
    batch = CrossLingualDataCollator(model.preprocess, token_dropout=0.5)(rows)
    features = {k: batch[f"sentence_{k}"] for k in ("input_ids", "offsets")}
    expected = torch.stack([model[0].embedding.weight[row].mean(0) for row in rows_of(batch)])
    torch.testing.assert_close(model(features)["sentence_embedding"], expected)


def test_token_dropout_is_for_static_encoders() -> None:
    collator = CrossLingualDataCollator(tiny.transformer().preprocess, token_dropout=0.1)
    with pytest.raises(ValueError, match="token_dropout works on the flattened inputs of a StaticEmbedding"):
        collator([{"sentence": "sun moon"}])


ROW = {
    "source": "sun moon star",
    "target": "rain wind",
    "source_language": "fr",
    "target_language": "en",
    "source_word": "moon",
    "target_word": "wind",
    "source_start": 2,
    "source_end": 3,
    "target_start": 1,
    "target_end": 4,
}


def collate(*rows: dict[str, Any]) -> dict[str, Any]:
    return CrossLingualDataCollator(tiny.transformer().preprocess)(list(rows))


def test_spans_go_to_their_columns() -> None:
    batch = collate(ROW, {**ROW, "source_start": 1, "target_end": 2})
    assert batch["source_word_start"].tolist() == [2, 1] and batch["source_word_end"].tolist() == [3, 3]
    assert batch["target_word_start"].tolist() == [1, 1] and batch["target_word_end"].tolist() == [4, 2]
    assert batch["source_word_start"].dtype == torch.int64
    assert {"source_text_id", "source_language_id", "source_input_ids"} <= set(batch)
    assert not [name for name in batch if name.startswith(("source_start_", "source_end_", "source_word_input"))]


def test_texts_with_words_get_no_prompt() -> None:
    preprocess = tiny.transformer().preprocess
    plain, prompted = (CrossLingualDataCollator(preprocess, prompts=prompts) for prompts in (None, "wind "))
    assert str(prompted([ROW])) == str(plain([ROW]))
    assert prompted.prompts == "wind "
    assert (
        prompted([{"source": "sun"}])["source_input_ids"].shape != plain([{"source": "sun"}])["source_input_ids"].shape
    )


def test_documents_may_be_named(collator: CrossLingualDataCollator) -> None:
    rows = [{"sentence": "sun", "document": name} for name in ("a", "b", "a")]
    first, second, third = collator(rows)["sentence_document_id"].tolist()
    assert first == third != second and first == text_to_id("a")


def test_shorter_batches_leave_the_model_as_it_is() -> None:
    model = tiny.transformer()
    text = " ".join(["sun moon"] * 5)
    batch = CrossLingualDataCollator(model.preprocess, max_length=6)([{"sentence": text, "language": "en"}])
    assert batch["sentence_input_ids"].shape[1] == 6
    assert model.max_seq_length == 16 and model.preprocess([text])["input_ids"].shape[1] > 6
    static = tiny.static()
    assert len(CrossLingualDataCollator(static.preprocess, max_length=6)([{"sentence": text}])["sentence_input_ids"])
