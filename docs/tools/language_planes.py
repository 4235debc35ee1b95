"""Draws translations in the plane before and after calibration, as in docs/guides/calibration.md.

    python docs/tools/language_planes.py --model intfloat/multilingual-e5-small --data LASER/data/tatoeba/v1

The calibration is fitted on the first half of the sentences, and the second half is drawn.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from st_xlret import fit_calibration
from st_xlret.evaluation.reporting.plots import plot_language_planes, principal_plane
from st_xlret.evaluation.tatoeba import load_tatoeba_directory
from st_xlret.hub.loading import load_model
from st_xlret.precision import autocast

TARGET = Path(__file__).resolve().parents[1] / "assets" / "language-planes.png"


def accuracy(clouds: dict[str, torch.Tensor]) -> float:
    """Share of texts whose nearest neighbour is their translation, both ways, in per cent."""
    one, other = (torch.nn.functional.normalize(cloud, dim=1) for cloud in clouds.values())
    scores, right = one @ other.T, torch.arange(len(one))
    hits = [(scores.argmax(way) == right).float().mean() for way in (0, 1)]
    return 50 * float(sum(hits))


def rows_apart(panels: list[dict[str, torch.Tensor]], count: int = 5) -> list[int]:
    """Rows whose points stand apart from each other in every panel, so that their numbers can be read."""
    planes = [torch.stack(list(principal_plane(clouds).values()), 1) for clouds in panels]  # (n, 2, 2) each
    planes = [plane / plane.flatten(0, 1).std(0) for plane in planes]
    chosen: list[int] = []
    for row in range(len(planes[0])):
        rows = [*chosen, row]
        distances = [torch.pdist(plane[rows].flatten(0, 1)).min() for plane in planes]
        if min(distances) > 0.3:
            chosen = rows
        if len(chosen) == count:
            break
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--model", required=True, help="Hub name or folder of an encoder")
    parser.add_argument("--data", required=True, help="folder of Tatoeba's files")
    parser.add_argument("--language", default="ja", help="ISO 639-1 code of the language beside English")
    parser.add_argument("--sentences", type=int, default=1000, help="sentences to take (default: 1000)")
    parser.add_argument("--output", type=Path, default=TARGET, help="PNG file")
    args = parser.parse_args()
    model = load_model(args.model)
    foreign, english = load_tatoeba_directory(args.data, [args.language])[args.language]
    texts = {args.language: foreign[: args.sentences], "en": english[: args.sentences]}
    with autocast("auto", model.device):
        clouds = {
            code: model.encode(part, convert_to_tensor=True, show_progress_bar=True).float().cpu()
            for code, part in texts.items()
        }
    half = len(clouds["en"]) // 2
    calibration = fit_calibration({code: cloud[:half] for code, cloud in clouds.items()}, steps=["shift"])
    raw = {code: cloud[half:] for code, cloud in clouds.items()}
    shifted = {code: calibration.transform(cloud, code) for code, cloud in raw.items()}
    panels = {
        f"{title}: {accuracy(drawn):.1f} % of translations are nearest neighbours": drawn
        for title, drawn in (("as it is", raw), ("after shift", shifted))
    }
    print(plot_language_planes(panels, args.output, highlighted=rows_apart([raw, shifted])))


if __name__ == "__main__":
    main()
