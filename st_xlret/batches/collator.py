"""The collator that passes languages, documents, text ids and positions of words to the losses."""

import copy
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from datasets import Dataset
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

from st_xlret.languages import UNKNOWN, check_language, language_to_id

is_id = re.compile(r"(.*_)?(uu|q|p|doc)?(id|idx)|__index_level_\d+__", re.IGNORECASE).fullmatch  # pandas' last


def text_to_id(text: str) -> int:
    """A stable 63-bit id of a text: equal texts have equal ids."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@dataclass
class CrossLingualDataCollator(SentenceTransformerDataCollator):
    """Takes metadata columns out of rows, and attaches them as integers (rows,) to the features of every text column.

    `CrossLingualTrainer` has it already, with the model's prompts; give it to the host's Trainer as `data_collator`.

    - Every text gets an id of its own, `text_id`.
    - `language`, or `<column>_language` for one column: ISO 639 codes, which become `language_id` by
      [`language_to_id`][st_xlret.languages.language_to_id].
    - `document`: numbers or strings, which become `document_id`; with a `position`, also `block_id` and
      `sentence_position`.
    - `<column>_start` and `<column>_end`: the half-open token span of a word, which become `word_start` and `word_end`.
      Texts with words get no prompt, and `<column>_word`, the word itself, is dropped.

    Args:
        preprocess_fn: The model's `preprocess`.
        prompts: As of `SentenceTransformerTrainingArguments`, and so `router_mapping`.
        max_length: Tokens to read of a text, prompt and special tokens included. Default: the model's.
        token_dropout: Probability of dropping a token from the flattened inputs of a `StaticEmbedding`; one token of a
            text stays. Seeded by the batch's own texts: a resumed run drops the same tokens.
    """

    token_dropout: float = 0.0

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate rows into one batch."""
        if not features:
            return {}
        columns = {name: [row[name] for row in features] for name in features[0]}
        metadata = metadata_columns(columns)
        rows = [{name: value for name, value in row.items() if name not in metadata} for row in features]
        host = copy.copy(self)
        if any(name.endswith("_start") for name in metadata):
            host.prompts = None  # positions of words count the tokens of the text alone
        batch: dict[str, Any] = super(CrossLingualDataCollator, host).__call__(rows)
        for column in (name for name in rows[0] if name not in ("dataset_name", *self.valid_label_columns)):
            tags: dict[str, list[int]] = {"text_id": [text_to_id(text) for text in columns[column]]}
            if language := next((name for name in (f"{column}_language", "language") if name in columns), None):
                codes = (check_language_or_unknown(code, language, row) for row, code in enumerate(columns[language]))
                tags["language_id"] = list(map(language_to_id, codes))
            if "document" in columns:
                documents = (d if isinstance(d, str) or d == int(d) else str(d) for d in columns["document"])
                tags["document_id"] = [text_to_id(d) if isinstance(d, str) else int(d) for d in documents]
                if "position" in columns:
                    tags |= {"block_id": tags["document_id"], "sentence_position": columns["position"]}
            if f"{column}_start" in metadata:
                tags |= {f"word_{end}": columns[f"{column}_{end}"] for end in ("start", "end")}
            batch |= {f"{column}_{name}": torch.tensor(values) for name, values in tags.items()}
            if self.token_dropout:
                self._drop_tokens(batch, column, seed=tags["text_id"])
        return batch

    def _drop_tokens(self, batch: dict[str, Any], column: str, seed: list[int]) -> None:
        if f"{column}_offsets" not in batch:
            raise ValueError("token_dropout works on the flattened inputs of a StaticEmbedding; this encoder pads")
        ids, starts = batch[f"{column}_input_ids"], batch[f"{column}_offsets"].numpy()
        generator, lengths = np.random.default_rng(seed), np.diff(np.append(starts, len(ids)))
        keep = generator.random(len(ids)) >= self.token_dropout
        starts_of_filled, lengths = starts[lengths > 0], lengths[lengths > 0]
        if len(starts_of_filled):  # one token of each text stays
            emptied = np.add.reduceat(keep, starts_of_filled) == 0
            spared = starts_of_filled + (generator.random(len(lengths)) * lengths).astype(np.int64)
            keep[spared[emptied]] = True
        batch[f"{column}_input_ids"] = ids[torch.from_numpy(keep)]
        batch[f"{column}_offsets"] = torch.from_numpy(np.concatenate([[0], np.cumsum(keep)])[starts])


def metadata_columns(names: Iterable[str]) -> list[str]:
    """The columns that describe texts and are none themselves: languages, documents, positions, words."""
    names = list(names)
    of_words = (f"{name}_{end}" for name in names for end in ("start", "end", "word"))
    tags = {"language", "document", "position", *of_words}
    return [name for name in names if name in tags or name.endswith("_language")]


def text_columns(dataset: Dataset, *, nested: bool = False) -> list[str]:
    """The columns of texts: of strings (or of lists and mappings with strings, too), and not named otherwise."""
    names = possible_texts(dataset.column_names)
    return [name for name in names if nested and "string" in str(dataset.features[name]) or holds_texts(dataset, name)]


def possible_texts(names: Iterable[str]) -> list[str]:
    """The columns that are, by their names, neither metadata nor labels, ids and languages."""
    left_out = {*metadata_columns(names := list(names)), "label", "labels", *filter(is_id, names)}
    return [name for name in names if name not in left_out and "lang" not in name.lower()]


def sentence_columns(dataset: Dataset) -> list[str]:
    """The text column of rows that are sentences of documents: `sentence`, else `text`, else all that there are."""
    known = [name for name in ("sentence", "text") if name in dataset.column_names]
    return known[:1] or text_columns(dataset, nested=True)


def holds_texts(dataset: Any, column: str) -> bool:
    """Whether a column of a data set holds strings."""
    return getattr((dataset.features or {}).get(column), "dtype", None) in ("string", "large_string")


def check_language_or_unknown(value: Any, column: str, row: int) -> str:
    """The language of a text in normal form; `und`, the unknown one, stays. A ValueError names column and row."""
    return UNKNOWN if value == UNKNOWN else check_language(value, where=f"column {column!r}, row {row}")


def languages_in_rows(dataset: Dataset) -> set[str]:
    """The languages of all rows; a ValueError names the column and the row of what is no code."""
    languages = set()
    for column in (name for name in dataset.column_names if name == "language" or name.endswith("_language")):
        values = dataset.with_format("arrow", columns=[column])[:][column]
        for value in pc.unique(values).to_pylist():
            row = pc.index(values.is_null(), True) if value is None else values.index(value)
            languages.add(check_language_or_unknown(value, column, row.as_py()))
    return languages
