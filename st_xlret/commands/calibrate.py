r"""Calibrate a multilingual encoder, so that its search no longer prefers the language of the query.

On the corpus that is to be searched, or on other documents in its languages; no labels and no training are needed:

    st-xlret calibrate --model intfloat/multilingual-e5-small --corpus my-beir-folder --output runs/calibrated
    st-xlret calibrate --model intfloat/multilingual-e5-small --documents documents/ --output runs/calibrated

The result is a plain Sentence Transformers model that needs no language: `SentenceTransformer("runs/calibrated")` with
`encode_query` and `encode_document`. By default the subspace in which the languages' means differ is projected out
(`--steps lsar`). With questions that have no labels (`--queries`), queries get a map of their own. The other steps need
the language of each text, given as its task: `encode(texts, task="fr")`; among them are the CCP paper's (`--steps shift
scale rotate`). A table compares the choices without labels, and says which one it recommends.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from st_xlret.commands.fitting import Method, fit, fit_others
from st_xlret.commands.report import NEIGHBOURS, TEXTS
from st_xlret.files import atomic_directory, check_output_directory, write_json_atomically
from st_xlret.options import LIMITS_HELP, option, parse
from st_xlret.precision import PRECISIONS

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from st_xlret.commands.encoders import Role
    from st_xlret.evaluation.language_bias import LanguageBias


@dataclass
class Input:
    """What to calibrate, and on what."""

    _argument_group_name = "input"

    model: str = option(None, "The encoder: a folder or a name on the Hub. It is not trained any further.")
    corpus: str | None = option(
        None, "The corpus to be searched: a folder in BEIR's layout whose texts name their language, or documents."
    )
    documents: list[str] = option(
        [], "Instead of it, other documents in its languages: JSON lines, or folders of them."
    )
    queries: list[str] = option(
        [],
        "Questions without labels, for maps of queries: a folder in BEIR's layout, JSON lines (text, language), or "
        "text files (questions.fr.txt). Their language is identified where they do not name it.",
    )
    languages: list[str] = option([], "Languages to calibrate. All by default.")
    pairs: list[str] = option(
        [], "Parallel sentences with the pivot, for rotate: languages that have them get the closed-form solution."
    )
    exclude: list[str] = option(
        [], "Text files whose lines must not be in the pairs, such as a test set's English side."
    )
    texts_per_language: int = option(1500, "Texts of each language to embed, drawn at random.", minimum=1)
    skip_bad_lines: bool = option(False, "Skip and count bad lines instead of stopping at the first one.")
    limits: list[str] = option([], LIMITS_HELP)
    query_prompt: str | None = option(None, "Put before queries: a text, or the name of one of the model's prompts.")
    document_prompt: str | None = option(None, "Put before documents, likewise. By default the model's own.")
    batch_size: int = option(64, "Size of a forward pass, in texts of 64 tokens.", minimum=1)
    precision: str = option("auto", "Number format: auto is bf16 where the processor computes in it.", PRECISIONS)
    device: str | None = option(None, "cpu, cuda, cuda:1, mps. By default the best there is.")


@dataclass
class Output:
    """Where the result goes."""

    _argument_group_name = "output"

    output: str = option(None, "Folder for the calibrated model, with the report on its language bias.")
    overwrite: bool = option(False, "Replace a model that is there.")
    license: str | None = option(
        None, "Licence of the model, for its card, such as mit. By default the encoder's, if its card states one."
    )
    base_model: str | None = option(None, "Name of the encoder on the Hub, for the card, where --model is a folder.")
    push_to_hub: str | None = option(None, "Also upload the model to this repository, such as me/my-model.")
    push_dry_run: bool = option(False, "With --push_to_hub: show the files and the card instead of uploading them.")

    def __post_init__(self) -> None:
        from st_xlret.hub.model_card import check_license

        check_license(self.license)
        if self.push_dry_run and not self.push_to_hub:
            raise ValueError("--push_dry_run needs --push_to_hub, the repository to which the model would be uploaded")


def main(arguments: Sequence[str], *, prog: str = "st-xlret calibrate") -> None:
    """Run the command `calibrate`."""
    given, method, target = parse([Input, Method, Output], arguments, description=__doc__, prog=prog)
    for name, value in (("model", given.model), ("output", target.output)):
        if not value:
            raise ValueError(f"--{name} is missing")
    if (given.corpus is None) == (not given.documents):
        raise ValueError("give either --corpus (what is to be searched) or --documents")
    if given.pairs and "rotate" not in method.steps:
        raise ValueError("--pairs are for the step rotate: add it to --steps, or leave them out")
    if (given.queries or method.by_role) and "rotate" in method.steps:
        name = "queries" if given.queries else "by_role"
        raise ValueError(f"--{name}: the step rotate has no maps for queries of their own; leave one of them out")
    check_output_directory(target.output, overwrite=target.overwrite)
    if target.push_to_hub:
        from st_xlret.hub.push import check_push

        check_push(target.push_to_hub, dry_run=target.push_dry_run)
    calibrate(given, method, target)


def calibrate(given: Input, method: Method, target: Output) -> SentenceTransformer:
    """Embed a sample, fit, compare, save.

    Returns:
        The calibrated model.
    """
    from st_xlret.calibration import embed_pairs
    from st_xlret.commands.comparison import Measured, Variant, compare
    from st_xlret.commands.encoders import Embedder
    from st_xlret.commands.labels import report_labels
    from st_xlret.commands.samples import check_counts, sample_texts
    from st_xlret.data import PairOptions, load_pairs
    from st_xlret.data.reading.jsonl import DataError, Limits
    from st_xlret.hub import set_card_data
    from st_xlret.hub.export import check_routes, export
    from st_xlret.hub.loading import load_model
    from st_xlret.hub.push import plan_push, push_to_hub

    texts = sample_texts(
        [given.corpus] if given.corpus else given.documents,
        languages=given.languages,
        texts_per_language=given.texts_per_language,
        skip_bad_lines=given.skip_bad_lines,
        limits=Limits.parse(given.limits),
        seed=method.seed,
    )
    counts = {code: len(found.texts) for code, found in texts.items()}
    check_counts(counts, method.min_texts)
    by_language = {code: found.texts for code, found in texts.items()}
    report_labels(by_language)
    if method.pivot not in texts and {"rotate", "to_pivot"} & set(method.steps):
        raise DataError(f"no text is in --pivot {method.pivot}, only in {', '.join(texts)}")
    pivot = method.pivot if method.pivot in texts else next(iter(texts))
    questions = questions_of(given, method, list(texts))
    model = load_model(given.model, given.device)
    check_routes(model, by_language=method.steps != ["lsar"])
    how = {"batch_size": given.batch_size, "precision": given.precision}
    embedder = Embedder(model, given.query_prompt, given.document_prompt, **how)  # type: ignore[arg-type]
    if not embedder.prompt("query") and not embedder.prompt("document"):
        print(
            "the model names no prompts: texts are embedded as they are. If it was trained with prompts, such as E5's "
            "'query: ' and 'passage: ', give them by --query_prompt and --document_prompt"
        )
    if method.by_role and not questions and not embedder.apart:
        raise ValueError(
            "--by_role: the model embeds queries and documents alike. Give the prompts (--query_prompt, "
            "--document_prompt) or questions (--queries), or leave it out"
        )
    size = min(TEXTS, *counts.values())
    measured = {code: found[:size] for code, found in by_language.items()}
    wanted: dict[str, tuple[Role, Mapping[str, Sequence[str]]]] = {"document": ("document", by_language)}
    if embedder.apart:
        wanted["query"] = ("query", by_language if method.by_role and not questions else measured)
    if questions:
        wanted["question"] = ("query", questions)
    embeddings = embedder.embed(wanted)
    asked = embeddings.get("question", embeddings["query"] if method.by_role else None)
    sample = Measured(
        {code: rows[:size] for code, rows in embeddings["document"].items()},
        {code: rows[:size] for code, rows in embeddings["query"].items()} if embedder.apart else None,
        {code: found.documents for code, found in texts.items()},
        min(NEIGHBOURS, size * len(texts) - 2),
    )
    pairs = None
    if given.pairs:
        pair_options = PairOptions(
            languages=list(texts),
            exclude=tuple(given.exclude),
            skip_bad_lines=given.skip_bad_lines,
            limits=Limits.parse(given.limits),
        )
        others = [code for code in texts if code != pivot]
        parallel = load_pairs(given.pairs, pair_options)
        pairs = embed_pairs(
            model, parallel, pivot=pivot, languages=others, batch_size=given.batch_size, show_progress=True
        )
    chosen = fit(method, embeddings["document"], asked, pairs, pivot)
    variants = [Variant("as it is"), *fit_others(method, embeddings["document"], asked, pivot), chosen]
    found = compare(sample, variants, chosen)
    assert chosen.documents is not None
    calibrated = export(model, chosen.documents, query_calibration=chosen.queries)
    for name in ("query", "document"):
        prompt = getattr(embedder, f"{name}_prompt")
        if prompt is not None:
            calibrated.prompts[name] = prompt
    set_card_data(
        calibrated,
        languages=sorted(texts),
        license=target.license,
        base_model=target.base_model or given.model,
        data={
            "texts": [given.corpus] if given.corpus else given.documents,
            "questions": given.queries,
            "pairs": given.pairs,
        },
        tags=["calibration", *method.steps],
    )
    save(calibrated, target, found)
    shares = [f"{100 * found[when]['search'].same_language_share:.1f} %" for when in ("before", "after")]
    print(f"\nResults in the query's language: {shares[0]} before, {shares[1]} after", end=" ")
    print(f"(chance: {100 * found['before']['search'].chance:.1f} %).")
    print(f"The calibrated model is in {target.output}. Use it with Sentence Transformers alone:\n")
    language = max(texts, key=lambda code: code != pivot) if chosen.needs_language else None
    lines = [
        f'model = SentenceTransformer("{target.output}")',
        *calls(calibrated, language, chosen.queries is not None),
    ]
    print("".join(f"    {line}\n" for line in lines))
    card = calibrated.model_card_data
    if lacking := [name for name in ("base_model", "license") if not getattr(card, name)]:
        print(f"The card does not state {' and '.join(f'--{name}' for name in lacking)}.")
    if target.push_to_hub and target.push_dry_run:
        print(plan_push(target.output, target.push_to_hub))
    elif target.push_to_hub:
        print(f"uploaded to {push_to_hub(Path(target.output), target.push_to_hub)}")
    return calibrated


def questions_of(given: Input, method: Method, languages: Sequence[str]) -> dict[str, list[str]]:
    """The questions of `--queries` in the languages that have enough of them; says which ones have not."""
    from st_xlret.commands.samples import sample_questions
    from st_xlret.data.reading.jsonl import DataError

    if not given.queries:
        return {}
    found = sample_questions(given.queries, languages, texts_per_language=given.texts_per_language, seed=method.seed)
    enough = {code: texts for code, texts in found.items() if len(texts) >= method.min_texts}
    counts = ", ".join(f"{code} {len(texts)}" for code, texts in found.items())
    if len(enough) < 2:
        raise DataError(
            f"--queries: {method.min_texts} distinct questions in each of two languages at least are needed, and there "
            f"are {counts}: give more, lower --min_texts, or leave them out"
        )
    print(f"questions: {counts}")
    if lacking := [code for code in languages if code not in enough]:
        print(f"without enough questions of their own: {', '.join(lacking)}")
    return enough


def calls(model: SentenceTransformer, language: str | None, by_role: bool = False) -> list[str]:
    """How queries and documents are embedded, with the model's prompts; `language` is the one of the example.

    The host's `encode_query` and `encode_document` take no language, so the calls with one name the prompt themselves.
    """
    from st_xlret.calibration.encoding import PROMPT_NAMES

    if language is None:
        return ["queries = model.encode_query(texts)", "documents = model.encode_document(texts)"]
    lines = []
    for role, prompts in PROMPT_NAMES.items():
        prompt = next((prompt for prompt in prompts if model.prompts.get(prompt)), None)
        given = f', prompt_name="{prompt}"' if prompt else ""
        task = f"query_{language}" if by_role and role == "query" else language
        name = {"query": "queries", "document": "documents"}[role]
        lines.append(f'{name} = model.encode(texts, task="{task}"{given})')
    return lines


def save(model: SentenceTransformer, target: Output, found: Mapping[str, Mapping[str, LanguageBias]]) -> None:
    """Save the model with its report, whole or not at all."""
    from st_xlret.evaluation.language_bias import bias_as_json
    from st_xlret.evaluation.reporting.plots import plot_language_bias

    with atomic_directory(target.output, overwrite=target.overwrite) as folder:
        model.save_pretrained(os.fspath(folder))
        report = {when: bias_as_json(biases) for when, biases in found.items()}
        write_json_atomically(folder / "language_bias.json", report)
        for when, biases in found.items():
            bias = biases["search"]
            plot_language_bias(bias.languages, bias.shares, folder / f"language_bias_{when}.png")
