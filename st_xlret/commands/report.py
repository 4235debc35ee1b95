r"""Report how much an encoder's search prefers the language of the query. No labels are needed.

    st-xlret report --model intfloat/multilingual-e5-small --documents documents/ \
        --output bias.json
    st-xlret report --vectors vectors.parquet --output bias.json

Each sampled text searches a pool with as many texts of every language, but for its own document.
The report has the share of its nearest neighbours that are in its own language, against chance, a
heat map of the languages in which neighbours are found, and what `calibrate` would make of it.
Documents are read as `calibrate` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from st_xlret.calibration.fit_options import MIN_TEXTS, TEXTS_FOR_MEANS, FitOptions
from st_xlret.calibration.language_bias import NEIGHBOURS
from st_xlret.commands.sources import (
    SampleArguments,
    StoreArguments,
    check_sources,
    known_documents,
    parse_sources,
    print_note_without_documents,
    sample_vectors,
)
from st_xlret.commands.verdict import (
    command_in_words,
    print_time_of_embedding,
    print_verdict,
    printed_duration,
)
from st_xlret.files import atomic_file, file_beside, write_json
from st_xlret.options import option
from st_xlret.ranges import check_range

if TYPE_CHECKING:
    from st_xlret.calibration.comparison import Comparison


@dataclass
class Arguments:
    """What to measure."""

    output: str = option(None, "FILE.json of the report; the heat map goes beside it as a PNG.")
    neighbours: int = option(NEIGHBOURS, "Nearest neighbours to look at.")
    seed: int = option(0, "Seed of the sample.")
    details: bool = option(False, "Print the other side, and the figures of each language, too.")


def main(arguments: Sequence[str], *, prog: str = "st-xlret report") -> None:
    """Run the command `report`."""
    texts, stored, options = parse_sources(Arguments, arguments, description=__doc__, prog=prog)
    check_sources(texts, stored, options)
    check_range(1, neighbours=options.neighbours)
    from st_xlret.calibration.plots import plot_language_bias

    output = Path(options.output)
    picture = file_beside(output, ".png")
    with (
        printed_duration(),
        atomic_file(output, ours="report") as part,
        atomic_file(picture, ours="report") as drawn,
    ):
        if stored.vectors is None:
            comparison = _compare_for_encoder(texts, options)
            command = f"{command_in_words('calibrate', texts)} --output calibrated"
        else:
            comparison = _compare_for_vectors(texts, stored, options)
            source = command_in_words("calibrate", texts, stored)
            command = f"{source} --queries_only --output map"
        if comparison.advised()[1] == 0:
            command = "none, as far as these documents show"
        print_verdict(comparison, command, details=options.details)
        write_json(part, comparison.before.as_json())
        search = comparison.before.search
        is_drawn = plot_language_bias(search.languages, search.shares, drawn)
    files = f"{output} and {picture}" if is_drawn else f"{output}"
    print(f"written to {files}")


def _compare_for_encoder(texts: SampleArguments, options: Arguments) -> Comparison:
    """The bias of an encoder, and what the default calibration would make of it; none is used.

    The sample is cut to as many texts of each language as the smallest has, and their documents
    with them.
    """
    from st_xlret.calibration.choose import fit_and_compare
    from st_xlret.calibration.panels import embed_phrases
    from st_xlret.encoding import task_languages

    count = texts.texts_per_language or TEXTS_FOR_MEANS
    drawn = texts.sample_texts(count, min_texts=MIN_TEXTS, seed=options.seed)
    fewest = min(len(part.texts) for part in drawn.values())
    sample = {code: part.first(fewest) for code, part in drawn.items()}
    chosen = {code: part.texts for code, part in sample.items()}
    print_time_of_embedding(chosen)
    encoder = texts.load_encoder()
    documents, as_queries, _ = encoder.embed_sample(chosen)
    # Phrases are in languages that a model with a map for each of its own has none for.
    phrases = None if task_languages(encoder.model) else embed_phrases(encoder)
    _, comparison = fit_and_compare(
        documents,
        as_queries,
        {code: part.documents for code, part in sample.items()},
        phrases=phrases,
        options=_default_options(documents).for_encoder(),
        texts=count,
        neighbours=options.neighbours,
    )
    return replace(comparison, used=False)


def _compare_for_vectors(
    texts: SampleArguments, stored: StoreArguments, options: Arguments
) -> Comparison:
    """The bias of stored vectors, and what maps of queries alone would make of it; none is used."""
    from st_xlret.calibration.choose import fit_and_compare

    count = texts.texts_per_language or TEXTS_FOR_MEANS
    store = stored.open_store()
    sample = sample_vectors(store, texts.languages, count, min_texts=MIN_TEXTS, seed=options.seed)
    documents = sample.vectors
    ids = known_documents(sample)
    print_note_without_documents(ids)
    _, comparison = fit_and_compare(
        documents,
        ids=ids,
        options=replace(_default_options(documents), queries_only=True, metric=store.metric),
        texts=count,
        neighbours=options.neighbours,
    )
    return replace(comparison, used=False)


def _default_options(documents: Mapping[str, Any]) -> FitOptions:
    """LSAR, or the shift where with more languages than dimensions LSAR would leave nothing.

    Both are steps of means: so many texts are sampled.
    """
    width = next(iter(documents.values())).shape[1]
    return FitOptions(steps=("lsar",) if len(documents) <= width else ("shift",))
