r"""Report how much an encoder's search prefers the language of the query. No labels are needed.

    st-xlret report --model intfloat/multilingual-e5-small --documents documents/ --output bias.json

Each sampled text searches a pool with as many texts of every language. The report has the share of its nearest
neighbours that are in its own language, against chance, and a heat map of the languages in which neighbours are found.
Neighbours from the text's own document are left out. 300 texts of each of 20 languages take minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from st_xlret.data import load_documents
from st_xlret.evaluation.language_bias import LanguageBias, embed_sample, measure_language_bias
from st_xlret.evaluation.reporting.plots import plot_language_bias
from st_xlret.evaluation.reporting.tables import markdown_table
from st_xlret.files import check_output_file, write_json_atomically
from st_xlret.hub.loading import load_model
from st_xlret.options import option, parse


@dataclass
class Arguments:
    """What to measure, on what."""

    model: str = option(None, "The encoder: a folder or a name on the Hub.")
    documents: list[str] = option([], "Documents in several languages: JSON lines, or folders of them.")
    output: str = option(None, "JSON file of the report; the heat map goes beside it as a PNG.")
    languages: list[str] = option([], "Languages to look at. All by default.")
    skip_bad_lines: bool = option(False, "Skip and count bad lines instead of stopping at the first one.")
    texts_per_language: int = option(300, "Texts to sample from each language.")
    neighbours: int = option(20, "Nearest neighbours to look at.")
    batch_size: int = option(64, "Texts in a forward pass.")
    seed: int = option(0, "Seed of the sample.")
    device: str | None = option(None, "cpu, cuda, cuda:1, mps. By default the best there is.")

    def __post_init__(self) -> None:
        for name in ("model", "documents", "output"):
            if not getattr(self, name):
                raise ValueError(f"--{name} is missing: st-xlret report --model M --documents D --output F.json")
        for name in ("texts_per_language", "neighbours", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1, got {getattr(self, name)}")
        if not self.output.endswith(".json"):
            raise ValueError(f"--output {self.output}: name a .json file")


def main(arguments: Sequence[str], *, prog: str = "st-xlret report") -> None:
    """Run the command `report`."""
    (options,) = parse([Arguments], arguments, description=__doc__, prog=prog)
    report(options)


def report(options: Arguments) -> LanguageBias:
    """Measure, print a table, write the report and the heat map."""
    check_output_file(options.output)
    documents = load_documents(
        options.documents, languages=options.languages or None, skip_bad_lines=options.skip_bad_lines
    )
    model = load_model(options.model, options.device)
    sample = embed_sample(
        model,
        documents,
        texts_per_language=options.texts_per_language,
        batch_size=options.batch_size,
        seed=options.seed,
        show_progress=True,
    )
    bias = measure_language_bias(sample.documents, sample.ids, queries=sample.queries, neighbours=options.neighbours)
    rows = [[code, f"{100 * share:.1f}"] for code, share in bias.own_shares().items()]
    print(
        markdown_table(["language", "neighbours in it (%)"], [*rows, ["mean", f"{100 * bias.same_language_share:.1f}"]])
    )
    print(f"\nChance: {100 * bias.chance:.1f} %. {bias.texts} texts a language, {bias.neighbours} neighbours each.")
    write_json_atomically(options.output, bias.as_json())
    picture = plot_language_bias(bias.languages, bias.shares, Path(options.output).with_suffix(".png"))
    print(f"written to {options.output}" + (f" and {picture}" if picture else ""))
    return bias
