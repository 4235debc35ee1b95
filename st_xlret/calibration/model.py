"""Calibrating a model in one call.

Texts are drawn and embedded, and the calibration becomes a part of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import Tensor

from st_xlret.calibration.comparison import Comparison
from st_xlret.calibration.embedding import RoleEncoder, embed_pairs
from st_xlret.calibration.fit_options import MIN_TEXTS, FitOptions, Strength
from st_xlret.calibration.panels import fit_with_panels
from st_xlret.calibration.sampling import (
    Sample,
    Texts,
    sample_queries_to_fit,
    sample_texts,
)
from st_xlret.calibration.vectors import VectorCalibration
from st_xlret.columns import Role
from st_xlret.hub.card import set_card_data
from st_xlret.hub.export import check_routes, export
from st_xlret.hub.loading import load_model


def calibrate(
    model: SentenceTransformer | str,
    texts: Any,
    *,
    steps: Sequence[str] = ("lsar",),
    queries: Any = None,
    phrases: bool = True,
    pairs: Dataset | None = None,
    queries_only: bool = False,
    strength: Strength = "auto",
    pivot: str = "en",
    keep_mean: float | None = None,
    languages: Sequence[str] | None = None,
    texts_per_language: int | None = None,
    min_texts: int = MIN_TEXTS,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    batch_size: int = 64,
    precision: str = "auto",
    seed: int = 0,
    report: Callable[[Comparison], object] | None = None,
    show_progress_bar: bool = True,
) -> SentenceTransformer:
    """Remove a model's preference for the language of the query, on texts without labels.

    The texts are sampled and embedded, the calibration is fitted and becomes a part of the model,
    which has modules of Sentence Transformers alone. By default it needs no language:
    `encode_query` and `encode_document` give calibrated vectors. The other steps need the language
    of each text: [`encode`][st_xlret.encode].

    Args:
        model: A Sentence Transformer, a folder, or a name on the Hub. It is not changed.
        texts: What is to be searched, or other texts in its languages, as for `sample_texts`, whose
            arguments `languages`, `texts_per_language` (by default 300 where means determine the
            steps, else 1 500) and `min_texts` are.
        steps: These, `queries_only`, `pivot` and `keep_mean` are those of
            [`VectorCalibration.fit`][st_xlret.VectorCalibration].
        queries: Questions without labels, as for `sample_queries`, for maps of queries of their
            own; with `"lsar"` and `queries_only` a few in any languages, which join the fit.
        phrases: Whether `"lsar"` alone also takes out what 105 phrases in 21 languages that most
            encoders know badly have in common, embedded as queries. Questions in languages that
            nobody gave gain by it.
        pairs: Parallel sentences with the pivot, for the step `"rotate"`, as `load_pairs` returns
            them.
        queries_only: Map queries alone, so that an index of documents goes on working. With
            `"lsar"` the documents may be in one language: ten paragraphs in each of Arabic,
            German, Russian and Chinese, which come with the package, then join the fit.
        strength: From 0, which leaves the model as it is, to 1; `"auto"` takes what scores highest
            on the sample, and 1 with a rotation or for documents in one language.
        pivot: The language that others are rotated into.
        keep_mean: Share of the mean of all languages that is kept.
        languages: Languages to calibrate. Default: all of the texts.
        texts_per_language: Texts of each language to embed.
        min_texts: Fewest of them.
        query_prompt: Put before queries: a text, or the name of one of the model's prompts.
            Default: its own.
        document_prompt: The same for documents. The result keeps both prompts.
        batch_size: Size of a forward pass, in texts of 64 tokens.
        precision: `"auto"` is bfloat16 where the processor computes in it; or `"fp32"`, `"bf16"`.
        seed: Seed of the draws and of the rotation.
        report: Called with a `Comparison` of this and other calibrations: `report=print` shows its
            tables. Documents in one language have none: they cannot show what questions gain.
        show_progress_bar: Show progress bars.

    Example:
        >>> import random
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> words = {"en": ["red", "blue", "big"], "fr": ["rouge", "bleu", "grand"]}
        >>> random.seed(0)
        >>> texts = {code: [" ".join(random.choices(known, k=9)) for _ in range(80)]
        ...          for code, known in words.items()}
        >>> vocabulary = [*words["en"], *words["fr"]]
        >>> model = SentenceTransformer(modules=[BoW(vocab=vocabulary)], device="cpu")
        >>> calibrated = calibrate(model, texts, show_progress_bar=False)
        >>> calibrated.encode_document(["big red", "rouge"]).shape
        (2, 6)
    """
    options = FitOptions(
        steps=tuple(steps),
        queries_only=queries_only,
        pivot=pivot,
        keep_mean=keep_mean,
        min_texts=min_texts,
        seed=seed,
    )
    options.check(strength, has_queries=queries is not None, has_pairs=pairs is not None)
    count = texts_per_language or options.default_texts_per_language
    sample = sample_texts(
        texts,
        languages=languages,
        texts_per_language=count,
        min_texts=min_texts,
        min_languages=options.min_languages,
        seed=seed,
    )
    query_texts = sample_queries_to_fit(queries, list(sample), options, count)
    encoder = RoleEncoder.of_model(
        load_model(model) if isinstance(model, str) else model,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        batch_size=batch_size,
        precision=precision,
        show_progress_bar=show_progress_bar,
    )
    calibrated, comparison = calibrate_sample(
        encoder,
        sample,
        options,
        strength,
        queries=query_texts,
        phrases=phrases,
        pairs=pairs,
        base_model=model if isinstance(model, str) else None,
    )
    if report is not None and comparison is not None:
        report(comparison)
    return calibrated


def calibrate_sample(
    encoder: RoleEncoder,
    sample: Mapping[str, Sample],
    options: FitOptions,
    strength: Strength,
    *,
    queries: Texts | None = None,
    phrases: bool = True,
    pairs: Dataset | None = None,
    base_model: str | None = None,
) -> tuple[SentenceTransformer, Comparison | None]:
    """The encoder with a calibration, fitted by `fit_with_panels`, and what that does.

    Its own vectors are mapped, whatever their lengths, and the result has the encoder's prompts.

    Args:
        encoder: It is not changed.
        sample: Language in normal form -> texts, as `sample_texts` draws them.
        options: How to fit; `FitOptions.for_encoder` of them is taken.
        strength: How strong the calibration is.
        queries: Language -> questions without labels, as `sample_queries_to_fit` draws them.
        phrases: Whether phrases of weak languages join LSAR alone.
        pairs: Parallel sentences with the pivot, for a rotation.
        base_model: Folder or Hub name of the encoder, for the model card.
    """
    check_routes(encoder.model, by_language=not options.is_lsar)
    parallel = None
    if pairs is not None:
        parallel = embed_pairs(
            encoder.model,
            pairs,
            pivot=options.pivot,
            languages=list(sample),
            batch_size=encoder.batch_size,
            show_progress_bar=encoder.show_progress_bar,
        )
    texts = {code: part.texts for code, part in sample.items()}
    if options.is_lsar:
        vectors = encoder.embed_sample_and_pooled(texts)
    else:
        vectors = encoder.embed_sample(texts)
    fitted, comparison = fit_with_panels(
        vectors.documents,
        options.for_encoder(),
        strength,
        encoder=encoder,
        queries=None if queries is None else encoder.embed(queries, "query"),
        phrases=phrases,
        as_queries=vectors.as_queries,
        ids={code: part.documents for code, part in sample.items()},
        pairs=parallel,
    )
    if comparison is not None:
        fitted = replace(fitted, notes={**fitted.notes, **_notes_on(comparison)})
    calibrated = build_in(encoder.model, fitted, pooled=vectors.pooled)
    for role, prompt in encoder.prompts.items():
        calibrated.prompts[role] = prompt
    set_card_data(
        calibrated,
        languages=sorted(sample),
        base_model=base_model,
        tags=["calibration", *options.steps],
    )
    return calibrated, comparison


def _notes_on(comparison: Comparison) -> dict[str, str]:
    """A line for the card: how many results are in the query's language, before and after."""
    before = comparison.before.search
    after = comparison.after.search
    words = (
        f"{100 * before.same_language_share:.1f} % before, "
        f"{100 * after.same_language_share:.1f} % after (chance: {100 * after.chance:.1f} %), "
        "on the texts of the calibration"
    )
    return {"results in the query's language": words}


def build_in(
    model: SentenceTransformer,
    calibration: VectorCalibration,
    *,
    default_language: str | None = None,
    pooled: Mapping[Role, Tensor] | None = None,
) -> SentenceTransformer:
    """The model with the maps of a calibration of its vectors as a part of it.

    The arguments after these two are those of [`export`][st_xlret.export], as is what is refused.
    """
    queries = None if calibration.query is None else calibration.layer("query")
    return export(
        model,
        calibration.layer("document"),
        query_calibration=queries,
        default_language=default_language,
        pooled=pooled,
    )
