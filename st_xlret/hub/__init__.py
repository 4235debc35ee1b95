"""Export to built-in modules, the host's model card, and upload to the Hub."""

from __future__ import annotations

from st_xlret.hub.model_card import carry_card_data, set_card_data
from st_xlret.hub.push import PushError, Upload, check_card, check_push, plan_push, push_to_hub

__all__ = [
    "PushError",
    "Upload",
    "carry_card_data",
    "check_card",
    "check_push",
    "plan_push",
    "push_to_hub",
    "set_card_data",
]
