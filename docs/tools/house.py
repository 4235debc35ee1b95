"""Draws the house: `python -m docs.tools.house` writes docs/assets/house.svg."""

from __future__ import annotations

from html import escape
from pathlib import Path

ROOMS = [
    ("commands", "st-xlret report, calibrate, apply, train, evaluate, index, search, mine, export"),
    ("training", "CrossLingualTrainer and its arguments; state of losses; what scripts share"),
    ("stores", "stored vectors: three methods on Arrow batches, a file each"),
    ("calibration", "steps, rotation, one class in thin factors, bias, choice"),
    ("portable", "the folder that older hosts and engines read"),
    ("hub", "export to the host's modules, model cards, push"),
    ("evaluation", "one file per benchmark; retrieval of pools; tables; mteb tasks"),
    ("losses", "one file per loss: equation + modules; says which columns it reads"),
    ("batches", "windows, blocks, rows; the collator"),
    ("encoding", "texts to vectors, by role and language"),
    ("data", "documents, pairs, questions, dictionaries"),
    ("search", "exact top-k, mining, neighbours"),
    ("modules", "heads, memory bank, document encoder, calibration layer, encoders"),
    ("functional", "the papers' equations on tensors; imports PyTorch only"),
]
FOUNDATION = "languages, precision, options, files, optional: one file each"
OUTSIDE = [
    ("training_scripts", "recipes, demo, studies"),
    ("evaluation/run.py", "from a checkout"),
    ("benchmarks", "speed, memory"),
]

LEFT, WIDTH, ROOM, TOP, SIDE = 40, 620, 44, 100, 180
INK, PAPER, WALL, ROOF, STONE = "#263238", "#ffffff", "#e8eaf6", "#3f51b5", "#cfd8dc"
FONT = "Helvetica, Arial, sans-serif"


def element(name: str, content: str = "", **attributes: object) -> str:
    """An SVG element; underscores in names of attributes are hyphens."""
    written = " ".join(f'{key.replace("_", "-")}="{value}"' for key, value in attributes.items())
    return f"<{name} {written}>{escape(content)}</{name}>"


def text(x: float, y: float, content: str, size: int = 13, **attributes: object) -> str:
    """A line of text."""
    return element("text", content, x=x, y=y, font_size=size, **{"fill": INK, **attributes})


def box(
    x: float, y: float, width: float, height: float, fill: str = PAPER, **attributes: object
) -> str:
    """A rectangle with a border."""
    return element(
        "rect", x=x, y=y, width=width, height=height, fill=fill, stroke=INK, **attributes
    )


def svg(width: float, height: float, title: str, parts: list[str]) -> str:
    """A picture with a white ground."""
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="{FONT}" role="img">'
    ground = element("rect", width=width, height=height, fill=PAPER)
    return "\n".join([opening, element("title", title), ground, *parts, "</svg>", ""])


def house() -> str:
    """The picture of the house as SVG."""
    right, bottom = LEFT + WIDTH, TOP + ROOM * len(ROOMS)
    middle, width, height = (LEFT + right) / 2, right + 60 + SIDE + 20, bottom + 60
    white = {"text_anchor": "middle", "fill": PAPER}
    parts = [
        element("polygon", points=f"{LEFT - 20},{TOP} {middle},20 {right + 20},{TOP}", fill=ROOF),
        text(middle, 66, "st_xlret", 20, font_weight="bold", **white),
        text(middle, 88, "public names, loaded on first use", **white),
    ]
    for i, (name, about) in enumerate(ROOMS):
        y = TOP + i * ROOM
        parts.append(box(LEFT, y, WIDTH, ROOM, WALL if i % 2 else PAPER))
        parts.append(text(LEFT + 16, y + 27, name, 15, font_weight="bold"))
        parts.append(text(LEFT + 130, y + 27, about))
    parts.append(box(LEFT - 12, bottom, WIDTH + 24, 34, STONE))
    parts.append(text(middle, bottom + 22, FOUNDATION, text_anchor="middle"))

    x = right + 22
    parts.append(
        element("line", x1=x, y1=TOP + 20, x2=x, y2=bottom - 14, stroke=INK, stroke_width=2)
    )
    parts.append(
        element(
            "polygon",
            points=f"{x - 6},{bottom - 18} {x + 6},{bottom - 18} {x},{bottom - 4}",
            fill=INK,
        )
    )
    turned = f"translate({x + 12} {(TOP + bottom) / 2}) rotate(90)"
    parts.append(text(0, 0, "imports go down only", text_anchor="middle", transform=turned))

    x = right + 60
    parts.append(text(x, TOP + 14, "Beside the house,", font_weight="bold"))
    parts.append(text(x, TOP + 31, "not installed:", font_weight="bold"))
    for i, (name, about) in enumerate(OUTSIDE):
        y = TOP + 46 + i * 64
        parts.append(box(x, y, SIDE - 10, 52, rx=4, stroke_dasharray="5 3"))
        parts.append(text(x + 10, y + 22, name, 14, font_weight="bold"))
        parts.append(text(x + 10, y + 41, about, 12))
    return svg(width, height, "The rooms of st_xlret: a room imports only rooms below it", parts)


if __name__ == "__main__":
    target = Path(__file__).resolve().parents[1] / "assets" / "house.svg"
    target.write_text(house(), encoding="utf-8")
    print(f"wrote {target.name}")
