"""What a data set's columns are by their names, and what a loss takes of them."""

import re
from pathlib import Path

import pytest
from datasets import Dataset

from st_xlret import columns
from st_xlret.columns import (
    BESIDE_ONE_TEXT,
    KINDS,
    ROLES,
    ColumnError,
    Declared,
    Layout,
    column_role,
    rename,
)

SENTENCES = Layout(1, needs=("document", "language"), leaves_out=BESIDE_ONE_TEXT)
WINDOWS = Layout(2, needs=("language",), label_is="language")
PAIRS = Layout(2)
QUESTIONS = Layout(2, further="negative", most_further=9)
WORDS = Layout(2, needs=("span",))
BLOCKS = Layout(0, label_is="document")


@pytest.mark.parametrize(
    ("layouts", "names", "read"),
    [
        ([SENTENCES], "url title sentence document language id", "sentence document language"),
        ([SENTENCES, WINDOWS], "centre context label", "centre context label"),
        (
            [WINDOWS],
            "source target source_language target_language",
            "source target source_language target_language",
        ),
        ([PAIRS], "target source id language", "target source language"),
        ([PAIRS], "query_1 query_2", "query_1 query_2"),
        ([PAIRS], "sentence1 sentence2", "sentence1 sentence2"),
        ([QUESTIONS], "negative_1 negative positive anchor", "anchor positive negative_1 negative"),
        ([QUESTIONS], "sentence_0 sentence_1 sentence_2", "sentence_0 sentence_1 sentence_2"),
        (
            [WORDS],
            "a_word source target source_start source_end target_start target_end source_word",
            None,
        ),
        (
            [BLOCKS],
            "sentence_0 sentence_1 sentence_2 label",
            "sentence_0 sentence_1 sentence_2 label",
        ),
    ],
)
def test_the_columns_that_are_read(layouts: list[Layout], names: str, read: str | None) -> None:
    declared = Declared(names.split())
    if read is None:
        with pytest.raises(ColumnError, match="a_word"):
            declared.columns_to_read(layouts)
    else:
        assert declared.columns_to_read(layouts) == read.split()


@pytest.mark.parametrize(
    ("layout", "names", "said"),
    [
        (PAIRS, "source lang", "lang"),
        (PAIRS, "source iso", "iso"),
        (PAIRS, "english french", "english"),
        (PAIRS, "source target is_duplicate", "is_duplicate"),
        (PAIRS, "source target title", "title"),
        (PAIRS, "source target label", "label"),
        (PAIRS, "source negative", "1 text|2 text"),
        (PAIRS, "query positive target_language", "target_language"),
        (QUESTIONS, "query document", "1 text"),
        (QUESTIONS, "query positive document", "document"),
        (QUESTIONS, "query positive hard_negative", "hard_negative"),
        (QUESTIONS, "query positive other", "3 text"),
        (WINDOWS, "source target target_language", "language"),
        (WINDOWS, "source target language label", "label"),
        (SENTENCES, "sentence document", "language"),
        (SENTENCES, "sentence text document language", "2 text"),
        (WORDS, "source target source_start source_end target_start", "target_end"),
    ],
)
def test_what_is_not_declared_missing_or_not_read_is_named(
    layout: Layout, names: str, said: str
) -> None:
    with pytest.raises(ColumnError, match=said):
        Declared(names.split()).columns_to_read([layout])


def test_columns_get_declared_names_when_data_enter() -> None:
    rows = Dataset.from_dict({"english": ["a"], "french": ["b"], "score": [0.5]})
    named = rename(rows, {"english": "source", "french": "target"})
    assert named.column_names == ["source", "target"] and named[0] == {"source": "a", "target": "b"}
    with pytest.raises(ColumnError, match="german"):
        rename(rows, {"german": "source"})


def test_roles() -> None:
    roles = {
        name: column_role(name)
        for name in ("anchor", "question_1", "negative_12", "source", "body")
    }
    assert roles == {
        "anchor": "query",
        "question_1": "query",
        "negative_12": "document",
        "source": None,
        "body": None,
    }


ROLES_IN_WORDS = {
    "a query": "query",
    "a document": "document",
    "a text of either kind": None,
}


def rows_of_the_page(repository: Path) -> list[tuple[list[str], str]]:
    """The names and the meaning of each row of the page's table of names."""
    page = (repository / "docs" / "guides" / "own-data.md").read_text(encoding="utf-8")
    section = page.partition("## Names of columns")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", section, re.MULTILINE)
    return [(re.findall("`(.*?)`", names), meaning) for names, meaning in rows]


def test_the_page_says_the_roles_of_texts(repository: Path) -> None:
    roles = {}
    for names, meaning in rows_of_the_page(repository):
        words = meaning.partition(",")[0]
        if words in ROLES_IN_WORDS:
            roles.update(dict.fromkeys(names, ROLES_IN_WORDS[words]))
    assert roles == ROLES


def test_the_module_has_the_same_names_as_the_page(repository: Path) -> None:
    documented = [name for names, _ in rows_of_the_page(repository) for name in names]
    in_module = re.findall("`([a-z_0-9]+)`", (columns.__doc__ or "").partition("| --- |")[2])
    assert {*ROLES, *KINDS} <= set(in_module)
    assert set(in_module) <= set(documented)
