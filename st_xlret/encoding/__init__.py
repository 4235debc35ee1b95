"""The one place that embeds.

Prompts are put before texts by role, maps are chosen by language, batches have texts of like
length, and vectors may be kept on the disk.
"""

from st_xlret.encoding.batches import token_batches, token_lengths
from st_xlret.encoding.embedding import encode
from st_xlret.encoding.fingerprint import fingerprint
from st_xlret.encoding.kept import KeptVectors
from st_xlret.encoding.layers import cut_at_layer
from st_xlret.encoding.maps import known_languages, task_languages
from st_xlret.encoding.prompts import (
    PROMPT_NAMES,
    embeds_roles_apart,
    prompt_name,
    role_prompt,
    warn_of_other_prompts,
)

__all__ = [
    "PROMPT_NAMES",
    "KeptVectors",
    "cut_at_layer",
    "embeds_roles_apart",
    "encode",
    "fingerprint",
    "known_languages",
    "prompt_name",
    "role_prompt",
    "task_languages",
    "token_batches",
    "token_lengths",
    "warn_of_other_prompts",
]
