"""CrossLingualDataCollator: tags beside the tokens, positions of words, lengths, dropped tokens."""

from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

from st_xlret.batches import CrossLingualDataCollator
from st_xlret.batches.collator import text_to_id
from st_xlret.languages import language_to_id
from tests import tiny

EN = language_to_id("en")
FR = language_to_id("fr")
SW = language_to_id("sw")


@pytest.fixture
def collator() -> CrossLingualDataCollator:
    return CrossLingualDataCollator(tiny.static().preprocess)


def test_one_column_with_language_document_and_position(collator: CrossLingualDataCollator) -> None:
    rows = [
        {"sentence": "sun moon", "language": "en", "document": 4.0, "position": 0},
        {"sentence": "rain", "language": "fr", "document": "a", "position": 3},
        {"sentence": "sun moon", "language": "sw", "document": 2**40, "position": 1},
        {"sentence": "rain", "language": "sw", "document": 4.5, "position": 2},
    ]
    batch = collator(rows)
    sun = text_to_id("sun moon")
    rain = text_to_id("rain")
    documents = [4, text_to_id("a"), 2**40, text_to_id("4.5")]
    expected = {
        "text_id": [sun, rain, sun, rain],
        "language_id": [EN, FR, SW, SW],
        "document_id": documents,
        "block_id": documents,
        "sentence_position": [0, 3, 1, 2],
    }
    assert sun != rain
    assert batch.pop("sentence_column_names") == ["sentence"]
    tokens = {"sentence_input_ids", "sentence_offsets"}
    assert set(batch) == tokens | {f"sentence_{name}" for name in expected}
    for name, values in expected.items():
        assert batch[f"sentence_{name}"].tolist() == values
        assert batch[f"sentence_{name}"].dtype == torch.int64


def test_each_column_may_have_its_own_language(collator: CrossLingualDataCollator) -> None:
    row = {"a": "sun", "b": "moon", "c": "sun", "a_language": "fr"}
    batch = collator([{**row, "b_language": "sw"}, {**row, "b_language": "en"}])
    assert batch["a_language_id"].tolist() == [FR, FR]
    assert batch["b_language_id"].tolist() == [SW, EN]
    assert "c_language_id" not in batch
    assert "a_document_id" not in batch
    assert batch["a_text_id"].tolist() == batch["c_text_id"].tolist()


def test_the_language_of_a_column_goes_before_that_of_the_row(
    collator: CrossLingualDataCollator,
) -> None:
    batch = collator([{"a": "sun", "b": "moon", "language": "en", "b_language": "fr"}])
    assert batch["a_language_id"].tolist() == [EN]
    assert batch["b_language_id"].tolist() == [FR]


@pytest.mark.parametrize("language", ["english", None, 0, ""])
def test_what_is_no_language_is_named(collator: CrossLingualDataCollator, language: Any) -> None:
    rows = [{"a": "sun", "a_language": "eng_Latn"}, {"a": "moon", "a_language": "und"}]
    assert collator(rows)["a_language_id"].tolist() == [EN, language_to_id("und")]
    rows[1]["a_language"] = language
    with pytest.raises(ValueError, match=f"'a_language', row 1: .*{language!r}"):
        collator(rows)


def test_tokens_and_labels_are_the_hosts() -> None:
    model = tiny.transformer()
    rows: list[dict[str, Any]] = [
        {"a": "sun moon", "b": "rain", "label": 0.5},
        {"a": "wind", "b": "snow tree", "label": 1.0},
    ]
    expected = SentenceTransformerDataCollator(model.preprocess)(rows)
    tagged = [{**row, "language": "en", "position": 1} for row in rows]
    batch = CrossLingualDataCollator(model.preprocess)(tagged)
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(batch[name], value)
        else:
            assert batch[name] == value
    tags = {"text_id", "language_id", "column_names"}
    further = {f"{column}_{tag}" for column in "ab" for tag in tags}
    assert set(batch) - set(expected) == further


# Prompts and routes


def task_and_text(batch: dict[str, Any], column: str) -> tuple[str | None, str]:
    """The route of a column, and the tokens of its first text."""
    text = tiny.tokenizer().decode(batch[f"{column}_input_ids"][0], skip_special_tokens=True)
    return batch.get(f"{column}_task"), text


def by_roles(**options: Any) -> CrossLingualDataCollator:
    return CrossLingualDataCollator(
        tiny.transformer().preprocess,
        role_prompts={"query": "sun ", "document": "moon ", None: "wind "},
        role_routes={"query": "query", "document": "document", None: "document"},
        **options,
    )


