"""Calibrating a model on texts in one call, as `st-xlret calibrate` does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from sentence_transformers import SentenceTransformer

from st_xlret.calibration.choosing import fit_and_compare
from st_xlret.calibration.comparison import QUERIES, Comparison
from st_xlret.calibration.embedding import embed_pairs, embed_texts
from st_xlret.calibration.fit import CalibrationOptions
from st_xlret.calibration.sampling import sample_questions, sample_texts, usual_texts
from st_xlret.encoding import Role, embeds_roles_apart, role_prompt
from st_xlret.hub.card import set_card_data
from st_xlret.hub.export import check_routes, export, load_model


def calibrate(
    model: SentenceTransformer | str,
    texts: Any,
    *,
    steps: Sequence[str] = ("lsar",),
    queries: Any = None,
    pairs: Any = None,
    by_role: bool = False,
    queries_only: bool = False,
    strength: float | Literal["auto"] = 1.0,
    pivot: str = "en",
    options: CalibrationOptions | None = None,
    languages: Sequence[str] | None = None,
    texts_per_language: int | None = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    batch_size: int = 64,
    precision: str = "auto",
    seed: int = 0,
    report: Callable[[Comparison], object] | None = None,
    show_progress_bar: bool = True,
) -> SentenceTransformer:
    """Remove a model's preference for the language of the query, on texts without labels.

    The texts are sampled and embedded, the calibration is fitted and becomes a part of the model. By default it needs
    no language: `encode_query` and `encode_document` of the result give calibrated vectors. The other steps need the
    language of each text: [`encode`][st_xlret.encode].

    Args:
        model: A Sentence Transformer, a folder, or a name on the Hub. It is not changed.
        texts: What is to be searched, or other texts in its languages: language -> texts, a data set, or paths of
            documents or of a folder in BEIR's layout; see [`sample_texts`][st_xlret.calibration.sample_texts].
        steps: The steps, see [`fit_calibration`][st_xlret.fit_calibration].
        queries: Questions without labels, for maps of queries of their own: language -> questions, a data set, or
            paths; see `sample_questions`.
        pairs: Parallel sentences with the pivot, for the step `"rotate"`, as `load_pairs` returns them.
        by_role: Fit maps of queries of their own on the texts, embedded with the prompt for queries. With `queries`
            the questions are used.
        queries_only: Map queries alone, so that an index of documents goes on working: `encode_document` of the result
            is that of the model. For the steps `"lsar"` and `"shift"`.
        strength: From 0, which leaves the model as it is, to 1; `"auto"` takes the one with the highest score on the
            sample, out of 0, 0.1 to 1.
        pivot: Language of the steps `"rotate"` and `"to_pivot"`, and of texts that name none.
        options: Further options of the steps.
        languages: Languages to calibrate. Default: all of the texts.
        texts_per_language: Texts of each language to embed, drawn at random. Default: 300 where means determine the
            steps (`"lsar"`, `"shift"`, `"to_pivot"`), and 1 500 for the others.
        query_prompt: Put before queries: a text, or the name of one of the model's prompts. Default: its own.
        document_prompt: The same for documents. The result keeps both prompts.
        batch_size: Size of a forward pass, in texts of 64 tokens.
        precision: `"auto"` is bfloat16 where the processor computes in it; or `"fp32"`, `"bf16"`.
        seed: Seed of the draws and of the rotation.
        report: Called with a [`Comparison`][st_xlret.calibration.Comparison] of this and other calibrations, measured
            on the same texts: `report=print` shows its table.
        show_progress_bar: Show progress bars.

    Returns:
        The calibrated model, of modules of Sentence Transformers alone.

    Raises:
        ValueError: If a language has too few texts, a step is unknown or lacks what it needs, or the model cannot be
            calibrated.

    Example:
        >>> import random
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> words = {"en": ["red", "blue", "big"], "fr": ["rouge", "bleu", "grand"]}
        >>> random.seed(0)
        >>> texts = {code: [" ".join(random.choices(known, k=9)) for _ in range(80)] for code, known in words.items()}
        >>> model = SentenceTransformer(modules=[BoW(vocab=[*words["en"], *words["fr"]])], device="cpu")
        >>> calibrated = calibrate(model, texts, show_progress_bar=False)
        >>> calibrated.encode_document(["big red", "rouge"]).shape
        (2, 6)
    """
    options = options or CalibrationOptions()
    if pairs is not None and "rotate" not in steps:
        raise ValueError("pairs are for the step 'rotate': add it to the steps, or leave the pairs out")
    if (queries is not None or by_role or queries_only) and "rotate" in steps:
        raise ValueError(
            "the step 'rotate' has no maps for queries of their own: leave it, queries, by_role and queries_only out"
        )
    texts_per_language = texts_per_language or usual_texts(steps)
    sample = sample_texts(
        texts, languages=languages, texts_per_language=texts_per_language, min_texts=options.min_texts, seed=seed
    )
    by_language = {code: found.texts for code, found in sample.items()}
    if pivot not in sample:
        if {"rotate", "to_pivot"} & set(steps):
            raise ValueError(f"no text is in the pivot language {pivot!r}, only in {', '.join(sample)}")
        pivot = next(iter(sample))
    questions: Mapping[str, Sequence[str]] | None = None
    if queries is not None:
        how_many: Any = {"texts_per_language": texts_per_language, "min_texts": options.min_texts, "seed": seed}
        questions = sample_questions(queries, list(sample), **how_many)
    name = model if isinstance(model, str) else None
    encoder = load_model(model) if isinstance(model, str) else model
    check_routes(encoder, by_language=list(steps) != ["lsar"])
    prompts: dict[Role, str] = {
        "query": role_prompt(encoder, "query", query_prompt),
        "document": role_prompt(encoder, "document", document_prompt),
    }
    apart = embeds_roles_apart(encoder, prompts["query"], prompts["document"])
    if by_role and questions is None and not apart:
        raise ValueError(
            "by_role: the model embeds queries and documents alike. Give the prompts or questions, or leave it out"
        )

    def embedded(role: Role, which: Mapping[str, Sequence[str]]) -> Any:
        how: Any = {"batch_size": batch_size, "precision": precision, "show_progress_bar": show_progress_bar}
        return embed_texts(encoder, which, role=role, prompt=prompts[role], **how)

    documents = embedded("document", by_language)
    as_queries = None
    if apart:
        few = {code: found[: min(QUERIES, *map(len, by_language.values()))] for code, found in by_language.items()}
        as_queries = embedded("query", by_language if by_role and questions is None else few)
    asked = embedded("query", questions) if questions is not None else as_queries if by_role else None
    parallel = None
    if pairs is not None:
        others = [code for code in sample if code != pivot]
        how_pairs: Any = {"pivot": pivot, "batch_size": batch_size, "show_progress_bar": show_progress_bar}
        parallel = embed_pairs(encoder, pairs, languages=others, **how_pairs)
    fitted, comparison = fit_and_compare(
        documents,
        as_queries,
        {code: found.documents for code, found in sample.items()},
        asked=asked,
        steps=steps,
        strength=strength,
        pivot=pivot,
        pairs=parallel,
        options=options,
        queries_only=queries_only,
        seed=seed,
        others=report is not None,
        show_progress_bar=show_progress_bar,
    )
    shares = [100 * found["search"].same_language_share for found in (comparison.before, comparison.after)]
    fitted.document.notes["results in the query's language"] = (
        f"{shares[0]:.1f} % before, {shares[1]:.1f} % after (chance: {100 * comparison.after['search'].chance:.1f} "
        "%), on the texts of the calibration"
    )
    if report is not None:
        report(comparison)
    calibrated = export(encoder, fitted.document, query_calibration=fitted.query)
    calibrated.prompts.update({str(role): prompt for role, prompt in prompts.items()})
    tags = ["calibration", *steps]
    set_card_data(calibrated, languages=sorted(sample), base_model=name, tags=tags)
    return calibrated
