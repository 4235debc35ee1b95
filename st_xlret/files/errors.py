"""Errors of writing: which they are, and what they say."""

from __future__ import annotations

import re

from safetensors import SafetensorError


def is_of_the_disk(error: BaseException) -> bool:
    """Whether writing failed: libraries in Rust, as that of the tokenizers, raise other errors with its number."""
    return isinstance(error, OSError | SafetensorError) or bool(re.search(r"os error \d+", str(error)))


def explain(error: BaseException, what_failed: str, kept: str = "") -> OSError:
    """Make an OSError of the same number that says what failed, why, and the way out."""
    reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")
    if isinstance(error, PermissionError):
        way_out = "Give a path that you may write to."
    else:
        way_out = "Free some space or give another path, and save again."
    message = f"{what_failed}: {reason}. {kept}{way_out}"
    # safetensors has an error of its own, which holds the number in its text
    in_text = re.search(r"os error (\d+)", reason)
    number = getattr(error, "errno", None) or (int(in_text.group(1)) if in_text else None)
    return OSError(number, message) if number else OSError(message)
