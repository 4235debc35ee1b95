r"""Mine parallel sentences from two collections of texts by margin (Artetxe and Schwenk, 2019).

    st-xlret mine en.txt fr.txt.gz --model intfloat/multilingual-e5-small --output pairs.tsv

A line of the output is score, source and target, separated by tabs, best first; each text is in one
pair at most. The ratio margin divides the cosine of a pair by the mean cosine of both texts with
their nearest neighbours: good pairs are above about 1.05. Collections are files with lines of text,
or whatever else holds documents. Interrupted? The same command continues where it stopped. A file
that is named like mined.en-fr.tsv can be trained on as it is (--pairs).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from st_xlret.commands.sources import EmbeddingArguments
from st_xlret.commands.work import WorkFolder
from st_xlret.files import atomic_file
from st_xlret.languages import UNKNOWN, check_language
from st_xlret.options import check_options, name_leading_words, option, parse
from st_xlret.ranges import check_range

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from st_xlret.encoding import KeptVectors
    from st_xlret.search import MinedPairs


@dataclass
class Arguments(EmbeddingArguments):
    """What to mine, by which model."""

    source: str = option(None, "Texts in one language: a file, a folder or a data set.")
    target: str = option(None, "Texts in the other language.")
    output: str = option(None, "File of the pairs, new or mined before: .tsv or .jsonl.")
    source_language: str | None = option(
        None, "Language of the source, for a model with a map per language and for .jsonl."
    )
    target_language: str | None = option(None, "The same for the target.")
    # Those of `st_xlret.search.mining.Margin`, whose module loads PyTorch: too slow for --help.
    margin: Literal["ratio", "distance", "absolute", "csls"] = option(
        "ratio", "How cosines are set off."
    )
    k: int = option(4, "Nearest neighbours in each direction.")
    threshold: float | None = option(
        None, "Lowest score of a pair. By default all pairs are written."
    )
    embedding_cache: str | None = option(
        None, "Folder that keeps embeddings. By default they are removed at the end."
    )
    prompt_name: str | None = option(
        None, "Prompt of the model for both sides. By default the model's default prompt."
    )


def main(arguments: Sequence[str], *, prog: str = "st-xlret mine") -> None:
    """Run the command `mine`."""
    words = name_leading_words(arguments, "source", "target")
    (options,) = parse([Arguments], words, description=__doc__, prog=prog)
    check_options(options, "source", "target", "model", "output")
    output = Path(options.output)
    if output.suffix not in (".tsv", ".jsonl"):
        raise ValueError(f"--output {output}: pairs are written to FILE.tsv or FILE.jsonl")
    check_range(1, k=options.k, batch_size=options.batch_size)
    work = WorkFolder(output, options.embedding_cache)
    with atomic_file(output, ours="mine", inputs=[options.source, options.target]) as part:
        sources = _distinct_texts(options.source)
        targets = _distinct_texts(options.target)
        print(f"{len(sources)} distinct source texts, {len(targets)} target texts", flush=True)
        model = options.load_model()
        pairs = _mine(model, sources, targets, options, work)
        with open(part, "w", encoding="utf-8", newline="\n") as file:
            for line in _output_lines(pairs, sources, targets, options):
                file.write(f"{line}\n")
    work.remove()
    print(f"{len(pairs.scores)} pairs in {output}")


def _distinct_texts(source: str) -> list[str]:
    """The texts of a source, each once, in the order in which they come first; at least one."""
    from st_xlret.data import read_documents

    texts: dict[str, None] = {}
    for document in read_documents(source, language=UNKNOWN, unit="text"):
        texts.update(dict.fromkeys(text for text in document.sentences if text))
    if not texts:
        raise ValueError(f"{source} holds no text")
    return list(texts)


def _mine(
    model: SentenceTransformer,
    sources: Sequence[str],
    targets: Sequence[str],
    options: Arguments,
    work: WorkFolder,
) -> MinedPairs:
    """Embed both sides, and mine their pairs."""
    from st_xlret.search import mine_pairs

    return mine_pairs(
        _embed_and_keep(model, sources, options.source_language, options, work),
        _embed_and_keep(model, targets, options.target_language, options, work),
        k=options.k,
        margin=options.margin,
        threshold=options.threshold,
        device="cuda" if model.device.type == "cuda" else "cpu",
        show_progress_bar=True,
    )


def _embed_and_keep(
    model: SentenceTransformer,
    texts: Sequence[str],
    language: str | None,
    options: Arguments,
    work: WorkFolder,
) -> KeptVectors:
    """The vectors of texts, kept in the work folder for the next run of equal options.

    All that decides what the vectors are is a part of their key.
    """
    from st_xlret.encoding import encode, fingerprint

    def embed(rows: slice) -> Any:
        return encode(
            model,
            texts[rows],
            language,
            prompt_name=options.prompt_name,
            batch_size=options.batch_size,
            show_progress_bar=True,
        )

    prompts = [model.prompts, model.default_prompt_name, options.prompt_name]
    key = [fingerprint(model), prompts, language, texts]
    return work.keep_vectors(key, texts, embed)


def _output_lines(
    pairs: MinedPairs, sources: Sequence[str], targets: Sequence[str], options: Arguments
) -> Iterator[str]:
    """A line for each pair, of JSON, with the languages that are named, or of a table."""
    languages = {}
    for name in ("source_language", "target_language"):
        if getattr(options, name) is not None:
            languages[name] = check_language(getattr(options, name))
    columns = [column.tolist() for column in pairs]
    for score, one, other in zip(*columns, strict=True):
        source = sources[one]
        target = targets[other]
        if options.output.endswith(".jsonl"):
            pair = {"score": score, "source": source, "target": target, **languages}
            yield json.dumps(pair, ensure_ascii=False)
        else:
            yield f"{score:.6f}\t{source}\t{target}"
