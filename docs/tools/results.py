"""Draws the language of search results before and after calibration: writes docs/assets/results.svg.

    python -m docs.tools.results

The shares are those of docs/stored.csv.
"""

from __future__ import annotations

import csv
from pathlib import Path

from docs.tools.house import element, svg, text

DOCS = Path(__file__).resolve().parents[1]
ROWS = {"as it is": "as it is", "calibrated": "lsar, a quarter of the mean kept"}
CHANCE = round(100 / 11, 1)  # of 11 languages
COLOUR = "#e4572e"
LEFT, WIDTH, BAR = 130, 760, 400


def figures() -> dict[str, tuple[str, str]]:
    """Row of the picture -> share of results in the question's own language, and mAP@20, in per cent."""
    with open(DOCS / "stored.csv", encoding="utf-8", newline="") as file:
        stored = [line for line in csv.DictReader(file) if line["study"] == "stored"]
    of_row = {
        line["row"]: (line["share"], line["pool"])
        for line in reversed(stored)
        if line["sides"] != "queries alone"
    }
    return {name: of_row[row] for name, row in ROWS.items()}


def results() -> str:
    """The picture as SVG."""
    heading = (
        "Results in the question's own language, over all questions of XQuAD-R in 11 languages"
    )
    parts = [text(20, 34, heading, 17, font_weight="bold")]
    for row, (name, (share, precision)) in enumerate(figures().items()):
        y = 50 + 40 * row
        parts.append(text(20, y + 21, name, 15))
        parts.append(element("rect", x=LEFT, y=y, width=BAR, height=30, rx=4, fill="#eceff1"))
        parts.append(
            element(
                "rect",
                x=LEFT,
                y=y,
                width=round(BAR * float(share) / 100),
                height=30,
                rx=4,
                fill=COLOUR,
            )
        )
        parts.append(text(LEFT + BAR + 12, y + 21, f"{share} %", 16, font_weight="bold"))
        parts.append(text(LEFT + BAR + 84, y + 21, f"mAP@20 {precision}", 15))
    x = LEFT + round(BAR * CHANCE / 100)
    parts.append(
        element(
            "line",
            x1=x,
            y1=44,
            x2=x,
            y2=126,
            stroke="#263238",
            stroke_width=2,
            stroke_dasharray="4 3",
        )
    )
    parts.append(text(x, 144, f"chance {CHANCE} %", 13, text_anchor="middle"))
    return svg(WIDTH, 158, "Languages of search results before and after calibration", parts)


if __name__ == "__main__":
    (DOCS / "assets" / "results.svg").write_text(results(), encoding="utf-8")
