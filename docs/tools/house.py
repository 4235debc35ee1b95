"""Draws the house: `python -m docs.tools.house` writes docs/assets/house.svg."""

from __future__ import annotations

from html import escape
from pathlib import Path

ROOMS = [
    ("commands", "st-xlret report, calibrate, apply, train, evaluate, index, search, mine, export"),
    ("training", "CrossLingualTrainer and its arguments; state of losses; what scripts share"),
    ("stores", "stored vectors: three methods on Arrow batches, a file each"),
    ("calibration", "steps, rotation, one class in thin factors, bias, choice"),
    ("hub", "models as others use them: export, portable folders, cards, push"),
    ("evaluation", "one file per benchmark; retrieval of pools; tables; mteb tasks"),
    ("losses", "one file per loss: equation + modules; says which columns it reads"),
    ("batches", "windows, blocks, rows; the collator"),
    ("encoding", "texts to vectors, by role and language"),
    ("data", "documents, pairs, questions, dictionaries"),
    ("search", "exact top-k, mining, neighbours"),
    ("modules", "heads, memory bank, document encoder, calibration layer, encoders"),
    ("functional", "the papers' equations on tensors; imports PyTorch only"),
]
# One file each; a file imports only those to its right.
FOUNDATION = [
    "languages",
    "field_names",
    "columns",
    "precision",
    "options",
    "option_files",
    "plots",
    "tables",
    "citations",
    "files",
    "folders",
    "marks",
    "secrets",
    "strict_json",
    "ranges",
    "optional",
]
OUTSIDE = [
    ("training_scripts", "option files, demo, studies"),
    ("evaluation/run.py", "from a checkout"),
    ("benchmarks", "speed, memory"),
]

LEFT = 40
WIDTH = 620
ROOM = 44
TOP = 100
SIDE = 180
RIGHT = LEFT + WIDTH
BOTTOM = TOP + ROOM * len(ROOMS)
INK = "#263238"
PAPER = "#ffffff"
WALL = "#e8eaf6"
ROOF = "#3f51b5"
STONE = "#cfd8dc"
FONT = "Helvetica, Arial, sans-serif"


def element(name: str, content: str = "", **attributes: object) -> str:
    """An SVG element; underscores in names of attributes are hyphens."""
    written = []
    for key, value in attributes.items():
        written.append(f'{key.replace("_", "-")}="{value}"')
    return f"<{name} {' '.join(written)}>{escape(content)}</{name}>"


def text(
    x: float, y: float, content: str, size: int = 13, fill: str = INK, **attributes: object
) -> str:
    """A line of text."""
    return element("text", content, x=x, y=y, font_size=size, fill=fill, **attributes)


def box(
    x: float, y: float, width: float, height: float, fill: str = PAPER, **attributes: object
) -> str:
    """A rectangle with a border."""
    return element(
        "rect", x=x, y=y, width=width, height=height, fill=fill, stroke=INK, **attributes
    )


def svg(width: float, height: float, title: str, parts: list[str]) -> str:
    """A picture with a white ground."""
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="{FONT}" role="img">'
    )
    ground = element("rect", width=width, height=height, fill=PAPER)
    return "\n".join([opening, element("title", title), ground, *parts, "</svg>", ""])


def house() -> str:
    """The picture of the house as SVG."""
    parts = [*roof(), *rooms(), *foundation(), *arrow(), *outside()]
    title = "The rooms of st_xlret: a room imports only rooms below it"
    return svg(RIGHT + 60 + SIDE + 20, BOTTOM + 80, title, parts)


def roof() -> list[str]:
    """The name of the package."""
    middle = (LEFT + RIGHT) / 2
    white = {"text_anchor": "middle", "fill": PAPER}
    return [
        element("polygon", points=f"{LEFT - 20},{TOP} {middle},20 {RIGHT + 20},{TOP}", fill=ROOF),
        text(middle, 66, "st_xlret", 20, font_weight="bold", **white),
        text(middle, 88, "public names, loaded on first use", **white),
    ]


def rooms() -> list[str]:
    """A box for each room, the highest first."""
    parts = []
    for i, (name, about) in enumerate(ROOMS):
        y = TOP + i * ROOM
        parts.append(box(LEFT, y, WIDTH, ROOM, WALL if i % 2 else PAPER))
        parts.append(text(LEFT + 16, y + 27, name, 15, font_weight="bold"))
        parts.append(text(LEFT + 130, y + 27, about))
    return parts


def foundation() -> list[str]:
    """What all rooms stand on."""
    middle = (LEFT + RIGHT) / 2
    first_line = ", ".join(FOUNDATION[:7])
    second_line = ", ".join(FOUNDATION[7:])
    return [
        box(LEFT - 12, BOTTOM, WIDTH + 24, 54, STONE),
        text(middle, BOTTOM + 22, f"{first_line},", text_anchor="middle"),
        text(middle, BOTTOM + 42, f"{second_line}: one file each", text_anchor="middle"),
    ]


def arrow() -> list[str]:
    """The way that imports go."""
    x = RIGHT + 22
    head = f"{x - 6},{BOTTOM - 18} {x + 6},{BOTTOM - 18} {x},{BOTTOM - 4}"
    turned = f"translate({x + 12} {(TOP + BOTTOM) / 2}) rotate(90)"
    return [
        element("line", x1=x, y1=TOP + 20, x2=x, y2=BOTTOM - 14, stroke=INK, stroke_width=2),
        element("polygon", points=head, fill=INK),
        text(0, 0, "imports go down only", text_anchor="middle", transform=turned),
    ]


def outside() -> list[str]:
    """What is beside the house."""
    x = RIGHT + 60
    parts = [
        text(x, TOP + 14, "Beside the house,", font_weight="bold"),
        text(x, TOP + 31, "not installed:", font_weight="bold"),
    ]
    for i, (name, about) in enumerate(OUTSIDE):
        y = TOP + 46 + i * 64
        parts.append(box(x, y, SIDE - 10, 52, rx=4, stroke_dasharray="5 3"))
        parts.append(text(x + 10, y + 22, name, 14, font_weight="bold"))
        parts.append(text(x + 10, y + 41, about, 12))
    return parts


if __name__ == "__main__":
    target = Path(__file__).resolve().parents[1] / "assets" / "house.svg"
    target.write_text(house(), encoding="utf-8")
    print(f"wrote {target.name}")
