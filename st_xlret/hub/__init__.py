"""Saving, describing and publishing models; the export to plain Sentence Transformers modules."""

from __future__ import annotations

from st_xlret.hub.host_card import carry_card_data, merge_into_host_card, set_card_data
from st_xlret.hub.model_card import DataSource, ResultTable, table_from_evaluations, write_model_card
from st_xlret.hub.push import PushError, check_push, push_to_hub

__all__ = [
    "DataSource",
    "PushError",
    "ResultTable",
    "carry_card_data",
    "check_push",
    "merge_into_host_card",
    "push_to_hub",
    "set_card_data",
    "table_from_evaluations",
    "write_model_card",
]
