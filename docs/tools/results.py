"""Draws the language of search results before and after calibration.

    python -m docs.tools.results

It writes docs/assets/results.svg. The shares are those of docs/stored.csv.
"""

from __future__ import annotations

import csv
from pathlib import Path

from docs.tools.house import element, svg, text

DOCS = Path(__file__).resolve().parents[1]
ROWS = {
    "as it is": "as it is",
    "calibrated": "lsar, strength 0.8 (auto), phrases in the fit (measure_search)",
}
"""Row of the picture -> row of the study of the natural pool; queries alone are calibrated."""
CHANCE = round(100 / 11, 1)  # of 11 languages
COLOUR = "#e4572e"
LEFT = 130
WIDTH = 760
BAR = 400


def figures() -> dict[str, tuple[str, str]]:
    """Row of the picture -> share of results in the question's own language, and mAP@20 (%)."""
    with open(DOCS / "stored.csv", encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    found = {}
    for name, row in ROWS.items():
        found[name] = first_figures(lines, row)
    return found


def first_figures(lines: list[dict[str, str]], row: str) -> tuple[str, str]:
    """The figures of the first line of a row."""
    for line in lines:
        if line["study"] == "apart" and line["row"] == row:
            return line["share"], line["pool"]
    raise ValueError(f"docs/stored.csv has no row {row!r}")


def results() -> str:
    """The picture as SVG."""
    heading = "Results in the question's own language (XQuAD-R, 11 languages)"
    parts = [text(20, 34, heading, 17, font_weight="bold")]
    for row, (name, (share, precision)) in enumerate(figures().items()):
        parts += bar(50 + 40 * row, name, share, precision)
    parts += line_of_chance()
    return svg(WIDTH, 158, "Languages of search results before and after calibration", parts)


def bar(y: int, name: str, share: str, precision: str) -> list[str]:
    """A row of the picture: its name, its share as a bar, and its figures."""
    length = round(BAR * float(share) / 100)
    return [
        text(20, y + 21, name, 15),
        element("rect", x=LEFT, y=y, width=BAR, height=30, rx=4, fill="#eceff1"),
        element("rect", x=LEFT, y=y, width=length, height=30, rx=4, fill=COLOUR),
        text(LEFT + BAR + 12, y + 21, f"{share} %", 16, font_weight="bold"),
        text(LEFT + BAR + 84, y + 21, f"mAP@20 {precision}", 15),
    ]


def line_of_chance() -> list[str]:
    """The share that a language would have without any preference."""
    x = LEFT + round(BAR * CHANCE / 100)
    stroke = {"stroke": "#263238", "stroke_width": 2, "stroke_dasharray": "4 3"}
    return [
        element("line", x1=x, y1=44, x2=x, y2=126, **stroke),
        text(x, 144, f"chance {CHANCE} %", 13, text_anchor="middle"),
    ]


if __name__ == "__main__":
    (DOCS / "assets" / "results.svg").write_text(results(), encoding="utf-8")