@pytest.mark.parametrize("dataset_name", [None, "any", "question"])
def test_prompt_and_route_of_each_column_are_those_of_its_role(dataset_name: str | None) -> None:
    row = {"question": "fish", "answer": "fish", "sentence": "fish"}
    if dataset_name is not None:
        row["dataset_name"] = dataset_name
    batch = by_roles(prompts=None)([row])
    assert task_and_text(batch, "question") == ("query", "sun fish")
    assert task_and_text(batch, "answer") == ("document", "moon fish")
    assert task_and_text(batch, "sentence") == ("document", "wind fish")


def test_prompts_and_routes_that_are_given_are_used_alone() -> None:
    given = by_roles(prompts={"answer": "star "}, router_mapping={"answer": "query"})
    batch = given([{"question": "fish", "answer": "fish"}])
    assert task_and_text(batch, "question") == (None, "fish")
    assert task_and_text(batch, "answer") == ("query", "star fish")


def test_spans_go_to_their_columns_and_texts_with_words_get_no_prompt() -> None:
    preprocess = tiny.transformer().preprocess
    plain = CrossLingualDataCollator(preprocess, prompts=None)
    prompted = CrossLingualDataCollator(preprocess, prompts="wind ")
    rows = tiny.word_rows(2)
    batch = plain(rows)
    for column in ("source", "target"):
        for end in ("start", "end"):
            tag = batch[f"{column}_word_{end}"]
            assert tag.tolist() == [row[f"{column}_{end}"] for row in rows]
            assert tag.dtype == torch.int64
    assert {"source_text_id", "source_language_id", "source_input_ids"} <= set(batch)
    for name in batch:
        assert not name.startswith(("source_start_", "source_end_", "source_word_input"))
    assert str(prompted(rows)) == str(batch)
    assert prompted.prompts == "wind "
    without_words = [{"source": "sun"}]
    assert len(prompted(without_words)["source_input_ids"][0]) > len(
        plain(without_words)["source_input_ids"][0]
    )


# Inputs of a static encoder

TEXTS = ["sun moon star rain", "", "wind", "snow tree leaf root fish bird", ""]
ROWS = [{"sentence": text} for text in TEXTS]


def tokens_of(batch: dict[str, Any]) -> list[list[int]]:
    borders = batch["sentence_offsets"].tolist()[1:]
    return [part.tolist() for part in torch.tensor_split(batch["sentence_input_ids"], borders)]


@pytest.mark.parametrize("most", [1, 3, 100])
def test_a_static_encoder_reads_no_more_tokens_than_asked_for(most: int) -> None:
    model = tiny.static()
    whole = tokens_of(CrossLingualDataCollator(model.preprocess)(ROWS))
    batch = CrossLingualDataCollator(model.preprocess, max_length=most)(ROWS)
    assert tokens_of(batch) == [tokens[:most] for tokens in whole]


@pytest.mark.parametrize("dropout", [0.3, 0.99])
def test_token_dropout(dropout: float) -> None:
    model = tiny.static()
    whole = tokens_of(CrossLingualDataCollator(model.preprocess)(ROWS))
    batch = CrossLingualDataCollator(model.preprocess, token_dropout=dropout)(ROWS)
    dropped = tokens_of(batch)
    assert sum(map(len, dropped)) < sum(map(len, whole))
    for before, after in zip(whole, dropped, strict=True):
        assert bool(before) == bool(after), "a text keeps at least one token"
        left = iter(before)
        for token in after:
            assert token in left, "order and tokens stay"
    vectors = model(
        {"input_ids": batch["sentence_input_ids"], "offsets": batch["sentence_offsets"]}
    )
    expected = model[0].embedding.weight[dropped[3]].mean(0)
    torch.testing.assert_close(vectors["sentence_embedding"][3], expected)


def test_a_batch_loses_the_same_tokens_in_a_resumed_run_and_another_batch_others() -> None:
    dropping = CrossLingualDataCollator(tiny.static().preprocess, token_dropout=0.3)
    dropped = tokens_of(dropping(ROWS))
    assert tokens_of(dropping(ROWS)) == dropped
    other_batch = [ROWS[0], *[ROWS[3]] * 8]
    assert tokens_of(dropping(other_batch))[1] != dropped[3]


def test_tokens_of_an_encoder_that_pads_are_not_dropped() -> None:
    dropping = CrossLingualDataCollator(tiny.transformer().preprocess, token_dropout=0.3)
    with pytest.raises(ValueError, match="token_dropout works on the flattened inputs"):
        dropping(ROWS)


@pytest.mark.parametrize("options", [{"max_length": 0}, {"token_dropout": 1.5}])
def test_numbers_out_of_range_are_refused_by_name(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=f"{name} {options[name]}: it has to be"):
        CrossLingualDataCollator(tiny.static().preprocess, **options)
