r"""Calibrate a multilingual encoder, so that its search no longer prefers the query's language.

    st-xlret calibrate --model intfloat/multilingual-e5-small --documents documents/ \
        --output runs/calibrated
    st-xlret calibrate --vectors vectors.parquet --queries_only --output map

Documents are those that are to be searched, or others in their languages; no labels and no training
are needed. The result is a plain Sentence Transformers model that needs no language: `encode_query`
and `encode_document`. Vectors that are stored already need no encoder: they get a map, and stay
where they are if queries alone are mapped. By default the subspace in which the languages' means
differ is projected out (--steps lsar). Other steps need the language of each text, given as its
task: `encode(texts, task="fr")`; the CCP paper's are --steps shift scale rotate. The strength is
chosen without labels, and a table has what each strength does.

A document has one language, which is named, or identified (extra langid); in a text file a blank
line ends a document. Of a folder, text files are read if they are named after their language
(fr.txt).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import st_xlret
from st_xlret.commands.calibrate_options import Arguments
from st_xlret.commands.calibrate_vectors import calibrate_vectors
from st_xlret.commands.sources import SampleArguments, check_sources, parse_sources
from st_xlret.commands.verdict import (
    print_result,
    print_time_of_embedding,
    printed_duration,
)
from st_xlret.files import atomic_directory, check_output_directory
from st_xlret.hub.portable import write_files
from st_xlret.options import check_options

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from st_xlret.calibration.comparison import Comparison
    from st_xlret.calibration.embedding import RoleEncoder

_CHECKED_TEXTS = 300  # of each language, whose labels are checked
_DOUBTFUL = 0.2  # of them, with which the identifier disagrees


def main(arguments: Sequence[str], *, prog: str = "st-xlret calibrate") -> None:
    """Run the command `calibrate`, of which `--corpus` is another name of `--documents`."""
    words = ["--documents" if word == "--corpus" else word for word in arguments]
    texts, stored, options = parse_sources(Arguments, words, description=__doc__, prog=prog)
    reads_model = options.fit_options.joins_queries  # for documents in one language
    check_sources(
        texts,
        stored,
        options,
        not_of_texts=["qrels"],
        not_of_vectors=["pairs"] if reads_model else ["pairs", "phrases"],
        reads_model=reads_model,
    )
    if options.qrels:
        check_options(options, "queries")
    inputs = [texts.model, stored.vectors, stored.languages_file, options.qrels]
    inputs += [*options.pairs, *options.queries, *texts.documents]
    check_output_directory(options.output, options.overwrite, inputs=inputs)
    with printed_duration():
        if stored.vectors is None:
            _calibrate_model(texts, options)
        else:
            calibrate_vectors(texts, stored, options)


def _calibrate_model(texts: SampleArguments, options: Arguments) -> None:
    """Calibrate an encoder on a sample of texts, write the model, and print what it does."""
    from st_xlret.calibration.model import calibrate_sample
    from st_xlret.calibration.sampling import sample_queries_to_fit
    from st_xlret.hub.card import set_card_data

    fit_options = options.fit_options
    strength = options.strength_or_auto
    fit_options.check(strength, has_queries=bool(options.queries), has_pairs=bool(options.pairs))
    count = texts.texts_per_language or fit_options.default_texts_per_language
    sample = texts.sample_texts(
        count,
        min_texts=options.min_texts,
        min_languages=fit_options.min_languages,
        seed=options.seed,
    )
    _print_label_check({code: part.texts[:_CHECKED_TEXTS] for code, part in sample.items()})
    queries = sample_queries_to_fit(options.queries or None, list(sample), fit_options, count)
    if queries is not None:
        counts = [f"{code} {len(questions)}" for code, questions in queries.items()]
        print(f"questions: {', '.join(counts)}")
    pairs = None
    if options.pairs:
        pairs = st_xlret.load_pairs(
            options.pairs, languages=list(sample), skip_bad_lines=texts.skip_bad_lines
        )
    encoder = texts.load_encoder()
    _print_missing_prompts(encoder)
    print_time_of_embedding({code: part.texts for code, part in sample.items()})
    calibrated, comparison = calibrate_sample(
        encoder,
        sample,
        fit_options,
        strength,
        queries=queries,
        phrases=options.phrases,
        pairs=pairs,
    )
    data = {"texts": texts.documents, "questions": options.queries, "pairs": options.pairs}
    set_card_data(calibrated, base_model=texts.model, data=data)
    _write_model(calibrated, comparison, options)
    print_result(comparison, list(sample), options, texts)
    _print_usage_of_model(calibrated, options.output)


def _write_model(
    calibrated: SentenceTransformer, comparison: Comparison | None, options: Arguments
) -> None:
    """Write the model and its figures into the folder of the output, whole or not at all."""
    with atomic_directory(options.output, overwrite=options.overwrite) as folder:
        write_files(calibrated, folder)
        if comparison is not None:
            comparison.write(folder)


def _print_missing_prompts(encoder: RoleEncoder) -> None:
    """Say that texts are embedded without a prompt, if they are."""
    if not any(encoder.prompts.values()):
        print(
            "the model names no prompts: texts are embedded as they are. If it was trained with "
            "prompts, give them, such as E5's 'query: ' and 'passage: ', by --query_prompt and "
            "--document_prompt"
        )


def _print_usage_of_model(calibrated: SentenceTransformer, output: str) -> None:
    """Say how the model embeds queries and documents, in Python."""
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
