"""Which of a model's own prompts stands before the texts of a column."""

from __future__ import annotations

from typing import Any

QUERY_COLUMNS = ("anchor", "query", "question")
"""Columns of queries: they get the prompt that `encode_query` uses."""

DOCUMENT_COLUMNS = ("positive", "negative", "passage", "answer", "context")
"""Columns of documents, also with a number as in `negative_1`: they get the prompt that `encode_document` uses."""

_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


def model_prompt(model: Any, column: str) -> str | None:
    """The prompt of a model for the texts of a column, so that it is trained with the prompts that it is used with.

    Queries get the prompt of `encode_query`, documents that of `encode_document`, and all other texts, such as the two
    sides of translations and the sentences of documents, that of `encode`: the model's default prompt, if it has one.

    Args:
        model: A `SentenceTransformer`.
        column: Name of the text column.

    Returns:
        The prompt, or None where the model has none for such texts.

    Example:
        >>> from st_xlret.modules import static_encoder, train_tokenizer
        >>> model = static_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), features=8)
        >>> model.prompts = {"query": "query: ", "document": "passage: "}
        >>> [model_prompt(model, column) for column in ("query", "negative_2", "source")]
        ['query: ', 'passage: ', None]
    """
    kind = column.rstrip("_0123456789")
    if kind in QUERY_COLUMNS:
        names = ["query"]
    elif kind in DOCUMENT_COLUMNS:
        names = [name for name in _DOCUMENT_PROMPTS if name in model.prompts][:1]
    else:
        names = [model.default_prompt_name]
    return next((model.prompts[name] for name in names if model.prompts.get(name)), None)


def prompts_of(model: Any) -> dict[str, str]:
    """The prompts that `model_prompt` may give, by the columns that they are for; empty for a model without prompts."""
    columns = {"queries": QUERY_COLUMNS[0], "documents": DOCUMENT_COLUMNS[0], "other texts": ""}
    found = {texts: model_prompt(model, column) for texts, column in columns.items()}
    return {texts: prompt for texts, prompt in found.items() if prompt}


def prompt_tokens(model: Any, prompts: Any = None) -> int:
    """How many tokens the longest prompt takes of a text's `max_seq_length`.

    Args:
        model: A `SentenceTransformer` that starts with a Transformer.
        prompts: The `prompts` of the training arguments, in any of their forms. None: those of the model.

    Example:
        >>> from st_xlret.modules import train_tokenizer, transformer_encoder
        >>> model = transformer_encoder(train_tokenizer(["a b c d"] * 4, vocabulary=50), "tiny")
        >>> prompt_tokens(model), prompt_tokens(model, {"pairs": {"source": "", "target": "a"}})
        (0, 2)
    """
    given = prompts_of(model) if prompts is None else prompts
    return max((len(model.tokenizer.tokenize(prompt)) for prompt in _texts(given)), default=0)


def _texts(prompts: Any) -> list[str]:
    if isinstance(prompts, dict):
        return [text for inner in prompts.values() for text in _texts(inner)]
    return [prompts] if prompts else []
