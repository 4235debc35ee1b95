"""Numbers out of range are refused by name and value, where they enter."""

import math


def check_range(
    least: float,
    most: float = math.inf,
    /,
    **numbers: float | None,
) -> None:
    """Refuse, by a `ValueError`, a number that is not in [least, most]; None is no number."""
    allowed = f"{least:g} or more"
    if most < math.inf:
        allowed = f"in [{least:g}, {most:g}]"
    for name, number in numbers.items():
        if number is None:
            continue
        is_in_range = least <= number <= most
        if not is_in_range or not math.isfinite(number):
            raise ValueError(f"{name} {number}: it has to be {allowed}")


def check_positive(**numbers: float | None) -> None:
    """Refuse, by a `ValueError`, a number that is not above 0; None is no number."""
    for name, number in numbers.items():
        if number is None:
            continue
        if number <= 0 or not math.isfinite(number):
            raise ValueError(f"{name} {number}: it has to be above 0")
