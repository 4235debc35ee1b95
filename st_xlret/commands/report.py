r"""Report how much an encoder's search prefers the language of the query. No labels are needed.

    st-xlret report --model intfloat/multilingual-e5-small --documents documents/ --output bias.json

Vectors that are stored already need no encoder:

    st-xlret report --vectors vectors.parquet --output bias.json

Each sampled text searches a pool with as many texts of every language. The report has the share of its nearest
neighbours that are in its own language, against chance, a heat map of the languages in which neighbours are found, and
what the usual calibrations would make of it. Neighbours from the text's own document are left out. Texts are embedded
as queries and as documents, with the model's prompts; the shares are the ones that `st-xlret calibrate` shows for the
same texts. 300 texts of each of 20 languages take minutes on two cores.

A document has one language, which is named or identified; in a text file a blank line ends a document. Of a folder,
text files are read if they are named after their language (fr.txt), or if it has nothing else: a README beside
documents is none. `st-xlret index` reads all of them, and identifies the language of each text by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from st_xlret.commands.calibrate import Texts
from st_xlret.commands.stored_vectors import Stored, describe, sample_vectors
from st_xlret.files import check_output_file, write_json
from st_xlret.options import option, parse

if TYPE_CHECKING:
    from torch import Tensor

    from st_xlret.encoding import Role

TEXTS, NEIGHBOURS = 300, 20


@dataclass
class Arguments:
    """What to measure."""

    output: str = option(None, "JSON file of the report; the heat map goes beside it as a PNG.")
    neighbours: int = option(NEIGHBOURS, "Nearest neighbours to look at.")
    seed: int = option(0, "Seed of the sample.")

    def __post_init__(self) -> None:
        if not self.output:
            raise ValueError("--output is missing: name a .json file")
        if not self.output.endswith(".json"):
            raise ValueError(f"--output {self.output}: name a .json file")


def main(arguments: Sequence[str], *, prog: str = "st-xlret report") -> None:
    """Run the command `report`."""
    given, stored, options = parse([Texts, Stored, Arguments], arguments, description=__doc__, prog=prog)
    drawn: Any = {"texts_per_language": given.texts_per_language or TEXTS, "seed": options.seed}
    check_output_file(options.output)
    if stored.vectors is None:
        for name in ("model", "documents"):
            if not getattr(given, name):
                raise ValueError(f"--{name} is missing: st-xlret report --model M --documents D --output F.json")
        found, chosen = _of_model(given, **drawn), "lsar"
    elif given.model or given.documents:
        raise ValueError("--vectors are stored already: leave --model and --documents out")
    else:
        found, chosen = _of_vectors(stored, given.languages, **drawn), "lsar, queries only"
    from st_xlret.calibration import CalibrationOptions, compare_calibrations, usual_calibrations
    from st_xlret.evaluation.language_bias import bias_as_json
    from st_xlret.evaluation.tables import plot_language_bias

    few = CalibrationOptions(min_texts=2)
    usual = usual_calibrations(found.documents, options=few, show_progress_bar=True)
    chosen = chosen if chosen in usual else chosen.replace("lsar", "shift")
    how: Any = {"texts": drawn["texts_per_language"], "neighbours": options.neighbours, "show_progress_bar": True}
    comparison = replace(compare_calibrations(usual, *found, chosen=chosen, **how), used=False)
    print(describe(comparison))
    write_json(options.output, bias_as_json(comparison.before))
    search = comparison.before["search"]
    picture = plot_language_bias(search.languages, search.shares, Path(options.output).with_suffix(".png"))
    print(f"written to {options.output}" + (f" and {picture}" if picture else ""))


class _Found(NamedTuple):
    """Embeddings by language: of texts as documents, as queries where they differ, and numbers of their documents."""

    documents: Mapping[str, Tensor]
    queries: Mapping[str, Tensor] | None = None
    ids: Mapping[str, Tensor] | None = None


def _of_vectors(stored: Stored, languages: Sequence[str], texts_per_language: int, seed: int) -> _Found:
    """A sample of stored vectors."""
    from st_xlret.calibration import CalibrationOptions
    from st_xlret.vectors.calibration import unit_vectors

    source = stored.open()
    drawn: Any = {"languages": languages, "min_texts": CalibrationOptions().min_texts, "seed": seed}
    return _Found(unit_vectors(sample_vectors(source, texts_per_language, **drawn), metric=source.metric))


def _of_model(given: Texts, **drawn: Any) -> _Found:
    """Embeddings of a sample of texts."""
    from st_xlret.calibration import embed_texts
    from st_xlret.calibration.comparison import QUERIES
    from st_xlret.encoding import embeds_roles_apart, role_prompt
    from st_xlret.hub.export import load_model

    sample = given.sample(given.documents, **drawn)
    texts = {code: found.texts[: min(len(part.texts) for part in sample.values())] for code, found in sample.items()}
    model = load_model(given.model or "", given.device)
    prompts: dict[Role, str | None] = {"document": given.document_prompt, "query": given.query_prompt}
    prompts = {role: role_prompt(model, role, prompt) for role, prompt in prompts.items()}
    apart = embeds_roles_apart(model, prompts["query"], prompts["document"])
    how: Any = {"batch_size": given.batch_size, "precision": given.precision, "show_progress_bar": True}
    documents = embed_texts(model, texts, role="document", prompt=prompts["document"], **how)
    few = {code: part[:QUERIES] for code, part in texts.items()}
    queries = embed_texts(model, few, role="query", prompt=prompts["query"], **how) if apart else None
    return _Found(documents, queries, {code: part.documents for code, part in sample.items()})
