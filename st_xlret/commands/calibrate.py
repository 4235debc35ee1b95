r"""Calibrate a multilingual encoder, so that its search no longer prefers the query's language.

    st-xlret calibrate --model intfloat/multilingual-e5-small --documents documents/ \
        --output runs/calibrated
    st-xlret calibrate --vectors vectors.parquet --queries_only --output map

Documents are those that are to be searched, or others in their languages; no labels and no training
are needed. The result is a plain Sentence Transformers model that needs no language: `encode_query`
and `encode_document`. Vectors that are stored already need no encoder: they get a map, and stay
where they are if queries alone are mapped. By default the subspace in which the languages' means
differ is projected out (--steps lsar). Other steps need the language of each text, given as its
task: `encode(texts, task="fr")`; the CCP paper's are --steps shift scale rotate. A table compares
the choices without labels, and says which one it recommends.

A document has one language, which is named, or identified (extra langid); in a text file a blank
line ends a document. Of a folder, text files are read if they are named after their language
(fr.txt).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import st_xlret
from st_xlret.commands.calibrate_vectors import calibrate_vectors
from st_xlret.commands.sources import SampleArguments, one_language_in_words, parse_sources
from st_xlret.files import atomic_directory, check_output_directory
from st_xlret.hub.portable import save_portable
from st_xlret.options import option

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from st_xlret.calibration.report import Comparison

_CHECKED_TEXTS = 300  # of each language, whose labels are checked
_DOUBTFUL = 0.2  # of them, with which the identifier disagrees


@dataclass
class Arguments:
    """How to calibrate, and where the result goes."""

    _argument_group_name = "calibration"

    output: str = option(
        None, "Folder for the calibrated model or the map, with the report on its language bias."
    )
    overwrite: bool = option(False, "Replace a model or a map that is there.")
    steps: list[str] = option(
        ["lsar"],
        "In this order: lsar (minus the subspace in which the languages' means differ; needs no "
        "language), shift (minus the language's mean), coral (one covariance), scale (by the "
        "standard deviation), rotate (into the pivot), lir (minus the top principal component), "
        "to_pivot (documents moved to the pivot's mean).",
        ["shift", "scale", "rotate", "lir", "lsar", "coral", "to_pivot"],
    )
    queries: list[str] = option(
        [],
        "Questions without labels, for maps of queries: a folder in BEIR's layout, JSON lines, or "
        "text files (questions.fr.txt); of --vectors, the address of theirs. With --queries_only "
        "and lsar, 5 of a language do.",
    )
    qrels: str | None = option(
        None,
        "With --vectors and --queries: BEIR's or TREC's judgements. Half of the queries choose the "
        "strength.",
    )
    queries_only: bool = option(
        False, "Map queries alone: an index goes on working. For lsar and shift."
    )
    phrases: bool = option(
        True, "Phrases of weak languages join lsar of a model, for languages without texts."
    )
    strength: str | None = option(
        None,
        "From 0 to 1; auto: the highest score. By default auto for --vectors, 1 for a model and "
        "with rotate.",
    )
    keep_mean: float | None = option(
        None,
        "Share of the overall mean to keep: 0.4 for queries only, 0.05 for lsar, 0.25 for shift, "
        "else as papers.",
    )
    pivot: str = option(
        "en", "The language into which rotate and to_pivot map, and of texts that name none."
    )
    pairs: list[str] = option([], "Parallel sentences with the pivot, for a closed-form rotate.")
    min_texts: int = option(50, "Fewest texts of a language.")
    seed: int = option(0, "Seed of the draw and of the rotation.")

    @property
    def has_one_map_of_queries(self) -> bool:
        """Whether one map serves queries in all languages, and documents stay as they are."""
        return self.queries_only and self.steps == ["lsar"]

    def strength_with_default(self, default: float | Literal["auto"]) -> float | Literal["auto"]:
        """The strength that is asked for; where none is, 1 with a rotation, else the default."""
        if self.strength == "auto":
            return "auto"
        if self.strength is not None:
            return float(self.strength)
        return 1.0 if "rotate" in self.steps else default


def main(arguments: Sequence[str], *, prog: str = "st-xlret calibrate") -> None:
    """Run the command `calibrate`."""
    words = ["--documents" if word == "--corpus" else word for word in arguments]
    texts, stored, options = parse_sources(Arguments, words, description=__doc__, prog=prog)
    inputs = [texts.model, stored.vectors, stored.languages_file, options.qrels]
    inputs += [*options.pairs, *options.queries, *texts.documents]
    check_output_directory(options.output, options.overwrite, inputs=inputs)
    if stored.vectors is None:
        _calibrate_model(texts, options)
    else:
        calibrate_vectors(texts, stored, options)


def _calibrate_model(texts: SampleArguments, options: Arguments) -> None:
    from st_xlret.calibration.sampling import usual_texts_per_language
    from st_xlret.hub.card import set_card_data

    count = texts.texts_per_language or usual_texts_per_language(options.steps)
    sample = texts.sample_texts(
        count,
        min_texts=options.min_texts,
        min_languages=1 if options.has_one_map_of_queries else 2,
        seed=options.seed,
    )
    _print_label_check({code: part.texts[:_CHECKED_TEXTS] for code, part in sample.items()})
    pairs = None
    if options.pairs:
        pairs = st_xlret.load_pairs(
            options.pairs, languages=list(sample), skip_bad_lines=texts.skip_bad_lines
        )
    encoder = texts.load_encoder()
    if not _names_prompts(texts, encoder.model):
        print(
            "the model names no prompts: texts are embedded as they are. If it was trained with "
            "prompts, give them, such as E5's 'query: ' and 'passage: ', by --query_prompt and "
            "--document_prompt"
        )
    comparisons: list[Comparison] = []
    calibrated = st_xlret.calibrate(
        encoder.model,
        sample,
        steps=options.steps,
        queries=options.queries or None,
        phrases=options.phrases,
        pairs=pairs,
        queries_only=options.queries_only,
        strength=options.strength_with_default(1.0),
        pivot=options.pivot,
        keep_mean=options.keep_mean,
        texts_per_language=count,
        min_texts=options.min_texts,
        query_prompt=texts.query_prompt,
        document_prompt=texts.document_prompt,
        batch_size=texts.batch_size,
        precision=texts.precision,
        seed=options.seed,
        report=comparisons.append,
    )
    data = {"texts": texts.documents, "questions": options.queries, "pairs": options.pairs}
    set_card_data(calibrated, base_model=texts.model, data=data)
    with atomic_directory(options.output, overwrite=options.overwrite) as folder:
        save_portable(calibrated, folder)
        for comparison in comparisons:
            comparison.write(folder)
    print()
    if comparisons:
        print(f"{comparisons[0]}\n")
    else:
        print(one_language_in_words(list(sample)))
    _print_usage(calibrated, options.output)


def _names_prompts(texts: SampleArguments, model: SentenceTransformer) -> bool:
    """Whether the command names prompts, or else the model."""
    from st_xlret.encoding import role_prompt

    if texts.query_prompt or texts.document_prompt:
        return True
    return bool(role_prompt(model, "query") or role_prompt(model, "document"))


def _print_usage(calibrated: SentenceTransformer, output: str) -> None:
    from st_xlret.hub.usage import encoding_calls

    print(f"The calibrated model is in {output}, for Sentence Transformers alone:\n")
    print(f'    model = SentenceTransformer("{output}")')
    for role, (_, call) in encoding_calls(calibrated).items():
        print(f"    {role}_vectors = {call}")
    print()


def _print_label_check(texts: Mapping[str, Sequence[str]]) -> None:
    """Print the share of language labels with which an identifier disagrees.

    Languages with many such labels get a warning.
    """
    from st_xlret.languages import label_disagreements

    try:
        checked = label_disagreements(texts)
    except ImportError as error:
        print(f"language labels were not checked: {error}")
        return
    total = sum(share for share, _, _ in checked.values())
    mean = total / max(1, len(checked))
    print(f"the language identifier disagrees with {100 * mean:.1f} % of the labels")
    for code, (share, other, example) in checked.items():
        if share >= _DOUBTFUL:
            print(
                f"warning: {100 * share:.0f} % of the texts labelled {code!r} look like {other!r}, "
                f"such as {example[:80]!r}: correct them, or leave the language out (--languages)"
            )
